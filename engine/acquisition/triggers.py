"""Triggers: named rules that say "this subject is interesting".

A trigger is one pure function of a candidate and its parameters, one entry in RULES. Its hash covers name, version and
parameters, and goes with every queue item, so that a choice can be explained long after the campaign has changed:
raise a rule's version whenever its function decides otherwise than before.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.acquisition.candidates import Candidate


class TriggerError(ValueError):
    """No such trigger, or parameters that it can't have; the message says what to change."""


def uncertain(candidate: Candidate, *, head: str, above: float) -> bool:
    """The head's uncertainty quantile is at least `above`, in [0, 1]."""
    _in_unit("above", above)
    return candidate.quantiles.get(head, -1.0) >= above


def tag(candidate: Candidate, *, key: str, value: str) -> bool:
    """The clip was tagged key = value."""
    return candidate.tags.get(key) == value


def event(candidate: Candidate, *, name: str, within_s: float) -> bool:
    """An event of this name happened at most `within_s` seconds before or after the subject."""
    if not math.isfinite(within_s) or within_s < 0:
        raise TriggerError(f"within_s is {within_s}: give seconds, 0 or more")
    window_ns = round(within_s * 1e9)
    return any(e.name == name and abs(e.t_ns - candidate.capture_ns) <= window_ns for e in candidate.events)


def random(candidate: Candidate, *, fraction: float, seed: int) -> bool:
    """True for a `fraction` of all subjects, the same ones for the same seed whatever else is in the pool."""
    _in_unit("fraction", fraction)
    digest = hashlib.sha256(f"{seed}:{candidate.subject_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < fraction * 2.0**64


def rare_class(candidate: Candidate, *, head: str, class_name: str, min_score: float) -> bool:
    """The prediction holds the class with a score of at least `min_score`."""
    _in_unit("min_score", min_score)
    return candidate.class_scores.get(head, {}).get(class_name, -1.0) >= min_score


@dataclass(frozen=True)
class Rule:
    """A trigger's function and the version of what it decides."""

    function: Callable[..., bool]
    version: int


RULES: dict[str, Rule] = {
    "uncertain": Rule(uncertain, 1),
    "tag": Rule(tag, 1),
    "event": Rule(event, 1),
    "random": Rule(random, 1),
    "rare_class": Rule(rare_class, 1),
}


@dataclass(frozen=True)
class Trigger:
    """A rule with its parameters, as a campaign holds it. Raises TriggerError when it can't be applied."""

    name: str
    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise TriggerError(f"no trigger {self.name!r}; there are {', '.join(sorted(RULES))}")
        wanted = {
            name: parameter.annotation
            for name, parameter in inspect.signature(RULES[self.name].function, eval_str=True).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        if set(self.parameters) != set(wanted):
            raise TriggerError(
                f"trigger {self.name!r} takes {', '.join(wanted)}; got {', '.join(self.parameters) or 'none'}"
            )
        for name, type_ in wanted.items():
            given = self.parameters[name]
            accepted = (int, float) if type_ is float else type_
            if isinstance(given, bool) or not isinstance(given, accepted):
                raise TriggerError(f"trigger {self.name!r}: {name} must be {type_.__name__}, not {given!r}")
        self.hits(_NOBODY)  # the function checks its ranges itself

    @property
    def hash(self) -> str:
        """sha256 (hex) over name, version and parameters; 1 and 1.0 are the same parameter."""
        numbers = {k: float(v) if isinstance(v, int | float) else v for k, v in self.parameters.items()}
        document = {"name": self.name, "version": RULES[self.name].version, "parameters": numbers}
        return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def hits(self, candidate: Candidate) -> bool:
        return RULES[self.name].function(candidate, **self.parameters)

    def to_document(self) -> dict[str, Any]:
        return {"name": self.name, "parameters": dict(self.parameters)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Trigger:
        if not isinstance(document.get("name"), str) or not isinstance(document.get("parameters", {}), Mapping):
            raise TriggerError('a trigger is {"name": ..., "parameters": {...}}')
        return cls(document["name"], dict(document.get("parameters", {})))


_NOBODY = Candidate(subject_id="", drive_id="", clip_id="", stream="", capture_ns=0, quantiles={}, embedding=())


def _in_unit(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise TriggerError(f"{name} is {value}: give a number in [0, 1]")
