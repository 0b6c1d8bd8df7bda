"""The commands `control-room plan`, in a folder and as clients of a service."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain import plans
from app.services.plans import plan_inputs
from tests import smoke
from tests.acceptance import processes, programs

CHIEF = {"id": "chief-test", "archetype": "chief", "tier": "t3", "backend": "script", "role": "You split work."}
SPLIT = {
    "tasks": [
        {"id": 1, "description": "A small task at the gate", "args": {"words": "gate"}, "deps": [], "dod": "A text"},
        {"id": 2, "description": "A small task", "deps": [1], "dod": "Another", "scoping_question": "Where?"},
    ]
}
BROKEN = {"error": {"code": "model_crashed", "message": "the model broke"}}
GATE = {"description": "A small task at the gate", "args": {"words": "gate"}}
PLACES = ["folder", "service"]


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project with a chief."""
    made = programs.make_project(tmp_path / "project")
    made.write("agents.json", programs.AGENTS | {"agents": [*programs.AGENTS["agents"], CHIEF]})
    return made


@pytest.fixture(params=smoke.only("folder", PLACES))
def place(request: pytest.FixtureRequest, project: programs.Project) -> Iterator[tuple[str, ...]]:
    """Yield the options that name the folder, or its service."""
    with contextlib.ExitStack() as closing:
        if request.param == "folder":
            yield ("--project", str(project.path))
        else:
            yield ("--server", closing.enter_context(programs.service(project)).url)


def plan(*arguments: str | Path, code: int = 0) -> programs.Ended:
    """Execute a command under `plan`."""
    return programs.control_room("plan", *arguments, code=code)


def asked(*arguments: str | Path, code: int = 0) -> Any:
    """Execute a command under `plan` with `--json`."""
    return programs.asked("plan", *arguments, code=code)


def made(tmp_path: Path, place: tuple[str, ...], *tasks: dict[str, Any]) -> str:
    """Create a plan from a file and return its id."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"tasks": list(tasks) or [GATE]}))
    return str(asked("create", "--file", file, *place)["session_id"])


def test_suggested_commands_name_the_same_folder_or_service(tmp_path: Path, place: tuple[str, ...]) -> None:
    """Suggested commands name the same folder or service, and a draft's refusal names the missing approval."""
    session_id = made(tmp_path, place)
    shown = plan("show", session_id, *place)
    early = plan("start", session_id, *place, code=1)

    assert f"next: control-room plan approve {session_id} {' '.join(place)}\n" in shown.stdout
    assert "it must be approved before it is started" in early.stderr


