"""Which errors are the user's to mend: those whose message says what to do."""

from __future__ import annotations


def mendable(error: Exception) -> str | None:
    """What to tell the user, where that is of more use than a traceback."""
    import httpx
    from pydantic import ValidationError
    from sqlalchemy.exc import OperationalError

    from engine.adapters.formats.camvid import CamVidError
    from engine.domain.ontology import OntologyError
    from engine.domain.refusals import Refused
    from engine.ports import MediaRejected
    from services.cli.reach import NotReachable
    from services.demo.turns import TurnFailed
    from services.local.refusals import CannotStart
    from services.local.state import AlreadyRunning
    from services.local.supervisor import StartFailed
    from services.uplink import UplinkError
    from services.wiring import NotConfigured

    if isinstance(error, Refused):
        return f"{error.detail}: {error.hint}"
    if isinstance(error, OperationalError):
        return f"the database can't be reached: {error.orig}"
    if isinstance(error, httpx.TransportError):
        return f"the API can't be reached: {error}"
    plain = (
        NotReachable
        | AlreadyRunning
        | StartFailed
        | CannotStart
        | OntologyError
        | MediaRejected
        | ValidationError
        | NotConfigured
        | UplinkError
        | CamVidError
        | TurnFailed
    )
    return str(error) if isinstance(error, plain) else None
