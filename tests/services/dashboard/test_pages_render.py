"""Every page, over an empty database and over a full one."""

from __future__ import annotations

import time

LISTS = (
    "/",
    "/loop/now",
    "/queue",
    "/gate-reports",
    "/clips",
    "/datasets",
    "/runs",
    "/models",
    "/jobs",
    "/schedules",
    "/schedules/now",
)


def test_an_empty_project_is_told_what_to_do(site):
    client = site.visitor()
    for address in LISTS:
        answer = client.get(address)
        assert answer.status_code == 200, f"{address}: {answer.text[:2000]}"
        assert 'class="empty"' in answer.text, address


def test_every_page_of_a_full_project(full_site):
    fleet = full_site.fleet
    client = full_site.visitor()
    addresses = [
        *LISTS,
        "/queue?state=all&campaign=night+lanes&arm=control&head=lanes",
        "/clips?state=scored&split=pool",
        "/jobs?state=dead",
        *(f"/gate-reports/{i}" for i in fleet.report_ids),
        *(f"/models/{i}" for i in fleet.model_ids),
        *(f"/runs/{i}" for i in fleet.run_ids),
        *(f"/datasets/{i}" for i in fleet.dataset_ids),
        *(f"/clips/{i}" for i in fleet.clip_ids),
    ]
    slowest = 0.0
    for address in addresses:
        started = time.perf_counter()
        answer = client.get(address)
        assert answer.status_code == 200, f"{address}: {answer.text[:2000]}"
        slowest = max(slowest, time.perf_counter() - started)
    # Far above what a page takes (some 10 ms): this catches a query for each row, not a busy machine.
    assert slowest < 2
