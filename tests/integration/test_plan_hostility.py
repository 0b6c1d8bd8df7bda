"""Session plans under attack: concurrent clients, files that a person edits or damages, and full disks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import planning
from tests.integration.planning import Planned, refused, states, sweeping, task, the
from tests.integration.project import Project
from tests.unit.services.plans import chores

CLIENTS = 20


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose recipes are chores."""
    return planning.make_project(tmp_path / "project")


@pytest.fixture
async def service(project: Project) -> AsyncIterator[Planned]:
    """Return the service of the project, in process."""
    async with planning.in_process(project) as service:
        yield service


# -- concurrent clients


async def test_of_twenty_edits_of_one_revision_one_counts(service: Planned) -> None:
    """One of twenty edits of one revision succeeds; the refusals contain the present plan."""
    plan = await service.plan(*sweeping(2))
    address, seen = f"/api/sessions/{plan['session_id']}/tasks/1", {"If-Match": '"1"'}
    answers = await asyncio.gather(
        *(service.http.patch(address, json={"dod": f"As {n} says"}, headers=seen) for n in range(CLIENTS))
    )
    won = [answer.json() for answer in answers if answer.status_code == 200]
    lost = [refused(answer, 409, "plan_changed") for answer in answers if answer.status_code != 200]

    assert (len(won), len(lost)) == (1, CLIENTS - 1)
    assert await service.shown(plan) == won[0] == service.kept(plan)
    assert {problem["facts"]["plan"]["revision"] for problem in lost} == {2}


async def test_twenty_clients_lose_nothing(service: Planned) -> None:
    """Twenty clients that each add a task, and repeat refused requests, add every task exactly once."""
    plan = await service.plan(task("sweep the hall"))

    async def add(number: int) -> None:
        for _ in range(200):
            known = (await service.shown(plan))["revision"]
            given = task(f"paint wall {number}", 1) | {"revision": known}
            if (await service.add(plan, given)).status_code == 201:
                return
        raise AssertionError(f"client {number} came never to its turn")

    await asyncio.gather(*map(add, range(CLIENTS)))
    shown = await service.shown(plan)

    assert sorted(states(shown)) == list(range(1, CLIENTS + 2))
    assert len({each["description"] for each in shown["tasks"]}) == CLIENTS + 1
    assert shown["revision"] == CLIENTS + 1


async def test_only_one_of_two_answers_is_accepted(service: Planned) -> None:
    """One of two answers to a question is accepted, and the run of the task receives it."""
    plan = await service.started(task("sweep it", scoping_question="Which room?"))
    answers = await asyncio.gather(
        *(service.call(plan, "answer", 1, answer=f"room {number}") for number in range(CLIENTS))
    )
    ended = await service.ends(plan)
    (told,) = [said for _, said, _ in service.toolbox.asked]
    heard = [the(answer.json(), 1)["scoping_answer"] for answer in answers if answer.status_code == 200]

    assert len(heard) == 1
    assert {answer.status_code for answer in answers} == {200, 409}
    assert heard[0] in told
    assert the(ended, 1)["scoping_answer"] == heard[0]


@pytest.mark.parametrize("verb", ["retry", "force-start"])
async def test_twenty_orders_start_a_task_once(service: Planned, verb: str) -> None:
    """Twenty orders to start a task start it once."""
    service.toolbox.fail(1)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1))
    await service.ends(plan, "failed")
    number = 1 if verb == "retry" else 2
    service.toolbox.mend(1)
    service.toolbox.hold(1, 2)
    answers = await asyncio.gather(*(service.call(plan, verb, number) for _ in range(CLIENTS)))
    await service.toolbox.begun(number)
    service.toolbox.release(1, 2)
    await service.plan_until(plan, lambda shown: shown["status"] != "running")

    assert sorted(answer.status_code for answer in answers) == [200] + [409] * (CLIENTS - 1)
    assert len(service.toolbox.tries(number)) == (2 if verb == "retry" else 1)


