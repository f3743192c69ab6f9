"""A real browser, for tests marked `browser`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_ARGUMENTS = [
    "--no-sandbox",  # a container's root has no user namespaces to sandbox with
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium, headless."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.fail("no Chromium on the PATH: install it (Debian: apt-get install chromium), or run make test-fast")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a browsing context of this test's own."""
    context = browser.new_context()
    yield context.new_page()
    context.close()
