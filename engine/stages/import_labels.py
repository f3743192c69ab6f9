"""Import labels: what no person drew comes from sensors, simulators, imports and models, all or nothing."""

from __future__ import annotations

import io
import math
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.domain.access import Principal
from engine.domain.answers import Answer, AnswerError, check_answer
from engine.domain.ids import frame_id
from engine.domain.manifest import digest
from engine.domain.ontology import Head, Kind, Ontology, OntologyError
from engine.domain.refusals import Gone, Invalid, NotFound
from engine.ports import BlobStore, StoredBlob
from engine.stages.discard import discard
from engine.stages.idempotency import Answer as Recorded
from engine.stages.idempotency import RequestKey, remember, replayed
from engine.store.blobs import register
from engine.store.label_revisions import lock_subjects, revise, revisions
from engine.store.living import hold_clips
from engine.store.recordings import ensure_frames
from engine.store.tables.labels import Label
from engine.store.tables.models import OntologyVersion
from engine.store.tables.recordings import Clip, Stream, Vehicle
from engine.store.unit_of_work import Database

SOURCES = ("sensor", "simulator", "import", "auto")
DEVICE_SOURCES = ("sensor", "simulator")
ARRAY_TYPE = "application/x-npy"


@dataclass(frozen=True)
class LabelImport:
    """One label as sent: `array` is an .npy file of float16 for the dense kinds."""

    clip_id: uuid.UUID
    stream: str
    pts: int
    head: str
    value: Mapping[str, Any]
    array: bytes | None = None
    annotated_classes: Sequence[str] | None = None

    @property
    def subject_id(self) -> uuid.UUID:
        return frame_id(self.clip_id, self.stream, self.pts)


@dataclass(frozen=True)
class ImportResult:
    """How many labels are new, and how many changed nothing; `label_ids` in the order of the import."""

    created: int
    unchanged: int
    label_ids: tuple[uuid.UUID, ...]


def import_labels(
    database: Database,
    blobs: BlobStore,
    principal: Principal,
    ontology_name: str,
    ontology_version: int,
    source: str,
    labels: Sequence[LabelImport],
    request: RequestKey | None = None,
) -> ImportResult:
    """Record the labels, each as a new revision of its subject's head, all of them or none.

    A label that this source gave before changes nothing, even when another one has superseded it since: so an import
    may be sent again. A model's own labels (`auto`) never supersede those of a person.
    Raises NotAllowed, NotFound, Invalid.
    """
    principal.demand("labels:write")
    if source not in SOURCES or (principal.kind == "device" and source not in DEVICE_SOURCES):
        allowed = DEVICE_SOURCES if principal.kind == "device" else SOURCES
        raise Invalid(
            "source-not-allowed",
            f"labels of the source {source!r} are not imported by a {principal.kind}",
            f"give one of: {', '.join(allowed)}",
        )
    with database.read() as session:
        answered = replayed(session, request)
        if answered is not None:
            return _result(answered)
        ontology_id, ontology = _ontology(session, principal.project_id, ontology_name, ontology_version)
        streams = _streams(session, principal, labels)
    seen: set[tuple[uuid.UUID, str]] = set()
    for number, label in enumerate(labels):
        _check(number, label, ontology, streams)
        if (label.subject_id, label.head) in seen:
            raise _invalid(number, f"head {label.head!r} of this frame is in the import twice", "send each once")
        seen.add((label.subject_id, label.head))
    arrays = [blobs.put(label.array) if label.array is not None else None for label in labels]
    try:
        return _record(database, principal, ontology_id, source, labels, arrays, streams, request)
    except Gone:
        discard(database, blobs, [array.sha256 for array in arrays if array])
        raise


def _result(answered: Recorded) -> ImportResult:
    body = answered.body
    return ImportResult(body["created"], body["unchanged"], tuple(uuid.UUID(text) for text in body["label_ids"]))


Streams = Mapping[tuple[uuid.UUID, str], tuple[Clip, Stream]]


def _ontology(session: Session, project_id: uuid.UUID, name: str, version: int) -> tuple[uuid.UUID, Ontology]:
    row = session.execute(
        select(OntologyVersion).where(
            OntologyVersion.project_id == project_id, OntologyVersion.name == name, OntologyVersion.version == version
        )
    ).scalar_one_or_none()
    if row is None:
        raise NotFound(
            "no-such-ontology",
            f"there is no ontology {name!r} version {version}",
            "register it with POST /v1/ontologies",
        )
    return row.id, Ontology.from_document(row.document)


def _streams(session: Session, principal: Principal, labels: Sequence[LabelImport]) -> Streams:
    """The clips and streams that the labels are about, by (clip, stream name): those that the caller may know of."""
    rows = session.execute(
        select(Clip, Stream, Vehicle.external_id)
        .join(Stream, Stream.clip_id == Clip.id)
        .join(Vehicle, Vehicle.id == Clip.vehicle_id)
        .where(Clip.project_id == principal.project_id, Clip.id.in_({label.clip_id for label in labels}))
    ).all()
    return {(clip.id, stream.name): (clip, stream) for clip, stream, vehicle in rows if principal.may_send_for(vehicle)}


