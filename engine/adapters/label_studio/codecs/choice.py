"""Choice: one class for the whole picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from engine.adapters.label_studio.codecs.regions import PICTURE, Result, ResultError, region, scored, value_of
from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind


class ChoiceCodec:
    RESULT_TYPE = "choices"

    def control(self, head: Head) -> Element:
        control = Element("Choices", {"name": head.name, "toName": PICTURE, "choice": "single", "showInline": "true"})
        for name in head.classes:
            SubElement(control, "Choice", {"value": name})
        return control

    def encode(self, head: Head, answer: Answer, width: int, height: int) -> list[dict[str, Any]]:
        value = {"choices": [answer.value["choice"]]}
        return [scored(region(head, self.RESULT_TYPE, "choice", value, width, height), answer.value)]

    def decode(self, head: Head, results: Sequence[Result], width: int, height: int) -> Answer | None:
        """None where nothing is chosen: a choice has no empty answer."""
        chosen = [name for result in results for name in _chosen(head, result)]
        if not chosen:
            return None
        if len(chosen) > 1:
            raise ResultError(
                f"head {head.name!r} has {len(chosen)} choices: {', '.join(map(repr, chosen))}; choose one"
            )
        if chosen[0] not in head.classes:
            raise ResultError(f"head {head.name!r} has no class {chosen[0]!r}; it has {', '.join(head.classes)}")
        return Answer(Kind.CHOICE, {"choice": chosen[0]})


def _chosen(head: Head, result: Result) -> list[str]:
    names = value_of(head, result).get(ChoiceCodec.RESULT_TYPE)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ResultError(f"a choice of head {head.name!r} has no list of choices")
    return names
