"""The program `orchestrate` as users run it: real processes, signals, kills and damaged files.

These tests are about the document beyond its numbered items, which have their own tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import smoke
from tests.acceptance import programs
from tests.acceptance.orchestrate.workspaces import FLOW, Finished, Workspace, going, loop, orchestrate, shell

HEAVY = ("alembic", "asyncio", "fastapi", "httpx", "jsonschema", "pydantic", "re2", "sqlalchemy", "sqlmodel", "uvicorn")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Create an empty workspace."""
    path = tmp_path / "work"
    path.mkdir()
    return Workspace(path)


def stuck(workspace: Workspace) -> None:
    """Write a workflow whose second step ends only when a file `go` exists."""
    waits = "echo begun >> trace; until [ -e go ]; do sleep 0.02; done; echo over >> trace"
    workspace.flow(shell("First", "echo first >> trace"), shell("Second", waits), shell("Third", "echo third >> trace"))


def interrupted(workspace: Workspace, *arguments: str, by: int = signal.SIGINT) -> tuple[int, str, str]:
    """Run the workflow and send a signal while its second step is in progress."""
    stuck(workspace)
    with going("run", FLOW, *arguments, workspace=workspace) as process:
        until(lambda: "begun" in _text(workspace, "trace"), "the second step has begun")
        # Snapshots are coalesced: the first one may come after the second step's process has written.
        until((workspace.runs / "latest" / "state.json").exists, "the run shows its state")
        process.send_signal(by)
        out, err = process.communicate(timeout=60)
    return process.wait(), out, err


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until a condition is true."""
    for _ in range(3000):
        if holds():
            return
        threading.Event().wait(0.02)
    raise AssertionError(f"it never came that {what}")


def latest(workspace: Workspace) -> Path:
    """Return the folder that `latest` links to."""
    return workspace.runs / os.readlink(workspace.runs / "latest")


def state(workspace: Workspace) -> dict[str, Any]:
    """Return the state of the newest run."""
    shown: dict[str, Any] = json.loads((latest(workspace) / "state.json").read_text())
    return shown


def waits(workspace: Workspace) -> bool:
    """Return whether the newest run has reached its step Wait."""
    if not (workspace.runs / "latest" / "state.json").exists():
        return False
    return bool(state(workspace)["steps"]["Wait"]["status"] == "running")


def again(workspace: Workspace, *arguments: str, code: int = 0) -> Finished:
    """Resume the newest run."""
    return orchestrate("resume", "latest", *arguments, workspace=workspace, code=code)


# -- execution


def test_help_needs_nothing_heavy():
    """Help loads no heavy package."""
    loaded = f"print(sorted({set(HEAVY)!r} & set(sys.modules)))"
    code = f"import sys\nfrom app.cli.orchestrate import command\ncommand.execute(['--help'])\n{loaded}"
    told = subprocess.run([sys.executable, "-c", code], cwd=programs.ROOT, capture_output=True, text=True, check=True)

    assert told.stdout.splitlines()[-1] == "[]"


def test_a_run_creates_only_its_own_folder(workspace: Workspace):
    """A run creates only `.orchestrate`, which git ignores, and a refused command creates no file."""
    workspace.flow(shell("A", "true"))
    workspace.write("bad.yaml", "steps: 1")
    orchestrate("run", "bad.yaml", workspace=workspace, code=2)
    orchestrate("run", FLOW, "--dry-run", workspace=workspace)
    orchestrate("resume", "latest", workspace=workspace, code=2)
    orchestrate("clean", "--older-than", "0d", workspace=workspace)
    before = sorted(os.listdir(workspace.path))
    orchestrate("run", FLOW, workspace=workspace)

    assert before == ["bad.yaml", FLOW]
    assert sorted(os.listdir(workspace.path)) == [".orchestrate", "bad.yaml", FLOW]
    assert "/runs/" in (workspace.path / ".orchestrate" / ".gitignore").read_text().splitlines()


def test_each_step_prints_a_line_with_its_result(workspace: Workspace):
    """Each step prints a line with its number and result, and a failure prints the command to continue."""
    steps = [
        shell("Say", "true"),
        loop("Each", shell("Do", "exit $0", "${item}"), items=["0", "3"]),
        shell("No", "true"),
    ]
    workspace.flow(*steps)
    told = orchestrate("run", FLOW, workspace=workspace, code=1)
    run_id = latest(workspace).name
    shown = [line.partition(" (")[0] for line in told.stdout.splitlines()]

    assert shown == [
        f"run {run_id} started: .orchestrate/runs/{run_id}",
        "[1/3] Say: completed",
        "[2/3] Each[0].Do: completed",
        "[2/3] Each[1].Do: failed",
        f"run {run_id} failed",
    ]
    assert told.stderr.splitlines()[1:] == [
        f"logs: .orchestrate/runs/{run_id}/logs",
        f"continue with: orchestrate resume {run_id}",
    ]


def test_output_can_be_less_or_json(workspace: Workspace):
    """`--quiet` prints only the run's id, and `--json` one object with the state and the exit code."""
    workspace.flow(shell("A", "exit 4"))
    quiet = orchestrate("run", FLOW, "--quiet", workspace=workspace, code=1)
    told = json.loads(orchestrate("run", FLOW, "--json", workspace=workspace, code=1).stdout)

    assert quiet.stdout.strip() in workspace.run_ids()
    assert (told["status"], told["exit_code"], told["error"]["code"]) == ("failed", 1, "step_failed")
    assert told["steps"]["A"]["exit_code"] == 4
    assert told["run_root"] == f".orchestrate/runs/{told['run_id']}"


