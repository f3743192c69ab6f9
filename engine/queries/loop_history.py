"""What the gate has seen of each head over a line's reports, and how often champions moved."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.domain.ontology import Metric
from engine.store.tables.models import GateReport, ModelVersion, Promotion

MOST_REPORTS = 40  # of a line, the newest; a chart of more is not read


@dataclass(frozen=True)
class Turn:
    """One head in one gate report.

    `reference` is the champion's metric (the dumb baseline's under the floor rule); `low` and `high` are the metric
    that the challenger would have at the ends of the difference's interval. None where it was not measured.
    """

    report_id: uuid.UUID
    challenger: int
    at: datetime
    verdict: str
    promoted: bool
    value: float | None
    reference: float | None
    reference_name: str
    low: float | None
    high: float | None


@dataclass(frozen=True)
class HeadHistory:
    """A head's turns, oldest first, and which way is better."""

    head: str
    metric: str
    higher_is_better: bool
    turns: Sequence[Turn]


def history(session: Session, line_id: uuid.UUID) -> list[HeadHistory]:
    """By head, in the order of the newest report that measured them."""
    promoted = select(Promotion.gate_report_id).where(Promotion.line_id == line_id, Promotion.act == "promote")
    rows = session.execute(
        select(GateReport, ModelVersion.number, GateReport.id.in_(promoted))
        .join(ModelVersion, ModelVersion.id == GateReport.challenger_id)
        .where(GateReport.line_id == line_id)
        .order_by(GateReport.id.desc())
        .limit(MOST_REPORTS)
    ).all()
    found: dict[str, tuple[str, list[Turn]]] = {}
    for report, number, was_promoted in rows:
        for row in report.report.get("rows", ()):
            if row["slice"] is not None:
                continue
            sign = 1 if Metric(row["metric"]).higher_is_better else -1

            def at(end: float | None, reference: float | None = row["reference"], sign: int = sign) -> float | None:
                return None if end is None or reference is None else reference + sign * end

            found.setdefault(row["head"], (row["metric"], []))[1].append(
                Turn(
                    report_id=report.id,
                    challenger=number,
                    at=report.created_at,
                    verdict=report.verdict,
                    promoted=bool(was_promoted),
                    value=row["challenger"],
                    reference=row["reference"],
                    reference_name=row["reference_name"],
                    low=at(row["low"]),
                    high=at(row["high"]),
                )
            )
    return [
        HeadHistory(head, metric, Metric(metric).higher_is_better, turns[::-1])
        for head, (metric, turns) in found.items()
    ]


def promotions(session: Session, project_id: uuid.UUID) -> int:
    """How often a challenger took over; roll-backs are not counted."""
    query = select(func.count()).where(Promotion.project_id == project_id, Promotion.act == "promote")
    return session.scalar(query) or 0
