"""The labeling worker: chooses what people label, keeps their window of tasks filled, and takes what they say."""

from __future__ import annotations

from contextlib import closing

from engine.adapters.label_studio.client import LabelStudioBridge
from engine.jobs.ledger import Lease
from engine.stages.accept import accept
from engine.stages.collect import collect
from engine.stages.label_schedules import RECONCILE, ensure_all_label_schedules
from engine.stages.push import lock_name, push
from engine.stages.reconcile import reconcile
from engine.stages.select import select_batch
from services.media_links import MediaLinks
from services.settings import Settings
from services.wiring import NotConfigured, opened
from services.workers.app import run_worker
from services.workers.roles import final

PROJECT_PREFIX = "Longtail"
"""Leads the titles of our projects in the label tool."""


def run(settings: Settings) -> int:
    """Work until told to stop; returns the exit code. Raises NotConfigured."""
    links = MediaLinks(settings)
    with opened(settings) as wiring, closing(_bridge(settings)) as bridge:
        database = wiring.database
        with database.unit() as unit:
            ensure_all_label_schedules(unit)
            unit.commit()

        def push_window(lease: Lease) -> object:
            return push(
                database, wiring.blobs, wiring.reader, wiring.redactor, bridge, links.url, lease, settings.label_window
            )

        def collect_or_reconcile(lease: Lease) -> object:
            if lease.payload.get(RECONCILE):
                return reconcile(database, bridge, lease, lock_name(lease.subject_id))
            return collect(database, bridge, lease)

        handlers = {
            "select": final(lambda lease: select_batch(database, lease)),
            "push": final(push_window),
            "collect": final(collect_or_reconcile),
            "accept": final(lambda lease: accept(database, lease)),
        }
        return run_worker("labeling", settings, handlers, database)


def _bridge(settings: Settings) -> LabelStudioBridge:
    if settings.label_studio_url is None or settings.label_studio_token is None:
        raise NotConfigured(
            "no label tool: set LONGTAIL_LABEL_STUDIO_URL and LONGTAIL_LABEL_STUDIO_TOKEN, or use `longtail up`, "
            "which starts one"
        )
    return LabelStudioBridge(settings.label_studio_url, settings.label_studio_token.get_secret_value(), PROJECT_PREFIX)
