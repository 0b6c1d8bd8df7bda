"""The crash laboratory, on the example project: a sample in the usual suite, all points as a slow test."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import signal
import stat
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app import errors, settings
from app.cli import crashing
from app.crash_lab import (
    crashtest,
    disk_sweeps,
    experiment,
    experiment_log,
    fork_server,
    outcomes,
    process_sweeps,
    tracing,
    trials,
    unattended,
)
from app.crash_lab.fragile_disk import Trouble
from app.services import conferences, requests
from app.services.plans import requests as plan_requests
from tests.acceptance import drafting, forking, programs

REQUEST = requests.StartRequest(
    recipe_id="creative_draft_scene", description="Draft scene 21", args=drafting.REQUEST["args"]
)
WORKFLOW = """
version: "1.2"
steps:
  - name: List
    command: [sh, -c, "ls inbox/*.task"]
    output_capture: lines
  - name: Each
    for_each:
      items_from: steps.List.lines
      as: task
      on_item_complete: {success: {move_to: processed}}
      steps:
        - name: Keep
          command: [cat, "${task}"]
          output_file: "kept/${loop.index}.txt"
  - name: Count
    command: [sh, -c, "ls processed | wc -l"]
"""
UNATTENDED = unattended.Unattended(request=requests.StartRequest(recipe_id="small", args={"words": "gate"}))
WRITES = ("kill", "EIO", "ENOSPC", "power loss", "one sync lies")
traced = pytest.mark.skipif(not tracing.available(), reason="strace is not installed")
SAMPLE = 40
"""Points of each sweep that are tried for a recipe besides the example: the possible faults are the same for all."""


@pytest.fixture(scope="module", autouse=True)
def _forks() -> None:
    forking.processes()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[process_sweeps.Bench]:
    """Yield a bench for a few experiments on the example project."""
    chosen = settings.load(project=programs.ROOT / ".control-room" / "example", home=tmp_path)
    original = experiment.template(tmp_path / "lab" / "template", chosen, REQUEST, None)
    yield process_sweeps.Bench(tmp_path / "lab", original, workers=2, sample=8, seed=1)
    shutil.rmtree(tmp_path / "lab")


def extent(**given: object) -> crashtest.Extent:
    """Return the extent of the trials."""
    return crashtest.Extent(**given)  # type: ignore[arg-type]


def test_a_copy_of_a_project_omits_pipes_and_sockets(tmp_path: Path) -> None:
    """A copy of a project omits pipes and sockets, and contains the other files."""
    project = tmp_path / "project"
    (project / "Story").mkdir(parents=True)
    (project / "Story" / "scene.md").write_text("Rain.", encoding="utf-8")
    (project / "Story" / "link").symlink_to("scene.md")
    os.mkfifo(project / "Story" / "pipe")
    os.mknod(project / "Story" / "socket", stat.S_IFSOCK)
    chosen = settings.load(project=project, home=tmp_path)
    copy = experiment.template(tmp_path / "template", chosen, REQUEST, None)

    assert {path.name for path in (copy.place / "project" / "Story").iterdir()} == {"scene.md", "link"}


def test_a_copy_keeps_user_folders_of_any_name(tmp_path: Path) -> None:
    """A copy omits the sessions of the data directory, but keeps a user's folder of the same name elsewhere."""
    project = tmp_path / "project"
    for folder in (project / "Story" / "sessions", project / ".control-room" / "sessions"):
        folder.mkdir(parents=True)
        (folder / "one.md").write_text("Rain.", encoding="utf-8")
    chosen = settings.load(project=project, home=tmp_path)
    copy = experiment.template(tmp_path / "template", chosen, REQUEST, None)

    assert (copy.place / "project" / "Story" / "sessions" / "one.md").exists()
    assert not (copy.data_directory / "sessions").exists()


