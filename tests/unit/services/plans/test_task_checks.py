"""Checks of tasks: made when the run is done, failed with an issue, and repeated by a retry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app import errors
from app.dialects import registry
from app.dialects.control_room import parse as control_room_parse
from app.domain import library, plans
from app.flows.session_plan import rules
from app.services.plans import requests, task_checks
from tests.unit.services.plans import given, plan_harness
from tests.unit.services.plans.plan_harness import task

HOLDS: dict[str, Any] = {"check": "slot_field_equals", "slot": "work", "field": "said", "expected": "work of 1"}
"""A check that the chore of task 1 passes."""

FAILS = HOLDS | {"expected": "nothing"}
"""A check that the chore of task 1 does not pass."""

_RECIPE = json.dumps(
    {
        "recipe_id": "describe",
        "args_schema": {"properties": {"place": {"type": "string"}}},
        "phase_a": [{"step_id": "find", "tool": "file_locator", "args": {}, "output_slot": "found"}],
        "phase_b": [
            {
                "step_id": "write",
                "agent_archetype": "writer",
                "input_slots": ["found"],
                "output_slot": "prose",
                "prompt_type": "draft",
            }
        ],
        "outputs": [{"slot": "prose", "path": "Drafts/{{task.run_id}}.md"}],
    }
)

LOST = ("storage.plan.", "storage.create.", "storage.decide.", "storage.issue.")
"""Prefixes of the points at which a crash is tried."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> plan_harness.Place:
    """Return a project for all harnesses."""
    return plan_harness.Place(tmp_path_factory.mktemp("place"))


@pytest.mark.parametrize(
    ("check", "place_of_flaw"),
    [
        ({"check": "vibes"}, "$.tasks[0].dod[1].check"),
        ({"check": "slot_not_null"}, "$.tasks[0].dod[1].slot"),
        ({"check": "file_exists", "path": "a.md", "slot": "x"}, "$.tasks[0].dod[1].slot"),
        ({"check": "file_exists", "path": {"$ref": "a..b"}}, "$.tasks[0].dod[1]"),
        ({"check": "slot_field_equals", "slot": "x", "field": "[", "expected": 1}, "$.tasks[0].dod[1]"),
        ({"check": "slot_not_null", "slot": "task"}, "$.tasks[0].dod[1]"),
        *(
            ({"check": "file_exists", "path": path}, "$.tasks[0].dod[1]")
            for path in (
                "/etc/hosts",
                "../draft.md",
                "{{task.args.room}}/../../draft.md",
                "a\0b",
                "./",
                {"$ref": "task.nothing"},
                {"$ref": "task.description.words"},
                {"$ref": "task.args"},
                {"$ref": "task.session_plan_task_id"},
                {"$ref": "task.outputs"},
                {"$ref": "task.outputs.draft.path"},
            )
        ),
    ],
)
def test_a_check_of_the_wrong_form_is_refused_at_its_place(check: dict[str, Any], place_of_flaw: str) -> None:
    """A check of a task has the form of a recipe's check, and another form is refused with its place."""
    with pytest.raises(errors.RequestInvalid) as refused:
        requests.check(requests.NewPlan(tasks=(task("sweep room 1", dod=[HOLDS, check]),)))

    assert place_of_flaw in [path for path, _ in given.places_and_codes(refused.value)]


@pytest.mark.parametrize(
    "check",
    [
        {"check": "slot_not_null", "slot": "draft"},
        {"check": "slot_field_equals", "slot": "draft", "field": "pass", "expected": True},
        {"check": "file_exists", "path": {"$ref": "draft.path"}},
        {"check": "file_exists", "path": "{{task.outputs.draft}}"},
        {"check": "file_exists", "path": {"$ref": "task.args.chapter"}},
    ],
)
def test_a_check_that_no_run_of_the_recipe_can_pass_is_refused(check: dict[str, Any]) -> None:
    """A slot, file or argument that the task's recipe does not have is named before its run is paid for."""
    recipe = control_room_parse.parse(_RECIPE)
    passes: list[dict[str, Any]] = [
        {"check": "slot_not_null", "slot": "prose"},
        {"check": "file_exists", "path": "{{task.outputs.prose}}"},
        {"check": "file_exists", "path": {"$ref": "task.args.place"}},
        {"check": "file_exists", "path": {"$ref": "found.matches[0].path"}},
    ]
    flaws = list(task_checks.unmet_flaws([*passes, check], recipe, registry.DIALECTS["control_room"], "$"))

    assert [(flaw.path, recipe.recipe_id in flaw.message) for flaw in flaws] == [("$.dod[4]", True)]


