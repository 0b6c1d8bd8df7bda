"""Outputs of earlier tasks as arguments of later ones: refused if impossible, read when a task begins."""

from __future__ import annotations

from typing import Any

import pytest

from app import errors
from app.domain import plans, task_outputs
from app.services.plans import drafts, edits, requests
from tests.unit.services.plans import given, plan_harness
from tests.unit.services.plans.plan_harness import task

SAID = {"$task": 1, "output": "work.said"}
"""The output of the chore of task 1."""

LOST = ("storage.plan.", "storage.create.", "storage.decide.")
"""Prefixes of the points at which a crash is tried."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> plan_harness.Place:
    """Return a project for all harnesses."""
    return plan_harness.Place(tmp_path_factory.mktemp("place"))


def flaws(*tasks: plans.Task) -> list[tuple[str, str]]:
    """Return places and codes of the flaws of new tasks."""
    return [(flaw.path, flaw.code) for flaw in edits.graph_flaws(tasks)]


class TestForm:
    """The form of references in arguments."""

    @pytest.mark.parametrize("number", [1, "1", "t1"])
    def test_a_task_is_named_in_three_ways(self, number: Any) -> None:
        """A number, a number as text and `t` with a number name the same task."""
        read = task_outputs.read({"$task": number, "output": "draft"})

        assert read == task_outputs.Reference(task=1, field="output", name="draft")

    @pytest.mark.parametrize(
        "value",
        [
            {"$task": 1},
            {"$task": 0, "output": "draft"},
            {"$task": True, "output": "draft"},
            {"$task": 1.0, "output": "draft"},
            {"$task": "T1", "output": "draft"},
            {"$task": "1" * 5000, "output": "draft"},
            {"$task": 1, "output": "draft", "path": "draft"},
            {"$task": 1, "output": "draft", "more": 1},
            {"$task": 1, "output": " "},
            {"$task": 1, "path": ["draft"]},
            {"$task": 1, "output": "x" * 501},
        ],
    )
    def test_anything_else_is_refused_at_its_place(self, value: Any) -> None:
        """An object with `$task` in another form is a flaw with its place, at any depth."""
        wrong = given.task(2, 1, args={"a": ["x", {"b": value}]})

        assert flaws(given.task(1), wrong) == [("$.tasks[1].args.a[1].b", "invalid")]

    def test_a_task_may_use_only_outputs_of_its_dependencies(self) -> None:
        """A task may use outputs of its direct and indirect dependencies, and no others."""
        chain = (given.task(1), given.task(2, 1), given.task(3, 2, args={"a": SAID}))
        assert flaws(*chain) == []

        aside = given.task(4, args={"a": SAID, "b": {"$task": 9, "path": "draft"}, "c": {"$task": "t4", "path": "x"}})
        assert flaws(*chain, aside) == [
            ("$.tasks[3].args.a.$task", "not_a_dependency"),
            ("$.tasks[3].args.b.$task", "unknown_task"),
            ("$.tasks[3].args.c.$task", "not_a_dependency"),
        ]

    def test_an_edit_may_not_take_the_way_away(self) -> None:
        """An edit cannot drop a dependency that a reference needs; a reference that was broken before is accepted."""
        before = given.plan(given.task(1), given.task(2, 1), given.task(3, 2, args={"a": SAID}))
        with pytest.raises(errors.RequestInvalid) as refused:
            edits.with_edit(before, given.task(2), given.LATER)

        assert (refused.value.code, given.places_and_codes(refused.value)) == (
            "tasks_invalid",
            [("$.deps", "not_a_dependency")],
        )

        broken = given.plan(given.task(1), given.task(2), given.task(3, 2, args={"a": SAID}))
        assert edits.with_edit(broken, given.task(2, dod="soon"), given.LATER).tasks[1].dod == "soon"


async def test_a_task_gets_the_output_of_an_earlier_one(harness: plan_harness.Harness) -> None:
    """The run of a task gets the value of the output, and the plan keeps the reference."""
    wanted = task("carry it", 1, recipe_id="carry", args={"what": SAID})
    session_id = await harness.started(task("sweep room 1"), wanted)
    plan = await harness.rested(session_id)

    assert plan.status is plans.PlanState.DONE
    assert plan.tasks[1].args["what"] == SAID
    assert [args for number, _, args in harness.toolbox.asked if number == 2] == [{"what": "work of 1", "times": 1}]


@pytest.mark.parametrize(
    ("name", "told"),
    [("nothing", "has no slot of that name; there are: fetch, work"), ("work.more", "work.more: it does not exist")],
)
async def test_a_missing_output_fails_the_task(harness: plan_harness.Harness, name: str, told: str) -> None:
    """A missing output fails the task with a code and the existing slots, and an edit with a retry repairs it."""
    wanted = task("carry it", 1, recipe_id="carry", args={"what": {"$task": 1, "output": name}})
    session_id = await harness.started(task("sweep room 1"), wanted)
    failed = (await harness.rested(session_id)).tasks[1]

    assert failed.status is plans.TaskState.FAILED
    assert failed.error is not None
    assert failed.error["code"] == "task_output_missing"
    assert told in str(failed.error["message"])
    assert [(issue.kind, issue.status) for issue in await harness.issues()] == [("task", "open")]

    await harness.application.plans.edit_task(session_id, 2, requests.TaskEdit(args={"what": SAID}))
    await harness.application.plans.retry(session_id, 2)
    assert (await harness.rested(session_id)).status is plans.PlanState.DONE


async def test_a_forced_task_without_its_input_fails(harness: plan_harness.Harness) -> None:
    """A task forced before the one whose output it uses fails with the reason, and can be retried afterwards."""
    harness.toolbox.hold(1)
    wanted = task("carry it", 1, recipe_id="carry", args={"what": SAID})
    session_id = await harness.started(task("sweep room 1"), wanted)
    await harness.application.plans.force_start(session_id, 2)
    failed = (await harness.comes_to(session_id, t2="failed")).tasks[1]

    assert failed.error is not None
    assert failed.error["code"] == "task_output_missing"
    assert "task 1 is running; retry it when that is done" in str(failed.error["message"])

    harness.toolbox.release(1)
    await harness.comes_to(session_id, t1="done")
    await harness.application.plans.retry(session_id, 2)
    assert (await harness.rested(session_id)).status is plans.PlanState.DONE


async def test_an_output_that_does_not_fit_fails_the_task(harness: plan_harness.Harness) -> None:
    """An output that does not fit the recipe's arguments fails the task when it begins."""
    wanted = task("carry it", 1, recipe_id="carry", args={"what": "x", "times": SAID})
    session_id = await harness.started(task("sweep room 1"), wanted)
    failed = (await harness.rested(session_id)).tasks[1]

    assert failed.error is not None
    assert failed.error["code"] == "args_invalid"


