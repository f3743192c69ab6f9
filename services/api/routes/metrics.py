"""/metrics for Prometheus: gauges read from the database, so that every API process says the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.domain.access import Principal
from engine.queries.gauges import Gauges, gauges
from services.api.deps import Wired, having

router = APIRouter(tags=["health"])


class DatabaseCollector(Collector):
    """Turns one reading of the database into metric families."""

    def __init__(self, reading: Gauges) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Metric]:
        """One family for each thing that is counted."""
        reading = self._reading
        families = (
            ("longtail_jobs", "Jobs of the ledger", ("kind", "state"), reading.jobs),
            ("longtail_oldest_due_job_seconds", "How long the oldest due job waits", ("kind",), reading.oldest_due_s),
            ("longtail_clips", "Clips", ("state", "split"), reading.clips),
            ("longtail_queue_items", "Items of the label queue", ("state", "arm"), reading.queue),
            ("longtail_label_tasks", "Tasks in the label tool", ("state",), reading.tasks),
            ("longtail_labels", "Current labels", ("head", "source"), reading.labels),
            ("longtail_champion_number", "Version number of a line's champion", ("line",), reading.champions),
        )
        for name, documentation, labels, rows in families:
            family = GaugeMetricFamily(name, documentation, labels=labels)
            for *values, number in rows:
                family.add_metric([str(value) for value in values], float(number))
            yield family


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
def metrics(wiring: Wired, principal: Annotated[Principal, Depends(having("metrics:read"))]) -> Response:
    """Needs a token with `metrics:read`: set it as the scraper's bearer token."""
    with wiring.database.read() as session:
        reading = gauges(session)
    registry = CollectorRegistry()
    registry.register(DatabaseCollector(reading))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
