"""The fate of an item's file: workflow-dsl, future acceptance (v1.2), 1 to 9."""

from __future__ import annotations

from typing import Any

from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import FLOW, loop, orchestrate, shell, step

MOVES = {
    "success": {"move_to": "processed/${run.timestamp_utc}"},
    "failure": {"move_to": "failed/${run.timestamp_utc}"},
}


def tasks(workspace: workspaces.Workspace, *names: str) -> list[str]:
    """Create task files and return their paths."""
    return [workspace.write(f"inbox/{name}.task", name).relative_to(workspace.path).as_posix() for name in names]


def each(items: list[str], *steps: dict[str, Any], moves: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a loop over task files that are moved."""
    return loop("Each", *steps, items=items, on_item_complete=moves or MOVES, **{"as": "task"}, **fields)


def place(workspace: workspaces.Workspace) -> list[str]:
    """Return the places of the task files, without the time of a run."""
    files = (name for name in workspace.snapshot() if name.endswith(".task"))
    return sorted("/".join((name.split("/")[0], name.split("/")[-1])) for name in files)


def test_v12_1_success_path(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """After all steps of an item have succeeded, its file moves to the folder of `success`."""
    items = tasks(workspace, "a", "b")
    workspace.flow(
        each(items, step("Read", "cat", "${task}"), shell("Skip", "exit 1", when={"exists": "no"})), version="1.2"
    )
    finished = door(workspace)
    stamp = finished.run_id.partition("-")[0]

    assert {f"processed/{stamp}/a.task", f"processed/{stamp}/b.task"} <= set(workspace.snapshot())
    assert place(workspace) == ["processed/a.task", "processed/b.task"]
    assert [one["lifecycle"]["result"] for one in finished.steps["Each"]] == ["success", "success"]


def test_v12_2_failure_path(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """After a step has finally failed, by its exit code or its time-out, the file moves to the folder of `failure`."""
    items = tasks(workspace, "code", "time", "again", "good")
    work = """
    case $0 in
      *code*) exit 3;;
      *time*) sleep 60;;
      *again*) test -e tried || { touch tried; exit 1; };;
    esac
    """
    workspace.flow(
        each(items, shell("Work", work, "${task}", retries={"max": 1}, timeout_sec=1.5)),
        version="1.2",
        strict_flow=False,
    )
    finished = door(workspace)

    assert place(workspace) == ["failed/code.task", "failed/time.task", "processed/again.task", "processed/good.task"]
    assert [one["Work"]["exit_code"] for one in finished.steps["Each"]] == [3, 124, 0, 0]


def test_v12_3_recovery_within_item(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """An item that reaches its end after its failed step was handled counts as a success."""
    items = tasks(workspace, "a")
    workspace.flow(
        each(
            items,
            shell("Work", "exit 1", failure="Repair"),
            shell("Never", "touch never"),
            shell("Repair", "touch repaired"),
        ),
        version="1.2",
    )
    finished = door(workspace)

    assert place(workspace) == ["processed/a.task"]
    assert finished.steps["Each"][0]["lifecycle"]["result"] == "success"
    assert (workspace.path / "repaired").exists()
    assert not (workspace.path / "never").exists()


def test_v12_4_goto_escape(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A `goto` out of the loop, or to `_end`, before the item has finished makes the item a failure."""
    for target, after in (("After", ["after"]), ("_end", [])):
        items = tasks(workspace, f"{target}1", f"{target}2")
        workspace.flow(
            each(items, step("Leave", "true", success=target), shell("Never", "touch never")),
            shell("Between", "touch never"),
            shell("After", "touch after"),
            version="1.2",
        )
        finished = door(workspace)
        made = [name for name in ("never", "after") if (workspace.path / name).exists()]
        (workspace.path / "after").unlink(missing_ok=True)

        assert finished.state["status"] == "completed"
        assert made == after
        assert finished.steps["Each"][0]["lifecycle"]["result"] == "failure"
    assert place(workspace) == ["failed/After1.task", "failed/_end1.task", "inbox/After2.task", "inbox/_end2.task"]