def test_the_last_line_names_the_failed_steps_of_a_done_run(workspace: Workspace):
    """A run that continued past failures is completed, and its last line names the failed steps."""
    workspace.flow(shell("A", "exit 1"), shell("B", "true"))
    told = orchestrate("run", FLOW, "--on-error", "continue", workspace=workspace)

    assert told.stdout.splitlines()[-1].endswith("completed, past failures of A")
    assert told.state["status"] == "completed"


def test_progress_is_drawn_on_stderr(workspace: Workspace):
    """Progress of steps and items is printed on stderr in the form of the document; stdout has only the run's lines."""
    workspace.flow(
        shell("List", "printf 'a\\nb\\n'", output_capture="lines"),
        loop("Each", shell("Do", "true"), items_from="steps.List.lines"),
    )
    told = orchestrate("run", FLOW, "--progress", workspace=workspace)
    lines = [line.replace("(1s)", "(0s)") for line in told.stderr.splitlines()]

    assert lines == [
        "[1/2] List: Running (0s)...",
        "[1/2] List: Completed (0s)",
        "[2/2] Each: Running (0s)...",
        "  └─ for_each: [1/2] Processing a",
        "  └─ for_each: [2/2] Processing b",
        "[2/2] Each: Completed (0s)",
    ]
    assert len(told.stdout.splitlines()) == 2


def test_a_secret_is_in_no_log_and_no_line(workspace: Workspace):
    """A secret in a step's output is masked in the logs, on stderr and in the JSON."""
    workspace.env["ACCESS_KEY"] = "sk-very-secret"
    workspace.flow(shell("A", 'echo "$ACCESS_KEY" >&2; echo "$ACCESS_KEY"; exit 3', secrets=["ACCESS_KEY"]))
    told = orchestrate("run", FLOW, "--json", "--verbose", "--debug", workspace=workspace, code=1)
    kept = "".join(path.read_text() for path in latest(workspace).rglob("*") if path.is_file())

    assert "sk-very-secret" not in told.output + kept
    assert "***" in told.stdout


def test_a_reader_that_goes_away_stops_the_run(workspace: Workspace):
    """When stdout has no reader any more, the run stays resumable, and the output names the command to continue."""
    workspace.flow(*(shell(f"S{number}", "sleep 0.2") for number in range(20)))
    with going("run", FLOW, workspace=workspace) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        told = process.stderr.read()
        code = process.wait(60)

    assert code == 141
    assert "continue with: orchestrate resume" in told
    assert state(workspace)["status"] == "running"


# -- stopping and continuing


def test_ctrl_c_ends_the_programs_and_leaves_a_run_to_resume(workspace: Workspace):
    """After Ctrl-C and a resume the interrupted step runs again, and the steps before it do not."""
    code, out, err = interrupted(workspace)
    workspace.write("go")
    resumed = again(workspace)

    assert code == 130
    assert out.splitlines()[-1].endswith("interrupted")
    assert f"continue with: orchestrate resume {latest(workspace).name}" in err
    assert workspace.read("trace").split() == ["first", "begun", "begun", "over", "third"]
    assert resumed.state["status"] == "completed"


