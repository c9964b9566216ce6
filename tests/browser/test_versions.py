"""The menu of versions of the documentation, on pages that are opened from a disk."""

from pathlib import Path
from shutil import copy

import pytest
from selenium.webdriver.support.wait import WebDriverWait

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = """<!doctype html><html data-content_root="../"><body>
<div class="navbar-header-items__start"></div><script src="{script}"></script></body></html>"""


@pytest.fixture
def page(tmp_path):
    """A page of version 0.1, in a folder of its own, as the theme makes it."""
    path = tmp_path / "1.0" / "api" / "index.html"
    path.parent.mkdir(parents=True)
    path.write_text(PAGE.format(script=(DOCS / "_static" / "versions.js").as_uri()))
    return path


def _links(browser):
    """Open the menus and return their links, in one script: no menu can come in between."""
    return browser.driver.execute_script(
        "for (const menu of document.querySelectorAll('details')) menu.open = true;"
        "return [...document.querySelectorAll('.versions a')]"
    )


def test_versions_menu_links_all_versions_and_marks_the_current_one(browser, page, tmp_path):
    copy(DOCS / "versions.js", tmp_path)
    driver = browser.open(page.as_uri())
    links = WebDriverWait(driver, 5).until(lambda _: _links(browser))
    found = {link.text: link.get_attribute("href") for link in links}
    assert found == {name: (tmp_path / name / "index.html").as_uri() for name in found}
    assert {"dev", "stable", "1.0"} <= found.keys()
    assert [link.text for link in links if link.get_attribute("aria-current")] == ["1.0"]


def test_versions_menu_needs_a_list(browser, page):
    driver = browser.open(page.as_uri())
    loaded = "return document.readyState == 'complete' && !!document.querySelector('head script')"
    WebDriverWait(driver, 5).until(lambda _: driver.execute_script(loaded))
    assert _links(browser) == []