def cut_off(
    project: programs.Project,
    *arguments: str,
    at: Callable[[str], bool],
    by: signal.Signals,
    whom: processes.Started | None = None,
) -> tuple[str, int, str]:
    """Execute a command under `plan` until it prints a line, and then signal the command, or its service.

    Return that line, the exit code and the error output.
    """
    environ = programs.environment(project, CONTROL_ROOM_STOP_GRACE_SECONDS="0.2")
    process = processes.start("app", "plan", *arguments, environ=environ, folder=project.path)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as out, process.stderr as err:
        line = next(line for line in out if at(line))
        (whom or process).send_signal(by)
        return line, process.wait(programs.STOP_SECONDS), err.read()


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_plan_is_made_looked_after_and_done(tmp_path: Path, place: tuple[str, ...]):
    """Tasks from a file are shown as a checklist, approved, started, and followed line by line until all are done."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"intent": "Two gates", "tasks": [GATE, GATE | {"deps": [1]}]}))
    created = plan("create", "--file", file, "--label", "book=one", *place).stdout
    session = created.split()[1]
    listed = plan("list", "--status", "draft", *place).stdout.splitlines()
    early = plan("start", session, *place, code=1)
    plan("approve", session, *place)
    started = plan("start", session, *place).stdout.splitlines()
    shown = asked("show", session, *place)
    runs = programs.asked("runs", "list", *place)

    assert created.splitlines()[:3] == [f"plan {session} draft (revision 1)", "intent: Two gates", "labels: book=one"]
    assert f"next: control-room plan approve {session}" in created
    assert listed[1].split()[:6] == [session, "draft", "1", "pending,", "1", "blocked"]
    assert "wrong_state" in early.stderr
    changes = [line.split()[:2] for line in started if line.startswith("  ")]
    order = [["1", "running"], ["1", "done"], ["2", "running"], ["2", "done"]]
    # A change between two polls is not printed.
    assert [change for change in changes if change in order] == [change for change in order if change in changes]
    assert [change for change in changes if change[1] == "done"] == order[1::2]
    assert started[-1] == f"plan {session} done: 2 done"
    assert [task["status"] for task in shown["tasks"]] == ["done", "done"]
    assert {run["run_id"] for run in runs} == {task["run_id"] for task in shown["tasks"]}
    assert {run["owner"] for run in runs} == {"service"}


def test_tasks_on_the_command_line(place: tuple[str, ...]):
    """`--task` creates tasks, `--in-order` makes each depend on the one before, and an intent becomes the title."""
    found = asked("create", "Tidy", "--task", "a small task", "--task", "another small task", "--in-order", *place)

    assert (found["intent"], found["created_by"]) == ("Tidy", "user")
    assert [(task["id"], task["deps"], task["status"]) for task in found["tasks"]] == [
        (1, [], "needs_scoping"),
        (2, [1], "needs_scoping"),
    ]


def test_an_open_question_ends_the_following_until_the_answer(tmp_path: Path, place: tuple[str, ...]):
    """A plan that only waits for an answer ends the command with 1 and names the next command, which ends with 0."""
    session = made(tmp_path, place, GATE, {"description": "a small task"})
    plan("approve", session, *place)
    stopped = plan("start", session, *place, code=1)
    refused = plan("answer", session, "1", "x", *place, code=1)
    answered = plan("answer", session, "2", "at the gate", "--arg", "words=gate", *place)
    shown = asked("show", session, *place)

    assert stopped.stdout.splitlines()[-1] == f"plan {session} running: 1 done, 1 needs_scoping"
    assert "task 2 asks: " in stopped.stderr
    assert f'continue with: control-room plan answer {session} 2 "…"' in stopped.stderr
    assert "task_begun" in refused.stderr or "wrong_state" in refused.stderr
    assert answered.stdout.splitlines()[-1] == f"plan {session} done: 2 done"
    assert shown["tasks"][1]["scoping_answer"] == "at the gate"


def test_failed_task_is_retried(project: programs.Project, tmp_path: Path, place: tuple[str, ...]):
    """A failure ends the command with 1, the reason and the retry command; a retry does not repeat finished steps."""
    project.say(draft=BROKEN)
    session = made(tmp_path, place, GATE, GATE | {"deps": [1]})
    plan("approve", session, *place)
    failed = plan("start", session, *place, code=1)
    project.say()
    retried = asked("retry", session, "1", *place)
    steps = programs.asked("runs", "steps", retried["tasks"][0]["run_id"], *place)

    assert failed.stdout.splitlines()[-1] == f"plan {session} failed: 1 blocked, 1 failed"
    assert "the model broke [model_crashed]" in failed.stdout
    assert "the model broke" not in failed.stderr
    assert f"continue with: control-room plan retry {session} 1" in failed.stderr
    assert retried["status"] == "done"
    assert [step["step_id"] for step in steps].count("brief") == 1


def test_blocked_task_is_forced(project: programs.Project, tmp_path: Path, place: tuple[str, ...]):
    """A task after a failed one can be started by force, and a fresh retry makes another run."""
    project.say(draft=[BROKEN, "later"])
    session = made(tmp_path, place, GATE, GATE | {"deps": [1]})
    plan("approve", session, *place)
    plan("start", session, *place, code=1)
    project.say()
    forced = asked("force-start", session, "2", *place, code=1)
    again = plan("force-start", session, "2", *place, code=1)
    fresh = asked("retry", session, "1", "--fresh", *place)

    assert [(task["status"], task["forced"]) for task in forced["tasks"]] == [("failed", False), ("done", True)]
    assert "wrong_state" in again.stderr
    assert fresh["status"] == "done"
    assert fresh["tasks"][0]["earlier_runs"] == [forced["tasks"][0]["run_id"]]


def test_intent_is_split_by_the_chief(project: programs.Project, place: tuple[str, ...]):
    """With only an intent the command waits for the chief's tasks, and then names the commands to approve them."""
    project.say(**{"chief*": json.dumps(SPLIT)})
    created = plan("create", "Write at the gate, and elsewhere", *place)
    session = created.stdout.split()[1]
    shown = asked("show", session, *place)
    plan("answer", session, "2", "At the gate, too", "--arg", "words=gate", *place)
    approved = plan("approve", session, *place)
    plan("review", session, "off", *place)
    started = plan("start", session, *place)

    assert "review: chief-test judges whether these tasks are done: 1, 2" in approved.stdout
    assert "the chief splits the intent into tasks, in run" in created.stdout
    assert f"control-room plan approve {session}" in created.stderr
    assert (shown["created_by"], shown["status"], len(shown["tasks"])) == ("chief", "draft", 2)
    assert started.stdout.splitlines()[-1] == f"plan {session} done: 2 done"