def test_a_resumed_run_can_be_interrupted_and_resumed_again(workspace: Workspace):
    """A resumed run can be interrupted again, and then be resumed with other options."""
    interrupted(workspace, by=signal.SIGTERM)
    with going("resume", "latest", workspace=workspace) as process:
        until(lambda: workspace.read("trace").count("begun") == 2, "the second step has begun again")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    workspace.write("go")
    plain = again(workspace, "--on-error", "continue", "--debug")

    assert process.returncode == 130
    assert plain.state["status"] == "completed"
    assert workspace.read("trace").split() == ["first", "begun", "begun", "begun", "over", "third"]


def test_a_killed_run_continues_after_its_last_step(workspace: Workspace):
    """After SIGKILL the run is resumed after its last finished step."""
    code, _, _ = interrupted(workspace, by=signal.SIGKILL)
    before = state(workspace)
    workspace.write("go")
    again(workspace)

    assert code == -signal.SIGKILL
    assert before["status"] == "running"
    assert workspace.read("trace").split().count("first") == 1


def test_a_completed_run_needs_no_resuming(workspace: Workspace):
    """Resuming a completed run reports its completion and repeats no step."""
    workspace.flow(shell("A", "echo a >> trace"))
    orchestrate("run", FLOW, workspace=workspace)

    assert "is completed" in again(workspace).stdout
    assert workspace.read("trace") == "a\n"


def test_a_run_of_another_process_is_not_resumed(workspace: Workspace):
    """A run that another process executes cannot be resumed."""
    stuck(workspace)
    with going("run", FLOW, workspace=workspace):
        until(lambda: "begun" in _text(workspace, "trace"), "the second step has begun")
        refused = again(workspace, code=2)

    assert "run_busy" in refused.stderr


def test_a_changed_workflow_is_refused(workspace: Workspace):
    """A changed or missing workflow is refused, with both checksums, and no step runs; the unchanged one continues."""
    workspace.flow(shell("A", "echo a >> trace; exit $0", "${context.code}"), context={"code": "1"})
    orchestrate("run", FLOW, workspace=workspace, code=1)
    before = workspace.read(FLOW)
    workspace.write(FLOW, f"{before}\n")
    refused = again(workspace, code=2)
    told = json.loads(again(workspace, "--json", code=2).stdout)
    (workspace.path / FLOW).unlink()
    missing = again(workspace, code=2)
    workspace.write(FLOW, before)
    again(workspace, code=1)

    assert refused.stderr.count("sha256:") == 2
    assert (told["error"]["code"], told["exit_code"]) == ("workflow_changed", 2)
    assert "not there" in missing.stderr
    assert workspace.read("trace") == "a\na\n"


def test_a_forced_restart_is_another_run(workspace: Workspace):
    """A forced restart keeps the given context, reads the workflow anew, and leaves the old run's journal unchanged."""
    workspace.flow(
        shell("A", 'echo "$0 $1" >> trace; exit 1', "${context.given}", "${context.own}"), context={"own": 1}
    )
    orchestrate("run", FLOW, "--context", "given=g", workspace=workspace, code=1)
    old, journal = latest(workspace), (latest(workspace) / "steps.jsonl").read_bytes()
    workspace.flow(shell("A", 'echo "$0 $1" >> trace', "${context.given}", "${context.own}"), context={"own": 2})
    told = again(workspace, "--force-restart")

    assert workspace.read("trace") == "g 1\ng 2\n"
    assert (old / "steps.jsonl").read_bytes() == journal
    assert latest(workspace) != old
    assert latest(workspace).name in told.stderr
    assert json.loads((latest(workspace) / "start.json").read_text())["labels"] == {"instead_of": old.name}


def test_a_forced_restart_ends_what_it_replaces(workspace: Workspace):
    """A forced restart cancels the interrupted run that it replaces."""
    interrupted(workspace)
    old = latest(workspace)
    workspace.write("go")
    again(workspace, "--force-restart")

    assert json.loads((old / "run.json").read_text())["status"] == "cancelled"
    assert state(workspace)["status"] == "completed"


