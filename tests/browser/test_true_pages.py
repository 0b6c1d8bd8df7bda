"""What pages show is what is there: characters that steer or hide text, and figures that stay true as time passes."""

from __future__ import annotations

import unicodedata

import pytest
from playwright.sync_api import expect

from app import printable
from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL
from tests.integration.project import Project

pytestmark = pytest.mark.slow

TURNED = "Delete \u202etxt.lanruoj\u202c and hid\u200bden \u2066x"
"""A question that a browser would draw as another one."""

WRITTEN = r"Delete \u202etxt.lanruoj\u202c and hid\u200bden \u2066x"
"""The same, as a person must see it."""


def test_a_question_hides_no_character(project: Project, page: Page) -> None:
    """Direction marks and unseen characters of a question are written out: in its card, its dialog and the drawer."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL.replace("Go on?", TURNED))
    run = page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": TURNED})["run_id"]
    page.open("/inbox")
    card = page.tab.locator(".gate")
    expect(card.locator(".shown")).to_have_text(WRITTEN)
    expect(card.locator(".row-link")).to_have_text(WRITTEN)
    page.button("approve").click()
    expect(page.tab.locator("dialog[open]")).to_contain_text(WRITTEN)
    page.open("/runs")
    expect(page.tab.get_by_title(WRITTEN)).to_have_text(WRITTEN)
    page.open(f"/runs/{run}")
    expect(page.heading()).to_have_text(WRITTEN)
    page.tab.locator(".steps .row-link").last.click()
    expect(page.tab.locator(".drawer")).not_to_contain_text("\u202e")


def test_the_pages_write_out_what_the_terminal_does(page: Page) -> None:
    """Each character that commands write out is written out by the pages, too; letters of other scripts are not."""
    signs = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0080))]
    assigned = [sign for sign in signs if unicodedata.category(sign) != "Cn"]
    steering = {sign for sign in assigned if printable.visible(sign) != sign}
    page.open("/inbox")
    script = 'signs => import("/ui/js/lib/base.js").then(({visible}) => signs.filter(sign => visible(sign) !== sign))'
    written = set(page.tab.evaluate(script, assigned))

    assert steering - written == set()
    assert all(unicodedata.category(sign)[0] in "CLM" for sign in written - steering), written - steering
    assert not written & set("\n\t\u200d\u200c\ufe0fשلא")
