"""The driver of session plans on the engine in memory: inputs in, plans and runs out, through any crash."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from app.domain import inputs, plan_files, plan_operations, plans, records, runs, states
from app.domain.states import RunState
from app.engine import ports, stores
from app.flows.session_plan import driver
from tests.unit.flows.session_plan.scripted import DRAFT, STARTED, look
from tests.unit.worker import pools

RUN = "sp_1"


class Performer:
    """Start runs by name, and record for which tasks."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.refuses = False

    async def perform(self, call: ports.Call) -> records.Result:
        """Start a task's run."""
        operation: Any = call.operation
        self.started.append(call.key)
        if self.refuses:
            error = records.StepError(code="unknown_recipe", message="there is no such recipe")
            return records.Result(status=states.StepState.FAILED, error=error)
        return records.Result(output={"run_id": f"run-{operation.plan['tasks'][0]['id']}"})


async def opened() -> tuple[pools.Bench, Performer]:
    """Return an open bench with one plan, which waits for its first input."""
    bench, performer = pools.Bench(), Performer()
    bench.dialects = {driver.NAME: driver.SessionPlan()}  # type: ignore[dict-item]
    bench.performers = {plan_operations.StartTask.kind: performer}
    bench.pool = bench._new_pool()
    await bench.open()
    await bench.store.create(
        runs.RunStart(
            run_id=RUN,
            recipe_id=driver.NAME,
            dialect=driver.NAME,
            driver_version=1,
            created_at=pools.AT,
            recipe={},
            recipe_sha256="",
            args={"plan": DRAFT.to_json()},
        )
    )
    await woken(bench, 1)
    return bench, performer


async def woken(bench: pools.Bench, number: int) -> None:
    """Load the plan's run, and wait until it waits for an input."""
    await bench.pool.wake(RUN)
    await bench.until(lambda: bench.pool._inputs.is_open(RUN, f"input#{number}"))


async def deliver(bench: pools.Bench, number: int, **value: Any) -> plans.Plan:
    """Deliver an input, and return the plan after it."""
    await bench.until(lambda: bench.pool._inputs.is_open(RUN, f"input#{number}"))
    await pools.soon(bench.pool.deliver(RUN, f"input#{number}", inputs.Delivery(value=value)))
    await bench.until(lambda: bench.pool._inputs.is_open(RUN, f"input#{number + 1}"))
    return shown(bench, number + 1)


def shown(bench: pools.Bench, number: int) -> plans.Plan:
    """Return the plan that the run shows with an input."""
    operation: Any = bench.pool._inputs._open[RUN][f"input#{number}"].operation
    return plan_files.from_json(operation.shown["plan"])


async def test_a_plan_from_its_start_to_its_end() -> None:
    """A change starts the plan, one look begins ready tasks, the next makes their runs; endings lead to later tasks."""
    bench, performer = await opened()
    assert await deliver(bench, 1, kind="change", plan=STARTED.to_json()) == STARTED

    begun = await deliver(bench, 2, **look())
    assert [(task.status.value, task.run_id, task.attempt) for task in begun.tasks] == [
        ("running", None, 1),
        ("blocked", None, 0),
    ]
    assert performer.started == []

    named = await deliver(bench, 3, **look())
    assert (performer.started, named.tasks[0].run_id) == (["task1.1"], "run-1")

    await deliver(bench, 4, **look(("run-1", RunState.DONE)))
    await deliver(bench, 5, **look())
    ended = await deliver(bench, 6, **look(("run-2", RunState.FAILED)))

    assert [task.status.value for task in ended.tasks] == ["done", "failed"]
    assert ended.status is plans.PlanState.FAILED
    assert [ended.revision, STARTED.revision] == [7, 2]
    assert (await bench.store.list_runs(stores.RunQuery())) == []

    await bench.close()


async def test_a_refused_run_fails_its_task() -> None:
    """With a limit of zero a look only records endings; a run that cannot be made fails its task with the reason."""
    bench, performer = await opened()
    performer.refuses = True
    await deliver(bench, 1, kind="change", plan=STARTED.to_json())
    assert (await deliver(bench, 2, **look(limit=0))).tasks == STARTED.tasks

    await deliver(bench, 3, **look())
    failed = await deliver(bench, 4, **look())

    assert failed.tasks[0].error == {
        "code": "unknown_recipe",
        "message": "there is no such recipe",
        "key": None,
        "detail": {},
    }
    assert failed.status is plans.PlanState.FAILED

    await bench.close()