def test_tasks_are_added_changed_ordered_and_removed(tmp_path: Path, place: tuple[str, ...]):
    """The editing commands change only what they name."""
    session = made(tmp_path, place, GATE, GATE)
    added = asked(
        "add", session, "A small task", "--recipe", "small", "--arg", "words=gate", "--after", "1", "--dod", "Good",
        "--ask", "Which gate?", "--id", "7", *place,
    )["tasks"][-1]  # fmt: skip
    changed = asked("edit", session, "7", "--description", "Another small task", "--no-deps", "--no-question", *place)
    kept = changed["tasks"][-1]
    ordered = asked("order", session, "7", "2", "1", *place)
    removed = asked("remove", session, "2", *place)
    bare = asked("edit", session, "7", "--no-args", "--any-recipe", "--after", "1", *place)["tasks"]

    assert {name: added[name] for name in ("id", "recipe_id", "args", "deps", "dod", "status", "scoping_question")} == {
        "id": 7, "recipe_id": "small", "args": {"words": "gate"}, "deps": [1], "dod": "Good", "status": "needs_scoping",
        "scoping_question": "Which gate?",
    }  # fmt: skip
    assert (kept["description"], kept["deps"], kept["status"]) == ("Another small task", [], "pending")
    assert (kept["args"], kept["dod"], kept["recipe_id"]) == ({"words": "gate"}, "Good", "small")
    assert [task["id"] for task in ordered["tasks"]] == [7, 2, 1]
    assert [task["id"] for task in removed["tasks"]] == [7, 1]
    assert {task["id"]: (task["args"], task["deps"]) for task in bare}[7] == ({}, [1])


def test_pause_and_resume(project: programs.Project, tmp_path: Path):
    """With a service, `--detach` only starts a plan, a pause acts after the current task, and `resume` follows it."""
    door = tmp_path / "door"
    os.mkfifo(door)
    project.write(
        "recipes/amplifier/wait.yaml",
        "name: wait\ndescription: Wait\nversion: 1.0.0\nschema: '1.7'\n"
        f"steps:\n  - {{id: read, type: bash, command: 'read word < {door}'}}\n",
    )
    with programs.service(project) as service:
        place = ("--server", service.url)
        session = made(tmp_path, place, {"description": "Wait", "recipe_id": "wait"}, GATE | {"deps": [1]})
        asked("approve", session, *place)
        detached = asked("start", session, "--detach", *place)
        paused = asked("pause", session, *place)
        # The write waits until the command reads it.
        door.write_text("Go on\n")
        held = plan("follow", session, *place, code=1)
        resumed = plan("resume", session, *place)

    assert (detached["status"], paused["status"]) == ("running", "paused")
    assert held.stdout.splitlines()[-1] == f"plan {session} paused: 1 done, 1 pending"
    assert f"control-room plan resume {session}" in held.stderr
    assert resumed.stdout.splitlines()[-1] == f"plan {session} done: 2 done"