async def test_twenty_requests_under_one_key_create_one_plan(service: Planned) -> None:
    """Twenty concurrent requests under one key create one plan."""
    answers = await asyncio.gather(*(service.ask(*sweeping(3), key="house") for _ in range(CLIENTS)))

    assert sorted(answer.status_code for answer in answers) == [200] * (CLIENTS - 1) + [201]
    assert len({answer.json()["session_id"] for answer in answers}) == 1
    assert len((await service.http.get("/api/sessions")).json()) == 1


@pytest.mark.parametrize("seed", range(2))
async def test_edits_that_race_with_the_planner(project: Project, seed: int) -> None:
    """While tasks begin and end, an edit applies or is refused as a whole; each run matches its task at its start."""
    chance = random.Random(seed)
    async with planning.in_process(project, max_running=2) as service:
        plan = await service.started(*sweeping(12))
        said: dict[int, set[str]] = {number: {f"sweep room {number}"} for number in range(1, 13)}

        async def meddle(client: int) -> None:
            for turn in range(6):
                number = chance.randint(1, 12)
                text = f"paint room {number} as {client}.{turn} says"
                answer = await service.edit(plan, number, description=text)
                assert answer.status_code == 200 or answer.json()["code"] == "task_begun", answer.text
                if answer.status_code == 200:
                    said[number].add(text)
                await service.order(plan, *chance.sample(range(1, 13), 12))

        await asyncio.gather(*map(meddle, range(4)))
        ended = await service.ends(plan)
        runs = {run["run_id"]: run for run in await service.runs_of(plan)}

    assert set(states(ended).values()) == {"done"}
    assert len(runs) == 12
    for each in ended["tasks"]:
        assert runs[each["run_id"]]["task"]["description"] == each["description"]
        assert runs[each["run_id"]]["recipe_id"] == each["recipe_id"]
        assert each["description"] in said[each["id"]]
    assert service.kept(plan) == ended


async def test_removing_races_with_beginning(service: Planned) -> None:
    """A task that is removed during the start of its plan is either gone and never began, or kept and done."""
    for _ in range(5):
        plan = await service.plan(*sweeping(3))
        await service.do(plan, "approve")
        # A done task may be removed.
        service.toolbox.hold(1, 2, 3)
        _, removed = await asyncio.gather(service.do(plan, "start"), service.remove(plan, 2))
        service.toolbox.release(1, 2, 3)
        ended = await service.ends(plan)
        begun = {run["task"]["session_plan_task_id"] for run in await service.runs_of(plan)}

        assert removed.status_code in (200, 409), removed.text
        assert set(states(ended)) == begun == ({1, 3} if removed.status_code == 200 else {1, 2, 3})