async def test_an_edit_of_the_file_is_merged() -> None:
    """A person's edit based on an older file keeps the changes made since."""
    bench, _ = await opened()
    await deliver(bench, 1, kind="change", plan=STARTED.to_json())
    await deliver(bench, 2, **look())
    theirs = dataclasses.replace(STARTED, intent="tidy up")
    merged = await deliver(bench, 3, kind="file", plan=theirs.to_json())

    assert (merged.intent, merged.tasks[0].status) == ("tidy up", plans.TaskState.RUNNING)
    assert merged.revision == 3

    await bench.close()


@pytest.mark.parametrize("at_start", [True, False])
async def test_an_earlier_file_is_not_an_edit(at_start: bool) -> None:
    """A file with the content of an earlier version is stale, also after a person's edit, and changes no plan."""
    bench, _ = await opened()
    await deliver(bench, 1, kind="change", plan=STARTED.to_json())
    before = await deliver(bench, 2, **look())
    edited = dataclasses.replace(before, intent="tidy up")
    await deliver(bench, 3, kind="file", plan=edited.to_json(), at_start=at_start)
    begun = await deliver(bench, 4, **look())
    for number, earlier in enumerate((STARTED, before, edited, DRAFT), 5):
        assert await deliver(bench, number, kind="file", plan=earlier.to_json(), at_start=at_start) == begun
        assert bench.pool._inputs._open[RUN][f"input#{number + 1}"].operation.shown["stale"]  # type: ignore[attr-defined]

    await bench.close()


async def test_an_edit_is_taken_back() -> None:
    """A file that undoes a person's last edit is accepted, but not at a start: a power cut may have restored it."""
    bench, _ = await opened()
    paused = dataclasses.replace(STARTED, status=plans.PlanState.PAUSED)
    await deliver(bench, 1, kind="change", plan=STARTED.to_json())
    await deliver(bench, 2, kind="file", plan=paused.to_json(), at_start=False)

    assert (await deliver(bench, 3, kind="file", plan=STARTED.to_json(), at_start=False)) == STARTED

    await deliver(bench, 4, kind="file", plan=paused.to_json(), at_start=False)

    assert (await deliver(bench, 5, kind="file", plan=STARTED.to_json(), at_start=True)) == paused

    await bench.close()


@pytest.mark.parametrize(("kind", "reason"), [("delete", "deleted"), ("continue", "continued")])
async def test_a_plan_ends_when_it_is_deleted_or_continued(kind: str, reason: str) -> None:
    """A plan's run ends when the plan's file is removed after a deletion, or when the journal is full."""
    bench, _ = await opened()
    await pools.soon(bench.pool.deliver(RUN, "input#1", inputs.Delivery(value={"kind": kind})))
    if kind == "delete":
        await bench.until(lambda: bench.pool._inputs.is_open(RUN, "removal#1"))
        await pools.soon(bench.pool.deliver(RUN, "removal#1", inputs.Delivery(value={"kind": "removed"})))

    assert await pools.soon(bench.pool.ended(RUN)) is RunState.DONE
    ended = (await bench.store.read(RUN)).decisions.ended
    assert ended is not None
    assert ended.ending is not None
    assert ended.ending["reason"] == reason

    await bench.close()


async def test_a_restart_leaves_the_plan_unchanged() -> None:
    """After a kill at any input the plan is unchanged, and no run is made again."""
    bench, performer = await opened()
    steps = [{"kind": "change", "plan": STARTED.to_json()}, look(), look(), look(("run-1", RunState.DONE)), look()]
    for number, value in enumerate(steps, 1):
        before = await deliver(bench, number, **value)
        await bench.crash()
        await bench.restart()
        await woken(bench, number + 1)

        assert shown(bench, number + 1) == before

    assert performer.started == ["task1.1", "task2.1"]

    await bench.close()


def test_equal_plans_have_the_same_hash() -> None:
    """Two files with the same plan have the same hash, however they are written."""
    assert driver.sha256(DRAFT) == driver.sha256(plan_files.from_json(DRAFT.to_json()))
    assert driver.sha256(None) is None
