"""The page about session plans: it lists what the service accepts and the program offers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pydantic
import pytest

from app.api import plan_requests, routes
from app.cli import plan_formats, plans
from app.domain import plans as domain_plans
from app.domain.plans import PlanState, TaskState
from app.services.plans import requests

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "plans.md").read_text(encoding="utf-8")
BASE = "/api/sessions/{session_id}"


def rows(heading: str) -> list[list[str]]:
    """Return the names in the first column of the table with this heading, row by row."""
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    return [re.findall(r"`([^`]+)`", line.split("|")[1]) for line in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("heading", "body"), [("field of a plan", plan_requests.PlanBody), ("field of a task", plan_requests.TaskBody)]
)
def test_the_page_lists_every_request_field(heading: str, body: type[pydantic.BaseModel]) -> None:
    """The tables of fields name exactly the fields of a request."""
    assert {name for row in rows(heading) for name in row} == set(body.model_fields)


@pytest.mark.parametrize(("heading", "states"), [("plan", PlanState), ("task", TaskState)])
def test_the_page_lists_every_state(heading: str, states: type[PlanState] | type[TaskState]) -> None:
    """The tables of states have one row for each state, in the order of the code."""
    assert [row[0] for row in rows(heading)] == [state.value for state in states]


def test_the_page_lists_every_change() -> None:
    """The table of changes names every address that changes a plan, and the commands that exist."""
    documented = {
        f"{method.upper()} {path.removeprefix(BASE)}"
        for path, item in json.loads(routes.openapi_text())["paths"].items()
        for method in item
        if path.startswith(BASE) and method != "get"
    }
    table = PAGE.split(f"| address below `{BASE}` |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    told = set()
    for line in table:
        methods = re.findall(r"POST|PATCH|DELETE", line.split("|")[1])
        places = re.findall(r"…(/[^`]+)`|`(start|pause|resume)`", line.split("|")[1]) or [("", "")]
        told |= {f"{methods[0]} {place or (verb and f'/{verb}')}" for place, verb in places}
    commands = {name.removeprefix("plan ") for line in table for name in re.findall(r"`([^`]+)`", line.split("|")[2])}

    assert told == documented
    assert commands <= set(plans.plan.commands)
    assert set(plans.plan.commands) - commands == {"create", "list", "show", "follow"}


def test_the_page_lists_the_limits() -> None:
    """The sizes on the page are those of the code."""
    for number in (requests.TASKS, requests.INTENT_CHARACTERS, requests.DESCRIPTION_CHARACTERS, requests.TASK_IDS[-1]):
        assert f"{number:,}" in PAGE


def test_examples_are_plans() -> None:
    """Every body on the page that creates a plan is accepted."""
    bodies = re.findall(r"POST http\S+/api/sessions .*?-d '(\{.*?\})'", PAGE, flags=re.DOTALL)

    assert len(bodies) == 2
    for body in bodies:
        made = plan_requests.PlanBody.model_validate(json.loads(body)).plan(None)
        assert made.intent or made.tasks


def test_the_checklist_on_the_page_equals_the_output() -> None:
    """The checklist on the page equals the command's output for that plan."""
    task = domain_plans.Task
    scene, audit = "creative_draft_scene", "analytical_consistency"
    question = "Which themes? Which scenes?"
    shown = domain_plans.Plan(
        session_id="sp_5h2m9q0x7c1v8b3n",
        status=PlanState.RUNNING,
        intent="Scenes 21 and 22",
        revision=12,
        created_at="2026-02-10T14:30:00.000Z",
        updated_at="2026-02-10T14:32:04.000Z",
        tasks=(
            task(
                id=1,
                description="Write scene 21 in Story/Scenes/SCN-21.md",
                recipe_id=scene,
                status=TaskState.DONE,
                run_id="20260210T143000Z-k3x9af",
            ),
            task(
                id=2,
                description="Write scene 22 in Story/Scenes/SCN-22.md",
                recipe_id=scene,
                deps=(1,),
                status=TaskState.RUNNING,
                run_id="20260210T143204Z-p08dn2",
            ),
            task(
                id=3,
                description="Consistency check of scenes 21 and 22",
                recipe_id=audit,
                deps=(1, 2),
                status=TaskState.BLOCKED,
            ),
            task(
                id=4,
                description="Foreshadowing audit",
                recipe_id="analytical_foreshadow",
                scoping_question=question,
                status=TaskState.NEEDS_SCOPING,
            ),
        ),
    )

    assert plan_formats.plan(shown.to_json()) in PAGE
