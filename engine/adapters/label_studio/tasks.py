"""Our tasks in the label tool's form: what is written into a task, and what an annotation of it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.adapters.label_studio.codecs.regions import ResultError
from engine.adapters.label_studio.results import from_results, is_unusable, to_results
from engine.domain.answers import Answer
from engine.domain.ontology import Ontology
from engine.ports import AnnotationOutcome, LabelToolRefused, TaskDraft, ToolAnnotation

# The tool pre-annotates with the predictions of one model version per project, and tasks of several are open at once.
# So to the tool they are all of one; the true version stands in the task's data.
PREDICTION_VERSION = "longtail"


def task_payload(ontology: Ontology, draft: TaskDraft) -> dict[str, Any]:
    """The task for the tool's import, with its pre-annotations. Raises LabelToolRefused for what it could not show."""
    wanted = [head.name for head in ontology.person_heads if head.name in draft.heads]
    if not wanted:
        raise LabelToolRefused(
            f"task {draft.key!r} wants {list(draft.heads)}, of which no head is for a person to label"
        )
    data = {
        "key": draft.key,
        "image": draft.picture_url,
        "heads": wanted,
        "width": draft.width,
        "height": draft.height,
        "wanted": "Wanted: " + ", ".join(wanted),
        "reason": " · ".join(f"{name}: {text}" for name, text in draft.meta.items()) or "·",
        "model_version": draft.model_version or "",
        "prediction_shown": bool(draft.predictions),
        "meta": dict(draft.meta),
    }
    payload: dict[str, Any] = {"data": data}
    if draft.predictions:
        try:
            results = to_results(ontology, wanted, draft.predictions, draft.width, draft.height)
        except ResultError as wrong:
            raise LabelToolRefused(f"the prediction for task {draft.key!r} can't be shown: {wrong}") from wrong
        payload["predictions"] = [{"model_version": PREDICTION_VERSION, "score": _score(results), "result": results}]
    return payload


def read_annotation(
    ontology: Ontology, task_id: int, data: Mapping[str, Any], annotation: Mapping[str, Any], annotator: str
) -> ToolAnnotation:
    """One annotation as the tool sent it. What can't be understood is in its `problem`; nothing is raised for it."""
    results = annotation.get("result") or []
    outcome, answers, problem = AnnotationOutcome.SUBMITTED, dict[str, Answer](), None
    if annotation.get("was_cancelled"):
        outcome = AnnotationOutcome.SKIPPED
    elif isinstance(results, list) and is_unusable(results):
        outcome = AnnotationOutcome.UNUSABLE
    else:
        try:
            answers = _answers(ontology, data, results)
        except ResultError as wrong:
            problem = str(wrong)
    lead_time = annotation.get("lead_time")
    return ToolAnnotation(
        id=int(annotation["id"]),
        task_id=task_id,
        task_key=str(data["key"]),
        annotator=annotator,
        outcome=outcome,
        answers=answers,
        lead_time_s=None if lead_time is None else float(lead_time),
        prediction_shown=bool(data.get("prediction_shown")) or annotation.get("parent_prediction") is not None,
        updated_at=str(annotation["updated_at"]),
        payload=annotation,
        problem=problem,
    )


def _answers(ontology: Ontology, data: Mapping[str, Any], results: Any) -> dict[str, Answer]:
    heads, width, height = data.get("heads"), data.get("width"), data.get("height")
    if not isinstance(results, list):
        raise ResultError("the annotation's result is not a list")
    if (
        not isinstance(heads, list)
        or not isinstance(width, int)
        or not isinstance(height, int)
        or min(width, height) < 1
    ):
        raise ResultError("the task's data was changed: it no longer says which heads are wanted at which size")
    return from_results(ontology, heads, results, width, height)


def _score(results: list[dict[str, Any]]) -> float | None:
    """The mean of the regions' scores, by which the tool can sort tasks; None where there are none."""
    scores = [result["score"] for result in results if "score" in result]
    return sum(scores) / len(scores) if scores else None