# -- damage


def fail_late(workspace: Workspace) -> Path:
    """Run a workflow that fails in its third step, and return the run's folder."""
    steps = [shell(name, f"echo {name} >> trace") for name in ("A", "B")]
    workspace.flow(*steps, shell("C", "echo C >> trace; [ -e go ]"))
    orchestrate("run", FLOW, workspace=workspace, code=1)
    workspace.write("go")
    return latest(workspace)


@pytest.mark.parametrize("damage", smoke.only(b"{broken", [b"{broken", b"[]", b"", None]))
def test_a_damaged_state_file_is_made_anew(workspace: Workspace, damage: bytes | None):
    """A damaged or missing state file is rebuilt from the journal, and no finished step runs again."""
    root = fail_late(workspace)
    (root / "state.json").unlink()
    if damage is not None:
        (root / "state.json").write_bytes(damage)
    resumed = again(workspace)

    assert "rebuilt" in resumed.stderr
    assert [resumed.steps[name]["status"] for name in "ABC"] == ["completed"] * 3
    assert workspace.read("trace").split() == ["A", "B", "C", "C"]


def test_a_damaged_journal_is_repaired_when_asked(workspace: Workspace):
    """A damaged journal is refused with both ways out; with `--repair` the steps before the damage are kept."""
    root = fail_late(workspace)
    lines = (root / "steps.jsonl").read_bytes().splitlines(keepends=True)
    (root / "steps.jsonl").write_bytes(lines[0] + b"damage\n" + lines[2])
    refused = again(workspace, code=2)
    repaired = again(workspace, "--repair")

    assert "--repair" in refused.stderr
    assert "--force-restart" in refused.stderr
    assert "steps.jsonl.damaged-1" in repaired.stderr
    assert workspace.read("trace").split() == ["A", "B", "C", "B", "C"]
    assert repaired.state["status"] == "completed"


def test_an_irreparable_run_can_be_restarted_by_force(workspace: Workspace):
    """With an unreadable start.json a repair is refused, and a forced restart begins anew from the state file."""
    root = fail_late(workspace)
    (root / "start.json").write_text("damage")
    refused = again(workspace, "--repair", code=2)
    told = again(workspace, "--force-restart")

    assert "--force-restart" in refused.stderr
    assert told.state["status"] == "completed"
    assert latest(workspace) != root


def test_backups_hold_earlier_states(workspace: Workspace):
    """Each backup is a whole state that shows its own step as running; `--debug` writes backups as well."""
    workspace.flow(*(shell(name, "true") for name in "ABCDE"))
    orchestrate("run", FLOW, "--backup-state", workspace=workspace)
    copies = {path.name: json.loads(path.read_text()) for path in latest(workspace).glob("*.bak")}
    orchestrate("run", FLOW, "--debug", workspace=workspace)

    assert set(copies) == {f"state.json.step_{name}.bak" for name in "CDE"}
    assert [(name, copies[f"state.json.step_{name}.bak"]["steps"][name]["status"]) for name in "CDE"] == [
        ("C", "running"),
        ("D", "running"),
        ("E", "running"),
    ]
    assert len(list(latest(workspace).glob("*.bak"))) == 3


# -- the other commands


def test_a_step_is_run_alone(workspace: Workspace):
    """`run-step` runs only the named step without its jumps, and a resume runs that step alone."""
    workspace.flow(
        shell("A", "echo a >> trace", success="C"),
        shell("B", 'echo "b ${context.x}" >> trace', failure="A"),
        shell("C", "echo c >> trace"),
    )
    orchestrate("run-step", "A", "--workflow", FLOW, workspace=workspace)
    orchestrate("run-step", "B", "--workflow", FLOW, "--context", "x=1", workspace=workspace)
    failed = orchestrate("run-step", "B", "--workflow", FLOW, workspace=workspace, code=1)
    unknown = orchestrate("run-step", "D", "--workflow", FLOW, workspace=workspace, code=2)
    workspace.write(FLOW, workspace.read(FLOW))
    resumed = again(workspace, code=1)

    assert workspace.read("trace") == "a\nb 1\n"
    assert failed.steps["B"]["exit_code"] == 2
    assert "no step 'D'" in unknown.stderr
    assert set(resumed.steps) == {"B"}


