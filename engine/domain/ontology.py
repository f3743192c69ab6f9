"""The ontology: what the fleet's models answer, head by head, under one version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """The geometry of a head's answer."""

    BOXES = "boxes"
    POLYLINES = "polylines"
    MASK = "mask"
    DENSE_SCALAR = "dense_scalar"
    DENSE_VECTOR = "dense_vector"
    CHOICE = "choice"
    TRACK = "track"


class LabelTool(StrEnum):
    """Where a head's labels come from: a person in the label tool, or a sensor, simulator or import."""

    PERSON = "person"
    MACHINE = "machine"


class Metric(StrEnum):
    """The one number by which a head is judged."""

    AP50 = "ap50"  # boxes: average precision at IoU 0.5, mean over classes; higher is better
    LINE_F1 = "line_f1"  # polylines: F1 at a lane width, as CULane defines it; higher is better
    IOU = "iou"  # mask: intersection over union, mean over classes; higher is better
    ABS_REL = "abs_rel"  # dense scalar: mean |p - t| / t; lower is better
    ANGLE = "angle"  # dense vector: mean angle in degrees; lower is better
    ACCURACY = "accuracy"  # choice; higher is better

    @property
    def higher_is_better(self) -> bool:
        return self not in (Metric.ABS_REL, Metric.ANGLE)


DEFAULT_METRIC = {
    Kind.BOXES: Metric.AP50,
    Kind.POLYLINES: Metric.LINE_F1,
    Kind.MASK: Metric.IOU,
    Kind.DENSE_SCALAR: Metric.ABS_REL,
    Kind.DENSE_VECTOR: Metric.ANGLE,
    Kind.CHOICE: Metric.ACCURACY,
}


class OntologyError(ValueError):
    """The ontology's document is not one that can be built; the message says what to change."""


@dataclass(frozen=True)
class Head:
    """One task of the network: a kind, its classes, the tool that labels it and the metric that judges it.

    A dense head has no classes; `unit` is its SI unit (``m`` for depth). `options` are the kind's own settings.
    """

    name: str
    kind: Kind
    classes: tuple[str, ...] = ()
    label_tool: LabelTool = LabelTool.PERSON
    metric: Metric | None = None
    unit: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise OntologyError(f"head name {self.name!r} must be letters, digits and _, and start with a letter")
        dense = self.kind in (Kind.DENSE_SCALAR, Kind.DENSE_VECTOR)
        if dense and self.classes:
            raise OntologyError(f"head {self.name!r} is {self.kind} and takes no classes")
        if not dense and not self.classes:
            raise OntologyError(f"head {self.name!r} is {self.kind} and needs at least one class")
        if len(set(self.classes)) != len(self.classes):
            raise OntologyError(f"head {self.name!r} names a class twice")
        if dense and self.label_tool is LabelTool.PERSON:
            raise OntologyError(f"no person can draw {self.kind}: give head {self.name!r} label_tool 'machine'")
        if self.metric is None:
            if self.kind not in DEFAULT_METRIC:
                raise OntologyError(
                    f"head {self.name!r}: kind {self.kind} can't be judged yet, so it can't be declared"
                )
            object.__setattr__(self, "metric", DEFAULT_METRIC[self.kind])

    def to_document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": str(self.kind),
            "classes": list(self.classes),
            "label_tool": str(self.label_tool),
            "metric": str(self.metric),
            "unit": self.unit,
            "options": dict(self.options),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Head:
        try:
            return cls(
                name=document["name"],
                kind=Kind(document["kind"]),
                classes=tuple(document.get("classes", ())),
                label_tool=LabelTool(document.get("label_tool", "person")),
                metric=Metric(document["metric"]) if document.get("metric") else None,
                unit=document.get("unit"),
                options=dict(document.get("options", {})),
            )
        except KeyError as missing:
            raise OntologyError(f"a head needs {missing}") from missing
        except ValueError as wrong:
            raise OntologyError(str(wrong)) from wrong


@dataclass(frozen=True)
class Ontology:
    """The heads, under a name and a version; the digest is over everything that changes an answer's meaning."""

    name: str
    version: int
    heads: tuple[Head, ...]

    def __post_init__(self) -> None:
        names = [head.name for head in self.heads]
        if not names:
            raise OntologyError("an ontology needs at least one head")
        if len(set(names)) != len(names):
            raise OntologyError(f"ontology {self.name!r} names a head twice")

    def head(self, name: str) -> Head:
        for head in self.heads:
            if head.name == name:
                return head
        raise OntologyError(
            f"ontology {self.name!r} v{self.version} has no head {name!r}; it has "
            + ", ".join(h.name for h in self.heads)
        )

    @property
    def person_heads(self) -> tuple[Head, ...]:
        return tuple(head for head in self.heads if head.label_tool is LabelTool.PERSON)

    @property
    def digest(self) -> str:
        text = json.dumps(self.to_document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_document(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "heads": [head.to_document() for head in self.heads]}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Ontology:
        try:
            heads = tuple(Head.from_document(head) for head in document["heads"])
            return cls(name=document["name"], version=int(document["version"]), heads=heads)
        except KeyError as missing:
            raise OntologyError(f"an ontology needs {missing}") from missing