WRONG: list[tuple[tuple[str, ...], int, str]] = [
    (("show", "sp_none"), 4, "plan_not_found"),
    (("show", "../x"), 4, "not_found"),
    (("approve", "sp_none"), 4, "plan_not_found"),
    (("create",), 2, "INTENT"),
    (("create", ""), 2, "INTENT"),
    (("create", "x", "--file", "plan.json"), 2, "--file"),
    (("create", "--file", "none.json"), 2, "file_unreadable"),
    (("create", "x", "--in-order"), 2, "--in-order"),
    (("create", "--task", ""), 2, "$.tasks[0].description"),
    (("create", "--task", "x" * 4001), 2, "$.tasks[0].description"),
    (("create", "--task", "x", "--label", "=c"), 2, "--label"),
    (("create", "--task", "x", "--working-dir", "/etc"), 2, "working_dir_refused"),
    (("order", "sp_none"), 2, "TASK"),
    (("order", "sp_none", "0"), 2, "0"),
    (("remove", "sp_none", "x"), 2, "x"),
    (("edit", "sp_none", "1", "--recipe", "x", "--any-recipe"), 2, "--any-recipe"),
    (("edit", "sp_none", "1", "--after", "1", "--no-deps"), 2, "--no-deps"),
    (("add", "sp_none", "x", "--arg", "y"), 2, "--arg"),
]
"""Wrong commands, their exit codes, and a word of their errors."""


def test_invalid_commands_and_values_have_their_exit_codes(place: tuple[str, ...]):
    """Wrong commands, wrong values and unknown plans have their exit codes, and the error names the place."""
    for arguments, code, told in WRONG:
        assert told in plan(*arguments, *place, code=code).stderr, arguments


def test_an_outdated_revision_refuses_a_change(tmp_path: Path, place: tuple[str, ...]):
    """With `--revision` a change that missed another change is refused with 1."""
    session = made(tmp_path, place)
    for arguments in (("approve",), ("remove", "1"), ("order", "1"), ("edit", "1", "--dod", "x"), ("add", "x")):
        verb, *rest = arguments
        refused = plan(verb, session, *rest, "--revision", "7", *place, code=1)

        assert "plan_changed" in refused.stderr
    assert asked("approve", session, "--revision", "1", *place)["revision"] == 2


def test_key_makes_one_plan(place: tuple[str, ...]):
    """A repetition under one key finds the plan, and another request under the key is refused."""
    first = asked("create", "--task", "a small task", "--idempotency-key", "one", *place)
    again = asked("create", "--task", "a small task", "--idempotency-key", "one", *place)
    other = plan("create", "--task", "another", "--idempotency-key", "one", *place, code=1)

    assert again == first
    assert "idempotency_conflict" in other.stderr


def test_an_interrupted_creation_resumes_under_its_key(project: programs.Project):
    """A creation interrupted while the chief works can be repeated under its key, and waits for the same chief."""
    project.say(**{"chief*": [{"hang": True}]})
    place = ("--project", str(project.path))
    request = ("create", "All of it", "--idempotency-key", "one")
    line, ended, said = cut_off(project, *request, at=lambda line: line.startswith("plan "), by=signal.SIGTERM)
    session = line.split()[1]
    left = asked("show", session, *place)
    project.say(**{"chief*": json.dumps(SPLIT)})
    again = asked(*request, *place)

    assert ended == 130, said
    assert f"continue with: control-room plan follow {session}" in said
    assert (left["awaits_chief"], again["awaits_chief"], len(again["tasks"])) == (True, False, 2)
    assert again["chief_run_id"] == left["chief_run_id"]


def test_detach_needs_a_service(project: programs.Project, tmp_path: Path):
    """Without a service, `--detach` is refused, because no process would continue the plan."""
    place = ("--project", str(project.path))
    session = made(tmp_path, place)

    assert "--server" in plan("start", session, "--detach", *place, code=2).stderr


