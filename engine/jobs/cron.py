"""Cron expressions in a time zone: the next time that one means, also where clocks are moved."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from engine.domain.refusals import Invalid

FIELDS = 5


def next_time(expression: str, time_zone: str, after: datetime) -> datetime:
    """The first time in UTC, later than `after` (with zone), that the expression names in the time zone.

    It does as Debian's cron does: a time of day that a move of the clocks leaves out comes right after the move, one
    that comes twice is taken once, the first time; what recurs within the hour ("*/20 * * * *", "0 * * * *") goes on
    by elapsed time. Raises Invalid for an expression or a zone that is none, or a time that never comes.
    """
    zone = _zone(time_zone)
    if len(expression.split()) != FIELDS:
        raise _invalid(expression, f"it has {len(expression.split())} fields", FIELDS_HINT)
    try:
        times = CronSim(expression, after.astimezone(zone))
        # Within an hour that comes twice, cronsim begins with the first of the two, which can be over.
        return next(time for time in (at.astimezone(UTC) for at in times) if time > after)
    except CronSimError as error:
        raise _invalid(expression, str(error).lower(), FIELDS_HINT) from error
    except StopIteration:
        raise _invalid(
            expression, "no such day comes in the next 50 years", "choose a day that its months have"
        ) from None


FIELDS_HINT = 'give minute, hour, day of month, month and day of week, as in "30 3 * * MON"'


def explained(expression: str) -> str:
    """The expression as people say it: "At 03:30 on Monday"."""
    try:
        return CronSim(expression, datetime.now(UTC)).explain()
    except CronSimError:
        return expression


def _invalid(expression: str, what: str, hint: str) -> Invalid:
    return Invalid("invalid-cron", f"{expression!r} is no cron expression that can be kept to: {what}", hint)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # no such zone; a path; a folder of zones
        raise Invalid(
            "unknown-time-zone", f"there is no time zone {name!r}", 'name one of the IANA\'s, as in "Europe/Berlin"'
        ) from error
