"""
Workflows whose process is killed in the middle of a loop: they go on there, and do nothing twice that is done.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.acceptance import processes, programs
from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import FLOW, loop, orchestrate, shell
from tests.unit.processes import broods

ITEMS = [f"inbox/{index}.task" for index in range(5)]
MOVES = {"success": {"move_to": "processed"}}
WORK = 'echo "$0" >> worked; if [ "$0" = 2 ] && ! [ -e go ]; then echo $$$$ > stuck; exec sleep 60; fi'
DONE = ["0", "1", "2", "2", "3", "4"]
"""Indexes in the order in which they are worked on: that of the third iteration twice."""


def prepare(workspace: workspaces.Workspace) -> None:
    """
    Write a workflow that comes no further than its third item.
    """
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
    """
    Return whether the third item is being worked on.
    """
    return lambda: (workspace.path / "stuck").exists() and bool(workspace.read("stuck").strip())


def unblock(workspace: workspaces.Workspace) -> None:
    """
    Let the third item be done, and put new files where the first two were.
    """
    workspace.write("go")
    for item in ITEMS[:2]:
        workspace.write(item, "second")


def judge(workspace: workspaces.Workspace, state: dict[str, Any]) -> None:
    """
    See that everything was done once, but for what was in flight.
    """
    files = {name: content.decode() for name, content in workspace.snapshot().items() if name.endswith(".task")}

    assert workspace.read("worked").split() == ["begun", *DONE, "ended"]
    assert workspace.read("noted").split() == ["0", "1", "2", "3", "4"]
    assert files == dict.fromkeys(ITEMS[:2], "second") | {f"processed/{n}.task": "first" for n in range(5)}
    assert [one["lifecycle"]["action_applied"] for one in state["steps"]["Each"]] == [True] * 5
    assert state["status"] == "completed"
    assert state["for_each"]["Each"]["completed_indices"] == [0, 1, 2, 3, 4]


def test_the_program_is_killed_and_resumes(workspace: workspaces.Workspace) -> None:
    """After kill -9 in the third iteration of five `resume` begins with that iteration."""
    prepare(workspace)
    with workspaces.going("run", FLOW, workspace=workspace, **processes.COLD) as process:
        asyncio.run(broods.until(stuck(workspace), 60))
        process.kill()
        process.wait()
    unblock(workspace)
    (run_id,) = workspace.run_ids()
    resumed = orchestrate("resume", run_id, workspace=workspace)

    judge(workspace, resumed.state)
    assert not _living(workspace)


def test_the_service_is_killed_and_continues(tmp_path: Path) -> None:
    """After kill -9 of the service the next one goes on with that iteration, unasked."""
    folder = tmp_path / "project"
    workspace = workspaces.Workspace(folder / "work")
    workspace.path.mkdir(parents=True)
    prepare(workspace)
    project = programs.Project(folder)
    project.write("recipes/orchestrate/stuck.yaml", workspace.read(FLOW))
    with programs.service(project) as service:
        run_id = service.start_run(recipe_id="stuck", args={}, working_dir="work")
        asyncio.run(broods.until(stuck(workspace), 60))
        service.signal(signal.SIGKILL)
        service.ended()
    unblock(workspace)
    with programs.service(project) as service:
        service.wait(run_id)
    finished = workspaces.Finished(0, "", "", project.data / "runs" / run_id)

    judge(workspace, finished.state)


def _living(workspace: workspaces.Workspace) -> bool:
    try:
        stat = Path(f"/proc/{workspace.read('stuck').strip()}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
