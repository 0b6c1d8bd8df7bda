"""What the pages say while the service lacks its database, its disk or its Temporal server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests import postgres_server
from tests.browser.pages import Page
from tests.integration import served
from tests.integration.project import Project

pytestmark = pytest.mark.slow

SINCE = "2026-02-10T14:30:00.000Z"


@pytest.fixture
def postgres() -> Iterator[postgres_server.Postgres]:
    """Return a running Postgres."""
    with postgres_server.running() as server:
        yield server


def test_a_banner_reports_that_the_database_is_away(
    chromium: Browser, project: Project, postgres: postgres_server.Postgres
) -> None:
    """While Postgres is stopped, each page says what waits for it; once it answers again, the banner is gone."""
    with (
        served.in_a_thread(project, store_url=postgres.url) as address,
        chromium.new_context(base_url=address) as context,
    ):
        page = Page(context)
        page.open("/runs").shows("No runs yet.")
        postgres.stop()
        page.open("/recipes").shows("The service cannot reach all of its data.", within=".banner")
        page.shows("Noticed", within=".banner")
        page.load_axe()
        assert page.violations() == []
        postgres.start()

        expect(page.tab.locator(".banner")).to_have_count(0)
        page.open("/runs").shows("No runs yet.")


@pytest.mark.parametrize(
    ("part", "facts", "told"),
    [
        ("service", {"temporal_away_since": SINCE}, "The Temporal server does not answer."),
        ("disk", {"is_full": True}, "The disk is full, or cannot be written."),
    ],
)
@pytest.mark.parametrize("width", [1440, 390])
def test_a_banner_says_what_the_service_lacks(
    page: Page, part: str, facts: dict[str, Any], told: str, width: int
) -> None:
    """Each page says what is away, since when if that is known, and hides nothing: its end can be scrolled to."""

    def lacking(route: Route) -> None:
        answer = route.fetch()
        found = json.loads(answer.text() or "null")  # Empty if the page has not changed.
        body = json.dumps(found | {part: found[part] | facts}) if found else ""
        route.fulfill(response=answer, body=body)

    page.tab.set_viewport_size({"width": width, "height": 844})
    page.tab.route("**/api/stats*", lacking)
    page.open("/start").shows(told, within=".banner")
    since = page.tab.evaluate("since => new Date(since).toLocaleString()", SINCE)
    if part == "service":
        page.shows(f"Since {since}", within=".banner")
    page.load_axe()
    assert page.violations() == []
    page.tab.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    last, banner = (page.tab.locator(name).last.bounding_box() for name in ("main li", ".banner"))

    assert last
    assert banner
    assert last["y"] + last["height"] <= banner["y"]