def _check(number: int, label: LabelImport, ontology: Ontology, streams: Streams) -> None:
    found = streams.get((label.clip_id, label.stream))
    if found is None:
        known = any(clip_id == label.clip_id for clip_id, _ in streams)
        raise NotFound(
            "no-such-stream" if known else "no-such-clip",
            f"label {number}: there is no stream {label.stream!r} in clip {label.clip_id}"
            if known
            else f"label {number}: there is no clip {label.clip_id}",
            "send the clip first, and name it by the id that its answer gave",
        )
    clip, stream = found
    if clip.state in ("expired", "erased"):
        raise _invalid(number, f"clip {clip.id} is {clip.state}", "label clips that are still there")
    if label.pts not in stream.pts:
        raise _invalid(
            number,
            f"stream {label.stream!r} of clip {clip.id} has no frame at PTS {label.pts}",
            "use the PTS that GET /v1/clips/{id} lists; they are in units of the stream's time base",
        )
    try:
        head = ontology.head(label.head)
        check_answer(head, Answer(head.kind, label.value, label.array))
        if label.array is not None:
            check_array(head, label.value["size"], label.array)
    except (AnswerError, OntologyError, TypeError, AttributeError) as error:
        raise _invalid(number, str(error), "correct the label; nothing of this import was recorded") from error
    if strange := set(label.annotated_classes or ()) - set(head.classes):
        raise _invalid(number, f"head {head.name!r} has no class {min(strange)!r}", f"it has {', '.join(head.classes)}")


def check_array(head: Head, size: Sequence[int], data: bytes) -> None:
    """Raises AnswerError unless `data` is a C-ordered float16 .npy of this size, without infinities."""
    stream = io.BytesIO(data)
    try:
        major, _ = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(stream)
    except ValueError as error:
        raise AnswerError(f"head {head.name!r}: the array is no .npy file: {error}") from error
    dimensions = 2 if head.kind is Kind.DENSE_SCALAR else 3
    if dtype != np.float16 or fortran or len(shape) != dimensions or list(shape[:2]) != list(size):
        raise AnswerError(
            f"head {head.name!r}: the array is {dtype} of shape {shape}; it must be C-ordered float16 of "
            f"{dimensions} dimensions, the first two {list(size)}"
        )
    if len(data) - stream.tell() != 2 * math.prod(shape):
        raise AnswerError(f"head {head.name!r}: the array's file is cut off or has bytes left over")
    if np.isinf(np.frombuffer(data, np.float16, offset=stream.tell())).any():
        raise AnswerError(f"head {head.name!r}: the array holds infinities; NaN says that there is no value")


def _invalid(number: int, detail: str, hint: str) -> Invalid:
    return Invalid("invalid-label", f"label {number}: {detail}", hint)


def _record(
    database: Database,
    principal: Principal,
    ontology_id: uuid.UUID,
    source: str,
    labels: Sequence[LabelImport],
    arrays: Sequence[StoredBlob | None],
    streams: Streams,
    request: RequestKey | None,
) -> ImportResult:
    ids: list[uuid.UUID] = []
    created = 0
    with database.unit() as unit:
        session, project_id = unit.session, principal.project_id
        clips = {label.clip_id for label in labels}
        gone = clips - hold_clips(session, clips)
        if gone:
            raise Gone("erased", f"clip {min(gone)} was erased just now", "leave it out; nothing was recorded")
        wanted: dict[tuple[uuid.UUID, str], set[int]] = defaultdict(set)
        for label in labels:
            wanted[label.clip_id, label.stream].add(label.pts)
        for key in sorted(wanted):
            clip, stream = streams[key]
            ensure_frames(session, clip, stream, sorted(wanted[key]))
        subjects = {label.subject_id for label in labels}
        lock_subjects(session, subjects)
        known = revisions(session, ontology_id, subjects)
        stored = {
            blob.sha256: register(session, project_id, blob, ARRAY_TYPE).id
            for blob in sorted({blob for blob in arrays if blob}, key=lambda blob: blob.sha256)
        }
        for label, array in zip(labels, arrays, strict=True):
            earlier = known.get((label.subject_id, label.head), [])
            content_sha256 = _content(label, array)
            same = _standing(earlier, source, content_sha256)
            if same is None:
                same = revise(
                    session,
                    earlier,
                    project_id=project_id,
                    subject_id=label.subject_id,
                    ontology_id=ontology_id,
                    head=label.head,
                    source=source,
                    value=dict(label.value),
                    array_blob_id=stored[array.sha256] if array else None,
                    annotated_classes=list(label.annotated_classes) if label.annotated_classes is not None else None,
                    annotation_ids=[],
                    content_sha256=content_sha256,
                    created_by=str(principal),
                )
                created += 1
            ids.append(same.id)
        result = ImportResult(created, len(labels) - created, tuple(ids))
        answer = Recorded(
            200,
            {"created": created, "unchanged": result.unchanged, "label_ids": [str(label_id) for label_id in ids]},
        )
        told = remember(session, request, answer)
        unit.commit()
    return result if told is answer else _result(told)


def _content(label: LabelImport, array: StoredBlob | None) -> str:
    return digest(
        {
            "value": label.value,
            "array": array.sha256 if array else None,
            "annotated_classes": sorted(label.annotated_classes) if label.annotated_classes is not None else None,
        }
    )


def _standing(earlier: Sequence[Label], source: str, content_sha256: str) -> Label | None:
    """The label that makes this one needless: the same from this source, or a person's that a model would overrule."""
    for label in reversed(earlier):
        if label.source == source and label.content_sha256 == content_sha256:
            return label
    if source == "auto" and earlier and earlier[-1].source == "human":
        return earlier[-1]
    return None
