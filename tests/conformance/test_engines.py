"""Both engines: every scenario has the same result on each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app import errors
from app.domain import plans, states
from app.engine import run_engine, stores
from app.services import conferences, gates
from tests.conformance import engine_harness
from tests.conformance.engine_harness import Bench
from tests.integration import conferring

ENGINES = ["embedded", "temporal"]

LANGUAGES = {
    "draft": ("control_room", ["discover", "analyze"]),
    "small": ("agent_recipes", ["review", "commit"]),
    "parent": ("amplifier", ["first", "below"]),
    "sorting": ("orchestrate", ["look", "sort"]),
}


@pytest.fixture(params=ENGINES)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """Serve a project on one of the engines."""
    made = engine_harness.project(tmp_path / "project")
    if request.param == "embedded":
        serving = engine_harness.embedded(made)
    else:
        serving = engine_harness.on_temporal(made, request.getfixturevalue("temporal").address)
    async with serving as bench:
        yield bench


async def test_a_repeated_start_makes_one_run(bench: Bench):
    """Repeated starts with one idempotency key make one run, which is executed once."""
    started = await asyncio.gather(*(bench.start("child", idempotency_key="one-order") for _ in range(3)))

    assert len(set(started)) == 1
    assert await bench.ended(started[0]) is states.RunState.DONE
    assert bench.text("rested") == "rested\n"


@pytest.mark.slow
@pytest.mark.parametrize("recipe_id", LANGUAGES)
async def test_recipes_of_every_language_are_done(bench: Bench, recipe_id: str):
    """A recipe of every language ends as done, with the journal lines of its steps in order."""
    dialect, wanted = LANGUAGES[recipe_id]
    args = {"draft": {"scene_path": conferring.SCENE_PATH}, "small": {"backend": "said"}}.get(recipe_id, {})
    run_id = await bench.start(recipe_id, args=args)
    assert await bench.ended(run_id) is states.RunState.DONE

    loaded = await bench.service.store.read(run_id)
    names = [line.key.rpartition("/")[2].partition("#")[0] for line in loaded.records]
    assert loaded.start.dialect == dialect
    assert [name for name in names if name in wanted] == wanted
    assert (await bench.service.maintenance.verify(run_id))["ok"]


@pytest.mark.slow
async def test_slots_hold_what_steps_wrote(bench: Bench):
    """The output of a step is in its slot."""
    run_id = await bench.start("child")
    await bench.ended(run_id)
    shown = await bench.service.runs.reader.slot(run_id, "rest")

    assert shown["text"] == "rested", shown


@pytest.mark.slow
async def test_a_gate_is_answered_once(bench: Bench):
    """The first answer decides a gate, a second one is refused, and the run continues."""
    run_id = await bench.start("asking")
    gate = await bench.gate(run_id)
    await bench.service.gates.answer(gate.gate_id, gates.Reply(decision="approve"))
    with pytest.raises(errors.Conflict):
        await bench.service.gates.answer(gate.gate_id, gates.Reply(decision="deny"))

    assert await bench.ended(run_id) is states.RunState.DONE
    assert (await bench.keys(run_id))[-1] == "b"


@pytest.mark.slow
async def test_a_cancel_and_an_answer_race_to_one_ending(bench: Bench):
    """When a cancel and an answer race, the run ends once, as cancelled, and the next step runs at most once."""
    run_id = await bench.start("asking")
    gate = await bench.gate(run_id)
    orders = [
        bench.service.gates.answer(gate.gate_id, gates.Reply(decision="approve")),
        *(bench.service.engine.cancel(run_id) for _ in range(3)),
    ]
    results = await asyncio.gather(*orders, return_exceptions=True)
    ended = await bench.ended(run_id)

    assert all(isinstance(one, errors.ControlRoomError) for one in results if isinstance(one, BaseException))
    events = [event.type for event in await bench.service.store.read_events(run_id, 0)]
    assert events.count("run.ended") == 1
    assert ended is states.RunState.CANCELLED
    assert (await bench.keys(run_id)).count("b") <= len(bench.text("two").splitlines()) <= 1


@pytest.mark.slow
async def test_a_paused_run_continues_where_it_stopped(bench: Bench):
    """A pause lets the open step finish, and after the unpause no step is repeated."""
    run_id = await bench.start("once")
    await bench.there("first")
    await bench.service.engine.pause(run_id)
    bench.project.write("go", "")
    await bench.until(run_id, states.RunState.PAUSED)
    assert bench.text("second") == ""

    bench.project.write("good", "")
    await bench.service.engine.unpause(run_id)
    assert await bench.ended(run_id) is states.RunState.DONE
    assert (bench.text("first"), bench.text("second")) == ("x\n", "y\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("from_key", "first", "second"),
    [(None, "x\n", "y\ny\n"), ("first", "x\nx\n", "y\ny\n"), ("second", "x\n", "y\ny\n")],
)
async def test_a_failed_run_is_resumed_from_a_step(bench: Bench, from_key: str | None, first: str, second: str):
    """A resume from a step keeps the earlier steps, and performs the step and the later ones again."""
    bench.project.write("go", "")
    run_id = await bench.start("once")
    assert await bench.ended(run_id) is states.RunState.FAILED

    bench.project.write("good", "")
    await bench.service.engine.resume(run_id, run_engine.Resume(from_key=from_key))
    await bench.until(run_id, states.RunState.DONE)
    assert (bench.text("first"), bench.text("second")) == (first, second)


@pytest.mark.slow
async def test_a_child_is_started_once(bench: Bench):
    """A parent run starts its child once, and both are done."""
    run_id = await bench.start("parent")
    assert await bench.ended(run_id) is states.RunState.DONE

    children = await bench.service.store.list_runs(stores.RunQuery(parent_run_id=run_id))
    assert [row.status for row in children] == [states.RunState.DONE]
    assert bench.text("rested") == "rested\n"


@pytest.mark.slow
async def test_a_plan_is_carried_out_in_order(bench: Bench):
    """Each task of a plan has one run, and the plan is done."""
    plan = await bench.planned(["child", "parent"])

    assert plan.status is plans.PlanState.DONE
    assert [task.attempt for task in plan.tasks] == [1, 1]
    assert bench.text("rested") == "rested\n" * 2


@pytest.mark.slow
async def test_a_conference_is_held(bench: Bench):
    """All members of the team speak in a conference, and its run is done."""
    started = await bench.service.conferences.start(conferences.NewConference(message="Does the arrival hold up?"))
    assert await bench.ended(started.run_id) is states.RunState.DONE

    keys = " ".join(await bench.keys(started.run_id))
    assert all(f"{name}-1" in keys for name in conferring.TEAM)
