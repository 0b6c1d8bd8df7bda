"""Workflows as ordinary runs: listed by iteration, paused, cancelled, interrupted, resumed."""

from __future__ import annotations

import asyncio
import signal

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import FLOW, loop, orchestrate, shell, step
from tests.unit.processes import process_families

WAIT = {"glob": "go", "timeout_sec": 100, "poll_ms": 50}


def begin(served: workspaces.Serving, workspace: workspaces.Workspace) -> str:
    """Start the workspace's workflow in the service, and return the run's id."""
    name = workspace.path.name
    served.project.write(f"recipes/orchestrate/{name}.yaml", workspace.read(FLOW))
    return served.service.start_run(recipe_id=name, args={}, working_dir=name)


def in_service(served: workspaces.Serving, name: str) -> workspaces.Workspace:
    """Create a workspace in the service's project."""
    (served.project.path / name).mkdir()
    return workspaces.Workspace(served.project.path / name)


def test_iterations_are_listed(served: workspaces.Serving) -> None:
    """The list of steps has one entry for each iteration, by its key, and can be read in pages."""
    workspace = in_service(served, "iterations")
    workspace.flow(
        loop("Each", step("Say", "echo", "${item}"), loop("In", step("Say", "true"), items=[1]), items=["a", "b"])
    )
    run_id = begin(served, workspace)
    served.service.wait(run_id)
    with served.service.http() as http:
        whole = [one["key"] for one in http.get(f"/api/runs/{run_id}/steps").json()]
        page = http.get(f"/api/runs/{run_id}/steps", params={"limit": 3})
        rest = http.get(page.links["next"]["url"]).json()
        slot = http.get(f"/api/runs/{run_id}/cache/Each[1].Say")
    steps = ["Each[0].Say", "Each[0].In[0].Say", "Each[1].Say", "Each[1].In[0].Say"]

    assert [key for key in whole if key.endswith("Say")] == steps
    assert [one["key"] for one in page.json()] + [one["key"] for one in rest] == whole
    assert slot.status_code == 200, slot.text


def test_a_waiting_step_survives_pause_and_cancel(served: workspaces.Serving) -> None:
    """A waiting step survives pause and unpause; a cancelled workflow has failed, and a resume waits again."""
    workspace = in_service(served, "cancelled")
    workspace.flow(
        shell("Begin", "echo begun >> notes"), step("Wait", wait_for=WAIT), shell("End", "echo ended >> notes")
    )
    run_id = begin(served, workspace)
    served.service.wait_for_step(run_id, "Wait")
    finished = workspaces.Finished(0, "", "", served.project.data / "runs" / run_id)
    with served.service.http() as http:
        answers = [http.post(f"/api/runs/{run_id}/{verb}").status_code for verb in ("pause", "unpause", "cancel")]
        cancelled = served.service.wait(run_id)["status"]
        state = finished.state["status"]
        statuses = {name: one["status"] for name, one in finished.state["steps"].items()}
        workspace.write("go")
        answers.append(http.post(f"/api/runs/{run_id}/resume").status_code)
    ended = served.service.wait(run_id)["status"]

    assert answers == [200] * 4
    assert (cancelled, state) == ("cancelled", "failed")
    assert statuses == {"Begin": "completed", "Wait": "failed", "End": "pending"}
    assert (ended, finished.state["status"]) == ("done", "completed")
    assert workspace.read("notes") == "begun\nended\n"


def test_an_interrupted_program_can_be_resumed(workspace: workspaces.Workspace) -> None:
    """Ctrl-C ends the running command and the program, with 130; `resume` continues after the last step."""
    work = "echo worked >> notes; [ -e go ] || { echo $$$$ > pid; exec sleep 60; }"
    workspace.flow(shell("Begin", "echo begun >> notes"), shell("Work", work))
    with workspaces.going("run", FLOW, workspace=workspace) as process:
        asyncio.run(
            process_families.until(
                lambda: (workspace.path / "pid").exists() and workspace.read("pid").strip() != "", 60
            )
        )
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    state = workspaces.Finished(0, "", "", workspace.runs / "latest").state
    workspace.write("go")
    (run_id,) = workspace.run_ids()
    resumed = orchestrate("resume", "latest", workspace=workspace)

    assert process.returncode == 130
    assert f"orchestrate resume {run_id}" in told
    assert state["status"] == "running"
    assert not process_families.living({"work": int(workspace.read("pid"))})
    assert resumed.run_id == run_id
    assert workspace.read("notes") == "begun\nworked\nworked\n"


def test_a_changed_workflow_is_not_resumed(workspace: workspaces.Workspace) -> None:
    """`resume` refuses a changed workflow and names both checksums; `--force-restart` begins anew."""
    workspace.flow(shell("Work", "exit 1"))
    failed = orchestrate("run", FLOW, workspace=workspace, code=1)
    workspace.flow(shell("Work", "exit 0"))
    refused = orchestrate("resume", failed.run_id, workspace=workspace, code=2)
    forced = orchestrate("resume", failed.run_id, "--force-restart", workspace=workspace)
    before, after = failed.state["workflow_checksum"], forced.state["workflow_checksum"]

    assert before in refused.output
    assert after in refused.output
    assert before != after
    assert forced.state["status"] == "completed"
