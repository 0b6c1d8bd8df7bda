"""Triggers on Temporal: the service fires them, and schedules of the server create no run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.integration import temporal_server

temporal_server.require()

from temporalio.client import Schedule, ScheduleActionStartWorkflow, ScheduleSpec, WorkflowFailureError  # noqa: E402
from temporalio.exceptions import ActivityError, ApplicationError  # noqa: E402

from app import clock  # noqa: E402
from app.domain import states  # noqa: E402
from app.engine import stores  # noqa: E402
from app.services.triggers import requests  # noqa: E402
from app.temporal import messages  # noqa: E402
from tests.integration import project as projects  # noqa: E402
from tests.integration.test_temporal_engine import Scene, serving  # noqa: E402

UNKNOWN = "20260101T000000Z-abc123"


@pytest.fixture
async def scene(project: projects.Project, temporal: temporal_server.DevServer) -> AsyncIterator[Scene]:
    """Serve a project, with one worker."""
    async with serving(project, temporal.address, {}) as scene:
        scene.service.unattended.start()
        yield scene
        await scene.service.unattended.stop()


async def test_a_trigger_starts_a_run_once(scene: Scene) -> None:
    """A due occurrence starts one run, which a worker performs, and the history of the trigger names the run."""
    triggers = scene.service.unattended.triggers
    due = clock.stamp(datetime.now(UTC) + timedelta(seconds=1))
    added = await triggers.add(requests.NewTrigger(recipe_id="quick", schedule={"at": due}), None)

    async def has_fired() -> bool:
        return bool((await triggers.show(added.trigger.trigger_id)).history)

    await temporal_server.until(has_fired)
    (one,) = (await triggers.show(added.trigger.trigger_id)).history

    assert one.result == "started"
    assert await scene.ended(str(one.run_id)) is states.RunState.DONE


async def test_a_schedule_of_the_server_creates_no_run(scene: Scene) -> None:
    """The scheduled workflow fails with the name of the fault, and the store contains no run."""
    done = await scene.start("quick")
    assert await scene.ended(done) is states.RunState.DONE
    queue = (await scene.client.get_workflow_handle(messages.workflow_id(done)).describe()).task_queue
    workflow_id = messages.workflow_id(UNKNOWN)
    action = ScheduleActionStartWorkflow(messages.WORKFLOW, UNKNOWN, id=workflow_id, task_queue=queue)
    made = await scene.client.create_schedule("nightly", Schedule(action=action, spec=ScheduleSpec()))
    await made.trigger()

    async def has_started() -> bool:
        return bool((await made.describe()).info.recent_actions)

    await temporal_server.until(has_started)
    started = (await made.describe()).info.recent_actions[0].action
    with pytest.raises(WorkflowFailureError) as failed:
        await scene.client.get_workflow_handle(getattr(started, "workflow_id", workflow_id)).result()
    cause = failed.value.cause

    assert isinstance(cause, ActivityError)
    assert isinstance(cause.cause, ApplicationError)
    assert cause.cause.type == "run_not_found"
    assert [run.run_id for run in await scene.service.runs.list_runs(stores.RunQuery())] == [done]
