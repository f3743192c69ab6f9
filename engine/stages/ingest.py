"""Ingest: bytes and a manifest become a clip, once, however often they are sent."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.domain.access import Principal
from engine.domain.manifest import ClipManifest, capture_ns
from engine.domain.refusals import Conflict, Gone, Invalid, NotAllowed
from engine.jobs import ledger
from engine.ports import MediaProbe, MediaRejected, StoredBlob, StreamProbe
from engine.stages.idempotency import Answer, RequestKey, remember, replayed
from engine.store import access, recordings, tombstones
from engine.store.blobs import known as known_blobs
from engine.store.blobs import register
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine
from engine.store.tables.recordings import Clip, Drive, SplitGroup, Stream
from engine.store.unit_of_work import Database, UnitOfWork

MEDIA_TYPE = "video/mp4"


class ReceivedFile(Protocol):
    """A file that has arrived whole, hashed on its way, and is not yet in the blob store."""

    @property
    def sha256(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def path(self) -> Path: ...

    def commit(self) -> StoredBlob:
        """Durable in the blob store on return."""

    def withdraw(self) -> None:
        """Remove what was committed, which nothing points to."""


@dataclass(frozen=True)
class IngestResult:
    """The clip, and whether it had been there before."""

    clip_id: uuid.UUID
    created: bool
    clock_suspect: bool


def ingest(
    database: Database,
    probe: MediaProbe,
    principal: Principal,
    manifest: ClipManifest,
    files: Mapping[str, ReceivedFile],
    now_ns: int,
    idempotency_key: str | None = None,
) -> IngestResult:
    """Take a clip, which is durable when this returns. `files` by stream name.

    What is refused is not committed to the blob store.
    Raises NotAllowed, Invalid, Conflict, and Gone for what was erased (see `engine.domain.refusals`).
    """
    principal.demand("clips:write")
    if not principal.may_send_for(manifest.vehicle):
        raise NotAllowed(
            "vehicle-not-allowed",
            f"{principal.kind} {principal.name!r} may not send for vehicle {manifest.vehicle!r}",
            "send with the key that is bound to this vehicle, or have an administrator bind this key to it",
        )
    _check_files(manifest, files)
    content_sha256 = manifest.content_digest({name: file.sha256 for name, file in files.items()})
    request = RequestKey(principal, idempotency_key, content_sha256) if idempotency_key else None
    names = (manifest.vehicle, manifest.drive, manifest.external_id)
    hashes = {file.sha256 for file in files.values()}
    with database.read() as session:
        tombstones.refuse_erased(session, principal.project_id, *names, hashes)
        answered = replayed(session, request)
        if answered is not None:
            return _result(answered)
        earlier = recordings.find_clip(session, principal.project_id, manifest.vehicle, manifest.external_id)
        if earlier is not None:
            _check_same(earlier, content_sha256)
        else:
            _foresee(session, principal.project_id, manifest, files)
    probes = {} if earlier is not None else _probe(probe, manifest, files)
    stored = {} if earlier is not None else {name: file.commit() for name, file in sorted(files.items())}
    with database.unit() as unit:
        try:
            clip, created = (
                (earlier, False)
                if earlier is not None
                else _record(unit, principal, manifest, content_sha256, probes, stored, now_ns)
            )
        except Gone:
            _withdraw(database, principal.project_id, files, stored)
            raise
        result = IngestResult(clip.id, created, clip.clock_suspect)
        if principal.kind == "device":
            access.seen(unit.session, principal.id)
        answer = Answer(202, {"clip_id": str(clip.id), "clock_suspect": clip.clock_suspect})
        told = remember(unit.session, request, answer)
        unit.commit()
    return result if told is answer else _result(told)


def _withdraw(
    database: Database, project_id: uuid.UUID, files: Mapping[str, ReceivedFile], stored: Mapping[str, StoredBlob]
) -> None:
    """Take back bytes that were stored just before their vehicle or drive was erased, unless something has them."""
    with database.read() as session:
        wanted = known_blobs(session, [blob.sha256 for blob in stored.values()])
    for name, blob in stored.items():
        if blob.sha256 not in wanted:
            files[name].withdraw()


def _result(answered: Answer) -> IngestResult:
    return IngestResult(uuid.UUID(answered.body["clip_id"]), False, answered.body["clock_suspect"])


def _check_files(manifest: ClipManifest, files: Mapping[str, ReceivedFile]) -> None:
    announced = {stream.name for stream in manifest.streams}
    if missing := sorted(announced - files.keys()):
        raise Invalid(
            "stream-missing",
            f"the manifest announces the stream {missing[0]!r}, and no file of it was sent",
            f"add a file part named 'stream:{missing[0]}', or leave the stream out of the manifest",
        )
    if strange := sorted(files.keys() - announced):
        raise Invalid(
            "stream-unannounced",
            f"a file of the stream {strange[0]!r} was sent, which the manifest does not announce",
            "announce every stream in the manifest's `streams`",
        )
    for stream in manifest.streams:
        found = files[stream.name].sha256
        if stream.sha256 is not None and stream.sha256 != found:
            raise Invalid(
                "hash-mismatch",
                f"stream {stream.name!r} was announced with sha256 {stream.sha256}, its bytes hash to {found}",
                "send it again: it was damaged on the way, or the manifest belongs to another file",
            )


def _check_same(earlier: Clip, content_sha256: str) -> None:
    if earlier.manifest_sha256 != content_sha256:
        raise Conflict(
            "clip-conflict",
            f"clip {earlier.external_id!r} of this vehicle is there already, as {earlier.id}, with other content",
            "a clip is never changed: give the new recording an external id of its own",
        )


def _foresee(
    session: Session, project_id: uuid.UUID, manifest: ClipManifest, files: Mapping[str, ReceivedFile]
) -> None:
    """Refuse before bytes are kept what the recording would refuse, which looks again when its rows are locked."""
    group, drive = recordings.find_drive(session, project_id, manifest.vehicle, manifest.drive, manifest.split_group)
    if group is not None:
        _check_split(manifest, group)
    if drive is not None and (group is None or drive.split_group_id != group.id):
        raise _other_group(manifest, drive)
    for sha256, owner in recordings.claims(session, project_id, {file.sha256 for file in files.values()}).items():
        if drive is None or owner != drive.id:
            raise _other_drive(sha256, owner)


def _probe(probe: MediaProbe, manifest: ClipManifest, files: Mapping[str, ReceivedFile]) -> dict[str, StreamProbe]:
    found = {}
    for stream in manifest.streams:
        try:
            media = found[stream.name] = probe.probe(files[stream.name].path)
        except MediaRejected as refused:
            raise Invalid(
                "media-rejected",
                f"stream {stream.name!r}: {refused}",
                "check that the file plays, and send an MP4 with H.264 video",
            ) from refused
        fps = (len(media.pts) - 1) / media.duration_s if media.duration_s > 0 else None
        lie = stream.disagreement(media.codec, media.width, media.height, fps)
        if lie is not None:
            raise Invalid(
                "stream-mismatch",
                f"stream {stream.name!r}: {lie}",
                "correct the manifest, or send the file that it speaks of; what is not announced is read from the file",
            )
    return found


def _record(
    unit: UnitOfWork,
    principal: Principal,
    manifest: ClipManifest,
    content_sha256: str,
    probes: Mapping[str, StreamProbe],
    stored: Mapping[str, StoredBlob],
    now_ns: int,
) -> tuple[Clip, bool]:
    """All rows of the clip and its job. Rows are taken in one order everywhere, so that two uploads can't deadlock."""
    session, project_id = unit.session, principal.project_id
    vehicle = recordings.ensure_vehicle(session, project_id, manifest.vehicle, manifest.platform)
    # An erasure holds the vehicle while it leaves its tombstones: either they are seen here, or it waits and sees us.
    recordings.share_vehicle(session, vehicle.id)
    hashes = {blob.sha256 for blob in stored.values()}
    tombstones.refuse_erased(session, project_id, manifest.vehicle, manifest.drive, manifest.external_id, hashes)
    group = recordings.ensure_split_group(
        session,
        project_id,
        manifest.split_group,
        tombstones.split_of(session, project_id, manifest.split_group) or manifest.split or "pool",
        "manifest" if manifest.split else "default",
    )
    _check_split(manifest, group)
    drive = recordings.ensure_drive(session, vehicle, manifest.drive, group)
    if drive.split_group_id != group.id:
        raise _other_group(manifest, drive)
    clip, created = recordings.add_clip(
        session, _clip_columns(project_id, vehicle.id, drive, manifest, content_sha256, probes, now_ns)
    )
    if not created:
        _check_same(clip, content_sha256)
        return clip, False
    for sha256 in sorted({blob.sha256 for blob in stored.values()}):
        owner = recordings.claim_media(session, project_id, sha256, drive.id)
        if owner != drive.id:
            raise _other_drive(sha256, owner)
    blobs = {
        blob.sha256: register(session, project_id, blob, MEDIA_TYPE)
        for blob in sorted(stored.values(), key=lambda blob: blob.sha256)
    }
    for stream in manifest.streams:
        found = probes[stream.name]
        calibration = stream.calibration
        session.add(
            Stream(
                id=new_id(),
                project_id=project_id,
                clip_id=clip.id,
                name=stream.name,
                kind=stream.kind,
                blob_id=blobs[stored[stream.name].sha256].id,
                codec=found.codec,
                width=found.width,
                height=found.height,
                time_base_num=found.time_base_num,
                time_base_den=found.time_base_den,
                pts=list(found.pts),
                start_offset_ns=stream.start_offset_ns,
                calibration_id=recordings.ensure_calibration(session, project_id, calibration) if calibration else None,
            )
        )
    if clip.split == "pool":  # golden is for judging alone: it is never scored, so that it can never be chosen
        _enqueue_scores(unit, project_id, clip.id)
    return clip, True


