"""Logs: structlog for our own lines and for those of libraries, one format for all, to standard error."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from services.settings import Settings


def set_up(settings: Settings, role: str) -> None:
    """Every line of this process has a UTC time, a level and its role; JSON where the settings say so."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ]
            if settings.log_format == "json"
            else [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())
    for noisy in ("celery", "kombu", "httpx", "httpcore", "amqp"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    structlog.contextvars.bind_contextvars(role=role)