def test_folder_of_a_service_is_only_looked_at(project: programs.Project, tmp_path: Path):
    """Beside a service plans are shown alike, and changes are refused with the service's address."""
    with programs.service(project) as service:
        here, there = ("--project", str(project.path)), ("--server", service.url)
        session = made(tmp_path, there)
        shown = [asked("show", session, *place) for place in (here, there)]
        listed = [asked("list", *place) for place in (here, there)]
        for arguments in (("approve", session), ("create", "--task", "x"), ("follow", session)):
            refused = plan(*arguments, *here, code=5)

            assert f"--server {service.url}" in refused.stderr

    assert shown[0] == shown[1]
    assert listed[0] == listed[1]


def test_a_fresh_folder_has_no_plans(tmp_path: Path):
    """A folder without a data directory has no plans, and listing them creates no files."""
    (tmp_path / "fresh").mkdir()
    place = ("--project", str(tmp_path / "fresh"))

    assert plan("list", *place).stdout.strip() == "there are no such plans"
    plan("show", "sp_none", *place, code=4)
    assert list((tmp_path / "fresh").iterdir()) == []


def test_an_interrupted_plan_continues_in_the_same_run(project: programs.Project, tmp_path: Path):
    """Ctrl-C ends a plan in process with 130 and names the command that continues it, in the same run."""
    project.say(draft=[{"hang": True}])
    place = ("--project", str(project.path))
    session = made(tmp_path, place, GATE, GATE | {"deps": [1]})
    plan("approve", session, *place)
    _, ended, said = cut_off(
        project, "start", session, at=lambda line: line.split()[:2] == ["1", "running"], by=signal.SIGINT
    )
    left = asked("show", session, *place)
    project.say()
    followed = plan("follow", session, *place)
    shown = asked("show", session, *place)

    assert ended == 130, said
    assert f"continue with: control-room plan follow {session}" in said
    assert [task["status"] for task in left["tasks"]] == ["running", "blocked"]
    assert followed.stdout.splitlines()[-1] == f"plan {session} done: 2 done"
    assert shown["tasks"][0]["run_id"] == left["tasks"][0]["run_id"]


