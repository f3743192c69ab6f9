"""Select: a campaign's batch, under its budget: uncertain, diverse, not redundant, with a random control arm."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import CompoundSelect, Select, exists, func, or_, select
from sqlalchemy.orm import Session

from engine.acquisition.candidates import Candidate, Event, Instant
from engine.acquisition.choose import Choice, choose
from engine.acquisition.triggers import Trigger
from engine.domain.refusals import Conflict
from engine.jobs import ledger
from engine.ports import BlobStore
from engine.stages.score import move_selection
from engine.store.lines import get_line, lock_ontology
from engine.store.living import hold_subjects
from engine.store.predictions import class_scores
from engine.store.tables.labels import Campaign, Label, QueueItem, Selection
from engine.store.tables.metadata import new_id
from engine.store.tables.models import Embedding, ModelLine, Score, Scoring
from engine.store.tables.recordings import Blob, Clip, Frame, Stream, Subject
from engine.store.unit_of_work import Database

WINDOW_S = 1.0  # frames of a stream closer than this to a chosen one are redundant, unless the campaign says otherwise


class NothingToSelectFrom(Conflict):
    """No subject may be chosen now."""


class SelectionOvertaken(RuntimeError):
    """Something else was recorded while the batch was being chosen: choose again."""


@dataclass(frozen=True)
class Selected:
    """A selection that was recorded: of how many subjects of the pool, how many were queued, in which arm."""

    selection_id: uuid.UUID
    pool: int
    chosen: int
    control: int
    budget_left: int


def trigger_sha256(triggers: Sequence[Mapping[str, object]]) -> str:
    """The hash of a campaign's triggers, kept with every item that they chose."""
    return hashlib.sha256(json.dumps(list(triggers), sort_keys=True).encode()).hexdigest()


def select_batch(database: Database, blobs: BlobStore, lease: ledger.Lease) -> Selected | None:
    """Work a select job: none when the campaign is not active or has spent its budget.

    The choice is made with no transaction open. It is recorded under the locks of the campaign's row, its ontology's
    and its line's, and only if nothing else was selected under that ontology meanwhile: two selections, of one campaign
    or of two, of one line or of two, can't overspend a budget or choose a subject twice.
    Raises NothingToSelectFrom, and SelectionOvertaken when it must be made again.
    """
    with database.unit() as unit:
        move_selection(unit, unit.session.get_one(Campaign, lease.subject_id).line_id)
        unit.commit()
    with database.read() as session:
        campaign = session.get_one(Campaign, lease.subject_id)
        line = get_line(session, campaign.line_id)
        size = min(campaign.batch_size, campaign.budget - campaign.spent)
        before = _selections(session, line.ontology_id)
        idle = campaign.state != "active" or size <= 0
        candidates = [] if idle else _pool(session, campaign, line)
        labelled = [] if idle else _labelled_embeddings(session, campaign, line)
        occupied = [] if idle else _occupied(session, campaign, line)
        if any(trigger["name"] == "rare_class" for trigger in campaign.triggers):
            candidates = _with_class_scores(session, blobs, line, candidates)
    if idle:
        with database.unit() as unit:
            ledger.complete(unit, lease)
            unit.commit()
        return None
    seed = _batch_seed(campaign, before)
    choices = choose(
        candidates,
        labelled,
        size,
        seed=seed,
        heads=campaign.heads,
        control_fraction=campaign.control_fraction,
        window_ns=int(campaign.settings.get("window_s", WINDOW_S) * 1e9),
        triggers=[Trigger.from_document(document) for document in campaign.triggers],
        occupied=occupied,
    )
    subjects = {uuid.UUID(choice.subject_id) for choice in choices}
    with database.unit() as unit:
        session = unit.session
        living = hold_subjects(session, subjects)
        campaign = session.get_one(Campaign, lease.subject_id, with_for_update=True)
        lock_ontology(session, line.ontology_id)
        now = get_line(session, campaign.line_id, lock=True)
        payable = campaign.state == "active" and len(choices) <= campaign.budget - campaign.spent
        overtaken = (
            _selections(session, line.ontology_id) != before or now.selection_model_id != line.selection_model_id
        )
        if not payable or overtaken or living != subjects:
            raise SelectionOvertaken(
                f"campaign {campaign.name!r} or its scores moved on while its batch was being chosen"
            )
        selection = Selection(
            id=new_id(),
            project_id=campaign.project_id,
            campaign_id=campaign.id,
            model_version_id=line.selection_model_id,
            pool_size=len(candidates),
            candidates=sum(any(head in c.quantiles for head in campaign.heads) for c in candidates),
            seed=seed,
        )
        session.add(selection)
        session.flush()
        session.add_all(_item(campaign, line, selection, choice) for choice in choices)
        campaign.spent += len(choices)
        ledger.complete(unit, lease)
        if choices:
            ledger.enqueue(
                unit,
                kind="push",
                project_id=campaign.project_id,
                subject_id=line.ontology_id,
                dedupe_key=f"push:{line.ontology_id}:{selection.id}",
            )
        left = campaign.budget - campaign.spent
        unit.commit()
    control = sum(choice.arm == "control" for choice in choices)
    return Selected(selection.id, len(candidates), len(choices) - control, control, left)


