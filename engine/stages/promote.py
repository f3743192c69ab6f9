"""Promote: a passed report moves the champion, compared and set in one transaction; roll back moves it back."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.domain.formats import ModelFormat
from engine.domain.refusals import Conflict
from engine.jobs import ledger
from engine.jobs.kinds import BACKFILL
from engine.store.blobs import sha256_of
from engine.store.lines import artifact_of, get_line, get_model
from engine.store.tables.access import AuditEntry
from engine.store.tables.metadata import new_id
from engine.store.tables.models import EmbeddingSpace, GateReport, ModelLine, ModelVersion, Promotion, Scoring
from engine.store.tables.recordings import Clip
from engine.store.unit_of_work import Database, UnitOfWork


class NotPromoted(Conflict):
    """The champion was not moved."""

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__("not-promoted", detail, hint)


@dataclass(frozen=True)
class Moved:
    """A champion that was moved, and how many clips are to be scored again."""

    promotion_id: uuid.UUID
    line: str
    from_number: int | None
    to_number: int
    rescored: int


def promote(database: Database, report_id: uuid.UUID, actor: str, lease: ledger.Lease | None = None) -> Moved:
    """Make the report's challenger the champion.

    Raises NotPromoted when the report did not pass, when the champion is no longer the one that it was compared with,
    or when the artifact is no longer the one that was judged.
    """
    with database.unit() as unit:
        session = unit.session
        report = session.get(GateReport, report_id)
        if report is None:
            raise NotPromoted(f"there is no gate report {report_id}", "list them with GET /v1/gate-reports")
        line = get_line(session, report.line_id, lock=True)
        challenger = get_model(session, report.challenger_id)
        if report.verdict != "passed":
            raise NotPromoted(
                f"version {challenger.number} was refused by the gate: {_reasons(report)}",
                "train a better one; a waiver can be asked for when it is judged, not after",
            )
        if line.champion_id == challenger.id:
            raise NotPromoted(f"version {challenger.number} is the champion already", "there is nothing to do")
        if line.champion_id != report.champion_id:
            raise NotPromoted(
                f"version {challenger.number} was compared with another champion than the one of now", "judge it again"
            )
        artifact = artifact_of(session, challenger.id)
        if {artifact.digest, sha256_of(session, artifact.blob_id)} != {report.challenger_weights_sha256}:
            raise NotPromoted(
                f"the weights of version {challenger.number} are not those that the gate judged", "judge it again"
            )
        if lease is not None:
            ledger.complete(unit, lease)
        moved = _move(unit, line, challenger, "promote", actor, report.id, None)
        unit.commit()
    return moved


def rollback(unit: UnitOfWork, line_id: uuid.UUID, actor: str, reason: str, to_number: int | None = None) -> Moved:
    """Make an earlier champion the champion again: the one before, or version `to_number`.

    Raises NotPromoted when there is no such champion to go back to.
    """
    line = get_line(unit.session, line_id, lock=True)
    target = _earlier_champion(unit.session, line, to_number)
    if target is None:
        raise NotPromoted(
            f"line {line.name!r} has no earlier champion to go back to"
            if to_number is None
            else f"version {to_number} never was champion of line {line.name!r}",
            "the promotions that there were stand in GET /v1/lines",
        )
    return _move(unit, line, target, "rollback", actor, None, reason)


def _earlier_champion(session: Session, line: ModelLine, to_number: int | None) -> ModelVersion | None:
    """Walks the promotions back; a version that was rolled away from is not gone back to by itself."""
    moves = session.scalars(
        select(Promotion).where(Promotion.line_id == line.id).order_by(Promotion.at, Promotion.id)
    ).all()
    stack: list[uuid.UUID] = []
    for move in moves:
        if move.act == "rollback" and move.to_model_id in stack:
            del stack[stack.index(move.to_model_id) + 1 :]
        else:
            stack.append(move.to_model_id)
    if to_number is not None:
        been = {move.to_model_id for move in moves} - {line.champion_id}
        return session.scalars(
            select(ModelVersion).where(
                ModelVersion.line_id == line.id, ModelVersion.number == to_number, ModelVersion.id.in_(been)
            )
        ).one_or_none()
    return get_model(session, stack[-2]) if len(stack) > 1 else None


def _move(
    unit: UnitOfWork,
    line: ModelLine,
    target: ModelVersion,
    act: str,
    actor: str,
    report_id: uuid.UUID | None,
    reason: str | None,
) -> Moved:
    session = unit.session
    before = get_model(session, line.champion_id) if line.champion_id else None
    promotion = Promotion(
        id=new_id(),
        project_id=line.project_id,
        line_id=line.id,
        act=act,
        from_model_id=before.id if before else None,
        to_model_id=target.id,
        gate_report_id=report_id,
        actor=actor,
        reason=reason,
    )
    session.add(promotion)
    session.add(
        AuditEntry(
            id=new_id(),
            project_id=line.project_id,
            actor=actor,
            act=act,
            object_kind="model_line",
            object_id=str(line.id),
            details={
                "from": before.number if before else None,
                "to": target.number,
                "weights_sha256": target.weights_sha256,
                "gate_report": str(report_id) if report_id else None,
                "reason": reason,
            },
        )
    )
    line.champion_id = target.id
    if line.embedding_space_id is None or _orphaned(session, line.embedding_space_id, target):
        # Pinned to the first champion's trunk, so that the pool and what is labelled stay comparable over turns.
        line.embedding_space_id = _space_of(session, target)
    rescored = _rescore(unit, line, target)
    if not rescored:
        line.selection_model_id = target.id
    session.flush()
    return Moved(promotion.id, line.name, before.number if before else None, target.number, rescored)


def _orphaned(session: Session, space_id: uuid.UUID, target: ModelVersion) -> bool:
    """Whether nobody could place new subjects in the space: its own model can't be asked, and no longer sends its
    answers. The rescoring that follows places the pool in the new champion's space."""
    pinned = session.get_one(EmbeddingSpace, space_id).model_version_id
    return pinned != target.id and artifact_of(session, pinned).format == ModelFormat.PREDICTIONS


def _space_of(session: Session, target: ModelVersion) -> uuid.UUID:
    """The model's own space. It may be there: of a model whose predictions were sent before it was crowned."""
    session.execute(
        insert(EmbeddingSpace)
        .values(id=new_id(), project_id=target.project_id, model_version_id=target.id)
        .on_conflict_do_nothing(index_elements=["model_version_id"])
    )
    return session.scalars(select(EmbeddingSpace.id).where(EmbeddingSpace.model_version_id == target.id)).one()


def _rescore(unit: UnitOfWork, line: ModelLine, champion: ModelVersion) -> int:
    """Make the scoring of every clip of the pool that the new champion has not scored due, behind live clips."""
    scored = select(Scoring.clip_id).where(Scoring.model_version_id == champion.id)
    clips = unit.session.scalars(
        select(Clip.id)
        .where(
            Clip.project_id == line.project_id,
            Clip.split == "pool",
            Clip.state.in_(("received", "scored")),
            Clip.id.not_in(scored),
        )
        .order_by(Clip.id)
    ).all()
    for clip_id in clips:
        ledger.enqueue(
            unit,
            kind="score",
            project_id=line.project_id,
            subject_id=clip_id,
            dedupe_key=f"score:{clip_id}:{champion.id}",
            payload={"model_version_id": str(champion.id), "line_id": str(line.id)},
            priority=BACKFILL,
        )
    return len(clips)


def _reasons(report: GateReport) -> str:
    return "; ".join(str(reason) for reason in report.reasons) or "no reason was recorded"
