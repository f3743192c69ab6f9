from dataclasses import replace
from typing import Any

import pytest

from engine.acquisition import triggers
from engine.acquisition.candidates import Candidate, Event
from engine.acquisition.triggers import Rule, Trigger, TriggerError

FRAME = Candidate(
    subject_id="s1",
    drive_id="d1",
    clip_id="c1",
    stream="front",
    capture_ns=10_000_000_000,
    quantiles={"lanes": 0.97},
    embedding=(),
    tags={"weather": "fog"},
    events=[Event("hard_brake", 12_000_000_000)],
    class_scores={"objects": {"cyclist": 0.4}},
)


@pytest.mark.parametrize(
    ("name", "parameters", "hit"),
    [
        ("uncertain", {"head": "lanes", "above": 0.97}, True),
        ("uncertain", {"head": "lanes", "above": 0.98}, False),
        ("uncertain", {"head": "depth", "above": 0.0}, False),
        ("tag", {"key": "weather", "value": "fog"}, True),
        ("tag", {"key": "weather", "value": "rain"}, False),
        ("event", {"name": "hard_brake", "within_s": 2}, True),
        ("event", {"name": "hard_brake", "within_s": 1.9}, False),
        ("event", {"name": "swerve", "within_s": 9.0}, False),
        ("rare_class", {"head": "objects", "class_name": "cyclist", "min_score": 0.4}, True),
        ("rare_class", {"head": "objects", "class_name": "cyclist", "min_score": 0.5}, False),
        ("rare_class", {"head": "objects", "class_name": "tram", "min_score": 0.0}, False),
        ("random", {"fraction": 0.0, "seed": 1}, False),
        ("random", {"fraction": 1.0, "seed": 1}, True),
    ],
)
def test_a_trigger_hits_what_it_says(name: str, parameters: dict[str, Any], hit: bool) -> None:
    assert Trigger(name, parameters).hits(FRAME) is hit


def test_random_takes_its_fraction_and_the_seed_decides_which() -> None:
    frames = [replace(FRAME, subject_id=f"s{i}") for i in range(4000)]
    first = [Trigger("random", {"fraction": 0.2, "seed": 1}).hits(f) for f in frames]
    second = [Trigger("random", {"fraction": 0.2, "seed": 2}).hits(f) for f in frames]
    assert 0.17 < sum(first) / 4000 < 0.23
    assert 0.02 < sum(a and b for a, b in zip(first, second, strict=True)) / 4000 < 0.06


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("unsure", {}, "no trigger 'unsure'; there are event"),
        ("uncertain", {"head": "lanes"}, "takes head, above; got head"),
        ("uncertain", {"head": "lanes", "above": 0.5, "extra": 1}, "takes head, above"),
        ("uncertain", {"head": "lanes", "above": "0.5"}, "above must be float"),
        ("uncertain", {"head": "lanes", "above": True}, "above must be float"),
        ("uncertain", {"head": "lanes", "above": float("nan")}, "in \\[0, 1\\]"),
        ("event", {"name": "x", "within_s": -1.0}, "0 or more"),
        ("random", {"fraction": 1.5, "seed": 1}, "in \\[0, 1\\]"),
    ],
)
def test_a_trigger_that_cant_be_applied_is_refused(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(TriggerError, match=message):
        Trigger(name, parameters)


def test_the_hash_covers_name_version_and_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = Trigger("uncertain", {"head": "lanes", "above": 1})
    assert trigger.hash == Trigger("uncertain", {"above": 1.0, "head": "lanes"}).hash
    assert trigger.hash == Trigger.from_document(trigger.to_document()).hash
    assert trigger.hash != Trigger("uncertain", {"head": "lanes", "above": 0.9}).hash
    before = trigger.hash
    monkeypatch.setitem(triggers.RULES, "uncertain", Rule(triggers.uncertain, 2))
    assert trigger.hash != before


def test_a_document_of_another_shape_is_refused() -> None:
    for document in ({}, {"name": 3}, {"name": "tag", "parameters": [1]}):
        with pytest.raises(TriggerError, match="a trigger is"):
            Trigger.from_document(document)
