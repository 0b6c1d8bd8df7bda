"""A page in the browser, with the actions that most tests need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, expect

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""Options of a Chromium that contacts only the service."""

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
"""The accessibility checker."""

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
"""Rules that every page must satisfy."""

WAIT_MILLISECONDS = 60_000
"""Time within which a page must show the expected content."""

expect.set_options(timeout=WAIT_MILLISECONDS)


class Page:
    """One tab."""

    def __init__(self, context: BrowserContext) -> None:
        self.tab = context.new_page()
        self.tab.set_default_timeout(WAIT_MILLISECONDS)
        self.complaints: list[str] = []
        """Errors in the console, including refused requests for the page's own files."""
        self.tab.on("console", self._listen)
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: str) -> Page:
        """Open a page and wait for its heading."""
        self.tab.goto(path)
        self.tab.locator("h1").wait_for()
        return self

    def heading(self) -> Locator:
        """Return the page's heading."""
        return self.tab.locator("h1")

    def button(self, name: str) -> Locator:
        """Return the button with this name."""
        return self.tab.get_by_role("button", name=name, exact=True)

    def shows(self, text: str | re.Pattern[str], within: str = "main") -> None:
        """Wait until a part of the page shows a text."""
        expect(self.tab.locator(within)).to_contain_text(text)

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the API in the session of the page and return the JSON of the answer."""
        answer = self.tab.context.request.fetch(path, method=method, data=body)
        assert answer.ok, f"{method} {path}: {answer.status} {answer.text()}"
        return answer.json()

    def load_axe(self) -> None:
        """Load the accessibility checker into the page, whose policy admits only files of the service."""
        self.tab.evaluate(AXE.read_text(encoding="utf-8"))

    def violations(self) -> list[str]:
        """Return the accessibility violations that the checker finds in the page."""
        found = self.tab.evaluate("rules => axe.run({runOnly: rules, resultTypes: ['violations']})", RULES)
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found["violations"]]

    def _listen(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} {message.location['url']}".strip())
