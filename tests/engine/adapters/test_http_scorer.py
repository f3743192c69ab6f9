"""A scorer at somebody's URL answers as any other, is held to its contract, and can't change under its version."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from road_scenes import DEPTH, LIGHT, ROAD, Scene
from scorer_server import ScorerServer, road_answers

from engine.adapters import http_scorer
from engine.adapters.http_scorer import HttpScorer
from engine.adapters.picture_embedding import thumbnail_embedding
from engine.adapters.redaction import NoRedaction
from engine.domain.formats import ModelFormat
from engine.domain.ontology import Head
from engine.domain.refusals import Conflict, Invalid
from engine.ports import BlobCorrupt, BlobNotFound, ModelFiles, Picture, ScorerUnavailable

PROBES = ["0", "1", "2"]
LOOPBACK = ["127.0.0.0/8"]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_scorer, "PAUSE_S", 0.01)


def picture_of(name: str) -> Picture:
    return Scene(int(name)).picture(0)


@pytest.fixture
def scorer() -> HttpScorer:
    return HttpScorer(picture_of, NoRedaction(), LOOPBACK, recheck_every_s=0)


@pytest.fixture
def enrol(scorer: HttpScorer, scorer_server: ScorerServer, tmp_path: Path) -> Callable[..., ModelFiles]:
    def make(*heads: Head, **changes: Any) -> ModelFiles:
        given = heads or (ROAD, LIGHT)
        config = {"url": scorer_server.url, "heads": [head.name for head in given], "timeout_s": 5, **changes}
        document = scorer.enrol(config, given, PROBES)
        path = tmp_path / "document"
        path.write_bytes(document)
        return ModelFiles(ModelFormat.HTTP, path, config, hashlib.sha256(document).hexdigest(), given)

    return make


def test_it_answers_in_batches_and_in_order(
    scorer: HttpScorer, enrol: Callable[..., ModelFiles], scorer_server: ScorerServer
) -> None:
    model = enrol(batch=4)
    scorer_server.seen.clear()
    pictures = [Scene(seed).picture(0) for seed in range(10)]
    found = scorer.score(model, pictures)
    assert [len(request["pictures"]) for request in scorer_server.seen] == [3, 4, 4, 2]  # the first is the check
    assert [score.answers["light"].value["choice"] for score in found] == ["day", "night"] * 5
    assert [score.embedding for score in found] == [thumbnail_embedding(picture) for picture in pictures]
    assert scorer_server.seen[1]["contract"] == 1
    assert [head["name"] for head in scorer_server.seen[1]["heads"]] == ["road", "light"]
    assert scorer.embed(model, pictures[:1]) == [thumbnail_embedding(pictures[0])]


def test_a_version_is_the_hash_of_its_declaration_and_of_its_answers(enrol: Callable[..., ModelFiles]) -> None:
    assert enrol().sha256 == enrol().sha256
    assert enrol(batch=2).sha256 != enrol().sha256
    document = json.loads(enrol().weights.read_bytes())
    assert sorted(document["probes"]) == PROBES


def test_a_scorer_that_became_another_one_is_found_out_before_it_is_used(
    scorer: HttpScorer, enrol: Callable[..., ModelFiles], scorer_server: ScorerServer
) -> None:
    model = enrol()

    def retrained(request: dict[str, Any]) -> Any:
        answers = road_answers(request)
        for answer in answers["answers"]:
            answer["heads"]["light"]["value"]["score"] = 0.8
        return answers

    scorer_server.answer = retrained
    scorer_server.seen.clear()
    with pytest.raises(Conflict, match=r"no longer the one that was registered: head 'light'.*0\.8 in place of 0\.9"):
        scorer.score(model, [picture_of("7")])
    assert [len(request["pictures"]) for request in scorer_server.seen] == [3]
    scorer_server.answer = road_answers
    assert len(scorer.score(model, [picture_of("7")])) == 1


def test_it_is_not_checked_again_at_once_and_after_a_while_it_is(
    enrol: Callable[..., ModelFiles], scorer_server: ScorerServer
) -> None:
    model = enrol()
    patient = HttpScorer(picture_of, NoRedaction(), LOOPBACK, recheck_every_s=3600)
    scorer_server.seen.clear()
    for _ in range(3):
        patient.score(model, [picture_of("7")])
    assert [len(request["pictures"]) for request in scorer_server.seen] == [3, 1, 1, 1]


def test_the_noise_of_floating_point_is_no_change(
    scorer: HttpScorer, enrol: Callable[..., ModelFiles], scorer_server: ScorerServer
) -> None:
    model = enrol()

    def shaken(request: dict[str, Any]) -> Any:
        answers = road_answers(request)
        for answer in answers["answers"]:
            answer["heads"]["light"]["value"]["score"] += 1e-4
            answer["heads"]["road"]["uncertainty"] += 1e-4
        return answers

    scorer_server.answer = shaken
    assert len(scorer.score(model, [picture_of("7")])) == 1


def test_probes_that_were_erased_are_left_out_until_none_is_left(
    enrol: Callable[..., ModelFiles], scorer_server: ScorerServer
) -> None:
    model = enrol()
    left = {"1"}

    def some(name: str) -> Picture:
        if name not in left:
            raise BlobNotFound(name)
        return picture_of(name)

    scorer = HttpScorer(some, NoRedaction(), LOOPBACK, recheck_every_s=0)
    scorer_server.seen.clear()
    scorer.score(model, [picture_of("7")])
    assert len(scorer_server.seen[0]["pictures"]) == 1
    left.clear()
    with pytest.raises(Conflict, match="none of the golden pictures"):
        scorer.score(model, [picture_of("7")])


def test_an_unsteady_scorer_is_not_registered(enrol: Callable[..., ModelFiles], scorer_server: ScorerServer) -> None:
    turn = iter(range(100))

    def dice(request: dict[str, Any]) -> Any:
        answers = road_answers(request)
        answers["answers"][0]["heads"]["light"]["uncertainty"] = float(next(turn))
        return answers

    scorer_server.answer = dice
    with pytest.raises(Invalid, match="asked twice"):
        enrol()


def test_dense_answers_and_embeddings_of_its_own_come_through(
    scorer: HttpScorer, enrol: Callable[..., ModelFiles], scorer_server: ScorerServer
) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.full((4, 6), 12.5, np.float16))

    def deep(request: dict[str, Any]) -> Any:
        depth = {
            "value": {"size": [4, 6]},
            "array_base64": base64.b64encode(buffer.getvalue()).decode(),
            "uncertainty": 2,
        }
        one = {"heads": {"depth": depth}, "embedding": [0.6, 0.8] + [0.0] * 126}
        return {"answers": [one] * len(request["pictures"])}

    scorer_server.answer = deep
    model = enrol(DEPTH, embedding=True)
    (score,) = scorer.score(model, [picture_of("5")])
    assert score.answers["depth"].array == buffer.getvalue()
    assert score.embedding[:3] == (0.6, 0.8, 0.0)
    assert scorer.embed(model, [picture_of("5")]) == [score.embedding]


def broken(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    def answer(request: dict[str, Any]) -> Any:
        answers = road_answers(request)
        return change(answers) or answers

    return answer


def _set(answers: dict[str, Any], head: str, **values: Any) -> None:
    answers["answers"][1]["heads"][head].update(values)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda a: ["no object"], "list indices"),
        (lambda a: {"answers": a["answers"][:-1]}, "a list of 3"),
        (lambda a: a["answers"][1]["heads"].pop("road") and None, "lacks 'road'"),
        (lambda a: _set(a, "light", value={"choice": "dusk"}), "picture 1, head 'light': .* no class 'dusk'"),
        (lambda a: _set(a, "road", value={"size": [2, 2], "runs": [[0, 3]]}), "cover 3 cells"),
        (lambda a: _set(a, "road", uncertainty=float("nan")), "finite number of 0 or more"),
        (lambda a: _set(a, "road", uncertainty=-1), "finite number of 0 or more"),
        (lambda a: _set(a, "road", uncertainty="much"), "finite number of 0 or more"),
        (lambda a: _set(a, "road", value=None), "road"),
    ],
)
def test_an_answer_that_is_not_of_the_contract_says_where(
    enrol: Callable[..., ModelFiles], scorer_server: ScorerServer, change: Any, why: str
) -> None:
    scorer_server.answer = broken(change)
    with pytest.raises(Invalid, match=why):
        enrol()


def test_what_may_pass_is_tried_again_and_what_may_not_is_said_at_once(
    scorer: HttpScorer, enrol: Callable[..., ModelFiles], scorer_server: ScorerServer
) -> None:
    model = enrol()
    scorer_server.seen.clear()
    scorer_server.replies = [(503, {}, b"loading"), (429, {}, b"")]
    assert len(scorer.score(model, [picture_of("7")])) == 1
    assert len(scorer_server.seen) == 4
    scorer_server.replies = [(503, {}, b"loading")] * 3
    with pytest.raises(ScorerUnavailable, match=r"answered 503: loading \(3 tries\)"):
        scorer.score(model, [picture_of("7")])
    scorer_server.seen.clear()
    scorer_server.replies = [(302, {"Location": "http://127.0.0.1/"}, b"")]
    with pytest.raises(Invalid, match="answered 302"):
        scorer.score(model, [picture_of("7")])
    assert len(scorer_server.seen) == 1


def test_a_scorer_that_is_gone_is_unavailable(
    scorer: HttpScorer, enrol: Callable[..., ModelFiles], scorer_server: ScorerServer
) -> None:
    model = enrol()
    scorer_server.stop()
    with pytest.raises(ScorerUnavailable, match="3 tries"):
        scorer.score(model, [picture_of("7")])


def test_an_address_that_nobody_allowed_is_refused_also_of_a_version_that_is_there(
    enrol: Callable[..., ModelFiles], scorer_server: ScorerServer
) -> None:
    model = enrol()
    scorer_server.seen.clear()
    with pytest.raises(Invalid, match="not of the public internet"):
        HttpScorer(picture_of, NoRedaction()).score(model, [picture_of("7")])
    assert scorer_server.seen == []


def test_a_document_that_was_changed_is_not_read(enrol: Callable[..., ModelFiles]) -> None:
    model = enrol()
    model.weights.write_bytes(model.weights.read_bytes().replace(b"127.0.0.1", b"127.0.0.2"))
    with pytest.raises(BlobCorrupt):
        HttpScorer(picture_of, NoRedaction(), LOOPBACK).score(model, [picture_of("7")])


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"url": "file:///etc/passwd"}, "no whole http"),
        ({"batch": 0}, "batch"),
        ({"timeout_s": 9999}, "timeout_s"),
        ({"token": "x"}, "Extra inputs"),
        ({"heads": []}, "heads"),
    ],
)
def test_a_declaration_that_is_none_is_refused(scorer: HttpScorer, config: dict[str, Any], why: str) -> None:
    with pytest.raises(Invalid) as refused:
        scorer.enrol({"url": "http://127.0.0.1:9/", "heads": ["road"], **config}, [ROAD], PROBES)
    assert why in refused.value.detail


def test_no_picture_leaves_that_was_not_redacted(scorer_server: ScorerServer) -> None:
    class Black:
        """Nothing is left to be seen."""

        def redact(self, picture: Picture) -> Picture:
            return Picture(picture.pts, picture.width, picture.height, bytes(len(picture.rgb)))

    scorer_server.seen.clear()
    config = {"url": scorer_server.url, "heads": ["light"]}
    scorer = HttpScorer(picture_of, Black(), LOOPBACK)
    document = scorer.enrol(config, [LIGHT], PROBES)
    sent = [picture["png_base64"] for request in scorer_server.seen for picture in request["pictures"]]
    assert len(sent) == 6
    for png in sent:
        with Image.open(io.BytesIO(base64.b64decode(png))) as image:
            assert image.getextrema() == ((0, 0), (0, 0), (0, 0))
    assert {p["heads"]["light"]["value"]["choice"] for p in json.loads(document)["probes"].values()} == {"night"}