def test_a_planner_fault_ends_the_following_command(
    project: programs.Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An internal error of the planner ends the command that follows the plan, instead of leaving it waiting."""
    place = ("--project", str(project.path))
    session = made(tmp_path, place)
    plan("approve", session, *place)

    observe = plan_inputs.PlanInputs._observe

    async def broken(held: plan_inputs.PlanInputs, plan: plans.Plan, waiting: Any) -> Any:
        # An earlier fault could come before the order to start the plan.
        if plan.status is plans.PlanState.RUNNING:
            raise ZeroDivisionError("seven by nothing")
        return await observe(held, plan, waiting)

    with monkeypatch.context() as patched:
        patched.setattr(plan_inputs.PlanInputs, "_observe", broken)
        told = plan("start", session, *place, code=1).stderr

    assert "planner_broken" in told
    assert plan("follow", session, *place).stdout.splitlines()[-1] == f"plan {session} done: 1 done"


def test_the_next_service_finishes_a_killed_services_plan(project: programs.Project, tmp_path: Path):
    """A following command ends with 5 when its service is killed, and the next service finishes the plan."""
    project.say(draft=[{"hang": True}])
    with programs.service(project) as service:
        session = made(tmp_path, ("--server", service.url), GATE, GATE | {"deps": [1]})
        plan("approve", session, "--server", service.url)
        _, ended, said = cut_off(
            project,
            *("start", session, "--server", service.url),
            at=lambda line: line.split()[:2] == ["1", "running"],
            by=signal.SIGKILL,
            whom=service.process,
        )
    project.say()
    with programs.service(project) as service:
        followed = plan("follow", session, "--server", service.url)
        shown = asked("show", session, "--server", service.url)

    assert ended == 5, said
    assert followed.stdout.splitlines()[-1] == f"plan {session} done: 2 done"
    assert [task["attempt"] for task in shown["tasks"]] == [1, 1]


def test_run_that_asks_ends_the_following(project: programs.Project, tmp_path: Path, place: tuple[str, ...]):
    """A task whose run waits at a gate ends the command with 1, and the output names the command that answers."""
    project.write(
        "recipes/amplifier/ship.yaml",
        "name: ship\ndescription: Ship it\nversion: 1.0.0\nschema: '1.7'\ntags: [ship it]\n"
        "stages:\n  - name: one\n    steps:\n      - {id: say, type: bash, command: 'true'}\n"
        "    approval: {required: true, prompt: 'Ship it?'}\n",
    )
    session = made(tmp_path, place, {"description": "Ship it", "recipe_id": "ship"})
    plan("approve", session, *place)
    waiting = plan("start", session, *place, code=1)
    gate = programs.asked("gates", "--session", session, *place)[0]
    shown = plan("show", session, *place).stdout
    answered = programs.control_room("gates", "answer", gate["gate_id"], "approve", *place)
    ended = plan("follow", session, *place)

    assert f"control-room gates answer {gate['gate_id']}" in waiting.stderr
    assert f"task 1 waits at the gate {gate['key']}: Ship it?\n" in shown
    for option in ("approve", "deny"):
        assert f"next: control-room gates answer {gate['gate_id']} {option} {' '.join(place)}\n" in shown
    assert "waits at" not in plan("show", session, *place).stdout
    assert answered.returncode == 0
    assert ended.stdout.splitlines()[-1] == f"plan {session} done: 1 done"


def test_plan_counts_the_runs_above_it_in_another_project(project: programs.Project, place: tuple[str, ...]):
    """A command inside a run of another project creates a plan, whose runs count the depth above them.

    Below the depth limit it is refused.
    """
    above: dict[str, Any] = {"CONTROL_ROOM_RUN_ID": "20260210T143000Z-abc123", "CONTROL_ROOM_DEPTH": "1"}
    (project.path / "plan.json").write_text(json.dumps({"tasks": [GATE]}))
    file = ("plan", "create", "--file", str(project.path / "plan.json"), *place)
    session_id = programs.asked(*file, **above)["session_id"]
    plan("approve", session_id, *place)
    plan("start", session_id, *place)
    (run_id,) = (run["run_id"] for run in programs.asked("runs", "list", "--session", session_id, *place))
    deep = above | {"CONTROL_ROOM_DEPTH": "3"}
    refused = programs.control_room(*file, code=2, **deep)

    assert json.loads((project.data / "runs" / run_id / "start.json").read_text())["depth"] == 2
    assert "[depth_exceeded]" in refused.stderr


def test_task_is_added_once_under_a_key(tmp_path: Path, place: tuple[str, ...]):
    """Repeating `add` with the same key adds no second task, and another task with the key is refused."""
    session_id = made(tmp_path, place)
    words = ("add", session_id, "a small task", "--idempotency-key", "more", *place)
    plan(*words)
    again = asked(*words)
    refused = plan(*words, "--after", "1", code=1)

    assert [task["id"] for task in again["tasks"]] == [1, 2]
    assert "[idempotency_conflict]" in refused.stderr


def test_plan_is_deleted(tmp_path: Path, place: tuple[str, ...]):
    """`delete` removes a paused plan and keeps its runs; a running plan is refused, and the error suggests a pause."""
    session_id = made(tmp_path, place, GATE, {"description": "a small task"})
    plan("approve", session_id, *place)
    plan("start", session_id, *place, code=1)
    early = plan("delete", session_id, *place, code=1)
    plan("pause", session_id, *place)
    old = plan("delete", session_id, "--revision", "1", *place, code=1)
    gone = plan("delete", session_id, *place)
    absent = plan("show", session_id, *place, code=4)
    runs = programs.asked("runs", "list", "--session", session_id, *place)

    assert "pause it first" in early.stderr
    assert "[plan_changed]" in old.stderr
    assert gone.stdout == ""
    assert "[plan_not_found]" in absent.stderr
    assert [run["status"] for run in runs] == ["done"]
