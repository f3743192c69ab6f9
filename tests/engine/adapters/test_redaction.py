from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from engine.adapters.redaction import BoxRedactor, NoRedaction
from engine.ports import Picture


def noisy(pts: int = 0, width: int = 120, height: int = 80) -> Picture:
    rgb = np.random.default_rng(7).integers(0, 256, (height, width, 3), np.uint8)
    return Picture(pts=pts, width=width, height=height, rgb=rgb.tobytes())


def pixels(picture: Picture) -> npt.NDArray[np.float64]:
    return np.frombuffer(picture.rgb, np.uint8).reshape(picture.height, picture.width, 3).astype(float)


def test_a_box_is_blurred_past_recognition_and_the_rest_is_untouched() -> None:
    picture = noisy(pts=4)
    redacted = BoxRedactor({4: [(0.25, 0.25, 0.75, 0.75)]}).redact(picture)
    assert (redacted.pts, redacted.width, redacted.height) == (4, 120, 80)
    before, after = pixels(picture), pixels(redacted)
    inside = (slice(20, 60), slice(30, 90))
    assert after[inside].std() < 0.1 * before[inside].std()
    assert np.abs(np.corrcoef(before[inside].ravel(), after[inside].ravel())[0, 1]) < 0.1
    outside = np.ones((80, 120), dtype=bool)
    outside[16:64, 24:96] = False  # the box and its margin
    assert np.array_equal(before[outside], after[outside])


def test_stripes_as_of_a_plate_are_gone() -> None:
    stripes = np.zeros((80, 120, 3), np.uint8)
    stripes[:, ::6] = stripes[:, 1::6] = stripes[:, 2::6] = 255
    picture = Picture(pts=0, width=120, height=80, rgb=stripes.tobytes())
    after = pixels(BoxRedactor({0: [(0.1, 0.4, 0.9, 0.6)]}).redact(picture))
    assert np.ptp(after[33:47, 14:106]) < 60


@pytest.mark.parametrize("box", [(0.0, 0.0, 1.0, 1.0), (0.99, 0.99, 1.0, 1.0), (0.5, 0.5, 0.501, 0.501)])
def test_boxes_at_the_edge_and_of_a_pixel_are_blurred(box: tuple[float, float, float, float]) -> None:
    picture = noisy()
    assert BoxRedactor({0: [box]}).redact(picture).rgb != picture.rgb


def test_a_picture_without_boxes_passes_as_it_is() -> None:
    picture = noisy(pts=9)
    assert BoxRedactor({4: [(0.0, 0.0, 1.0, 1.0)]}).redact(picture) is picture
    assert NoRedaction().redact(picture) is picture


@pytest.mark.parametrize(
    "box", [(0.5, 0.1, 0.5, 0.2), (-0.1, 0.0, 0.5, 0.5), (0.0, 0.0, 1.5, 1.0), (0.0, float("nan"), 1.0, 1.0)]
)
def test_a_box_that_covers_nothing_is_refused(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="fractions of the picture"):
        BoxRedactor({0: [box]})