# -- files that are changed by hand


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"session_id": "other", "tasks": []}', "[" * 100_000, "\ud800"]
)
async def test_a_damaged_plan_file_is_a_conflict_for_every_request(service: Planned, content: str) -> None:
    """A file that is not a plan is a 409 `plan_damaged` for every request; lists show its last state and the reason."""
    plan, other = await service.plan(*sweeping(2)), await service.plan(*sweeping(1))
    whole = service.file(plan).read_bytes()
    service.by_hand(plan, content)
    kept = service.file(plan).read_bytes()
    answers = [
        await service.http.get(f"/api/sessions/{plan['session_id']}"),
        await service.call(plan, "approve"),
        await service.edit(plan, 1, dod="x"),
        await service.add(plan, task("sweep more")),
    ]
    listed = (await service.http.get("/api/sessions")).json()
    left = service.file(plan).read_bytes()
    service.by_hand(plan, whole)
    healed = await service.shown(plan)

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(409, "plan_damaged")] * 4
    assert [(row["session_id"], row["status"], row["error"] and row["error"]["message"]) for row in listed] == [
        (other["session_id"], "draft", None),
        (plan["session_id"], "draft", answers[0].json()["detail"]),
    ]
    assert (left, healed) == (kept, plan)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "odd"),
        ("revision", "one"),
        ("revision", 0),
        ("created_at", 5),
        ("tasks", {}),
        ("tasks", [5]),
        ("tasks", [{"id": "1", "description": "x"}]),
        ("tasks", [{"id": 1}]),
        ("tasks", [{"id": 1, "description": "x", "deps": [1]}]),
        ("tasks", [{"id": 1, "description": "x", "deps": [2]}, {"id": 2, "description": "x", "deps": [1]}]),
        ("tasks", [{"id": 1, "description": "x", "deps": [3]}]),
        ("tasks", [{"id": 1, "description": "x"}, {"id": 1, "description": "y"}]),
        ("tasks", [{"id": 1, "description": "x", "status": "odd"}]),
        ("tasks", [{"id": 1, "description": "x", "deps": "all"}]),
        ("tasks", [{"id": 1, "description": "x", "args": []}]),
        ("tasks", [{"id": 1, "description": "x", "run_id": 5}]),
        ("tasks", [{"id": 1, "description": "x", "run_id": "../../x", "status": "done"}]),
        ("labels", []),
        ("priority", "high"),
    ],
)
async def test_a_plan_edited_into_nonsense(service: Planned, field: str, value: Any) -> None:
    """A nonsensical field is `plan_damaged` or read as a valid value, and the service keeps working."""
    plan = await service.plan(*sweeping(2))
    service.by_hand(plan, json.dumps(plan | {field: value}))
    answers = [
        await service.http.get(f"/api/sessions/{plan['session_id']}"),
        await service.call(plan, "approve"),
        await service.call(plan, "start"),
        await service.http.get("/api/sessions"),
        await service.http.get("/readyz"),
    ]
    other = await service.started(*sweeping(1))
    await service.ends(other)

    assert {answer.status_code for answer in answers} <= {200, 409}, [answer.text for answer in answers]
    assert answers[3].status_code == answers[4].status_code == 200


async def test_an_edit_by_hand_at_rest_counts(service: Planned) -> None:
    """A manual edit of the file of an idle plan is shown, and the next change builds on it."""
    plan = await service.plan(*sweeping(2))
    changed = plan | {"tasks": [plan["tasks"][0] | {"description": "paint the hall", "recipe_id": "paint"}]}
    service.by_hand(plan, json.dumps(changed, indent=2))
    shown = await service.shown(plan)
    await service.do(plan, "approve")
    await service.do(plan, "start")
    ended = await service.ends(plan)

    assert [each["description"] for each in shown["tasks"]] == ["paint the hall"]
    assert [(each["description"], each["status"]) for each in ended["tasks"]] == [("paint the hall", "done")]
    assert [said for _, said, _ in service.toolbox.asked] == ["paint the hall"]


async def test_an_edit_by_hand_at_work_counts(service: Planned) -> None:
    """The planner's next change does not overwrite a manual edit of the file of a running plan."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"), task("sweep the yard", 1))
    await service.toolbox.begun(1)
    running = await service.comes_to(plan, "running", "blocked")
    later = the(running, 2) | {"description": "paint the yard", "recipe_id": "paint"}
    service.by_hand(plan, json.dumps(running | {"tasks": [the(running, 1), later]}))
    service.toolbox.release(1)
    ended = await service.ends(plan)

    assert [said for _, said, _ in service.toolbox.asked] == ["sweep the hall", "paint the yard"]
    assert the(ended, 2)["recipe_id"] == "paint"


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ({"check": "file_exists", "path": "../swept.md"}, "dod[0]"),
        ({"check": "file_exists"}, "dod[0].path"),
        ({"check": "is_swept"}, "dod[0].check"),
    ],
)
async def test_checks_by_hand_that_no_run_can_pass_are_asked_about(
    service: Planned, check: dict[str, Any], told: str
) -> None:
    """The edit is kept and nothing starts; the question names the check, and goes once the checks are corrected."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"), task("sweep the yard", 1))
    await service.toolbox.begun(1)
    running = await service.comes_to(plan, "running", "blocked")
    service.by_hand(plan, json.dumps(running | {"tasks": [the(running, 1), the(running, 2) | {"dod": [check]}]}))
    asked = await service.comes_to(plan, "running", "needs_scoping")
    path = f"/api/sessions/{plan['session_id']}/tasks/2/answer"
    answer = await service.http.post(path, json={"answer": "Go on."})
    again = await service.shown(plan)
    mended = again | {"tasks": [the(again, 1), the(again, 2) | {"dod": [{"check": "file_exists", "path": "a.md"}]}]}
    service.by_hand(plan, json.dumps(mended))
    quiet = await service.comes_to(plan, "running", "blocked")
    service.by_hand(plan, json.dumps(quiet | {"tasks": [the(quiet, 1), the(quiet, 2) | {"dod": ""}]}))
    await service.comes_to(plan, "running", "blocked")
    service.toolbox.release(1)
    ended = await service.ends(plan)

    question = the(asked, 2)["scoping_question"]
    assert question.startswith("No run can pass the checks of task 2. Correct its dod: ")
    assert f" {told} " in question
    assert (the(asked, 2)["dod"], the(asked, 2)["asked_by"]) == ([check], "system")
    assert answer.status_code == 200
    assert the(again, 2)["scoping_question"] == f"The answer 'Go on.' does not change what is wrong. {question}"
    assert the(quiet, 2)["scoping_question"] is None
    assert [each["status"] for each in ended["tasks"]] == ["done", "done"]
    assert [said for _, said, _ in service.toolbox.asked] == ["sweep the hall", "sweep the yard\n\nGo on."]