def test_v12_5_path_safety(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A folder outside of the workspace is refused before the run; one from a variable prevents the move."""
    items = tasks(workspace, "a")
    for unsafe in ("/tmp", "../outside", "in/../../${loop.index}"):
        workspace.flow(
            each(items, step("Read", "cat", "${task}"), moves={"success": {"move_to": unsafe}}), version="1.2"
        )
        told = door(workspace, code=2).output

        assert "steps[0].for_each.on_item_complete.success.move_to" in told
    hidden = {"success": {"move_to": "${context.where}"}}
    workspace.flow(
        each(items, step("Read", "cat", "${task}"), moves=hidden), version="1.2", context={"where": "../out"}
    )
    lifecycle = door(workspace).steps["Each"][0]["lifecycle"]

    assert place(workspace) == ["inbox/a.task"]
    assert (lifecycle["result"], lifecycle["action_applied"]) == ("success", False)
    assert ".." in lifecycle["error"]


def test_v12_6_variable_substitution(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """The folder may refer to the run, the loop, the context and the steps of the item."""
    items = tasks(workspace, "a", "b")
    where = "done/${run.timestamp_utc}/${context.team}/${loop.index}-${loop.total}/${steps.Name.output}"
    moves = {"success": {"move_to": where}}
    workspace.flow(
        each(items, shell("Name", 'printf "%s" "$(basename "$0" .task)"', "${task}"), moves=moves),
        version="1.2",
        context={"team": "qa"},
    )
    finished = door(workspace)
    stamp = finished.run_id.partition("-")[0]

    assert set(workspace.snapshot()) == {
        FLOW,
        f"done/{stamp}/qa/0-2/a/a.task",
        f"done/{stamp}/qa/1-2/b/b.task",
    }


def test_v12_7_idempotency_on_resume(workspace: workspaces.Workspace) -> None:
    """A resume does not move a file again, even if a new file has its name."""
    items = tasks(workspace, "a", "b")
    work = 'case "$0" in */b.task) test -e repaired;; esac'
    workspace.flow(each(items, shell("Work", work, "${task}"), moves={"success": MOVES["success"]}), version="1.2")
    failed = orchestrate("run", FLOW, workspace=workspace, code=1)
    tasks(workspace, "a")
    workspace.write("repaired")
    resumed = orchestrate("resume", failed.run_id, workspace=workspace)

    assert place(workspace) == ["inbox/a.task", "processed/a.task", "processed/b.task"]
    assert [one["lifecycle"]["action_applied"] for one in resumed.steps["Each"]] == [True, True]
    assert resumed.state["status"] == "completed"


def test_v12_8_missing_source(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A missing file at the time of its move is an error of the lifecycle, and the workflow completes."""
    items = tasks(workspace, "a", "b")
    workspace.flow(each(items, shell("Work", 'case "$0" in */a.task) rm "$0";; esac', "${task}")), version="1.2")
    finished = door(workspace)
    gone, there = (one["lifecycle"] for one in finished.steps["Each"])

    assert finished.state["status"] == "completed"
    assert (gone["result"], gone["action_applied"]) == ("success", False)
    assert gone["error"]
    assert (there["result"], there["action_applied"], there["error"]) == ("success", True, None)
    assert place(workspace) == ["processed/b.task"]


def test_v12_9_state_recording(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Each iteration records its result, the action, its source and target, and whether the action was applied."""
    items = tasks(workspace, "good", "bad")
    workspace.flow(
        each(items, shell("Work", 'case "$0" in *bad*) exit 1;; esac', "${task}")), version="1.2", strict_flow=False
    )
    finished = door(workspace)
    stamp = finished.run_id.partition("-")[0]

    assert [one["lifecycle"] for one in finished.steps["Each"]] == [
        {
            "result": "success",
            "action": "move",
            "from": "inbox/good.task",
            "to": f"processed/{stamp}/good.task",
            "action_applied": True,
            "error": None,
        },
        {
            "result": "failure",
            "action": "move",
            "from": "inbox/bad.task",
            "to": f"failed/{stamp}/bad.task",
            "action_applied": True,
            "error": None,
        },
    ]