def _selections(session: Session, ontology_id: uuid.UUID) -> int:
    """How many selections all lines of the ontology have seen: each takes subjects away from the others."""
    query = (
        select(func.count())
        .select_from(Selection)
        .join(Campaign, Campaign.id == Selection.campaign_id)
        .join(ModelLine, ModelLine.id == Campaign.line_id)
    )
    return session.scalar(query.where(ModelLine.ontology_id == ontology_id)) or 0


def _batch_seed(campaign: Campaign, before: int) -> int:
    """Another seed for every batch, and the same one when the batch is looked at again."""
    digest = hashlib.sha256(f"{campaign.id}:{campaign.seed}:{before}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _item(campaign: Campaign, line: ModelLine, selection: Selection, choice: Choice) -> QueueItem:
    return QueueItem(
        id=new_id(),
        project_id=campaign.project_id,
        campaign_id=campaign.id,
        selection_id=selection.id,
        subject_id=uuid.UUID(choice.subject_id),
        ontology_id=line.ontology_id,
        model_version_id=line.selection_model_id,
        trigger_sha256=campaign.trigger_sha256,
        arm=str(choice.arm),
        inclusion_probability=choice.inclusion_probability,
        seed=selection.seed,
        reason=dict(choice.reason),
        heads=list(campaign.heads),
        # Within a batch the rank decides, and the campaign's priority between batches.
        priority=campaign.priority - choice.rank / (campaign.batch_size + 1),
    )


def _taken(line: ModelLine, campaign: Campaign) -> Select[uuid.UUID]:
    """Subjects that may not be chosen again: this campaign had them, or someone else's task is open or answered."""
    return select(QueueItem.subject_id).where(
        or_(
            QueueItem.campaign_id == campaign.id,
            (QueueItem.ontology_id == line.ontology_id) & QueueItem.state.in_(("queued", "open", "labelled")),
        )
    )


def _pool(session: Session, campaign: Campaign, line: ModelLine) -> list[Candidate]:
    if line.selection_model_id is None:
        raise NothingToSelectFrom(
            "nothing-scored",
            f"line {line.name!r} has no model version that has scored the whole pool yet",
            "wait for the score jobs, or promote a first champion",
        )
    wanted_labelled = (
        select(Label.subject_id)
        .where(Label.ontology_id == line.ontology_id, Label.head.in_(campaign.heads), Label.superseded_by_id.is_(None))
        .group_by(Label.subject_id)
        .having(func.count() >= len(campaign.heads))
    )
    rows = session.execute(
        select(Subject.id, Clip, Stream.name, Frame.capture_ns, Embedding.vector)
        .join(Frame, Frame.id == Subject.frame_id)
        .join(Stream, Stream.id == Frame.stream_id)
        .join(Clip, Clip.id == Subject.clip_id)
        .join(Embedding, (Embedding.subject_id == Subject.id) & (Embedding.space_id == line.embedding_space_id))
        .where(
            Subject.project_id == campaign.project_id,
            Subject.split == "pool",
            Clip.state == "scored",
            Clip.allowed_purposes.contains(["training"]),
            Subject.id.not_in(_taken(line, campaign)),
            Subject.id.not_in(wanted_labelled),
            exists().where(
                Score.subject_id == Subject.id,
                Score.scoring_id == Scoring.id,
                Scoring.model_version_id == line.selection_model_id,
            ),
        )
        .order_by(Subject.id)
    ).all()
    quantiles: dict[uuid.UUID, dict[str, float]] = defaultdict(dict)
    for subject, head, quantile in session.execute(
        select(Score.subject_id, Score.head, Score.quantile)
        .join(Scoring, Scoring.id == Score.scoring_id)
        .where(Scoring.model_version_id == line.selection_model_id, Score.project_id == campaign.project_id)
    ):
        quantiles[subject][head] = quantile
    return [
        Candidate(
            subject_id=str(subject),
            drive_id=_timeline(clip.drive_id, clip.id, clip.clock_suspect),
            clip_id=str(clip.id),
            stream=stream,
            capture_ns=capture_ns,
            quantiles=quantiles[subject],
            embedding=np.asarray(vector, dtype=np.float64).tolist(),
            tags={key: str(value) for key, value in clip.tags.items()},
            events=[Event(event["name"], event["t_ns"]) for event in clip.events],
        )
        for subject, clip, stream, capture_ns, vector in rows
    ]


def _with_class_scores(
    session: Session, blobs: BlobStore, line: ModelLine, candidates: Sequence[Candidate]
) -> list[Candidate]:
    """The candidates with what their predictions hold: worth reading only for a trigger that asks for it."""
    scored = session.execute(
        select(Scoring.clip_id, Blob.sha256)
        .join(Blob, Blob.id == Scoring.predictions_blob_id)
        .where(
            Scoring.model_version_id == line.selection_model_id,
            Scoring.clip_id.in_({uuid.UUID(candidate.clip_id) for candidate in candidates}),
        )
    )
    known: dict[str, dict[str, dict[str, float]]] = {}
    for _, sha256 in scored:
        if sha256 is not None:
            known.update(class_scores(blobs.read(sha256)))
    return [replace(candidate, class_scores=known.get(candidate.subject_id, {})) for candidate in candidates]


def _settled(campaign: Campaign, line: ModelLine) -> CompoundSelect[uuid.UUID]:
    """Subjects labelled for a head that the campaign wants, or queued: depth alone settles nothing of lanes."""
    labelled = select(Label.subject_id).where(
        Label.ontology_id == line.ontology_id, Label.head.in_(campaign.heads), Label.superseded_by_id.is_(None)
    )
    return labelled.union(
        select(QueueItem.subject_id).where(
            QueueItem.ontology_id == line.ontology_id, QueueItem.state.in_(("queued", "open", "labelled"))
        )
    )


def _labelled_embeddings(session: Session, campaign: Campaign, line: ModelLine) -> list[list[float]]:
    """Where the labelled and the queued already are, in the line's embedding space."""
    vectors = session.scalars(
        select(Embedding.vector).where(
            Embedding.space_id == line.embedding_space_id, Embedding.subject_id.in_(_settled(campaign, line))
        )
    )
    return [np.asarray(vector, dtype=np.float64).tolist() for vector in vectors]


def _occupied(session: Session, campaign: Campaign, line: ModelLine) -> list[Instant]:
    """When the labelled and the queued were taken: their neighbours are redundant."""
    rows = session.execute(
        select(Clip.drive_id, Clip.id, Clip.clock_suspect, Stream.name, Frame.capture_ns)
        .join(Stream, Stream.id == Frame.stream_id)
        .join(Clip, Clip.id == Frame.clip_id)
        .where(Frame.id.in_(_settled(campaign, line)))
    )
    return [Instant(_timeline(drive, clip, suspect), stream, at) for drive, clip, suspect, stream, at in rows]


def _timeline(drive_id: uuid.UUID, clip_id: uuid.UUID, clock_suspect: bool) -> str:
    """Within what times can be compared: the drive, but only the clip itself where its clock is wrong.

    A clock that starts at 1970 with each clip would make all clips of a drive one moment.
    """
    return str(clip_id if clock_suspect else drive_id)
