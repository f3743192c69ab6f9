"""Who looks at a page, and what they may see and do there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Form, Request

from engine.domain.access import Principal
from engine.domain.refusals import NotAllowed, Unauthenticated
from engine.queries.sign_in import principal_of_token
from services.api.deps import Wired
from services.dashboard.session import COOKIE, Sessions, SignedIn
from services.wiring import Wiring


@dataclass(frozen=True)
class Visitor:
    """A person with a session; `form_token` goes into each form that they are shown."""

    principal: Principal
    signed_in: SignedIn
    form_token: str
    wiring: Wiring

    def may(self, scope: str) -> bool:
        return self.principal.may(scope)


def visitor(request: Request, wiring: Wired) -> Visitor:
    """The person whose session came with the request. Raises Unauthenticated."""
    sessions = Sessions(wiring.settings)
    signed_in = sessions.read(request.cookies.get(COOKIE))
    principal = None
    if signed_in is not None:
        with wiring.database.read() as session:
            principal = principal_of_token(session, signed_in.token_id)
    if signed_in is None or principal is None:
        raise Unauthenticated("not-signed-in", "you are not signed in", "sign in with a token")
    return Visitor(principal, signed_in, sessions.form_token(signed_in), wiring)


Seen = Annotated[Visitor, Depends(visitor)]


def seeing(scope: str) -> Callable[[Visitor], Visitor]:
    """A dependency: the visitor, whose token must have this scope. Raises NotAllowed."""

    def check(who: Seen) -> Visitor:
        who.principal.demand(scope)
        return who

    return check


def doing(scope: str) -> Callable[[Visitor, str], Visitor]:
    """A dependency of what changes something: the scope, and a form that was made for this very session."""

    def check(who: Seen, form_token: Annotated[str, Form()] = "") -> Visitor:
        if not Sessions(who.wiring.settings).form_token_is_right(who.signed_in, form_token):
            raise NotAllowed("stale-form", "this form is not from your present session", "load the page again")
        who.principal.demand(scope)
        return who

    return check
