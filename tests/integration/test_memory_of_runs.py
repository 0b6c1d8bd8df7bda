"""Memory of runs: the memory of a run is free as soon as it has ended, without a garbage collection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app import bootstrap
from app.domain import records
from app.engine import active_step, driver_context, driver_scheduler, runner
from app.services import requests
from app.storage.runs import folder_log
from tests.integration import project as projects
from tests.integration import served

HELD = (runner.Runner, folder_log.FolderLog, driver_context.DriverContext, driver_scheduler.DriverScheduler)
"""Types that refer to all steps of a run."""

AMPLIFIER = """\
schema: "1.7"
name: staged
description: Stages.
version: 1.0.0
steps:
  - {id: each, type: bash, command: "echo {{item}}", foreach: "{{names}}", parallel: true, collect: said, output: one}
context:
  names: [ada, kay]
"""


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Disable garbage collection."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> list[Any]:
    """Return the objects of runs in memory, including their records."""
    return [one for one in gc.get_objects() if type(one) in (*HELD, records.Record)]


@pytest.mark.parametrize(
    ("recipe", "end"), [("draft", "done"), ("staged", "done"), ("broken", "failed"), ("slow", "cancelled")]
)
@pytest.mark.usefixtures("uncollected")
async def test_a_run_that_has_ended_holds_nothing(project: projects.Project, recipe: str, end: str) -> None:
    """No cycle keeps the journal of an ended run in memory; a busy service rarely makes the full collections for it."""
    for name, command in (("staged", "echo"), ("broken", "false"), ("slow", "sleep 600; echo")):
        text = AMPLIFIER.replace("echo", command).replace("staged", name)
        project.write(f".control-room/recipes/amplifier/{name}.yaml", text)
    async with bootstrap.build(served.chosen(project), bootstrap.OpenMode()) as application:
        before = len(held())
        args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"} if recipe == "draft" else {}
        started = await application.runs.start(requests.StartRequest(recipe_id=recipe, args=args))
        if end == "cancelled":
            await until(lambda: any(type(one) is active_step.ActiveStep and one.performing for one in gc.get_objects()))
            await application.runs.cancel(started.run_id)

        assert (await application.engine.ended(started.run_id)).value == end
        await until(lambda: len(held()) <= before)


async def until(holds: Callable[[], bool]) -> None:
    """Poll until a condition is true, since no event reports it."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(0.02)
