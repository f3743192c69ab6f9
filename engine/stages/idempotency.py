"""The same request gets the same answer: what a caller marked with an `Idempotency-Key` is done once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from engine.domain.access import Principal
from engine.domain.refusals import Invalid
from engine.store import idempotency
from engine.store.tables.access import IdempotencyKey
from engine.store.unit_of_work import Database, UnitOfWork


@dataclass(frozen=True)
class Answer:
    """What a caller is told."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RequestKey:
    """A caller's key for a request, and the hash of all that makes the request what it is."""

    principal: Principal
    key: str
    request_sha256: str


def replayed(session: Session, request: RequestKey | None) -> Answer | None:
    """The answer that was given before. Raises Invalid when the key was used for another request."""
    if request is None:
        return None
    who = request.principal
    return _answer_of(idempotency.find(session, who.project_id, str(who), request.key), request)


def remember(session: Session, request: RequestKey | None, answer: Answer) -> Answer:
    """Keep `answer` in this transaction; returns what to tell the caller: another answer if that one was first."""
    if request is None:
        return answer
    who = request.principal
    earlier = idempotency.remember(
        session,
        who.project_id,
        str(who),
        request.key,
        request.request_sha256,
        answer.status,
        answer.body,
        answer.headers,
    )
    return _answer_of(earlier, request) or answer


def once(database: Database, request: RequestKey | None, act: Callable[[UnitOfWork], Answer]) -> Answer:
    """Do `act` and keep its answer in one transaction, unless this request was answered before."""
    with database.unit() as unit:
        earlier = replayed(unit.session, request)
        if earlier is not None:
            return earlier
        answer = act(unit)
        told = remember(unit.session, request, answer)
        if told is answer:  # else the same request was answered while we worked: what we did here is undone
            unit.commit()
        return told


def _answer_of(row: IdempotencyKey | None, request: RequestKey) -> Answer | None:
    if row is None:
        return None
    if row.request_sha256 != request.request_sha256:
        raise Invalid(
            "idempotency-key-reused",
            f"the Idempotency-Key {request.key!r} was used for a request with other content",
            "make a new key for each new request, and keep it only for retries of the same one",
        )
    return Answer(row.status, row.body, row.headers)
