from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.adapters.torch.scorer import TorchScorer
from engine.adapters.torch.trainer import TorchTrainer
from engine.domain.answers import check_answer
from engine.domain.ontology import Head
from engine.ports import ModelFiles, Picture, TrainingPlan, TrainingSample


@pytest.fixture(scope="module")
def model(
    tmp_path_factory: pytest.TempPathFactory,
    plan: Callable[..., TrainingPlan],
    samples: Callable[..., list[TrainingSample]],
) -> ModelFiles:
    folder = tmp_path_factory.mktemp("scorer") / "run"
    return TorchTrainer().train(folder, plan(steps=2), samples(), 0, lambda progress=None: None).files


def test_scores_in_order_and_in_canonical_form(model: ModelFiles, pictures: list[Picture]) -> None:
    scorer = TorchScorer(threads=1, batch_size=2)
    scores = scorer.score(model, pictures)
    heads = [Head.from_document(document) for document in model.config["heads"]]
    assert len(scores) == len(pictures)
    for score in scores:
        for head in heads:
            check_answer(head, score.answers[head.name])
            assert score.uncertainty[head.name] >= 0
        assert sum(x * x for x in score.embedding) == pytest.approx(1, abs=1e-5)
        assert len(score.embedding) == 128
    backwards = scorer.score(model, pictures[::-1])[::-1]
    for one, other in zip(scores, backwards, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-4)
        assert one.uncertainty == pytest.approx(other.uncertainty, abs=1e-4)
    assert scores[0].embedding != pytest.approx(scores[1].embedding, abs=1e-3)


def test_embeddings_alone_are_those_of_a_scoring(model: ModelFiles, pictures: list[Picture]) -> None:
    scorer = TorchScorer()
    alone = scorer.embed(model, pictures)
    for embedding, score in zip(alone, scorer.score(model, pictures), strict=True):
        assert embedding == pytest.approx(score.embedding, abs=1e-5)


def test_takes_pictures_of_any_size_and_none(model: ModelFiles) -> None:
    scorer = TorchScorer()
    large = Picture(0, 321, 123, bytes(321 * 123 * 3))
    (score,) = scorer.score(model, [large])
    assert score.answers["driveable"].value["size"] == [48, 96]
    assert scorer.score(model, []) == []
    with pytest.raises(ValueError, match="not enough image data"):
        scorer.score(model, [replace(large, rgb=b"short")])


def test_another_format_is_not_opened(model: ModelFiles, pictures: list[Picture]) -> None:
    with pytest.raises(ValueError, match="onnx"):
        TorchScorer().score(replace(model, format="onnx"), pictures)
