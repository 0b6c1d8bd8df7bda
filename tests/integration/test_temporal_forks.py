"""Forks on Temporal: a run that begins with the steps of another one, which no worker performs again."""

from __future__ import annotations

import pytest

from tests.integration import temporal_server

temporal_server.require()

from app.domain import states  # noqa: E402
from app.services import fork_requests  # noqa: E402
from tests.integration.test_temporal_engine import Scene, project, scene  # noqa: E402, F401


async def performed(scene: Scene, run_id: str) -> int:  # noqa: F811
    """Return how many steps of a run workers performed for its workflow."""
    scheduled = [each.activity_task_scheduled_event_attributes for each in (await scene.history(run_id)).events]
    return [each.activity_type.name for each in scheduled].count("perform")


async def test_a_fork_performs_no_step_that_it_takes_over(scene: Scene):  # noqa: F811
    """A fork from an agent's step performs and pays for only the later steps, and the copy passes verification."""
    scene.project.say("*", text="The lantern was dark.", usage={"input_tokens": 5, "output_tokens": 7})
    source = await scene.start("draft", args={"scene_path": "Story/Scenes/SCN-the-arrival.md"})
    assert await scene.ended(source) is states.RunState.DONE
    asked = fork_requests.ForkRequest(from_key="draft", prompt="Say it in the present tense.")
    made = await scene.service.runs.forks.fork(source, asked)
    assert await scene.ended(made.run_id) is states.RunState.DONE
    before, after = [await scene.service.store.read(run_id) for run_id in (source, made.run_id)]
    kept, paid = after.records[: made.taken_over], after.records[made.taken_over :]

    assert (after.start.forked_from, after.start.up_to) == (source, made.taken_over)
    assert [(line.key, line.output) for line in kept] == [
        (line.key, line.output) for line in before.records[: made.taken_over]
    ]
    assert kept
    assert [line.key for line in after.records] == [line.key for line in before.records]
    assert await performed(scene, made.run_id) == len(paid) < await performed(scene, source)
    assert all(line.usage is None for line in kept)
    assert any(line.usage is not None for line in paid)
    assert (await scene.service.maintenance.verify(made.run_id))["ok"]


@pytest.mark.slow
async def test_a_fork_of_a_failed_run_executes_its_commands_once(scene: Scene):  # noqa: F811
    """A fork of a failed run begins at the failure, and does not repeat the executed commands."""
    scene.project.write("go", "")
    source = await scene.start("once")
    assert await scene.ended(source) is states.RunState.FAILED
    scene.project.write("good", "")
    made = await scene.service.runs.forks.fork(source, fork_requests.ForkRequest(from_key="second"))
    assert await scene.ended(made.run_id) is states.RunState.DONE

    assert made.taken_over == 1
    assert (scene.text("first"), scene.text("second")) == ("x\n", "y\ny\n")
    assert (await scene.service.store.read(source)).decisions.ended is not None
