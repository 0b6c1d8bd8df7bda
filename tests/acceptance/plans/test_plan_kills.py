"""The service, killed while a session plan is created, started, running, paused or waiting, and started again."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import drafting, kills
from tests.acceptance.forked_service import Service
from tests.acceptance.plans import working
from tests.acceptance.plans.working import Left, are

PLAN_POINTS = ("storage.plan.before_write", "storage.plan.before_rename", "storage.plan.after_rename")
OTHER_POINTS = (
    "storage.create.before_start",
    "storage.create.before_rename",
    "storage.create.after_row",
    "pool.queued",
    "pool.granted",
    "run.after_taken",
    "step.performing",
    "step.before_append",
    "step.after_append",
    "run.before_ended",
    "run.after_ended",
)
SAMPLE = (
    ("storage.plan.after_rename", 4),
    ("storage.plan.before_write", 5),
    ("storage.plan.before_write", 9),
    ("storage.create.before_rename", 3),
    ("storage.create.after_row", 4),
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Return the results of an undisturbed plan."""
    return working.through(working.make_project(tmp_path_factory.mktemp("undisturbed") / "project"))


def dies(project: Path, crash_at: str) -> bool:
    """Execute the plan in a service that kills itself at a point, and return whether the kill happened."""
    service = Service(project, crash_at)
    http = service.http()
    session_id = working.post(http) if http else None
    if http and session_id and working.begin(http, session_id) and working.wait(http, session_id):
        service.stop()
    return service.ended() == -signal.SIGKILL


def judge(project: Path, point: str, nth: int, undisturbed: Left) -> str | None:
    """Kill a service, start it again, and return the fault found afterwards, or that it did not die."""
    working.make_project(project)
    if not dies(project, f"{point}:{nth}"):
        return kills.NOT_REACHED
    before = drafting.recorded(project)
    left = working.through(project)
    if left != undisturbed:
        return f"{point}:{nth} left {left}, not {undisturbed}"
    again = working.repeated(project, before)
    return f"{point}:{nth} repeated {again}" if again else None


@pytest.mark.slow
def test_an_undisturbed_plan(undisturbed: Left) -> None:
    """Four tasks are four runs, each done at its first attempt, with each step executed once."""
    assert undisturbed["status"] == "done"
    assert [(task["status"], task["attempt"]) for task in undisturbed["tasks"]] == [("done", 1)] * 4
    assert undisturbed["runs"] == [(number, f"chore_{letter}", "done") for number, letter in enumerate("abcd", 1)]
    assert len(undisturbed["records"]) == 8
    assert undisturbed["named"]


def test_a_sample_of_kills(tmp_path: Path, undisturbed: Left) -> None:
    """Killed between two writes, the service brings the plan to the same end: one run a task, no repeated step."""
    assert kills.sampled(tmp_path, SAMPLE, partial(judge, undisturbed=undisturbed)) == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_every_kill(tmp_path: Path, undisturbed: Left) -> None:
    """A kill at every passing of every point of plans, and of the related points of runs, leads to the same end."""
    judged = kills.every(tmp_path, PLAN_POINTS + OTHER_POINTS, partial(judge, undisturbed=undisturbed))

    assert [wrong for wrong in judged if wrong is not None] == []
    assert len(judged) > 80


@pytest.mark.slow
def test_between_the_beginning_and_the_run(tmp_path: Path, undisturbed: Left) -> None:
    """Killed after a task is marked as running but before its run exists, the next service creates that run once."""
    project = working.make_project(tmp_path / "project")
    assert dies(project, "storage.create.before_rename:2")
    begun = working.kept(project)["tasks"][0]
    runs = working.runs_of(project)
    left = working.through(project)

    assert (begun["status"], begun["attempt"], begun["run_id"]) == ("running", 1, None)
    assert runs == {}
    assert left == undisturbed


def test_between_the_run_and_its_name_in_the_plan(tmp_path: Path, undisturbed: Left) -> None:
    """Killed after the run exists but before the plan names it, the next service finds that run."""
    project = working.make_project(tmp_path / "project")
    assert dies(project, "storage.create.after_row:2")
    begun = working.kept(project)["tasks"][0]
    ((_, run_id),) = _made(project)
    left = working.through(project)

    assert (begun["status"], begun["attempt"], begun["run_id"]) == ("running", 1, None)
    assert working.kept(project)["tasks"][0]["run_id"] == run_id
    assert left == undisturbed