def test_watching_runs_again_until_ctrl_c(workspace: Workspace):
    """`watch` starts a run for each change of the file, until Ctrl-C."""
    workspace.flow(shell("A", "echo one >> trace"))
    with going("watch", FLOW, workspace=workspace) as process:
        until(lambda: "one" in _text(workspace, "trace"), "the first run is over")
        workspace.write("fresh", workspace.read(FLOW).replace("one", "two"))
        (workspace.path / "fresh").replace(workspace.path / FLOW)
        until(lambda: "two" in _text(workspace, "trace"), "the second run is over")
        until(lambda: len(_completed(workspace)) == 2, "both are completed")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    assert process.returncode in (0, 130)
    assert len(workspace.run_ids()) == 2


def test_old_runs_are_removed_and_unfinished_ones_stay(workspace: Workspace):
    """`clean` removes runs that ended long enough ago, with their links, and keeps resumable ones."""
    interrupted(workspace)
    kept = latest(workspace).name
    workspace.flow(shell("A", "true"))
    orchestrate("run", FLOW, workspace=workspace)
    gone = latest(workspace).name
    young = orchestrate("clean", "--older-than", "999999w", workspace=workspace)
    indexes = list(workspace.runs.parent.glob("index.db*"))
    for index in indexes:
        index.unlink()
    shown = orchestrate("clean", "--older-than", "0s", "--dry-run", "--json", workspace=workspace)
    there = workspace.run_ids()
    assert indexes
    assert not any(workspace.runs.parent.glob("index.db*"))
    told = orchestrate("clean", workspace=workspace, ORCHESTRATE_KEEP_RUNS="0")

    assert young.stdout == "no run to remove is old enough\n"
    assert json.loads(shown.stdout) == {"removed": [], "old": [gone], "unfinished": 1, "kept": {}, "refused": {}}
    assert set(there) == {kept, gone}
    assert told.stdout == f"removed run {gone}\n"
    assert workspace.run_ids() == [kept]
    assert latest(workspace).name == kept
    assert os.listdir(workspace.runs / ".trash") == []


def test_a_pinned_run_is_not_cleaned_away(workspace: Workspace):
    """`clean` keeps what retention keeps, such as a pinned run, whatever its age, and prints the reason."""
    workspace.flow(shell("A", "true"))
    orchestrate("run", FLOW, workspace=workspace)
    kept = workspace.run_ids()
    env = workspace.environment() | {"CONTROL_ROOM_DATA_DIRECTORY": ".orchestrate"}
    subprocess.run([sys.executable, "-m", "app", "runs", "pin", *kept], cwd=workspace.path, env=env, check=True)
    told = orchestrate("clean", "--older-than", "0s", workspace=workspace)

    assert (workspace.run_ids(), latest(workspace).name) == (kept, kept[0])
    assert told.stderr == "1 old run kept: pinned\n"


def test_a_state_directory_has_links_to_its_runs(workspace: Workspace, tmp_path: Path):
    """Runs in another state directory are found there by their ids, and resumed from there."""
    place = tmp_path / "state"
    workspace.flow(shell("A", "echo ${run.root}; [ -e go ]"))
    told = orchestrate("run", FLOW, "--state-dir", place, "--quiet", workspace=workspace, code=1)
    run_id = told.stdout.strip()
    workspace.write("go")
    resumed = orchestrate("resume", run_id, workspace=workspace, ORCHESTRATE_STATE_DIR=str(place))
    shown = json.loads((place / run_id / "state.json").read_text())

    assert resumed.code == 0
    assert os.readlink(place / "latest") == run_id
    assert shown["steps"]["A"]["output"] == f"{place}/.orchestrate/runs/{run_id}\n"
    assert not (workspace.path / ".orchestrate").exists()


def test_a_run_is_resumed_where_it_works(workspace: Workspace, tmp_path: Path):
    """In a shared state directory, a run of another workspace is refused, and the message names that workspace."""
    other = Workspace(tmp_path / "other", {"ORCHESTRATE_STATE_DIR": str(tmp_path / "state")})
    for place in (workspace, other):
        place.path.mkdir(exist_ok=True)
        place.flow(shell("A", "exit 1"))
    orchestrate("run", FLOW, "--state-dir", tmp_path / "state", workspace=workspace, code=1)
    for flags in ([], ["--force-restart"]):
        refused = orchestrate("resume", "latest", *flags, workspace=other, code=2)

        assert f"works in {workspace.path}" in refused.stderr


