"""A real browser and the real service, for every test of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright import sync_api

from tests.browser import pages
from tests.integration import served
from tests.integration.project import Project


# Playwright's loop runs in this thread while the browser is open: tests of other modules, which need a loop of their
# own, must not run in between.
@pytest.fixture(scope="module")
def chromium() -> Iterator[sync_api.Browser]:
    """Return the machine's Chromium."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium; `apt-get install chromium` installs one")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=pages.FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a small project."""
    return Project(tmp_path / "project")


@pytest.fixture
def site(project: Project) -> Iterator[str]:
    """Start the service of the project and return its address."""
    with served.in_a_thread(project) as address:
        yield address


@pytest.fixture
def page(chromium: sync_api.Browser, site: str) -> Iterator[pages.Page]:
    """Return an empty page; any error in its console fails the test."""
    with chromium.new_context(base_url=site, viewport={"width": 1280, "height": 900}) as context:
        opened = pages.Page(context)
        yield opened
        assert opened.complaints == []