async def test_other_arguments_of_a_referring_task_are_checked(harness: plan_harness.Harness) -> None:
    """The other arguments of a task with references are checked when the plan is created."""
    wanted = task("carry it", 1, recipe_id="carry", args={"what": SAID, "times": "often"})
    with pytest.raises(errors.RequestInvalid) as refused:
        await harness.create(task("sweep room 1"), wanted)
    assert [flaw.path for flaw in refused.value.flaws] == ["$.tasks[1].args.times"]

    session_id = await harness.create(
        task("sweep room 1"), task("carry it", 1, recipe_id="carry", args={"times": SAID})
    )
    assert (await harness.task(session_id, 2)).status is plans.TaskState.NEEDS_SCOPING


async def test_the_value_is_the_same_wherever_the_process_dies(place: plan_harness.Place) -> None:
    """After a crash at any write, each task has one run, started with the value of the output."""

    async def begin() -> tuple[plan_harness.Harness, str]:
        harness = await plan_harness.Harness(place).open()
        wanted = task("carry it", 1, recipe_id="carry", args={"what": SAID})
        session_id = await harness.create(task("sweep room 1"), wanted)
        await harness.application.plans.approve(session_id)
        harness.probes.passed_points.clear()
        return harness, session_id

    async def check(harness: plan_harness.Harness, session_id: str) -> None:
        assert (await harness.show(session_id)).status is plans.PlanState.DONE
        assert {str(args["what"]) for number, _, args in harness.toolbox.asked if number == 2} == {"work of 1"}
        assert len(await harness.run_ids()) == 2

    points = await plan_harness.crash_everywhere(begin, check, LOST)
    assert points >= {"storage.plan.before_write", "storage.decide.before_write"}


def test_a_later_task_reads_the_drafts_of_its_session() -> None:
    """A path is replaced by its newest draft, through several drafts; other paths are unchanged."""
    newest = {"Story/a.md": "Drafts/1.md", "Drafts/1.md": "Drafts/2.md", "x": "y", "y": "x"}

    assert drafts._newest(["Story/a.md", "Story/b.md", "Drafts/2.md", "Story"], newest) == [
        "Drafts/2.md",
        "Story/b.md",
        "Story",
    ]
    assert drafts._newest("Story/a.md", newest) == "Drafts/2.md"
    assert drafts._newest(None, newest) is None
    assert drafts._newest("x", newest) in ("x", "y")
