"""Workflows killed in the middle of a loop continue there, and repeat no finished work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import smoke
from tests.acceptance import drafting, forked_service, processes, programs
from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import FLOW, loop, orchestrate, shell
from tests.unit.processes import process_families

ITEMS = [f"inbox/{index}.task" for index in range(5)]
MOVES = {"success": {"move_to": "processed"}}
WORK = 'echo "$0" >> worked; if [ "$0" = 2 ] && ! [ -e go ]; then echo $$$$ > stuck; exec sleep 60; fi'
DONE = ["0", "1", "2", "2", "3", "4"]
"""Indexes in the order of the work, the third iteration twice."""


def prepare(workspace: workspaces.Workspace) -> None:
    """Write a workflow that hangs at its third item."""
    for item in ITEMS:
        workspace.write(item, "first")
    steps = [shell("Work", WORK, "${loop.index}"), shell("Note", 'echo "$0" >> noted', "${loop.index}")]
    workspace.flow(
        shell("Begin", "echo begun >> worked"),
        loop("Each", *steps, items=ITEMS, on_item_complete=MOVES),
        shell("End", "echo ended >> worked"),
        version="1.2",
    )


def stuck(workspace: workspaces.Workspace) -> Callable[[], bool]:
    """Return a function that returns whether the third item is in progress."""
    return lambda: (workspace.path / "stuck").exists() and bool(workspace.read("stuck").strip())


def unblock(workspace: workspaces.Workspace) -> None:
    """Let the third item finish, and put new files in the places of the first two."""
    workspace.write("go")
    for item in ITEMS[:2]:
        workspace.write(item, "second")


def judge(workspace: workspaces.Workspace, state: dict[str, Any]) -> None:
    """Verify that everything was done once, except for the interrupted iteration."""
    files = {name: content.decode() for name, content in workspace.snapshot().items() if name.endswith(".task")}

    assert workspace.read("worked").split() == ["begun", *DONE, "ended"]
    assert workspace.read("noted").split() == ["0", "1", "2", "3", "4"]
    assert files == dict.fromkeys(ITEMS[:2], "second") | {f"processed/{n}.task": "first" for n in range(5)}
    assert [one["lifecycle"]["action_applied"] for one in state["steps"]["Each"]] == [True] * 5
    assert state["status"] == "completed"
    assert state["for_each"]["Each"]["completed_indices"] == [0, 1, 2, 3, 4]


def test_the_program_is_killed_and_resumes(workspace: workspaces.Workspace) -> None:
    """After kill -9 in the third iteration of five, `resume` begins with that iteration."""
    prepare(workspace)
    with workspaces.going("run", FLOW, workspace=workspace, **processes.COLD) as process:
        asyncio.run(process_families.until(stuck(workspace), 60))
        process.kill()
        process.wait()
    unblock(workspace)
    (run_id,) = workspace.run_ids()
    resumed = orchestrate("resume", run_id, workspace=workspace)

    judge(workspace, resumed.state)
    assert not _living(workspace)


def test_the_service_is_killed_and_continues(tmp_path: Path) -> None:
    """After kill -9 of the service, the next service continues with that iteration automatically."""
    folder = tmp_path / "project"
    workspace = workspaces.Workspace(folder / "work")
    workspace.path.mkdir(parents=True)
    prepare(workspace)
    project = programs.Project(folder)
    project.write("recipes/orchestrate/stuck.yaml", workspace.read(FLOW))
    with programs.service(project) as service:
        run_id = service.start_run(recipe_id="stuck", args={}, working_dir="work")
        asyncio.run(process_families.until(stuck(workspace), 60))
        service.signal(signal.SIGKILL)
        service.ended()
    unblock(workspace)
    with programs.service(project) as service:
        service.wait(run_id)
    finished = workspaces.Finished(0, "", "", project.data / "runs" / run_id)

    judge(workspace, finished.state)


@pytest.mark.parametrize(
    "point",
    smoke.only("step.performed", ["step.performing", "step.performed", "step.before_append", "step.after_append"]),
)
def test_a_move_is_cut_off(tmp_path: Path, point: str) -> None:
    """Killed around the move of an item's file, the service moves the file once and reports no error."""
    folder = tmp_path / "project"
    workspace = workspaces.Workspace(folder)
    for item in ITEMS[:2]:
        workspace.write(item, "first")
    each = loop("Each", shell("Work", 'echo "$0" >> worked', "${loop.index}"), items=ITEMS[:2], on_item_complete=MOVES)
    workspace.flow(each, version="1.2")
    project = programs.Project(folder)
    project.write("recipes/orchestrate/moving.yaml", workspace.read(FLOW))
    dying = forked_service.Service(folder, f"{point}:2")
    http = dying.http()
    assert http is not None
    run_id = drafting.post(http, recipe_id="moving", description="Move", args={})
    died = dying.ended()
    living = forked_service.Service(folder)
    http = living.http()
    assert http is not None
    run_id = run_id or http.get("/api/runs").json()[0]["run_id"]
    run = drafting.wait(http, run_id)
    living.stop()
    finished = workspaces.Finished(0, "", "", project.data / "runs" / run_id)
    files = {name for name in workspace.snapshot() if name.endswith(".task")}
    lifecycles = [one["lifecycle"] for one in finished.steps["Each"]]

    assert died == -signal.SIGKILL
    assert run is not None
    assert run["status"] == "done"
    assert workspace.read("worked").split() == ["0", "1"]
    assert files == {"processed/0.task", "processed/1.task"}
    assert [(one["action_applied"], one["error"]) for one in lifecycles] == [(True, None)] * 2


def _living(workspace: workspaces.Workspace) -> bool:
    try:
        stat = Path(f"/proc/{workspace.read('stuck').strip()}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
