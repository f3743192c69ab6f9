"""Templates, and how values are written on pages."""

from __future__ import annotations

import hashlib
import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

HERE = Path(__file__).parent
STATIC = HERE / "static"

_STEPS = ((60, "second"), (60, "minute"), (24, "hour"), (30, "day"), (12, "month"), (10**6, "year"))


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """The page or part, made of `values`; `visitor` is None on pages that need no session."""
    values.setdefault("visitor", None)
    values.setdefault("here", request.url.path)
    return HTMLResponse(_ENVIRONMENT.get_template(template).render(values), status)


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago, in the largest whole unit: "3 minutes ago"."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    amount, ahead = abs(seconds), seconds < -1
    if amount < 5:
        return "just now"
    unit = ""
    for size, name in _STEPS:
        unit = name
        if amount < size:
            break
        amount /= size
    whole = int(amount)
    words = f"{whole} {unit}{'' if whole == 1 else 's'}"
    return f"in {words}" if ahead else f"{words} ago"


def when(moment: datetime | None) -> Markup:
    """A time as people read it, with the whole of it as its title; a dash where there is none."""
    if moment is None:
        return Markup("–")
    moment = moment.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        moment.isoformat(timespec="seconds"), f"{moment:%Y-%m-%d %H:%M:%S} UTC", ago(moment)
    )


def moment_of_ns(nanoseconds: int) -> datetime:
    """A capture time as a datetime."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)


def percent(fraction: float | None, digits: int = 0) -> str:
    return "–" if fraction is None else f"{100 * fraction:.{digits}f}%"


def figure(value: float | None, digits: int = 3) -> str:
    """A metric; a dash where it could not be computed."""
    return "–" if value is None else f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 3) -> str:
    """A difference, with a minus that is as wide as the plus."""
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def count(value: int | None) -> str:
    """A count with thin spaces between thousands."""
    return "–" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def data_size(size: float) -> str:
    """Bytes in the largest unit that leaves a figure of 1 or more."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def plural(number: int, noun: str) -> str:
    """ "1 label", "2 labels"."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def short(identity: uuid.UUID | str) -> str:
    """The part of an id that tells it from its neighbours: their beginning is the time."""
    return str(identity)[-8:]


def spoken(name: str) -> str:
    """A name of the engine's as words."""
    return name.replace("_", " ")


def coded(text: str) -> Markup:
    """Text in which what stands between backticks is shown as code."""
    parts = [Markup.escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else p for i, p in enumerate(parts))


def data_block(value: Any) -> Markup:
    """JSON for a data block in the page: nothing in it can end the block."""
    text = json.dumps(value, default=str, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def asset(name: str) -> str:
    """The address of a static file, which changes with its content."""
    version = _VERSIONS.get(name)
    if version is None:
        version = _VERSIONS[name] = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={version}"


_VERSIONS: dict[str, str] = {}


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ago=ago,
        when=when,
        moment_of_ns=moment_of_ns,
        percent=percent,
        figure=figure,
        signed=signed,
        count=count,
        data_size=data_size,
        plural=plural,
        short=short,
        spoken=spoken,
        coded=coded,
        data_block=data_block,
    )
    environment.globals["asset"] = asset
    return environment


_ENVIRONMENT = _environment()
