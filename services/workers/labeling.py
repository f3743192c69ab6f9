"""The labeling worker: chooses what people label, keeps their window of tasks filled, takes what they say, erases."""

from __future__ import annotations

import logging
from contextlib import closing

from sqlalchemy import select

from engine.adapters.label_studio.client import LabelStudioBridge
from engine.jobs.ledger import Lease
from engine.ports import LabelToolRefused, LabelToolUnavailable
from engine.stages.accept import accept
from engine.stages.collect import collect
from engine.stages.erase import erase
from engine.stages.label_schedules import RECONCILE, ensure_all_label_schedules
from engine.stages.push import lock_name, push
from engine.stages.reconcile import reconcile
from engine.stages.retention import ensure_all_retention_schedules, expire
from engine.stages.select import select_batch
from engine.store.tables.labels import ToolProject
from engine.store.unit_of_work import Database
from services.hooks import LabelToolHook
from services.media_links import MediaLinks
from services.settings import Settings
from services.wiring import NotConfigured, opened
from services.workers.app import run_worker
from services.workers.roles import final

log = logging.getLogger(__name__)

PROJECT_PREFIX = "Longtail"
"""Leads the titles of our projects in the label tool."""


def run(settings: Settings) -> int:
    """Work until told to stop; returns the exit code. Raises NotConfigured."""
    links = MediaLinks(settings)
    with opened(settings) as wiring, closing(_bridge(settings)) as bridge:
        database = wiring.database
        webhook = _Webhook(database, bridge, LabelToolHook(settings))
        with database.unit() as unit:
            ensure_all_label_schedules(unit)
            ensure_all_retention_schedules(unit)
            unit.commit()

        def push_window(lease: Lease) -> object:
            pushed = push(
                database, wiring.blobs, wiring.reader, wiring.redactor, bridge, links.url, lease, settings.label_window
            )
            webhook.ensure(lease)
            return pushed

        def collect_or_reconcile(lease: Lease) -> object:
            if lease.payload.get(RECONCILE):
                return reconcile(database, bridge, lease, lock_name(lease.subject_id))
            return collect(database, bridge, lease)

        handlers = {
            "select": final(lambda lease: select_batch(database, wiring.blobs, lease)),
            "push": final(push_window),
            "collect": final(collect_or_reconcile),
            "accept": final(lambda lease: accept(database, lease)),
            "erase": final(lambda lease: erase(database, wiring.blobs, bridge, wiring.copies, lease)),
            "expire": final(lambda lease: expire(database, lease)),
        }
        return run_worker("labeling", settings, handlers, database)


class _Webhook:
    """Has the label tool call us when somebody has labelled: a hint that saves seconds, set up once a process."""

    def __init__(self, database: Database, bridge: LabelStudioBridge, hook: LabelToolHook) -> None:
        self._database, self._bridge, self._hook = database, bridge, hook
        self._settled: set[int] = set()

    def ensure(self, lease: Lease) -> None:
        """Set up the hook of the ontology's tool project, if that is still to do; a refusal leaves it to the sweep."""
        with self._database.read() as session:
            tool_project = session.scalar(
                select(ToolProject.tool_project).where(ToolProject.ontology_id == lease.subject_id)
            )
        if tool_project is None or tool_project in self._settled:
            return
        url, headers = self._hook.url(lease.project_id), self._hook.headers(lease.project_id)
        try:
            self._bridge.ensure_webhook(tool_project, url, headers)
        except LabelToolUnavailable:
            return  # the next push tries again
        except LabelToolRefused as refused:
            log.warning("no webhook, the sweep alone collects: %s", refused)
        self._settled.add(tool_project)


def _bridge(settings: Settings) -> LabelStudioBridge:
    if settings.label_studio_url is None or settings.label_studio_token is None:
        raise NotConfigured(
            "no label tool: set LONGTAIL_LABEL_STUDIO_URL and LONGTAIL_LABEL_STUDIO_TOKEN, or use `longtail up`, "
            "which starts one"
        )
    return LabelStudioBridge(settings.label_studio_url, settings.label_studio_token.get_secret_value(), PROJECT_PREFIX)