def test_an_uncopiable_project_is_refused_with_its_place(tmp_path: Path) -> None:
    """A project that cannot be copied is refused with the place and the reason."""
    project = tmp_path / "p"
    names = ["d" * 200] * ((4050 - len(str(project))) // 201)
    project.joinpath(*names, "e" * (4090 - len(str(project.joinpath(*names))))).mkdir(parents=True)
    chosen = settings.load(project=project, home=tmp_path)

    with pytest.raises(errors.ConfigurationError, match=rf"^{project}/d+.* cannot be copied: .*too long"):
        experiment.template(tmp_path / "template", chosen, REQUEST, None)


@traced
def test_a_sample_of_every_sweep_holds(tmp_path: Path) -> None:
    """Killed, refused or without power at some writes, the example ends as if undisturbed, with no hidden damage."""
    chosen = settings.load(project=programs.ROOT / ".control-room" / "example", home=tmp_path)
    report = crashtest.crashtest(chosen, REQUEST, extent(sample=1, seed=3), lambda line: None)

    assert report.to_json()["broken"] == []
    assert report.holds
    assert [row["sweep"] for row in report.rows()] == [*WRITES, "read EIO", "read EMFILE"]
    # Writes are coalesced by time, so a point of the undisturbed run may not occur again.
    assert [row for row in report.rows() if row["tried"] != 1 or row["points"] <= 30] == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
@traced
def test_every_point_of_every_sweep_holds(tmp_path: Path) -> None:
    """Disturbed at any write, the example ends as if undisturbed."""
    chosen = settings.load(project=programs.ROOT / ".control-room" / "example", home=tmp_path)
    report = crashtest.crashtest(chosen, REQUEST, extent(), lambda line: None)

    assert report.to_json()["broken"] == []
    assert report.holds


@pytest.mark.slow
@pytest.mark.timeout(3000)
@traced
def test_a_sample_of_an_agent_recipe_holds(tmp_path: Path) -> None:
    """A recipe of a real program, here with scripted replies, ends the same wherever it is interrupted."""
    replies = tmp_path / "replies.json"
    said = {"code-review": "issues-found", "code-review#2": "no-issues", "fix": "complete", "commit": "committed"}
    replies.write_text(json.dumps({key: json.dumps({"outcome": outcome}) for key, outcome in said.items()}))
    chosen = settings.load(project=programs.ROOT / ".control-room" / "example", home=tmp_path)
    request = requests.StartRequest(recipe_id="review-and-commit")
    report = crashtest.crashtest(chosen, request, extent(sample=SAMPLE, seed=2, replies=replies), lambda line: None)

    assert report.to_json()["broken"] == []
    assert report.holds


@pytest.mark.slow
@pytest.mark.timeout(3000)
@traced
def test_a_sample_of_an_amplifier_recipe_holds(tmp_path: Path) -> None:
    """A loop over an agent's list ends the same wherever it is interrupted, and no iteration is repeated."""
    replies = tmp_path / "replies.json"
    replies.write_text(json.dumps({"discover-files": '{"files": ["a.py", "b.py"]}', "*": "It is well written."}))
    chosen = settings.load(project=programs.ROOT / ".control-room" / "example", home=tmp_path)
    request = requests.StartRequest(recipe_id="batch-file-analyzer")
    report = crashtest.crashtest(chosen, request, extent(sample=SAMPLE, seed=8, replies=replies), lambda line: None)

    assert report.to_json()["broken"] == []
    assert report.holds


@pytest.mark.slow
@pytest.mark.timeout(3000)
@traced
def test_a_sample_of_a_workflow_holds(tmp_path: Path) -> None:
    """Commands, a loop and the moves of its items end the same wherever they are interrupted, without a second move."""
    project = programs.make_project(tmp_path / "project")
    (project.path / ".control-room" / "recipes" / "orchestrate").mkdir(parents=True)
    (project.path / ".control-room" / "recipes" / "orchestrate" / "inbox.yaml").write_text(WORKFLOW)
    (project.path / "inbox").mkdir()
    for name in ("a", "b"):
        (project.path / "inbox" / f"{name}.task").write_text(f"Do {name}.")
    chosen = settings.load(project=project.path, home=tmp_path)
    request = requests.StartRequest(recipe_id="inbox")
    report = crashtest.crashtest(chosen, request, extent(sample=SAMPLE, seed=4), lambda line: None)

    assert report.to_json()["broken"] == []
    assert report.holds


@pytest.mark.slow
@pytest.mark.timeout(3000)
@traced
def test_a_sample_of_a_conference_holds(tmp_path: Path) -> None:
    """Tool calls, opinions, evidence and the transcript's issue are the same wherever the conference is interrupted."""
    project = _team(tmp_path / "project")
    replies = tmp_path / "replies.json"
    quoted = 'It is quiet.\nEvidence: "Kael stands before the gate." (Story/SCN-gate.md)'
    said = {"chief": json.dumps({"tool": "file_locator", "args": {"search_criteria": "gate"}}), "*": quoted}
    replies.write_text(json.dumps(said | {"chief#2": '{"done": true}'}))
    chosen = settings.load(project=project.path, home=tmp_path)
    asked = conferences.NewConference(
        message="Is the gate quiet?", agents=["planner", "writer"], allowed_tools=["file_locator"], require_tool=True
    )
    report = crashtest.crashtest(chosen, asked, extent(sample=SAMPLE, seed=6, replies=replies), lambda line: None)

    assert report.to_json()["broken"] == []
    assert report.holds


@pytest.mark.slow
@pytest.mark.timeout(3000)
@traced
def test_a_sample_of_a_plan_holds(tmp_path: Path) -> None:
    """A plan with a chief and dependent tasks ends the same wherever it is interrupted."""
    project = _team(tmp_path / "project")
    replies = tmp_path / "replies.json"
    tasks = [
        {"id": 1, "description": "small task: the gate", "deps": [], "dod": "It is.", "args": {"words": "gate"}},
        {"id": 2, "description": "small task: the way", "deps": [1], "dod": "It is.", "args": {"words": "way"}},
    ]
    evidence = 'Evidence: "Kael stands before the gate" (Story/SCN-gate.md)'
    verdict = {"verdict": "met", "why": "He does.", "evidence": evidence}
    said = {"chief": json.dumps({"tasks": tasks}), "review": json.dumps(verdict), "*": "Kael stands before the gate."}
    replies.write_text(json.dumps(said))
    chosen = settings.load(project=project.path, home=tmp_path)
    asked = plan_requests.NewPlan(intent="two small tasks: gate and way")
    report = crashtest.crashtest(chosen, asked, extent(sample=SAMPLE, seed=7, replies=replies), lambda line: None)

    assert report.to_json()["broken"] == []
    assert report.holds


def test_unattended_runs_end_the_same_after_a_kill(tmp_path: Path) -> None:
    """After a kill at one write of a trigger, unattended runs end the same.

    A webhook, a file and a schedule start one run each, each end is announced under one id, and the budget counts each
    call once.
    """
    made = process_sweeps.Bench(tmp_path, _unattended(tmp_path), workers=1, sample=None, seed=0)
    expected, point = _lived(made), "storage.document.before_rename:5"
    cut = made.experiment("cut")

    assert fork_server.live(cut, crash_at=point) == -signal.SIGKILL
    trial = process_sweeps.reopened(cut, point, trials.look(cut), expected, died=True)
    assert (trial.note, trial.twice, trial.lost) == ("", (), ())
    assert expected.outcome is not None
    assert expected.outcome["triggers"] == {
        kind: {"results": ["started"], "waiting": 0} for kind in ("files", "schedule", "webhook")
    }
    assert expected.outcome["messages"] == [{"run.done": 1}] * 3
    assert expected.outcome["budget"] == "each call once"


@pytest.mark.slow
@pytest.mark.timeout(7200)
@traced
def test_every_point_of_unattended_runs_holds(tmp_path: Path) -> None:
    """Disturbed at any write, unattended runs end the same."""
    project = programs.make_project(tmp_path / "project")
    chosen = settings.load(project=project.path, home=tmp_path)
    report = crashtest.crashtest(chosen, UNATTENDED, extent(), lambda line: None)

    assert report.to_json()["broken"] == []
    assert report.holds


def test_a_copy_starts_nothing_by_itself(tmp_path: Path) -> None:
    """A copy omits triggers, endpoints and budgets of the project, so that a test sends no messages."""
    project = programs.make_project(tmp_path / "project")
    for name in ("triggers/trg_a.json", "outbox/ep_a.json", "budgets.json", "policies.json"):
        project.write(name, {})
    chosen = settings.load(project=project.path, home=tmp_path)
    copy = experiment.template(tmp_path / "template", chosen, REQUEST, None).data_directory

    assert [name for name in ("triggers", "outbox", "budgets.json", "policies.json") if (copy / name).exists()] == [
        "policies.json"
    ]


def test_the_files_of_plans_and_issues_are_among_the_points(tmp_path: Path) -> None:
    """The disturbed writes include those of `plan.json` and of issues."""
    project = _team(tmp_path / "project")
    chosen = settings.load(project=project.path, home=tmp_path)
    replies = tmp_path / "replies.json"
    task = {"id": 1, "description": "small task: the gate", "args": {"words": "gate"}, "deps": [], "dod": "It is."}
    quoted = 'Evidence: "Kael stands before the gate." (Story/SCN-gate.md)'
    replies.write_text(json.dumps({"chief": json.dumps({"tasks": [task]}), "*": quoted}))
    plan = plan_requests.NewPlan(intent="a small task", review="off")
    round_ = conferences.NewConference(message="Is it quiet?", agents=["writer"], allowed_tools=[])
    paths = {}
    for name, asked in (("plan", plan), ("conference", round_)):
        original = experiment.template(tmp_path / name / "template", chosen, asked, replies)
        made = process_sweeps.Bench(tmp_path / name, original, workers=1, sample=None, seed=0)
        paths[name] = {operation.path for operation in disk_sweeps.undisturbed(made)[1]}

    assert [path for path in paths["plan"] if path.startswith("sessions/sp_") and "plan.json" in path]
    assert [path for path in paths["conference"] if path.startswith("issues/.iss_")]


def test_lives_side_by_side_end_each_in_its_own_way(bench: process_sweeps.Bench) -> None:
    """Processes that end at the same time each return their own exit code."""
    experiments = [bench.experiment(f"side-{number}") for number in range(12)]
    points = ["storage.create.before_folder:1", "pool.queued:1"] * 6
    with ThreadPoolExecutor(6) as threads:
        codes = list(threads.map(lambda lived, point: fork_server.live(lived, crash_at=point), experiments, points))

    assert codes == [-signal.SIGKILL] * 12


@traced
def test_a_life_that_gets_stuck_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not end in time is killed, although a tracer waits for it."""
    monkeypatch.setattr(fork_server, "_LIFE_SECONDS", 2.0)
    replies = tmp_path / "replies.json"
    replies.write_text('{"*": {"hang": true}}')
    chosen = settings.load(project=programs.ROOT / ".control-room" / "example", home=tmp_path)
    stuck = experiment.template(tmp_path / "template", chosen, REQUEST, replies)

    assert fork_server.live(stuck, lambda pid: tracing.traced(pid, tmp_path / "trace")) is fork_server.STUCK


@pytest.mark.slow
def test_probes_replace_a_missing_tracer(bench: process_sweeps.Bench) -> None:
    """Without a tracer, the process is killed at the probes of the storage instead."""
    expected, _ = disk_sweeps.undisturbed(bench)
    swept = process_sweeps.by_probes(bench, "kill", _lived(bench))

    assert expected.outcome is not None
    # Writes are coalesced by time, so a point of the undisturbed process may not occur again.
    assert len(swept.trials) == 8
    assert swept.reached
    assert swept.broken == []


@pytest.mark.slow
def test_every_power_loss_of_a_sample_ends_the_same(bench: process_sweeps.Bench) -> None:
    """Power losses, refusals and lost syncs on the disk in memory, at some operations each, lead to the same end."""
    expected, story = disk_sweeps.undisturbed(bench)
    for trouble in Trouble:
        swept = disk_sweeps.by_operations(bench, trouble.value, trouble, story, expected)

        assert swept.broken == [], trouble


def test_every_kind_of_loss_is_a_broken_promise(bench: process_sweeps.Bench) -> None:
    """A lost step, a repeated execution, another result, and a lost run each count as a broken promise."""
    seen = _lived(bench)
    run, key, attempt = seen.told.executed[3]
    seen_again = _with(seen, executed=(*seen.told.executed, (run, key, attempt + 1)))
    changed = json.loads(json.dumps(seen.outcome))
    changed["records"][0]["output_hash"] = "sha256:other"

    assert trials.judge("here", seen, seen, seen_again).twice == (f"{key}/{attempt + 1}",)
    assert trials.judge("here", seen, seen, _with(seen, new=2)).lost == ("an accepted request",)
    lost = trials.judge("here", seen, seen, _replaced(seen, recorded=seen.recorded - {(run, key, attempt)}))
    assert (lost.lost, lost.hidden) == ((f"{key}/{attempt}",), f"{key}/{attempt}")
    assert trials.judge("here", seen, seen, _replaced(seen, outcome=changed)).hidden.startswith("records[0].output")
    assert trials.judge("here", seen, seen, _replaced(seen, workspace={})).hidden.startswith("workspace")


def test_each_end_of_a_process_explains_one_more_execution(bench: process_sweeps.Bench) -> None:
    """A step in progress at a power loss that the next process executes again does not count as repeated."""
    seen = _lived(bench)
    executed, (run, key, attempt) = seen.told.executed, seen.told.executed[3]
    before = frozenset(executed[:3])
    done = frozenset((run_id, name) for run_id, name, _ in before)
    first = _replaced(_with(seen, executed=executed[:4]), final=done, recorded=before)
    second = _with(seen, executed=(*executed[:4], *executed[3:]))

    assert trials.judge("here", seen, second, second, earlier=first).twice == ()
    assert trials.judge("here", seen, second, second).twice == (key,)
    thrice = _with(seen, executed=(*second.told.executed, (run, key, attempt)))
    assert trials.judge("here", seen, second, thrice, earlier=first).twice == (f"{key}/{attempt}",)


@pytest.mark.slow
def test_the_command_prints_a_table(tmp_path: Path) -> None:
    """`crashtest` prints a row for each sweep and ends with 0; with `--output` it also writes the page."""
    project = programs.make_project(tmp_path / "project")
    page = tmp_path / "page.md"
    done = programs.control_room(
        "crashtest", "small", "--arg", "words=gate", "--sample", "3", "--untraced", "--output", page, project=project
    )

    assert "every promise holds" in done.stdout
    assert [line.split("  ")[0] for line in done.stdout.splitlines()[1:8]] == [
        *WRITES, "read EIO", "read EMFILE",
    ]  # fmt: skip
    assert page.read_text().startswith("# Crash laboratory: `small`")
    assert not (project.data / "runs").exists()


def test_the_command_takes_one_of_three(tmp_path: Path) -> None:
    """A recipe, a conference and an intent exclude one another, and one of them is required."""
    project = programs.make_project(tmp_path / "project")
    neither = programs.control_room("crashtest", "--sample", "1", project=project, code=2)
    both = programs.control_room("crashtest", "small", "--intent", "x", project=project, code=2)
    unnamed = programs.control_room("crashtest", "--confer", "x", "--unattended", project=project, code=2)

    assert "--confer or --intent" in neither.stderr
    assert "--confer or --intent" in both.stderr
    assert "belongs to a RECIPE" in unnamed.stderr


@pytest.mark.slow
def test_the_command_takes_a_conference_too(tmp_path: Path) -> None:
    """The report names a conference by its kind."""
    project = _team(tmp_path / "project")
    replies = tmp_path / "replies.json"
    replies.write_text(json.dumps({"chief": '{"done": true}', "*": "ABSTAIN"}))
    # A single point may not occur again, and a sweep without any point does not hold.
    with_replies = ("--sample", "3", "--untraced", "--replies", replies, "--json")
    held = programs.control_room("crashtest", "--confer", "Is it quiet?", *with_replies, project=project)

    assert (json.loads(held.stdout)["recipe_id"], json.loads(held.stdout)["holds"]) == ("conference", True)


def test_the_command_reports_a_broken_promise() -> None:
    """A broken promise is reported with its sweep and its point."""
    row = dict.fromkeys(crashing.COLUMNS, 1) | {"sweep": "kill"}
    trial = {"sweep": "kill", "point": "fsync x 1", "note": "status: a in place of b", "lost": ["s/1"]}
    trial |= {"twice": [], "hidden": "y", "log": "Stack\n  at x"}
    told = {"recipe_id": "r", "sample": None, "seed": 0, "holds": False, "sweeps": [row], "broken": [trial]}

    assert "kill at fsync x 1: status: a in place of b; lost s/1; not told" in crashing.table(told)
    assert "- kill, `fsync x 1`: status: a in place of b; lost s/1; not told" in crashing.markdown(told)
    assert crashing.table(told).endswith("What was logged, kill at fsync x 1:\n\n    Stack\n      at x")


def test_a_failed_process_is_reported_with_its_log(bench: process_sweeps.Bench) -> None:
    """The reason is the error of the last process, not of an earlier one, and the end of its log is kept."""
    expected = _lived(bench)
    lived = bench.experiment("spoilt")
    experiment_log.ExperimentLog(lived.experiment_log).trouble("of an earlier life")
    cut = trials.look(lived)
    (lived.data_directory / "runs").write_text("no folder")
    trial = process_sweeps.reopened(lived, "here", cut, expected, died=True)

    assert trial.note.startswith("after the restart: ended with exit code 3; ")
    assert "of an earlier life" not in trial.note
    assert trial.hidden == trial.note
    assert trial.log == fork_server.log_file(lived).read_text()


def test_an_unknown_recipe_is_reported_in_one_line(tmp_path: Path) -> None:
    """A recipe that cannot be started is reported in one line."""
    project = programs.make_project(tmp_path / "project")
    done = programs.control_room("crashtest", "nothing", "--sample", "1", project=project, code=1)

    assert "the undisturbed run did not come to rest" in done.stderr


def _unattended(folder: Path) -> experiment.Experiment:
    project = programs.make_project(folder / "project")
    chosen = settings.load(project=project.path, home=folder)
    return experiment.template(folder / "template", chosen, UNATTENDED, None)


def _team(folder: Path) -> programs.Project:
    project = programs.make_project(folder)
    described: dict[str, Any] = dict(programs.AGENTS)
    people = [agent | {"evidence": "any"} for agent in described["agents"]]
    chief = {"id": "chief-test", "archetype": "chief", "tier": "t3", "backend": "script", "role": "You lead."}
    project.write("agents.json", described | {"agents": [*people, chief]})
    return project


def _lived(bench: process_sweeps.Bench) -> trials.Seen:
    lived = bench.experiment("lived")
    assert fork_server.live(lived) == 0
    return trials.look(lived)


def _with(seen: trials.Seen, **changes: object) -> trials.Seen:
    return _replaced(seen, told=dataclasses.replace(seen.told, **changes))  # type: ignore[arg-type]


def _replaced(seen: trials.Seen, **changes: object) -> trials.Seen:
    return dataclasses.replace(seen, **changes)  # type: ignore[arg-type]


def test_another_run_id_does_not_count_as_a_difference(tmp_path: Path) -> None:
    """A file named for its run counts as the same file if a repeated run has another id."""
    told, left = [], []
    for run_id in ("20260210T143000Z-crash1", "20260210T143000Z-crash2"):
        record: Any = types.SimpleNamespace(
            line={"key": "commit.draft", "output_preview": f"Drafts/{run_id}.md"},
            output={"path": f"Drafts/{run_id}.md"},
        )
        told.append(outcomes._line(record))
        drafts = tmp_path / run_id / "Drafts"
        drafts.mkdir(parents=True)
        (drafts / f"{run_id}.md").write_text("The ferry.")
        left.append(outcomes.of_workspace(tmp_path / run_id))

    assert told[0] == told[1]
    assert left[0] == left[1] == {"Drafts/run.md": hashlib.sha256(b"The ferry.").hexdigest()}