def _made(project: Path) -> list[tuple[int, str]]:
    folders = (project / ".control-room" / "runs").glob("[0-9]*/start.json")
    found = [json.loads(file.read_text()) for file in folders]
    return [(start["session_plan_task_id"], start["run_id"]) for start in found]


def test_while_an_agent_speaks(tmp_path: Path, undisturbed: Left) -> None:
    """Killed inside a task, the step in progress runs again in the same run, and finished steps are not repeated."""
    project = working.make_project(tmp_path / "project", draft_b={"hang": True})
    service, session_id, run_id = _speaking(project)
    service.kill()
    between = working.kept(project)
    working.say(project)
    left = working.through(project)

    assert (working.states(between)[:2], between["status"]) == (["done", "running"], "running")
    assert (between["session_id"], left) == (session_id, undisturbed)
    assert [(key, attempt) for _, key, attempt in drafting.begun(project, run_id)] == [
        ("brief_b", 1),
        ("draft_b", 1),
        ("draft_b", 2),
    ]


@pytest.mark.slow
def test_stopped_while_an_agent_speaks(tmp_path: Path, undisturbed: Left) -> None:
    """A stopping service lets the agent finish and asks no other agent, and the next service continues after that."""
    slowly = {"text": working.REPLIES["draft_b"], "delay_seconds": 5}
    project = working.make_project(tmp_path / "project", draft_b=slowly)
    service, _, run_id = _speaking(project)
    code = service.stop()
    between, keys = working.kept(project), {key for _, key, _ in drafting.recorded(project)}
    left = working.through(project)

    assert (code, between["status"]) == (0, "running")
    assert ("draft_b" in keys, "brief_d" in keys) == (True, False)
    assert left == undisturbed
    assert [attempt for _, _, attempt in drafting.begun(project, run_id)] == [1, 1]


def _speaking(project: Path) -> tuple[Service, str, str]:
    """Return a service whose writer works on task 2, with the plan and that task's run."""
    service, http = working.opened(project)
    session_id = working.post(http)
    assert session_id is not None
    working.begin(http, session_id)
    plan = working.wait(http, session_id, lambda plan: plan["tasks"][1]["run_id"] is not None)
    assert plan is not None
    run_id = plan["tasks"][1]["run_id"]
    assert drafting.wait_until(http, run_id, _drafts)
    return service, session_id, run_id


def _drafts(run: dict[str, Any]) -> bool:
    assert run["status"] not in ("done", "failed")
    return any((step["step_id"], step["status"]) == ("draft_b", "running") for step in run["steps"])


def test_while_paused(tmp_path: Path, undisturbed: Left) -> None:
    """A paused plan stays paused through a kill: the run in progress finishes, and no other run starts."""
    project = working.make_project(tmp_path / "project", draft_a={"hang": True})
    service, http = working.opened(project)
    session_id = working.post(http)
    assert session_id is not None
    working.begin(http, session_id)
    assert working.wait(http, session_id, lambda plan: plan["tasks"][0]["run_id"] is not None)
    answer = working.order(http, session_id, "pause")
    assert answer is not None
    assert answer.json()["status"] == "paused"
    service.kill()
    working.say(project)
    service, http = working.opened(project)
    boundary = working.wait(http, session_id, are("done", "pending", "pending", "blocked"))
    assert boundary is not None
    runs = len(http.get("/api/runs").json())
    working.order(http, session_id, "resume")
    assert working.wait(http, session_id) is not None
    service.stop()

    assert (boundary["status"], runs) == ("paused", 1)
    assert working.left_by(project) == undisturbed


