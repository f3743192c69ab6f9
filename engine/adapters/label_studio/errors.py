"""The label tool's failures as the two that the stages know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from label_studio_sdk.core.api_error import ApiError
from label_studio_sdk.core.parse_error import ParsingError

from engine.ports import LabelToolRefused, LabelToolUnavailable

# Answers below 500 that say "later" and not "no": timeout, too early, too many requests.
_LATER = (408, 425, 429)
_LONGEST_MESSAGE = 2000


@contextmanager
def tool_errors(what: str) -> Iterator[None]:
    """Raise LabelToolUnavailable for no answer, a broken one or a 5xx, LabelToolRefused for a 4xx, saying at `what`."""
    try:
        yield
    except ApiError as failed:
        status = failed.status_code
        message = f"the label tool at {what}: {status or 'no status'} {_message(failed.body)}"
        if status is not None and 400 <= status < 500 and status not in _LATER:
            raise LabelToolRefused(message) from failed
        raise LabelToolUnavailable(message) from failed
    except httpx.HTTPError as failed:
        raise LabelToolUnavailable(f"the label tool at {what}: {type(failed).__name__} {failed}".rstrip()) from failed
    except (ParsingError, TypeError, AttributeError, ValueError) as failed:
        # The SDK builds its objects unchecked, so that an answer of the wrong shape fails wherever it is first touched.
        raise LabelToolUnavailable(f"the label tool at {what}: an answer that is not its own ({failed})") from failed


def _message(body: Any) -> str:
    """What the tool says is wrong, from its several forms of saying it, cut to a readable length."""
    if isinstance(body, dict):
        parts = [str(body["detail"])] if body.get("detail") else []
        fields = body.get("validation_errors") or ({} if parts else body)
        if isinstance(fields, dict):
            parts += [f"{name}: {text}" for name, text in fields.items()]
        else:
            parts.append(str(fields))
        body = "; ".join(parts)
    return " ".join(str(body).split())[:_LONGEST_MESSAGE]