async def test_what_an_edit_may_not_claim_is_never_shown(service: Planned) -> None:
    """The first view after an edit that marks running and failed tasks as done shows their states, with a new ETag."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"), task("sweep the yard", 1))
    await service.toolbox.begun(1)
    running = await service.comes_to(plan, "running", "blocked")
    claimed = [the(running, number) | {"status": "done", "description": "swept"} for number in (1, 2)]
    service.by_hand(plan, json.dumps(running | {"tasks": claimed, "status": "done"}))
    listed = (await service.http.get("/api/sessions")).json()
    shown = await asyncio.gather(*(service.shown(plan) for _ in range(3)))

    assert [each["tasks"] for each in listed] == [{"running": 1, "blocked": 1}]
    assert {(the(each, 1)["status"], the(each, 2)["description"]) for each in shown} == {("running", "swept")}
    assert {each["status"] for each in shown} == {"running"}
    assert all(each["revision"] > running["revision"] for each in shown)
    service.toolbox.release(1)


async def test_a_file_that_is_damaged_while_its_plan_runs(service: Planned) -> None:
    """A plan with a damaged file stops and is shown as damaged; a repair and a start continue it without new runs."""
    service.toolbox.hold(1, 2)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1))
    await service.toolbox.begun(1)
    await service.comes_to(plan, "running", "blocked")
    whole = service.file(plan).read_bytes()
    service.by_hand(plan, whole[: len(whole) // 2])
    service.toolbox.release(1)
    (run,) = await service.runs_of(plan)
    await service.until(run["run_id"], "done")
    refused(await service.call(plan, "pause"), 409, "plan_damaged")
    torn = service.file(plan).read_bytes()
    other = await service.started(task("paint the boat"))
    await service.ends(other)
    service.by_hand(plan, whole)
    await service.do(plan, "start")
    service.toolbox.release(2)
    ended = await service.ends(plan)

    assert torn == whole[: len(whole) // 2]
    assert states(ended) == {1: "done", 2: "done"}
    assert len(await service.runs_of(plan)) == 2


async def test_a_file_that_is_damaged_at_a_start(project: Project) -> None:
    """The plan is listed with the reason, and continues by itself once its file is repaired."""
    toolbox = chores.Toolbox()
    toolbox.hold(1)
    async with planning.in_process(project, toolbox) as service:
        plan = await service.started(task("sweep the hall"), task("paint the hall", 1))
        await toolbox.begun(1)
        await service.comes_to(plan, "running", "blocked")
    file = service.file(plan)
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    toolbox.release(1)
    async with planning.in_process(project, toolbox) as service:
        (listed,) = (await service.http.get("/api/sessions")).json()
        file.write_bytes(whole)
        ended = await service.ends(plan)

    assert (listed["session_id"], listed["status"], listed["error"]["code"]) == (
        plan["session_id"],
        "paused",
        "plan_damaged",
    )
    assert states(ended) == {1: "done", 2: "done"}


async def test_a_run_of_a_plan_that_is_damaged_can_go(project: Project) -> None:
    """The plan continues in another run; the damaged run is reported, can be deleted, and does not come back."""
    async with planning.in_process(project) as service:
        plan = await service.plan(task("sweep the hall"), task("paint the hall", 1))
        await service.do(plan, "approve")
    run_id = plan["session_id"]
    start = project.data / "runs" / run_id / "start.json"
    start.write_bytes(start.read_bytes().replace(b"sweep the hall", b"sweep the roof"))
    async with planning.in_process(project) as service:
        await service.do(plan, "start")
        ended = await service.ends(plan)
        damaged = (await service.http.get(f"/api/runs/{run_id}/verification")).json()
        deleted = await service.http.delete(f"/api/runs/{run_id}")
    async with planning.in_process(project) as service:
        again = await service.add(plan, task("paint the roof"))
        await service.do(plan, "resume")
        more = await service.ends(plan)
        verified = (await service.http.get("/api/verification")).json()
        in_use = await service.http.delete(f"/api/runs/{run_id}-2")

    assert states(ended) == {1: "done", 2: "done"}
    assert (damaged["state"], deleted.status_code, again.status_code) == ("damaged", 204, 201)
    assert f"control-room runs delete {run_id}" in damaged["advice"]
    assert states(more) == {1: "done", 2: "done", 3: "done"}
    assert {found["state"] for found in verified} == {"sound"}
    assert sorted(found["id"] for found in verified if found["id"].startswith(f"{run_id}-")) == [f"{run_id}-2"]
    refused(in_use, 404, "run_not_found")


async def test_a_plan_deleted_by_hand_is_gone(service: Planned) -> None:
    """Without its file a plan is a 404, its runs end, and the service does not write the file again."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1))
    await service.toolbox.begun(1)
    running = await service.comes_to(plan, "running", "blocked")
    service.file(plan).unlink()
    service.toolbox.release(1)
    await service.until(the(running, 1)["run_id"], "done")
    gone = await service.http.get(f"/api/sessions/{plan['session_id']}")
    other = await service.started(task("paint the boat"))
    await service.ends(other)
    deleted = await service.call(plan, "", method="DELETE")
    again = await service.call(plan, "", method="DELETE")

    assert "its file was removed" in refused(gone, 404, "plan_not_found")["detail"]
    assert deleted.status_code == 204
    assert "gone" not in refused(again, 404, "plan_not_found")["detail"]
    assert not service.file(plan).exists()
    assert len((await service.http.get("/api/sessions")).json()) == 1