def _check_split(manifest: ClipManifest, group: SplitGroup) -> None:
    if manifest.split is not None and manifest.split != group.split:
        raise Conflict(
            "split-conflict",
            f"split group {group.name!r} is {group.split}; this clip asks for {manifest.split}",
            "a group's split is decided with its first clip and stays: leave `split` out, or use another group",
        )


def _other_group(manifest: ClipManifest, drive: Drive) -> Conflict:
    return Conflict(
        "split-group-conflict",
        f"drive {drive.external_id!r} belongs to another split group than {manifest.split_group!r}",
        "all clips of a drive name the same split group: correct the manifest",
    )


def _other_drive(sha256: str, owner: uuid.UUID) -> Conflict:
    return Conflict(
        "media-of-another-drive",
        f"the bytes {sha256} belong to another drive ({owner}) already",
        "one recording belongs to one drive, or it could stand on both sides of a split: correct the manifest",
    )


def _clip_columns(
    project_id: uuid.UUID,
    vehicle_id: uuid.UUID,
    drive: Drive,
    manifest: ClipManifest,
    content_sha256: str,
    probes: Mapping[str, StreamProbe],
    now_ns: int,
) -> dict[str, Any]:
    ends = []
    for stream in manifest.streams:
        found = probes[stream.name]
        ends.append(
            capture_ns(
                manifest.start_ns,
                stream.start_offset_ns,
                found.pts[-1],
                found.pts[0],
                found.time_base_num,
                found.time_base_den,
            )
        )
    return {
        "id": new_id(),
        "project_id": project_id,
        "vehicle_id": vehicle_id,
        "drive_id": drive.id,
        "split": drive.split,
        "external_id": manifest.external_id,
        "manifest_sha256": content_sha256,
        "manifest": dict(manifest.document),
        "state": "received",
        "start_ns": manifest.start_ns,
        "end_ns": max(ends),
        "clock_source": manifest.clock_source,
        "clock_error_ns": manifest.clock_error_ns,
        "clock_suspect": manifest.clock_is_suspect(now_ns),
        "onboard_model_version": manifest.onboard_model_version,
        "onboard_software": manifest.onboard_software,
        "licence": manifest.licence,
        "allowed_purposes": list(manifest.allowed_purposes),
        "region": manifest.region,
        "retain_until": manifest.retain_until,
        "tags": dict(manifest.tags),
        "telemetry": [dict(sample) for sample in manifest.telemetry],
        "events": [dict(event) for event in manifest.events],
    }


def _enqueue_scores(unit: UnitOfWork, project_id: uuid.UUID, clip_id: uuid.UUID) -> None:
    """The champion of each line is to score the clip. A line without one scores it when it gets one."""
    for line_id, champion_id in _champions(unit.session, project_id):
        ledger.enqueue(
            unit,
            kind="score",
            project_id=project_id,
            subject_id=clip_id,
            dedupe_key=f"score:{clip_id}:{champion_id}",
            payload={"model_version_id": str(champion_id), "line_id": str(line_id)},
        )


def _champions(session: Session, project_id: uuid.UUID) -> list[tuple[uuid.UUID, uuid.UUID]]:
    # Locked against a promotion: either it sees this clip when it makes the pool's scoring due, or we see its champion.
    lines = session.execute(
        select(ModelLine.id, ModelLine.champion_id).where(ModelLine.project_id == project_id).with_for_update(read=True)
    )
    return [(line_id, champion_id) for line_id, champion_id in lines if champion_id is not None]
