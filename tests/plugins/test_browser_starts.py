"""The browser that the page tests drive is a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.mark.browser
def test_a_page_runs_its_scripts(page: Page) -> None:
    page.set_content("<p id=sum></p><script>document.getElementById('sum').textContent = 6 * 7</script>")
    assert page.text_content("#sum") == "42"
