"""The schedules page in a real browser: it keeps itself up to date, and its buttons do what they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from engine.store.tables.work import Schedule

pytestmark = pytest.mark.browser


def execute(site: Any, sql: str) -> None:
    with Session(site.engine) as session:
        session.execute(text(sql))
        session.commit()


@pytest.fixture
def visit(full_site, page) -> Iterator[Any]:
    """The page, signed in; what the console says but for refusals that a test asks for must be nothing."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type != "verbose" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{full_site.url}/schedules")
    page.get_by_label("Token").fill(full_site.secret("admin"))
    page.keyboard.press("Enter")
    page.wait_for_url(f"{full_site.url}/schedules")
    yield page
    page.wait_for_load_state("networkidle")
    assert [line for line in said if "409" not in line] == []


def row(visit: Any, name: str) -> Any:
    return visit.locator("tr", has=visit.get_by_text(name, exact=True)).first


def test_a_schedule_is_paused_resumed_and_run(full_site, visit):
    assert visit.get_by_role("link", name="Schedules").get_attribute("aria-current") == "page"
    weekly = row(visit, "weekly")
    weekly.get_by_role("button", name="Pause").click()
    visit.get_by_text("weekly is paused.").wait_for()
    assert weekly.locator(".badge").inner_text() == "paused"
    weekly.get_by_role("button", name="Resume").click()
    visit.get_by_text("weekly goes on from now.").wait_for()
    weekly.get_by_role("button", name="Run now").click()
    visit.get_by_text("can't run now: a run of its line is running").wait_for()
    execute(full_site, "UPDATE runs SET state = 'finished'")
    weekly.get_by_role("button", name="Run now").click()
    visit.get_by_text("weekly retrains its line now.").wait_for()
    newest = visit.locator("section", has_text="What they made").locator("tbody tr").first
    assert "by hand" in newest.inner_text()
    assert "freezing" in newest.inner_text()


def test_it_is_removed_only_when_that_is_confirmed_and_by_keyboard(full_site, visit):
    opener = row(visit, "rested").get_by_role("button", name="Remove")
    opener.focus()
    visit.keyboard.press("Enter")
    dialog = visit.get_by_role("dialog", name="Remove rested?")
    assert dialog.is_visible()
    visit.wait_for_timeout(4500)  # the page has kept itself up to date meanwhile
    assert dialog.is_visible()
    visit.keyboard.press("Escape")
    assert not dialog.is_visible()
    opener.click()
    dialog.get_by_role("button", name="Remove").click()
    visit.wait_for_load_state("networkidle")
    assert visit.get_by_text("rested", exact=True).count() == 0
    assert visit.get_by_text("weekly", exact=True).count() > 0
    with Session(full_site.engine) as session:
        assert session.get(Schedule, full_site.fleet.schedule_ids["rested"]) is None


def test_what_happens_elsewhere_shows_without_a_reload_and_takes_no_focus(full_site, visit):
    button = row(visit, "fed by labels").get_by_role("button", name="Pause")
    button.focus()
    execute(full_site, "UPDATE schedules SET counted = 487 WHERE new_labels IS NOT NULL")
    visit.get_by_text("487 of 500").wait_for(timeout=9000)
    assert visit.evaluate("document.activeElement.innerText") == "Pause"