def test_while_a_question_is_open(tmp_path: Path) -> None:
    """After a kill the same question is open, finished tasks stay done, and the answers lead the plan to its end."""
    project = working.make_project(tmp_path / "project")
    tasks = [working.TASKS[0], working.TASKS[1] | {"scoping_question": "Which one?"}, {"description": "xyzzy"}]
    service, http = working.opened(project)
    session_id = working.post(http, tasks=tasks, review="off")
    assert session_id is not None
    working.begin(http, session_id)
    before = working.wait(http, session_id, are("done", "needs_scoping", "needs_scoping"))
    service.kill()
    service, http = working.opened(project)
    after = http.get(f"/api/sessions/{session_id}").json()
    working.order(http, session_id, "tasks/2/answer", answer="The left one.")
    working.order(http, session_id, "tasks/3/answer", answer="That is chore c.")
    ended = working.wait(http, session_id)
    service.stop()

    assert after == before
    assert ended is not None
    assert (ended["status"], working.states(ended)) == ("done", ["done"] * 3)
    assert [task["attempt"] for task in ended["tasks"]] == [1, 1, 1]
    assert len(working.runs_of(project)) == 3


def test_while_the_chief_speaks(tmp_path: Path) -> None:
    """The chief's run continues after a kill, and its tasks are taken over once."""
    project = working.make_project(tmp_path / "project", **{"chief*": {"hang": True}})
    service, http = working.opened(project)
    session_id = working.post(http, intent=working.INTENT, review="off")
    assert session_id is not None
    drafted = working.kept(project)
    early = working.order(http, session_id, "approve")
    service.kill()
    working.say(project)
    left = working.through(project, intent=working.INTENT, review="off")
    plan = working.kept(project)

    assert (drafted["status"], drafted["tasks"], drafted["intent"]) == ("draft", [], working.INTENT)
    assert early is not None
    assert (early.status_code, early.json()["code"]) == (409, "wrong_state")
    assert (plan["session_id"], plan["created_by"], plan["status"]) == (session_id, "chief", "done")
    assert plan["chief_run_id"] == drafted["chief_run_id"]
    assert [(task["description"], task["status"], task["attempt"]) for task in left["tasks"]] == [
        (f"chore {letter}", "done", 1) for letter in working.LETTERS
    ]
    assert [task for task, *_ in left["runs"]] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "point", ["run.after_ended:1", pytest.param("storage.plan.before_rename:3", marks=pytest.mark.slow)]
)
def test_between_the_end_of_the_chief_and_the_taking_over(tmp_path: Path, point: str) -> None:
    """Killed after the chief's reply but before the plan has tasks, the next service takes the tasks over once."""
    project = working.make_project(tmp_path / "project")
    service = Service(project, point)
    http = service.http()
    assert http is not None
    session_id = working.post(http, intent=working.INTENT, review="off")
    if session_id is not None:
        working.wait(http, session_id, lambda plan: bool(plan["tasks"]) and plan["status"] == "approved")
    died = service.ended()
    drafted, spoken = working.kept(project), drafting.recorded(project)
    left = working.through(project, intent=working.INTENT, review="off")

    assert died == -signal.SIGKILL
    assert drafted["tasks"] == []
    assert {key for _, key, _ in spoken} == {"look", "chief"}
    assert [(task["id"], task["status"]) for task in left["tasks"]] == [(number, "done") for number in (1, 2, 3, 4)]
    assert working.repeated(project, spoken) == set()


def test_a_chief_who_makes_no_plan(tmp_path: Path) -> None:
    """A chief whose replies are not plans fails the plan with an error; a start asks the same chief again."""
    project = working.make_project(tmp_path / "project", **{"chief*": "I would rather not."})
    service, http = working.opened(project)
    session_id = working.post(http, intent=working.INTENT, review="off")
    assert session_id is not None
    failed = working.wait(http, session_id)
    assert failed is not None
    working.say(project)
    working.order(http, session_id, "start")
    drafted = working.wait(http, session_id, lambda plan: bool(plan["tasks"]))
    service.stop()

    assert (failed["status"], failed["tasks"]) == ("failed", [])
    assert failed["error"]["code"]
    assert drafted is not None
    assert (drafted["status"], drafted["error"]) == ("draft", None)
    assert drafted["chief_run_id"] == failed["chief_run_id"]


@pytest.mark.slow
def test_many_kills_in_a_row(tmp_path: Path, undisturbed: Left) -> None:
    """A service that is killed repeatedly at the third write of a plan brings the plan to the same end."""
    project = working.make_project(tmp_path / "project")
    kills = 0
    while dies(project, "storage.plan.after_rename:3"):
        kills += 1

    assert kills >= 2
    assert working.left_by(project) == undisturbed
