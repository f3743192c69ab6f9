"""The brush code against the label tool's own implementation of it, and against broken input."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_studio_sdk.converter import brush

from engine.adapters.label_studio.codecs.brush_rle import BrushCodeError, decode_brush, encode_brush


@st.composite
def masks(draw: st.DrawFn) -> np.ndarray:
    height, width = draw(st.integers(1, 12)), draw(st.integers(1, 40))
    bits = draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
    return np.array(bits, dtype=bool).reshape(height, width)


def runs_mask(lengths: list[int]) -> np.ndarray:
    """One row of runs of these lengths, which take every width of run sizes."""
    return np.concatenate([np.full(length, number % 2 == 0) for number, length in enumerate(lengths)])[None, :]


@given(masks())
def test_the_tools_decoder_reads_ours(mask: np.ndarray) -> None:
    theirs = brush.decode_rle(encode_brush(mask)).reshape(*mask.shape, 4)
    assert all(((theirs[:, :, channel] == 255) == mask).all() for channel in range(4))


@given(masks())
def test_we_read_the_tools_encoder(mask: np.ndarray) -> None:
    theirs = brush.mask2rle(np.where(mask, 255, 0).astype(np.uint8))
    assert (decode_brush(theirs, mask.shape[1], mask.shape[0]) == mask).all()


@pytest.mark.parametrize("lengths", [[1], [2, 1, 3], [4, 5, 64, 65], [16384, 16385, 1], [100_000, 40_000, 7]])
def test_every_length_of_run_comes_back(lengths: list[int]) -> None:
    mask = runs_mask(lengths)
    assert (decode_brush(encode_brush(mask), mask.shape[1], 1) == mask).all()


@given(st.lists(st.integers(0, 255), min_size=4 * 6, max_size=4 * 6))
def test_smooth_edges_are_cut_at_half(values: list[int]) -> None:
    """Values as the tool's encoder writes them, literal blocks included."""
    rle = brush.encode_rle(np.array(values, dtype=np.uint8))
    assert decode_brush(rle, 3, 2).tolist() == (np.array(values).reshape(2, 3, 4)[:, :, 3] >= 128).tolist()


def test_literal_blocks_are_read() -> None:
    values = [7, 9, 200, 255, 1, 2, 3, 4]
    bits = (
        f"{8:032b}{7:05b}"
        + "".join(f"{w - 1:04b}" for w in (3, 4, 8, 16))
        + "000"
        + f"{7:03b}"
        + "".join(f"{v:08b}" for v in values)
    )
    rle = [int(bits[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(bits), 8)]
    assert decode_brush(rle, 2, 1).tolist() == [[True, False]]


def test_a_full_hd_mask_is_small() -> None:
    y, x = np.mgrid[0:1080, 0:1920]
    mask = (x - 960) ** 2 + (y - 540) ** 2 < 400**2
    rle = encode_brush(mask)
    assert len(rle) < 10_000
    assert (decode_brush(rle, 1920, 1080) == mask).all()


@pytest.mark.parametrize("rle", [[], [0] * 6, [256] * 20, [-1] * 20, ["a"], None, "text", [1.5] * 20])
def test_what_is_no_code_is_refused(rle: object) -> None:
    with pytest.raises(BrushCodeError):
        decode_brush(rle, 4, 4)  # type: ignore[arg-type]


def test_a_code_of_another_size_is_refused_before_it_is_expanded() -> None:
    rle = [255, 255, 255, 255, *encode_brush(np.ones((4, 4), dtype=bool))[4:]]
    with pytest.raises(BrushCodeError, match="pixels"):
        decode_brush(rle, 4, 4)


@given(st.data())
def test_a_damaged_code_is_refused_or_read_at_its_size(data: st.DataObject) -> None:
    rle = encode_brush(np.eye(8, dtype=bool))
    damaged = rle[:4] + data.draw(st.lists(st.integers(0, 255), max_size=60))
    with suppress(BrushCodeError):
        assert decode_brush(damaged, 8, 8).shape == (8, 8)
    with pytest.raises(BrushCodeError):
        decode_brush(rle[: len(rle) // 2], 8, 8)