def test_waits_and_leftover_processes_are_reported(workspace: Workspace):
    """The file that a wait awaits, and processes that a command left, are on stdout, in the state and in the log."""
    wait = {"name": "Wait", "wait_for": {"glob": "go", "timeout_sec": 60, "poll_ms": 20}}
    workspace.flow(shell("Leave", "sleep 600 & echo left"), wait)
    with going("run", FLOW, workspace=workspace) as process:
        until(lambda: waits(workspace), "the state shows the wait")
        waiting = state(workspace)["steps"]["Wait"]
        workspace.write("go")
        out, err = process.communicate(timeout=60)
    logged = [json.loads(line) for line in (latest(workspace) / "logs/orchestrator.log").read_text().splitlines()]
    told = {line["step"]: line for line in logged if line["message"] == "recipe.note"}
    left = state(workspace)["steps"]["Leave"]

    assert process.wait() == 0, err
    assert waiting == {"status": "running", "waits_for": "go", "min_count": 1, "timeout_sec": 60}
    assert "[2/2] Wait: waiting for a file: go (at most 60s)\n" in out
    assert "[1/2] Leave: left 1 process running, which was ended\n" in out
    assert (left["leftovers"], left["survivors"]) == (1, 0)
    assert [told[key]["level"] for key in ("Wait.waiting", "Leave.left_behind")] == ["info", "warning"]


@pytest.mark.slow
def test_a_file_that_is_not_moved_is_reported(workspace: Workspace):
    """A task file that is not moved after its item is printed, as the next run would find it again."""
    workspace.write("in/a")
    workspace.write("in/old/a")
    moves = {"success": {"move_to": "done"}}
    work = shell("Do", "true")
    workspace.flow(loop("Each", work, items=["in/a", "in/old/a", 7], on_item_complete=moves), version="1.2")
    told = orchestrate("run", FLOW, workspace=workspace).stdout.splitlines()

    assert [line for line in told if "not moved" in line] == [
        "[1/1] Each: the file of item 1 was not moved: 'done/a' exists already, and the write may not replace it.",
        "[1/1] Each: the file of item 2 was not moved: the item is not a text, so it cannot name a file",
    ]


def test_a_run_that_cannot_write_prints_what_it_waits_for(workspace: Workspace):
    """While the run's files cannot be written, stderr names the file once, as the log may be on the same disk."""
    # The limit of the program stands for a full disk; the step's own output is not under it.
    workspace.flow(shell("A", "ulimit -S -f unlimited; head -c 3000000 /dev/zero | tr '\\0' x"))
    limited = ["sh", "-c", 'ulimit -S -f 2000; exec "$@"', "-", sys.executable, "-m", "app.cli.orchestrate"]
    with subprocess.Popen(
        [*limited, "run", FLOW, "--quiet"],
        cwd=workspace.path,
        env=workspace.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        late = threading.Timer(30, process.kill)
        late.start()
        told = process.stderr.readline()
        late.cancel()
        process.terminate()
        rest = process.stderr.read()

    assert told.startswith(f"the run waits: runs/{latest(workspace).name}/logs could not be written")
    assert "the run waits" not in rest
    assert process.returncode == 130


def test_a_resumed_wait_has_its_whole_time_limit_again(workspace: Workspace):
    """Time without a process does not count for a wait: a resumed wait has its whole time limit again."""
    wait = {"name": "Wait", "wait_for": {"glob": "go", "timeout_sec": 4, "poll_ms": 20}}
    workspace.flow(wait)
    with going("run", FLOW, workspace=workspace) as process:
        until(lambda: waits(workspace), "the wait has begun")
        process.kill()
        process.wait()
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > 4.5, "its time would be over")
    with going("resume", "latest", workspace=workspace) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        workspace.write("go")
        err = process.communicate(timeout=60)[1]

    assert process.wait() == 0, err
    assert "resumed" in first
    assert state(workspace)["steps"]["Wait"]["timed_out"] is False