_MACHINE: dict[str, Any] = {"id": "m", "steps": {"plan": {"onOutcome": {"done": {"nextStep": "write"}}}}}
_AGAIN: dict[str, Any] = {"onOutcome": {"again": {"recipeId": "m"}, "done": {"action": "exit_recipe"}}}
_LOOP = {"name": "Each", "for_each": {"items": [1], "as": "it", "steps": [{"name": "Read"}]}}


@pytest.mark.parametrize(
    ("dialect", "document", "filled", "unfilled"),
    [
        (
            "agent_recipes",
            _MACHINE | {"steps": _MACHINE["steps"] | {"write": _AGAIN}},
            ["plan", "write"],
            ["done", "m"],
        ),
        (
            "agent_recipes",
            _MACHINE | {"steps": {"plan": {"onOutcome": {"other": {"recipeId": "else"}}}}},
            ["plan", "a-step-of-else"],
            [],
        ),
        (
            "amplifier",
            {"steps": [{"id": "a", "output": "said"}, {"id": "b", "collect": "all", "foreach": "{{said}}"}]},
            ["said", "all"],
            ["a", "final_output"],
        ),
        (
            "amplifier",
            {
                "stages": [{"name": "s", "approval": {"output": "answer"}, "steps": [{"id": "a", "output": "said"}]}],
                "final_output": "said",
            },
            ["answer", "said", "final_output"],
            ["a", "s"],
        ),
        (
            "orchestrate",
            {"steps": [{"name": "Look", "command": ["true"]}, _LOOP]},
            ["Look", "Each[0].Read", "Each#2[14].Read"],
            ["Each", "Read", "Each[0]", "Each[0].Look", "Look[0]"],
        ),
        ("prompt", {}, ["anything"], []),
    ],
)
def test_slots_of_other_languages_are_known_before_the_run(
    dialect: str, document: dict[str, Any], filled: list[str], unfilled: list[str]
) -> None:
    """A slot that no run of a recipe fills is refused; where other recipes decide, the run is awaited."""
    recipe = library.Recipe(recipe_id="m", dialect=dialect, label="m", document=document, args_schema={})
    checks = [{"check": "slot_not_null", "slot": name} for name in (*filled, *unfilled)]
    flaws = list(task_checks.unmet_flaws(checks, recipe, {**registry.DIALECTS}.get(dialect), "$"))
    written = {"check": "file_exists", "path": {"$ref": f"task.outputs.{filled[0].partition('[')[0]}"}}
    (never,) = task_checks.unmet_flaws([written], recipe, None, "$")

    assert [flaw.path for flaw in flaws] == [f"$.dod[{len(filled) + index}]" for index in range(len(unfilled))]
    assert "does not write; it writes none" in never.message


@pytest.mark.parametrize("order", ["add", "edit"])
async def test_checks_are_compared_with_the_recipe_of_a_task(harness: plan_harness.Harness, order: str) -> None:
    """A further task and an edit are refused for a check that their recipe cannot pass; words are not compared."""
    session_id = await harness.create(task("sweep room 1", dod="tidy"))
    wanted = [{"check": "file_exists", "path": {"$ref": "task.args.chapter"}}]
    with pytest.raises(errors.RequestInvalid) as refused:
        if order == "add":
            await harness.application.plans.add_task(session_id, task("sweep room 2", dod=wanted))
        else:
            await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod=wanted))

    assert given.places_and_codes(refused.value) == [("$.dod[0]", "invalid")]


def test_too_many_checks_are_refused() -> None:
    """A task has at most fifty checks."""
    with pytest.raises(errors.RequestInvalid) as refused:
        requests.check(requests.NewPlan(tasks=(task("sweep room 1", dod=[HOLDS] * 51),)))
    assert given.places_and_codes(refused.value) == [("$.tasks[0].dod", "invalid")]


