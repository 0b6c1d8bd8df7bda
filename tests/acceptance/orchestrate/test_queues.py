"""Folders as queues: workflow-dsl, acceptance 4 to 6, 11, 12, 16 to 19, 36."""

from __future__ import annotations

import asyncio
import json
import os
import zipfile
from pathlib import Path

import pytest

from tests.acceptance import processes
from tests.acceptance.orchestrate import workspaces
from tests.acceptance.orchestrate.workspaces import orchestrate, shell, step
from tests.unit.processes import process_families

FLOW = workspaces.FLOW
STATUS = {
    "schema": "status/v1",
    "correlation_id": "c-1",
    "agent": "engineer",
    "run_id": "",
    "step": "Implement",
    "timestamp": "2025-01-15T10:30:00Z",
    "success": False,
    "exit_code": 1,
    "outputs": ["artifacts/engineer/implementation.py"],
    "metrics": {"files_modified": 3},
    "next_actions": [{"agent": "qa", "file": "inbox/qa/review.task"}],
    "message": "Could not implement it",
}


@pytest.mark.parametrize("door", ["cli", "http"], indirect=True)
def test_04_status_schema(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Steps write and read a status file like any file, and its content has no effect on the run."""
    workspace.write("status.json", STATUS)
    file = "artifacts/engineer/status_Implement.json"
    insert = 'sed "s/\\"run_id\\": \\"\\"/\\"run_id\\": \\"$0\\"/" status.json'
    workspace.flow(
        shell("Implement", insert, "${run.id}", output_file=file), step("Read", "cat", file, output_capture="json")
    )
    finished = door(workspace)

    assert finished.steps["Read"]["json"] == STATUS | {"run_id": finished.run_id}
    assert finished.state["status"] == "completed"


def test_05_inbox_atomicity(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A file under another name is seen as a task only after its renaming, and then whole."""
    look = {"glob": "inbox/engineer/*.task", "timeout_sec": 0.2, "poll_ms": 50}
    workspace.flow(
        shell("Begin", "mkdir -p inbox/engineer && printf 'half of ' > inbox/engineer/one.tmp"),
        step("TooEarly", wait_for=look, failure="Publish"),
        shell("Publish", "cd inbox/engineer && printf 'a task' >> one.tmp && mv one.tmp one.task"),
        step("Seen", wait_for=look),
        step("Read", "cat", "inbox/engineer/one.task"),
    )
    steps = door(workspace).steps

    assert (steps["TooEarly"]["timed_out"], steps["TooEarly"]["files"]) == (True, [])
    assert steps["Seen"]["files"] == ["inbox/engineer/one.task"]
    assert steps["Read"]["output"] == "half of a task"


def test_06_queue_management_is_user_driven(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """Tasks stay in place, after success and failure, until a step moves them."""
    for name in ("good", "bad", "moved"):
        workspace.write(f"inbox/{name}.task", name)
    workspace.flow(
        step("Good", "cat", "inbox/good.task"),
        shell("Bad", "cat inbox/bad.task; exit 1", failure="Move"),
        shell("Move", 'mkdir -p "processed/$0" && mv inbox/moved.task "processed/$0/"', "${run.timestamp_utc}"),
    )
    finished = door(workspace)
    moved = f"processed/{finished.run_id.partition('-')[0]}/moved.task"

    assert set(workspace.snapshot()) == {FLOW, "inbox/good.task", "inbox/bad.task", moved}


def test_11_clean_processed(workspace: workspaces.Workspace) -> None:
    """`--clean-processed` empties only the configured folder, before the first step."""
    for name in ("done/old.task", "done/deep/older.task", "failed/kept.task", "processed/kept.task"):
        workspace.write(name)
    workspace.flow(shell("Look", "ls -A done | wc -l", output_capture="lines"), processed_dir="done")
    finished = orchestrate("run", FLOW, "--clean-processed", workspace=workspace)

    assert [line.strip() for line in finished.steps["Look"]["lines"]] == ["0"]
    assert (workspace.path / "done").is_dir()
    assert set(workspace.snapshot()) == {FLOW, "failed/kept.task", "processed/kept.task"}


def test_12_archive_processed(workspace: workspaces.Workspace) -> None:
    """`--archive-processed` writes a zip only after success, by default in the run's folder, never inside of itself."""
    workspace.flow(shell("Work", "mkdir -p processed/a && echo one > processed/a/1.task; exit $0", "${context.code}"))
    fails, succeeds = ("--context", "code=1"), ("--context", "code=0")
    failed = orchestrate("run", FLOW, "--archive-processed", "out.zip", *fails, workspace=workspace, code=1)
    made = (workspace.path / "out.zip").exists()
    orchestrate("run", FLOW, "--archive-processed", "out.zip", *succeeds, workspace=workspace)
    default = orchestrate("run", FLOW, *succeeds, "--archive-processed", workspace=workspace)
    orchestrate("run", FLOW, "--archive-processed", "processed/out.zip", *succeeds, workspace=workspace, code=2)
    assert default.root is not None
    assert failed.root is not None
    files = [_zipped(workspace.path / "out.zip"), _zipped(default.root / "processed.zip")]

    assert not made
    assert not (failed.root / "processed.zip").exists()
    assert not (workspace.path / "processed/out.zip").exists()
    for held in files:
        assert len(held) == 1
        assert next(iter(held)).endswith("a/1.task")
        assert next(iter(held.values())) == b"one\n"


def test_16_cli_safety(workspace: workspaces.Workspace, tmp_path: Path) -> None:
    """`--clean-processed` refuses the workspace itself, and a folder outside of it, named or linked to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    (workspace.path / "linked").symlink_to(outside)
    for processed in ("../outside", str(outside), "linked", "."):
        workspace.flow(shell("Never", "touch never"), processed_dir=processed)
        orchestrate("run", FLOW, "--clean-processed", workspace=workspace, code=2)

    assert (outside / "precious").read_text() == "kept"
    assert os.listdir(outside) == ["precious"]
    assert not (workspace.path / "never").exists()


def test_17_wait_for_files(workspace: workspaces.Workspace) -> None:
    """A wait blocks until the required number of files exists."""
    wait = {"glob": "inbox/*.task", "timeout_sec": 60, "poll_ms": 20, "min_count": 2}
    workspace.flow(step("Wait", wait_for=wait), shell("After", "ls inbox"))
    workspace.write("inbox/one.task")
    with workspaces.going("run", FLOW, workspace=workspace) as process:
        _until_waiting(workspace, process)
        (workspace.path / "inbox" / "two.tmp").write_text("")
        (workspace.path / "inbox" / "two.tmp").rename(workspace.path / "inbox" / "two.task")
        code = process.wait(60)
    steps = json.loads((workspace.runs / "latest" / "state.json").read_text())["steps"]

    assert code == 0
    assert steps["Wait"]["files"] == ["inbox/one.task", "inbox/two.task"]
    assert (steps["Wait"]["timed_out"], steps["Wait"]["exit_code"]) == (False, 0)
    assert steps["After"]["output"] == "one.task\ntwo.task\n"


def test_18_wait_timeout(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A wait without a match ends with 124 after its time limit, and records that it timed out."""
    workspace.write("inbox/one.tmp")
    workspace.flow(step("Wait", wait_for={"glob": "inbox/*.task", "timeout_sec": 0.3, "poll_ms": 50}))
    waited = door(workspace, code=1).steps["Wait"]

    assert (waited["status"], waited["exit_code"], waited["timed_out"]) == ("failed", 124, True)
    assert waited["files"] == []


def test_19_wait_state_tracking(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A wait records its files, its duration, and the number of its polls."""
    workspace.write("b.task")
    workspace.write("a.task")
    workspace.flow(
        step("Long", wait_for={"glob": "*.none", "timeout_sec": 0.35, "poll_ms": 100}, failure="Short"),
        step("Short", wait_for={"glob": "*.task"}),
        shell("Use", 'printf "%s" "$0"', "${steps.Short.files}"),
    )
    steps = door(workspace).steps

    # At once, three times in between, and at the end; and once more if the last timer fired a moment early.
    assert 2 <= steps["Long"]["poll_count"] <= 6
    assert 350 <= steps["Long"]["wait_duration_ms"] < 5000
    assert (steps["Short"]["files"], steps["Short"]["poll_count"]) == (["a.task", "b.task"], 1)
    assert steps["Short"]["wait_duration_ms"] >= 0
    assert steps["Use"]["output"] == '["a.task","b.task"]'


def test_36_wait_for_exclusivity(workspace: workspaces.Workspace, door: workspaces.Door) -> None:
    """A step with a wait cannot have a command, a provider or a loop."""
    wait = {"glob": "*.task"}
    workspace.flow(
        step("WithCommand", "true", wait_for=wait),
        step("WithProvider", wait_for=wait, provider="any"),
        step("WithLoop", wait_for=wait, for_each={"items": [], "steps": [step("In", "true")]}),
        providers={"any": {"command": ["true"]}},
    )
    told = door(workspace, code=2).output

    for index, other in enumerate(("command", "provider", "for_each")):
        assert f"steps[{index}]" in told
        assert other in told


def _zipped(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def _until_waiting(workspace: workspaces.Workspace, process: processes.Started) -> None:
    file = workspace.runs / "latest" / "state.json"

    def waits() -> bool:
        assert process.poll() is None
        steps = json.loads(file.read_text())["steps"] if file.exists() else {}
        return steps.get("Wait", {}).get("status") == "running"

    asyncio.run(process_families.until(waits, 60))