def test_an_archive_is_made_of_what_a_run_leaves(workspace: Workspace):
    """An archive is in the run's folder by default, and a failed run has none."""
    workspace.flow(shell("A", "mkdir -p processed/now; echo x > processed/now/a.task; exit $0", "${context.code}"))
    orchestrate("run", FLOW, "--archive-processed", "--context", "code=0", workspace=workspace)
    archive = latest(workspace) / "processed.zip"
    more = ("--archive-processed", "out.zip", "--context", "code=1")
    failed = orchestrate("run", FLOW, *more, workspace=workspace, code=1)

    assert "processed was not archived" in failed.stderr
    assert zipfile.ZipFile(archive).namelist() == ["processed/now/", "processed/now/a.task"]
    assert not (workspace.path / "out.zip").exists()


def test_an_impossible_archive_does_not_fail_the_run(workspace: Workspace, tmp_path: Path):
    """If a step replaces the folder by a link out of the workspace, no archive is written, and the run completes."""
    workspace.write("processed/a.task", "x")
    workspace.flow(shell("A", f"rm -r processed; ln -s {tmp_path} processed"))
    told = orchestrate("run", FLOW, "--archive-processed", "out.zip", "--json", workspace=workspace, code=1)
    shown = json.loads(told.stdout)

    assert (shown["status"], shown["exit_code"]) == ("completed", 1)
    assert "leads out of the workspace" in shown["error"]["message"]
    assert not (workspace.path / "out.zip").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "nowhere.yaml"),
        ("run", "."),
        ("run", FLOW, "--context", "x"),
        ("run", FLOW, "--context-file", "nowhere.json"),
        ("run", FLOW, "--on-error", "interactive"),
        ("run", FLOW, "--state-dir", FLOW),
        ("run", FLOW, "--max-retries", "x"),
        ("resume", "nobody"),
        ("resume", "../x"),
        ("resume", "latest", "--repair", "--force-restart"),
        ("run-step", "A"),
        ("clean", "--older-than", "7"),
        ("frob",),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_refused(workspace: Workspace, arguments: tuple[str, ...]):
    """A wrong command line is refused with a short message, and creates no file."""
    workspace.flow(shell("A", "true"))
    told = orchestrate(*arguments, workspace=workspace, code=2)

    assert 0 < len(told.stderr) < 500
    assert os.listdir(workspace.path) == [FLOW]


def test_the_same_runs_are_shown_by_the_other_program(workspace: Workspace):
    """`control-room` lists the runs of workflows, without `latest`, once their data directory is set."""
    workspace.flow(shell("A", "true"))
    orchestrate("run", FLOW, workspace=workspace)
    env = workspace.environment() | {"CONTROL_ROOM_DATA_DIRECTORY": ".orchestrate"}
    command = [sys.executable, "-m", "app", "runs", "list", "--json"]
    told = subprocess.run(command, cwd=workspace.path, env=env, capture_output=True, text=True, check=True)

    assert [(run["run_id"], run["status"]) for run in json.loads(told.stdout)] == [(latest(workspace).name, "done")]


def test_the_link_to_the_newest_run_is_not_a_run(workspace: Workspace):
    """`latest` is not the id of a run elsewhere: an order for it is refused, and the link and its run stay."""
    workspace.flow(shell("A", "true"))
    orchestrate("run", FLOW, workspace=workspace)
    env = workspace.environment() | {"CONTROL_ROOM_DATA_DIRECTORY": ".orchestrate"}
    command = [sys.executable, "-m", "app", "runs", "delete", "latest"]
    told = subprocess.run(command, cwd=workspace.path, env=env, capture_output=True, text=True, check=False)

    assert (told.returncode, "[run_not_found]" in told.stderr) == (4, True)
    assert state(workspace)["status"] == "completed"


def test_the_program_can_be_called_as_a_module(workspace: Workspace):
    """The program can be called as a module."""
    told = subprocess.run(
        [sys.executable, "-m", "app.cli.orchestrate", "--version"],
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert told.stdout.startswith("orchestrate ")


def _text(workspace: Workspace, name: str) -> str:
    path = workspace.path / name
    return path.read_text() if path.exists() else ""


def _completed(workspace: Workspace) -> list[str]:
    shown = {name: workspace.runs / name / "state.json" for name in workspace.run_ids()}
    return [name for name, file in shown.items() if file.exists() and '"status":"completed"' in file.read_text()[:600]]