async def test_a_link_in_place_of_a_plan(service: Planned, tmp_path: Path) -> None:
    """The service does not write through a link to a folder or a file outside the data directory."""
    outside = tmp_path / "outside"
    outside.mkdir()
    plan = await service.plan(*sweeping(1))
    target = outside / "plan.json"
    target.write_bytes(service.file(plan).read_bytes())
    service.file(plan).unlink()
    service.file(plan).symlink_to(target)
    before = target.read_bytes()
    await service.call(plan, "approve")

    assert target.read_bytes() == before


# -- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """Return a folder on a file system of a few megabytes; skip the test if it cannot be mounted."""
    root = tmp_path / "disk"
    root.mkdir()
    options = ["-t", "tmpfs", "-o", "size=8m", "tmpfs", str(root)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False, capture_output=True).returncode != 0:
        pytest.skip("a small tmpfs needs root and a kernel that allows mounts")
    try:
        yield root
    finally:
        subprocess.run(["umount", str(root)], check=True)


def rests(plan: planning.Plan) -> bool:
    """Return whether a plan has ended, or is paused without a running task."""
    return plan["status"] in ("done", "failed", "paused") and "running" not in states(plan).values()


def fill(root: Path) -> Path:
    """Use up all free bytes, and return the file whose removal frees them."""
    ballast = root / "ballast"
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return ballast


