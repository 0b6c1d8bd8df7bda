"""Commands that read the folder of their own run, with real folders and processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app import bootstrap
from app.domain import operations, runs, slots, states
from tests.integration import served
from tests.integration.project import Project

STEPS = 30


class Peeking:
    """A driver of many quick steps, and of a command that reads the run's folder."""

    name = "peeking"
    driver_version = 1
    file_suffixes: tuple[str, ...] = ()

    async def drive(self, ctx: Any) -> runs.Ending:
        """Perform the steps; the first command starts the launcher, so that the last one starts at once."""
        await ctx.perform("warm", operations.Command(argv=("true",)))
        for number in range(STEPS):
            subject = {"path": f"step{number}"}
            record = await ctx.perform(f"step{number}", operations.Check(check="file_exists", subject=subject))
            sha256 = record.output_sha256 or ""
            ctx.fill(f"step{number}", slots.Slot(type="pointer", sha256=sha256, summary="", key=record.key))
            ctx.show(slots.Progress(finished_steps=number + 1, total_steps=STEPS))
        await ctx.perform("look", operations.Command(**ctx.run.args["command"]))
        return runs.Ending()


@pytest.mark.parametrize("way", ["argument", "variable"])
async def test_a_command_finds_its_runs_folder_current(project: Project, way: str) -> None:
    """A command finds the state before its start in run.json and cache.json of its run."""
    platform = bootstrap.real_platform({})
    driver: Any = Peeking()
    platform = bootstrap.Platform(
        clock=platform.clock, ids=platform.ids, probes=platform.probes, dialects={"peeking": driver}
    )
    run_id = "20260210T143000Z-peeks1"
    folder = project.data / "runs" / run_id
    commands: dict[str, dict[str, Any]] = {
        "argument": {"argv": ["cat", f"{folder}/run.json", f"{folder}/cache.json"]},
        "variable": {"argv": ["sh", "-c", 'cat "$RUN/run.json" "$RUN/cache.json"'], "env": {"RUN": str(folder)}},
    }
    async with bootstrap.build(served.chosen(project), platform=platform) as application:
        await application.store.create(_start(run_id, project.root, command=commands[way]))
        await application.engine.submit(run_id)
        ended = await application.engine.ended(run_id)
        record = (await application.runs.steps(run_id))[-1]
    shown = [json.loads(line) for line in record.output["stdout"].splitlines()]

    assert ended is states.RunState.DONE
    assert (shown[0]["status"], shown[0]["current_step_index"]) == ("running", STEPS)
    assert list(shown[1]) == [f"step{number}" for number in range(STEPS)]


def _start(run_id: str, project: Path, **args: Any) -> runs.RunStart:
    return runs.RunStart(
        run_id=run_id,
        recipe_id="peeking",
        dialect="peeking",
        driver_version=1,
        created_at="2026-02-10T14:30:00.000Z",
        recipe={},
        recipe_sha256="",
        args=args,
        working_dir=str(project),
    )
