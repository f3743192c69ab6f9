"""Answers to the label tool's results and back, head by head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.adapters.label_studio.codecs.boxes import BoxesCodec
from engine.adapters.label_studio.codecs.choice import ChoiceCodec
from engine.adapters.label_studio.codecs.mask import MaskCodec
from engine.adapters.label_studio.codecs.polylines import PolylinesCodec
from engine.adapters.label_studio.codecs.regions import Codec, Result, ResultError
from engine.domain.answers import Answer, AnswerError, check_answer
from engine.domain.ontology import Kind, Ontology

CODECS: Mapping[Kind, Codec] = {
    Kind.BOXES: BoxesCodec(),
    Kind.POLYLINES: PolylinesCodec(),
    Kind.MASK: MaskCodec(),
    Kind.CHOICE: ChoiceCodec(),
}

# Controls that are about the whole annotation. Their names hold a hyphen, which no head's name can.
NOT_ANSWERED = "not-answered"
UNUSABLE = "un-usable"
UNUSABLE_CHOICE = "unusable"


def to_results(
    ontology: Ontology, heads: Sequence[str], answers: Mapping[str, Answer], width: int, height: int
) -> list[dict[str, Any]]:
    """The results that show `answers` for `heads` on a picture of `width` x `height` pixels, ids and scores kept.

    Heads that no person labels are left out. Raises ResultError when an answer is not one that its head can have.
    """
    results: list[dict[str, Any]] = []
    for head in ontology.person_heads:
        if head.name in heads and head.name in answers:
            try:
                check_answer(head, answers[head.name])
            except AnswerError as wrong:
                raise ResultError(str(wrong)) from wrong
            results.extend(CODECS[head.kind].encode(head, answers[head.name], width, height))
    return results


def from_results(
    ontology: Ontology, heads: Sequence[str], results: Sequence[Result], width: int, height: int
) -> dict[str, Answer]:
    """What a submitted annotation answers of the wanted `heads`.

    A wanted head without results is an empty answer, save for a choice, and save for heads that the labeler marked as
    not answered. What was drawn for heads that were not wanted is left out: nobody said that it is all there is.
    Raises ResultError for what can't be understood: an unknown control or class, a broken geometry.
    """
    by_head: dict[str, list[Result]] = {head.name: [] for head in ontology.person_heads}
    skipped: set[str] = set()
    for result in results:
        if not isinstance(result, Mapping):
            raise ResultError("a result is not an object")
        if result.get("type") == "relation":
            continue  # a link between regions, which no head asks for and which belongs to no control
        control = result.get("from_name")
        if control == NOT_ANSWERED:
            skipped.update(_choices(result))
        elif control == UNUSABLE:
            continue
        elif control not in by_head:
            raise ResultError(f"a result is of control {control!r}, which the ontology has no head for")
        else:
            expected = CODECS[ontology.head(control).kind].RESULT_TYPE
            if result.get("type") != expected:
                raise ResultError(f"a result of head {control!r} is of type {result.get('type')!r}, not {expected!r}")
            by_head[control].append(result)
    unknown = skipped - by_head.keys()
    if unknown:
        raise ResultError(f"marked as not answered, but no head: {', '.join(sorted(unknown))}")
    answers = {}
    for name in heads:
        if name in by_head and name not in skipped:
            head = ontology.head(name)
            answer = CODECS[head.kind].decode(head, by_head[name], width, height)
            if answer is not None:
                try:
                    check_answer(head, answer)
                except AnswerError as wrong:
                    raise ResultError(str(wrong)) from wrong
                answers[name] = answer
    return answers


def is_unusable(results: Sequence[Result]) -> bool:
    """Whether the labeler said that the whole picture is of no use."""
    return any(
        isinstance(result, Mapping) and result.get("from_name") == UNUSABLE and UNUSABLE_CHOICE in _choices(result)
        for result in results
    )


def _choices(result: Result) -> list[str]:
    value = result.get("value")
    choices = value.get("choices") if isinstance(value, Mapping) else None
    return [choice for choice in choices if isinstance(choice, str)] if isinstance(choices, list) else []