async def test_a_full_disk_refuses_changes_and_loses_none(small_disk: Path) -> None:
    """Without space a new plan and each change is a 507 that keeps the file whole; with space, all work again."""
    project = planning.make_project(small_disk / "project")
    async with planning.in_process(project) as service:
        service.toolbox.hold(1)
        plan = await service.started(task("sweep the hall"), task("paint the hall", 1), task("paint the door", 2))
        await service.toolbox.begun(1)
        before = await service.comes_to(plan, "running", "blocked", "blocked")
        ballast = fill(small_disk)
        refusals = [
            await service.ask(*sweeping(1)),
            await service.edit(plan, 3, dod="x" * 20_000),
            await service.call(plan, "pause"),
        ]
        kept, shown = service.kept(plan), await service.shown(plan)
        service.toolbox.release(1)
        ballast.unlink()
        ended = await service.plan_until(plan, rests)

    assert [(answer.status_code, answer.json()["code"]) for answer in refusals[:1]] == [(507, "no_room")]
    assert {answer.status_code for answer in refusals} <= {507, 400, 200}
    assert kept["session_id"] == before["session_id"]
    assert shown == kept
    assert set(states(ended).values()) == {"done"} if refusals[2].status_code == 507 else ended["status"] == "paused"


async def test_a_plan_waits_for_room(small_disk: Path) -> None:
    """A task whose run cannot be created for lack of space starts once as soon as there is space."""
    project = planning.make_project(small_disk / "project")
    async with planning.in_process(project) as service:
        service.toolbox.hold(1)
        plan = await service.started(task("sweep the hall"), task("paint the hall", 1))
        await service.toolbox.begun(1)
        await service.comes_to(plan, "running", "blocked")
        ballast = fill(small_disk)
        service.toolbox.release(1)
        await service.until(the(await service.shown(plan), 1)["run_id"], "paused", "done")
        ballast.unlink()
        ended = await service.ends(plan)
        runs = await service.runs_of(plan)

    assert states(ended) == {1: "done", 2: "done"}
    assert len(runs) == 2
    assert (len(service.toolbox.tries(1)), len(service.toolbox.tries(2))) == (1, 1)


async def test_the_next_service_completes_the_plan_after_a_full_disk(small_disk: Path) -> None:
    """A plan of a service that stops while its disk is full is completed by the next one, once it has space."""
    project, toolbox = planning.make_project(small_disk / "project"), chores.Toolbox()
    toolbox.hold(1)
    async with planning.in_process(project, toolbox) as service:
        plan = await service.started(task("sweep the hall"), task("paint the hall", 1))
        await toolbox.begun(1)
        await service.comes_to(plan, "running", "blocked")
        ballast = fill(small_disk)
        toolbox.release(1)
    ballast.unlink()
    async with planning.in_process(project, toolbox) as service:
        ended = await service.ends(plan)

    assert states(ended) == {1: "done", 2: "done"}
    assert [each["attempt"] for each in ended["tasks"]] == [1, 1]


def changed_attributes(folder: Path, how: str) -> bool:
    """Make a folder read-only even for root (`+i`), or writable (`-i`), and return whether this succeeded."""
    return subprocess.run(["chattr", how, str(folder)], check=False, capture_output=True).returncode == 0


