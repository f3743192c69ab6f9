"""An ONNX file answers for pictures as its declaration says, from the very bytes that were hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import SQUARES, road_declared, road_model, square_detector, squares_declared
from road_scenes import LIGHT, ROAD, Scene

from engine.adapters.onnx.network import DoesNotFit
from engine.adapters.onnx.scorer import OnnxScorer
from engine.adapters.picture_embedding import thumbnail_embedding
from engine.domain.answers import check_answer, decode_runs
from engine.domain.formats import ModelFormat
from engine.domain.ontology import Head
from engine.ports import BlobCorrupt, ModelFiles, Picture

Files = Callable[..., ModelFiles]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    def make(model: onnx.ModelProto, config: dict[str, Any], *heads: Head) -> ModelFiles:
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return ModelFiles(ModelFormat.ONNX, path, config, sha256, heads)

    return make


def drawn(height: int, width: int, *squares: tuple[int, int, int, int]) -> Picture:
    """A grey picture with white rectangles, given as (x0, y0, x1, y1) in pixels."""
    cells = np.full((height, width, 3), 40, np.uint8)
    for x0, y0, x1, y1 in squares:
        cells[y0:y1, x0:x1] = 255
    return Picture(0, width, height, cells.tobytes())


def boxes(answer: Any) -> list[list[float]]:
    return sorted(item["box"] for item in answer.value["objects"])


@pytest.mark.parametrize("batch", ["n", 4])
def test_bright_squares_are_found_where_they_are(files: Files, batch: Any) -> None:
    model = files(square_detector(batch=batch), squares_declared(), SQUARES)
    pictures = [drawn(64, 96), drawn(64, 96, (8, 16, 16, 24), (80, 0, 88, 8)), *[drawn(64, 96, (0, 0, 8, 8))] * 4]
    found = OnnxScorer().score(model, pictures)
    assert boxes(found[0].answers["squares"]) == []
    wanted = [[8 / 96, 16 / 64, 16 / 96, 24 / 64], [80 / 96, 0, 88 / 96, 8 / 64]]
    assert boxes(found[1].answers["squares"]) == [pytest.approx(box, abs=1e-4) for box in wanted]
    assert [len(boxes(score.answers["squares"])) for score in found[2:]] == [1, 1, 1, 1]
    for score in found:
        check_answer(SQUARES, score.answers["squares"])
    assert {item["class"] for item in found[1].answers["squares"].value["objects"]} == {"bright"}


def test_a_square_that_is_half_bright_makes_it_less_sure(files: Files) -> None:
    model = files(square_detector(), squares_declared(), SQUARES)
    none, sure, unsure = OnnxScorer().score(
        model, [drawn(64, 96), drawn(64, 96, (8, 8, 16, 16)), drawn(64, 96, (8, 8, 16, 13))]
    )
    assert none.uncertainty["squares"] < 0.01
    assert sure.uncertainty["squares"] < 0.01
    assert unsure.uncertainty["squares"] > 0.2


def test_a_letterboxed_picture_has_its_boxes_in_fractions_of_itself(files: Files) -> None:
    declared = squares_declared(input={"fit": "letterbox", "pad": 0})
    model = files(square_detector(), declared, SQUARES)
    # 48 x 48 becomes 64 x 64 in the middle of 96, from column 16 on; 6 of its pixels are one cell.
    (score,) = OnnxScorer().score(model, [drawn(48, 48, (6, 12, 12, 18))])
    (box,) = boxes(score.answers["squares"])
    assert box == pytest.approx([6 / 48, 12 / 48, 12 / 48, 18 / 48], abs=1e-4)


def test_masks_and_choices_are_right_on_drawn_roads(files: Files) -> None:
    model = files(road_model(), road_declared(), ROAD, LIGHT)
    scenes = [Scene(seed) for seed in range(6)]
    found = OnnxScorer().score(model, [scene.picture(0) for scene in scenes])
    for scene, score in zip(scenes, found, strict=True):
        truth = scene.answers(0)
        check_answer(ROAD, score.answers["road"])
        seen, true = (
            np.frombuffer(decode_runs(a.value["runs"], tuple(a.value["size"])), np.uint8)
            for a in (score.answers["road"], truth["road"])
        )
        assert (seen & true).sum() / (seen | true).sum() > 0.9
        assert score.answers["light"].value["choice"] == truth["light"].value["choice"]
        assert sum(score.answers["light"].value["probabilities"].values()) == pytest.approx(1, abs=1e-4)
        assert np.linalg.norm(score.embedding) == pytest.approx(1)
        assert len(score.embedding) == 128


def test_its_own_features_are_its_embedding_and_without_them_the_thumbnail_is(files: Files) -> None:
    pictures = [Scene(seed).picture(0) for seed in (1, 2)]
    with_features = files(road_model(), road_declared(), ROAD, LIGHT)
    scorer = OnnxScorer()
    assert scorer.embed(with_features, pictures) == [s.embedding for s in scorer.score(with_features, pictures)]
    assert scorer.embed(with_features, pictures)[0] != thumbnail_embedding(pictures[0])
    without = ModelFiles(
        with_features.format,
        with_features.weights,
        {name: value for name, value in with_features.config.items() if name != "embedding"},
        with_features.sha256,
        with_features.heads,
    )
    assert scorer.embed(without, pictures) == [thumbnail_embedding(picture) for picture in pictures]


def test_other_bytes_than_those_on_record_are_not_loaded(files: Files) -> None:
    model = files(square_detector(), squares_declared(), SQUARES)
    model.weights.write_bytes(square_detector(32, 32).SerializeToString())
    with pytest.raises(BlobCorrupt, match=model.sha256):
        OnnxScorer().score(model, [drawn(64, 96)])
    unhashed = ModelFiles(model.format, model.weights, model.config, "", model.heads)
    with pytest.raises(BlobCorrupt):
        OnnxScorer().score(unhashed, [drawn(64, 96)])


def test_a_file_that_no_longer_fits_says_where(files: Files) -> None:
    with pytest.raises(DoesNotFit, match="declaration makes it"):
        OnnxScorer().score(files(square_detector(32, 32), squares_declared(), SQUARES), [drawn(64, 96)])
