"""The page of a run: its steps' logs, the output of the step at work, many steps, large graphs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.pages import Page
from tests.browser.test_pages import APPROVAL
from tests.integration.project import REPLY, Project

pytestmark = pytest.mark.slow

HEAD = 'version: "1.0.0"\nschema: "1.7"\ndescription: Work\n'

IN_TURN = """\
name: in-turn
steps:
  - {id: one, type: bash, command: "seq 200; echo first; until [ -e one ]; do sleep 0.05; done"}
  - {id: two, type: bash, command: "echo second; until [ -e two ]; do sleep 0.05; done"}
"""

ABREAST = """\
name: abreast
steps:
  - {id: list, type: bash, parse_json: true, output: items, command: "echo '[1, 2]'"}
  - id: each
    foreach: "{{items}}"
    as: item
    parallel: true
    type: bash
    command: "echo number {{item}}; until [ -e go ]; do sleep 0.05; done"
"""

MANY = 60


def start(project: Project, page: Page, recipe: str) -> str:
    """Start a run of a recipe, open its page, and return its id."""
    name = recipe.partition("name: ")[2].partition("\n")[0]
    project.write(f".control-room/recipes/amplifier/{name}.yaml", HEAD + recipe)
    run_id: str = page.api("POST", "/api/runs", {"recipe_id": name})["run_id"]
    page.open(f"/runs/{run_id}")
    return run_id


def many(broken: int) -> str:
    """Return a recipe of many steps in a row, one of which fails."""
    lines = [f'  - {{id: part_{number:02}, type: bash, command: "echo {number}"}}' for number in range(MANY)]
    lines[broken] = f'  - {{id: part_{broken:02}, type: bash, on_error: continue, command: "echo off; false"}}'
    return "name: many\nsteps:\n" + "\n".join(lines) + "\n"


def test_a_question_names_its_run_only_elsewhere(project: Project, page: Page) -> None:
    """A question repeats nothing of the head of its run's page; in the Inbox it names the run and its recipe."""
    project.write(".control-room/recipes/amplifier/ask-first.yaml", APPROVAL)
    run = page.api("POST", "/api/runs", {"recipe_id": "ask-first", "description": "look around"})
    card = page.tab.locator(".gate")
    page.open(f"/runs/{run['run_id']}")
    expect(card).to_contain_text("approval:look")
    for known in ("look around", "ask-first", run["run_id"]):
        expect(card).not_to_contain_text(known)
    page.open("/inbox")
    for known in ("look around", "ask-first", run["run_id"]):
        expect(card).to_contain_text(known)
