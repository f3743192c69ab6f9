"""The pages in a real browser: signing in, filters, keys, overlays, phones; and nothing in the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.orm import Session

from engine.store.tables.labels import QueueItem

pytestmark = pytest.mark.browser


@pytest.fixture
def visit(full_site, page) -> Iterator[Any]:
    """A page that has signed in, after which the console must be empty."""
    said: list[str] = []

    def failed(request: Any) -> None:
        if "ERR_ABORTED" not in request.failure:  # what was on its way when the test left the page
            said.append(f"{request.url}: {request.failure}")

    page.on("console", lambda message: said.append(message.text) if message.type != "verbose" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", failed)
    page.on("response", lambda answer: said.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{full_site.url}/queue")
    page.get_by_label("Token").fill(full_site.secret("admin"))
    page.keyboard.press("Enter")
    page.wait_for_url(f"{full_site.url}/queue")
    yield page
    page.wait_for_load_state("networkidle")
    assert said == []


def state_of(site, item_id) -> str:
    with Session(site.engine) as session:
        return session.get_one(QueueItem, item_id).state


def first_item(page) -> str:
    return page.locator(".card").first.get_attribute("data-item")


def drawn_pixels(page, selector: str) -> int:
    """How many pixels of a canvas are not clear."""
    return page.eval_on_selector(
        selector,
        # A copy is read: reading the canvas itself more than once is something that Chromium complains of.
        """canvas => { const copy = new OffscreenCanvas(canvas.width || 1, canvas.height || 1).getContext('2d');
                       copy.drawImage(canvas, 0, 0);
                       const d = copy.getImageData(0, 0, copy.canvas.width, copy.canvas.height).data;
                       let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; }""",
    )


def test_filters_apply_themselves_and_stand_in_the_address(visit):
    visit.get_by_label("Arm").select_option("control")
    visit.wait_for_url("**arm=control**")
    assert "campaign=" not in visit.url, "what is not set is not in the address"
    assert visit.locator(".card").count() == 1
    visit.get_by_role("link", name="all").click()
    visit.wait_for_url("**state=all**")
    assert "arm=control" in visit.url
    assert visit.locator(".card").count() == 2


def test_overlays_are_drawn_as_they_are_toggled(visit):
    canvas = ".card:first-child canvas"
    # Until somebody chooses, the heads that the campaign wants are shown, and no other.
    checked = visit.locator("#overlays input:checked").evaluate_all("boxes => boxes.map(box => box.value)")
    assert checked
    assert "depth" not in checked
    visit.keyboard.press("0")
    visit.wait_for_selector(f"{canvas}[data-drawn='']", state="attached")
    assert drawn_pixels(visit, canvas) == 0
    drawn = {}
    for head in ("driveable", "lanes", "objects", "depth"):
        box = visit.locator(f"#overlays input[value={head}]")
        box.check()
        visit.wait_for_selector(f".card:first-child canvas[data-drawn={head}]", state="attached")
        drawn[head] = drawn_pixels(visit, canvas)
        box.uncheck()
        visit.wait_for_selector(".card:first-child canvas[data-drawn='']", state="attached")
        assert drawn_pixels(visit, canvas) == 0
    assert all(drawn.values()), drawn
    assert drawn["lanes"] < drawn["driveable"], "lines cover less than an area"
    # The choice is kept from page to page.
    visit.locator("#overlays input[value=lanes]").check()
    visit.reload()
    visit.wait_for_selector(".card:first-child canvas[data-drawn=lanes]", state="attached")


def test_pictures_come_and_nothing_jumps(visit):
    visit.wait_for_function("() => [...document.images].slice(0, 3).every(i => i.complete && i.naturalWidth > 0)")
    shift = visit.evaluate(
        """() => new Promise(done => { const moved = [];
             new PerformanceObserver(list => { for (const e of list.getEntries()) for (const s of e.sources)
                 moved.push(`${e.value.toFixed(3)} ${s.node?.nodeName} ${s.node?.className}`); })
               .observe({type: 'layout-shift', buffered: true});
             setTimeout(() => done(moved), 200); })"""
    )
    assert shift == []


def test_the_queue_by_keyboard(full_site, visit):
    visit.locator("body").press("j")
    visit.keyboard.press("j")
    second = visit.evaluate("document.activeElement.dataset.item")
    assert second == visit.locator(".card").nth(1).get_attribute("data-item")
    visit.keyboard.press("k")
    assert visit.evaluate("document.activeElement.dataset.item") == first_item(visit)
    visit.keyboard.press("j")

    visit.keyboard.press("p")
    visit.get_by_text("Now first in the queue").wait_for()
    assert visit.evaluate("document.activeElement.dataset.item") == second, "the focus stays where it was"
    visit.keyboard.press("u")
    visit.get_by_text("became").wait_for()

    visit.keyboard.press("d")
    visit.keyboard.press("Escape")
    assert state_of(full_site, second) == "queued", "Escape drops nothing"
    visit.keyboard.press("d")
    visit.get_by_label("Why").fill("blurred")
    visit.keyboard.press("Enter")
    visit.get_by_text("Dropped: nobody will be asked").wait_for()
    assert state_of(full_site, second) == "dropped"
    assert visit.locator(f"#item-{second}").get_attribute("data-state") == "dropped"
    assert [visit.locator(f"[data-count={name}]").inner_text() for name in ("queued", "dropped", "all")] == [
        "8",
        "2",
        "15",
    ]
    visit.keyboard.press("u")
    visit.get_by_text("Back in the queue").wait_for()
    assert state_of(full_site, second) == "queued"

    second_head = visit.locator("#overlays input").nth(1)
    before = second_head.is_checked()
    visit.keyboard.press("2")
    assert second_head.is_checked() != before
    visit.keyboard.press("0")
    assert visit.locator("#overlays input:checked").count() == 0
    visit.keyboard.press("?")
    assert visit.get_by_role("dialog", name="Keys").is_visible()


def test_a_priority_is_set_and_typing_it_is_no_key(visit):
    visit.locator("body").press("j")
    visit.keyboard.press("s")
    visit.get_by_role("spinbutton", name="Priority").fill("7.5")
    visit.keyboard.press("Enter")
    visit.get_by_text("became 7.50").wait_for()
    visit.reload()
    assert visit.locator(".priority").first.inner_text().endswith("7.50")


def test_a_picture_large_with_its_overlay(visit):
    visit.keyboard.press("0")
    visit.locator("#overlays input[value=objects]").check()
    visit.locator("[data-look]").first.click()
    visit.wait_for_selector("#look canvas[data-drawn=objects]", state="attached")
    image, canvas = (visit.locator(f"#look {tag}").bounding_box() for tag in ("img", "canvas"))
    assert canvas["width"] / canvas["height"] == pytest.approx(2, abs=0.02), "the canvas covers just the picture"
    assert image["width"] > 900
    visit.keyboard.press("Escape")
    assert not visit.locator("#look").is_visible()
    # The same by keys, on a card that has the focus: the key that opens it must not press its Close button too.
    visit.reload()
    visit.keyboard.press("j")
    visit.keyboard.press("Enter")
    visit.wait_for_selector("#look img", state="visible")
    visit.wait_for_timeout(200)
    assert visit.locator("#look").is_visible()


def test_the_loop_keeps_itself_up_to_date(full_site, visit):
    visit.goto(full_site.url)
    stage = visit.locator(".stage.s4")
    assert "9 waiting" in stage.inner_text()
    visit.evaluate("document.querySelector('.stage.s4 a').focus()")
    with Session(full_site.engine) as session:
        session.get_one(QueueItem, full_site.fleet.item_ids[2]).state = "open"
        session.commit()
    visit.wait_for_function("() => document.querySelector('.stage.s4').innerText.includes('8 waiting')", timeout=9000)
    assert visit.evaluate("document.activeElement.matches('.stage.s4 a')"), "an update takes no focus away"


def test_from_the_loop_to_a_refused_report_and_its_lineage(full_site, visit):
    visit.goto(full_site.url)
    visit.locator(".charts a.refused").last.click()
    visit.wait_for_url("**/gate-reports/**")
    assert visit.get_by_role("heading", level=1).inner_text() == "driving v5 was refused"
    assert visit.locator("svg.forest .row.broken").first.is_visible()
    visit.goto(f"{full_site.url}/gate-reports/{full_site.fleet.report_ids[3]}")
    assert visit.get_by_role("heading", level=1).inner_text() == "driving v4 passed the gate"
    visit.locator(".lineage a").nth(1).click()
    visit.wait_for_url("**/runs/**")
    visit.locator(".lineage a").first.click()
    visit.wait_for_url("**/datasets/**")
    visit.locator("a[href^='/clips/']").first.click()
    visit.wait_for_url("**/clips/**")
    visit.wait_for_selector(".uplot canvas")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(full_site, visit, scheme):
    fleet = full_site.fleet
    visit.set_viewport_size({"width": 360, "height": 780})
    visit.emulate_media(color_scheme=scheme)
    for address in (
        "/",
        "/queue?state=all",
        "/gate-reports",
        f"/gate-reports/{fleet.report_ids[4]}",
        "/clips",
        f"/clips/{fleet.clip_ids[0]}",
        "/models",
        f"/models/{fleet.model_ids[3]}",
        "/runs",
        f"/runs/{fleet.run_ids[0]}",
        "/datasets",
        f"/datasets/{fleet.dataset_ids[1]}",
        "/jobs",
        "/schedules",
    ):
        visit.goto(full_site.url + address)
        wide = visit.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{address} is {wide} px too wide"