async def test_a_task_is_done_when_its_checks_hold(harness: plan_harness.Harness) -> None:
    """A task is done when its run is done and its checks hold, and then its dependents begin."""
    checks = [HOLDS, {"check": "slot_not_null", "slot": "fetch"}]
    session_id = await harness.started(
        task("sweep room 1", dod=checks), task("sweep room 2", 1, dod="tidy"), review="off"
    )
    plan = await harness.rested(session_id)

    assert plan.status is plans.PlanState.DONE
    assert [each.dod for each in plan.tasks] == [tuple(checks), "tidy"]


async def test_a_failed_check_fails_the_task_until_a_retry_meets_it(harness: plan_harness.Harness) -> None:
    """A failed check fails the task with an issue; after an edit, a retry checks the same run and closes the issue."""
    session_id = await harness.started(task("sweep room 1", dod=[HOLDS, FAILS]), task("sweep room 2", 1))
    failed = (await harness.rested(session_id)).tasks[0]

    assert failed.status is plans.TaskState.FAILED
    assert failed.error is not None
    assert failed.error["code"] == rules.DOD_FAILED
    assert failed.error["detail"] == {
        "failed_checks": [
            {"key": "dod[1]", "check": FAILS, "message": 'work.said is "work of 1", not "nothing"'},
        ]
    }
    assert [(issue.kind, issue.status, issue.run_id) for issue in await harness.issues()] == [
        ("task", "open", failed.run_id)
    ]

    await harness.application.plans.retry(session_id, 1)
    again = (await harness.rested(session_id)).tasks[0]
    assert (again.status, again.run_id, again.attempt) == (plans.TaskState.FAILED, failed.run_id, 1)

    await harness.application.plans.edit_task(session_id, 1, requests.TaskEdit(dod=[HOLDS]))
    await harness.application.plans.retry(session_id, 1)
    plan = await harness.rested(session_id)

    assert plan.status is plans.PlanState.DONE
    assert (plan.tasks[0].run_id, plan.tasks[0].attempt) == (failed.run_id, 1)
    assert len(harness.toolbox.tries(1)) == 1
    assert [issue.status for issue in await harness.issues()] == ["closed"]


async def test_a_check_of_an_unknown_slot_fails(harness: plan_harness.Harness) -> None:
    """A check of a slot or argument that does not exist fails and names the slots of the run."""
    checks = [
        {"check": "slot_not_null", "slot": "draft"},
        {"check": "file_exists", "path": {"$ref": "draft.path"}},
        {"check": "file_exists", "path": {"$ref": "task.args.what.more"}},
    ]
    session_id = await harness.started(task("carry room 1", args={"what": "chair"}, dod=checks))
    error: Any = (await harness.rested(session_id)).tasks[0].error

    told = [each["message"] for each in error["detail"]["failed_checks"]]
    assert told[:2] == ["the run has no slot draft; there are: fetch, work"] * 2
    assert "task.args.what.more" in told[2]


async def test_the_checks_come_out_the_same_wherever_the_process_dies(place: plan_harness.Place) -> None:
    """After a crash at any write, the one task is done once and the other failed with one issue."""

    async def begin() -> tuple[plan_harness.Harness, str]:
        harness = await plan_harness.Harness(place).open()
        session_id = await harness.create(task("sweep room 1", dod=[HOLDS]), task("sweep room 2", 1, dod=[HOLDS]))
        await harness.application.plans.approve(session_id)
        harness.probes.passed_points.clear()
        return harness, session_id

    async def check(harness: plan_harness.Harness, session_id: str) -> None:
        plan = await harness.show(session_id)
        assert plan_harness.stand(plan) == {"t1": "done", "t2": "failed"}
        assert (plan.tasks[1].error or {}).get("code") == rules.DOD_FAILED
        assert len(await harness.run_ids()) == 2
        assert [issue.kind for issue in await harness.issues()] == ["task"]

    points = await plan_harness.crash_everywhere(begin, check, LOST)
    assert points >= {"storage.plan.before_write", "storage.decide.before_write"}
