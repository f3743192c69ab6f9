"""What a model said of many subjects, as one Arrow blob."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from engine.domain.answers import Answer
from engine.domain.ontology import Kind

MEDIA_TYPE = "application/vnd.apache.arrow.stream"

SCHEMA = pa.schema(
    [
        ("subject_id", pa.string()),
        ("head", pa.string()),
        ("kind", pa.string()),
        ("value", pa.string()),
        ("array", pa.binary()),
        ("uncertainty", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Prediction:
    """A model's answer for one head of one subject, and how unsure it was."""

    subject_id: str
    head: str
    answer: Answer
    uncertainty: float


def write(predictions: Iterable[Prediction]) -> bytes:
    """The predictions, in order, as a compressed Arrow stream."""
    rows = [
        {
            "subject_id": p.subject_id,
            "head": p.head,
            "kind": str(p.answer.kind),
            "value": json.dumps(p.answer.value, separators=(",", ":")),
            "array": p.answer.array,
            "uncertainty": p.uncertainty,
        }
        for p in predictions
    ]
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def class_scores(data: bytes) -> dict[str, dict[str, dict[str, float]]]:
    """By subject, head and class the highest score of that class, for heads whose answers have scores."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for prediction in read(data):
        value = prediction.answer.value
        for item in [*value.get("objects", ()), *value.get("lines", ())]:
            best = found.setdefault(prediction.subject_id, {}).setdefault(prediction.head, {})
            best[item["class"]] = max(best.get(item["class"], 0.0), float(item.get("score", 1.0)))
        for name, probability in value.get("probabilities", {}).items():
            found.setdefault(prediction.subject_id, {}).setdefault(prediction.head, {})[name] = float(probability)
    return found


def read(data: bytes, subject_id: str | None = None) -> list[Prediction]:
    """All predictions of a blob, or those of one subject."""
    table = pa.ipc.open_stream(io.BytesIO(data)).read_all()
    if subject_id is not None:
        table = table.filter(pc.equal(table["subject_id"], subject_id))
    return [
        Prediction(
            row["subject_id"],
            row["head"],
            Answer(Kind(row["kind"]), json.loads(row["value"]), row["array"]),
            row["uncertainty"],
        )
        for row in table.to_pylist()
    ]