async def test_a_folder_that_cannot_be_written(service: Planned) -> None:
    """While a plan's folder is read-only, changes are refused and the plan stops; once writable, it continues."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1), review="off")
    await service.toolbox.begun(1)
    before = await service.comes_to(plan, "running", "blocked")
    folder = service.file(plan).parent
    if not changed_attributes(folder, "+i"):
        pytest.skip("an immutable folder needs root, chattr and a file system that knows it")
    try:
        answer = await service.edit(plan, 2, dod="Blue")
        service.toolbox.release(1)
        await service.until(the(before, 1)["run_id"], "done")
        shown = await service.shown(plan)
    finally:
        changed_attributes(folder, "-i")
    ended = await service.ends(plan)

    refused(answer, 507, "no_room")
    assert shown == before
    assert states(ended) == {1: "done", 2: "done"}
    assert the(ended, 2)["dod"] == ""
    assert len(await service.runs_of(plan)) == 2


# -- a service that finds unknown files at its start


async def test_a_service_starts_over_anything(project: Project) -> None:
    """Neither the start of a service nor a valid plan is affected by damaged plans and unknown files."""
    folder = project.data / "sessions"
    running = {"created_by": "user", "status": "running", "created_at": "2026-02-10T14:00:00Z"}
    tasks = [{"id": 1, "description": "sweep the hall", "recipe_id": "sweep", "deps": [], "status": "pending"}]
    project.write(".control-room/sessions/torn/plan.json", '{"session_id": "torn", "status": "runn')
    project.write(
        ".control-room/sessions/other/plan.json", json.dumps({"session_id": "else", **running, "tasks": tasks})
    )
    project.write(
        ".control-room/sessions/sound/plan.json", json.dumps({"session_id": "sound", **running, "tasks": tasks})
    )
    project.write(".control-room/sessions/note.txt", "mine")
    (folder / "empty").mkdir()
    (folder / "folder" / "plan.json").mkdir(parents=True)
    (folder / "loop").symlink_to(folder)
    async with planning.in_process(project) as service:
        ready = await service.http.get("/readyz")
        ended = await service.ends({"session_id": "sound"})
        listed = (await service.http.get("/api/sessions")).json()
        torn = await service.http.get("/api/sessions/torn")
        other = await service.http.get("/api/sessions/other")
        empty = await service.http.get("/api/sessions/empty")

    assert ready.status_code == 200
    assert states(ended) == {1: "done"}
    assert [(row["session_id"], row["error"] and row["error"]["code"]) for row in listed] == [
        ("torn", "plan_damaged"),
        ("sound", None),
    ]
    refused(torn, 409, "plan_damaged")
    refused(other, 409, "plan_damaged")
    refused(empty, 404, "plan_not_found")


async def test_a_recipe_that_goes_away(service: Planned) -> None:
    """A task whose recipe is missing at its start fails with that reason; with the recipe back, a retry succeeds."""
    service.toolbox.hold(1)
    plan = await service.started(task("sweep the hall"), task("paint the hall", 1), task("sweep the yard"))
    await service.toolbox.begun(1)
    recipe = service.project.data / "recipes" / "chores" / "paint.json"
    content = recipe.read_text(encoding="utf-8")
    recipe.unlink()
    service.toolbox.release(1)
    failed = await service.ends(plan, "failed")
    recipe.write_text(content, encoding="utf-8")
    retried = await service.call(plan, "retry", 2)
    ended = await service.ends(plan)

    assert states(failed) == {1: "done", 2: "failed", 3: "done"}
    assert (the(failed, 2)["error"]["code"], the(failed, 2)["run_id"]) == ("unknown_recipe", None)
    assert retried.status_code == 200, retried.text
    assert states(ended) == {1: "done", 2: "done", 3: "done"}


async def test_a_plan_can_be_only_so_long(service: Planned) -> None:
    """A plan may have two hundred tasks; one more is refused, and the plan does not change."""
    plan = await service.plan(*sweeping(200))
    more = await service.add(plan, task("sweep more"))

    assert more.status_code in (400, 409), more.text
    assert await service.shown(plan) == plan


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_longest_plan(service: Planned) -> None:
    """Two hundred tasks, each dependent on the one before, are done in their order."""
    tasks = [task(f"sweep step {number}", *([number - 1] if number > 1 else [])) for number in range(1, 201)]
    plan = await service.started(*tasks)
    ended = await service.plan_until(plan, lambda shown: shown["status"] != "running")

    assert [number for number, *_ in service.toolbox.asked] == list(range(1, 201))
    assert ended["status"] == "done"
