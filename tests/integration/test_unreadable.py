"""Unreadable is not damaged: a file that cannot be read now is reported beside the run, and the run does not change."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from typing import Any

import pytest

from tests.integration import project as projects
from tests.integration import served
from tests.integration.read_faults import ReadFaults

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
REQUESTS = (("resume", "POST", "/resume"), ("delete", "DELETE", ""), ("steps", "GET", "/steps"))


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> ReadFaults:
    """Return the switch for system calls that fail."""
    return ReadFaults(monkeypatch)


def content(project: projects.Project, run_id: str) -> dict[str, bytes]:
    """Return the content of a run's folder."""
    folder = project.data / "runs" / run_id
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def listed(service: served.Served, run_id: str) -> dict[str, Any]:
    """Return a run's entry in the list."""
    return next(run for run in (await service.http.get("/api/runs")).json() if run["run_id"] == run_id)


async def until_listed(service: served.Served, run_id: str, *, readable: bool) -> dict[str, Any]:
    """Wait until the list shows a run as readable or unreadable, without a request for the run itself."""
    etag = ""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while True:
            answer = await service.http.get(f"/api/runs?wait={5 if etag else 0}", headers={"If-None-Match": etag})
            if answer.status_code == 200:
                etag = answer.headers["etag"]
                row: dict[str, Any] = next(run for run in answer.json() if run["run_id"] == run_id)
                if (row["unreadable"] is None) is readable:
                    return row


async def left_running(project: projects.Project) -> str:
    """Leave a run whose writer hung when its service stopped; its writer will answer the next time."""
    project.say("draft", hang=True)
    async with served.in_process(project) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        await service.until(run_id, step="draft")
    project.say("draft", text=projects.REPLY)
    return run_id


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.EACCES, errno.ESTALE])
async def test_an_unreadable_ended_run_keeps_its_last_status(
    project: projects.Project, faults: ReadFaults, code: int
) -> None:
    """List and detail show the last known status and the file; no file is written, and every order is put off."""
    async with served.in_process(project) as service:
        run_id = (await service.run("quick"))["run_id"]
        before = await service.show(run_id)
    files = content(project, run_id)
    faults.refuse(f"{run_id}/start.json", code)
    async with served.in_process(project) as service:
        shown, row = await service.show(run_id), await listed(service, run_id)
        answers = {
            verb: await service.http.request(method, f"/api/runs/{run_id}{path}")
            for verb, method, path in (
                ("resume", "POST", "/resume"),
                ("delete", "DELETE", ""),
                ("steps", "GET", "/steps"),
            )
        }

        assert (shown["status"], shown["error"]) == (row["status"], row["error_code"]) == ("done", None)
        # A further try may be made between the two.
        assert {**shown["unreadable"], "next_try_at": ""} == {**row["unreadable"], "next_try_at": ""}
        assert (shown["unreadable"]["file"], shown["unreadable"]["errno"]) == ("start.json", errno.errorcode[code])
        assert shown["unreadable"]["since"] < shown["unreadable"]["next_try_at"]
        for answer in answers.values():
            assert (answer.status_code, answer.json()["code"]) == (503, "unreadable")
            assert 1 <= int(answer.headers["Retry-After"]) <= 60
        assert content(project, run_id) == files

        faults.lift()
        await until_listed(service, run_id, readable=True)

        assert await service.show(run_id) == before
        assert (await service.http.delete(f"/api/runs/{run_id}")).status_code == 204


async def test_a_failed_run_that_cannot_be_read_keeps_its_code(project: projects.Project, faults: ReadFaults) -> None:
    """The list shows the error code of the failed run."""
    project.say("draft", text="")
    async with served.in_process(project) as service:
        run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
        before = await service.show(run_id)
    faults.refuse(f"{run_id}/start.json", errno.EIO)
    async with served.in_process(project) as service:
        shown, row = await service.show(run_id), await listed(service, run_id)

    assert (before["status"], shown["status"], row["status"]) == ("failed",) * 3
    assert shown["unreadable"]["file"] == "start.json"
    assert shown["error"]["code"] == row["error_code"] == before["error"]["code"]


@pytest.mark.parametrize("file", ["start.json", "steps.jsonl", "control.jsonl", "events.jsonl"])
async def test_an_unfinished_run_waits_until_it_can_be_read(
    project: projects.Project, faults: ReadFaults, file: str
) -> None:
    """A service with an unreadable run is ready, and continues the run as soon as it can be read."""
    run_id = await left_running(project)
    files = content(project, run_id)
    faults.refuse(f"{run_id}/{file}")
    async with served.in_process(project) as service:
        row = await until_listed(service, run_id, readable=False)
        shown, ready = await service.show(run_id), await service.http.get("/readyz")
        cancel = await service.http.post(f"/api/runs/{run_id}/cancel")

        assert ready.status_code == 200
        assert shown["status"] == row["status"] == "running"
        assert (shown["unreadable"]["file"], row["unreadable"]["file"]) == (file, file)
        assert (cancel.status_code, cancel.json()["code"]) == (503, "unreadable")
        assert content(project, run_id) == files
        assert (await service.run("quick"))["status"] == "done"

        faults.lift()
        ended = await service.until(run_id, "done", "failed", "cancelled", "paused")

        assert (ended["status"], ended["unreadable"]) == ("done", None)
        assert (await listed(service, run_id))["unreadable"] is None


async def test_an_ended_run_whose_row_lags_behind_is_completed_once_it_can_be_read(
    project: projects.Project, faults: ReadFaults
) -> None:
    """After a power cut that lost the row's last change, list and detail show the ending once the run can be read.

    The row follows without another start.
    """
    async with served.in_process(project) as service:
        run_id = (await service.run("quick"))["run_id"]
    with sqlite3.connect(project.data / "index.db") as index:
        index.execute("UPDATE runs SET status = 'running', completed_at = NULL")
    faults.refuse(f"runs/{run_id}", calls=("open",))
    async with served.in_process(project) as service:
        row = await until_listed(service, run_id, readable=False)

        assert (row["status"], (await service.show(run_id))["status"]) == ("done", "done")

        faults.lift()
        async with asyncio.timeout(served.WAIT_SECONDS):
            while index.execute("SELECT status FROM runs").fetchall() != [("done",)]:
                await served.moment()
    index.close()


async def test_a_stream_waits_until_its_events_can_be_read(project: projects.Project, faults: ReadFaults) -> None:
    """The stream of a run whose events cannot be read waits, and sends all events once they can be read."""
    async with served.in_process(project) as service:
        run_id = (await service.run("quick"))["run_id"]
        address = f"/api/runs/{run_id}/events"
        whole = (await service.http.get(address)).text
        faults.refuse(f"{run_id}/events.jsonl")
        following = asyncio.create_task(service.http.get(address))
        async with asyncio.timeout(served.WAIT_SECONDS):
            while not faults.count:
                await served.moment()
        faults.lift()

        assert (await following).text == whole


async def test_a_run_without_a_row_is_shown_and_its_key_is_not_given_twice(
    project: projects.Project, faults: ReadFaults
) -> None:
    """While the index is rebuilt, an unreadable run is listed by its run.json, and repetitions wait for its key."""
    request: dict[str, Any] = {"json": {"recipe_id": "quick"}, "headers": {"Idempotency-Key": "once"}}
    async with served.in_process(project) as service:
        run_id = (await service.http.post("/api/runs", **request)).json()["run_id"]
        before = await service.until(run_id, "done")
    for path in project.data.glob("index.db*"):
        path.unlink()
    faults.refuse(f"{run_id}/start.json")
    async with served.in_process(project) as service:
        shown, row = await service.show(run_id), await listed(service, run_id)
        repeated = await service.http.post("/api/runs", **request)
        other = await service.run("quick")

        assert (shown["status"], row["status"], row["recipe_id"]) == ("done", "done", "quick")
        assert {**shown["unreadable"], "next_try_at": ""} == {**row["unreadable"], "next_try_at": ""}
        assert row["unreadable"]["file"] == "start.json"
        assert (repeated.status_code, repeated.json()["code"]) == (503, "unreadable")
        assert other["status"] == "done"

        faults.lift()
        await until_listed(service, run_id, readable=True)
        repeated = await service.http.post("/api/runs", **request)

        assert (repeated.status_code, repeated.json()["run_id"]) == (200, run_id)
        assert await service.show(run_id) == before


async def test_an_unlistable_runs_folder_is_not_an_empty_list(project: projects.Project, faults: ReadFaults) -> None:
    """If the folder of all runs cannot be listed at the start, lists are refused for now and no run is forgotten."""
    run_id = await left_running(project)
    faults.refuse("/runs", errno.EMFILE, ("listdir",))
    async with served.in_process(project) as service:
        refused = [await service.http.get(path) for path in ("/api/runs", "/readyz")]

        assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(503, "unreadable")] * 2
        assert {answer.json()["facts"]["path"] for answer in refused} == {"runs"}

        faults.lift()

        assert (await service.until(run_id, "done", "failed"))["status"] == "done"


@pytest.mark.parametrize("has_row", [True, False])
async def test_an_issue_that_cannot_be_read_is_not_gone(
    project: projects.Project, faults: ReadFaults, has_row: bool
) -> None:
    """An unreadable issue is listed by its row, or lists are put off; it is not reported as unknown or damaged."""
    async with served.in_process(project) as service:
        issue = (await service.http.post("/api/issues", json={"title": "Look here"})).json()
    at, ending = f"/api/issues/{issue['issue_id']}", f"{issue['issue_id']}.json"
    for path in [] if has_row else project.data.glob("index.db*"):
        path.unlink()
    faults.refuse(ending)
    async with served.in_process(project) as service:
        answers = [await service.http.get(at), await service.http.patch(at, json={"status": "closed"})]
        page = await service.http.get("/api/issues")

        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(503, "unreadable")] * 2
        assert page.status_code == (200 if has_row else 503), page.text
        assert not has_row or [row["issue_id"] for row in page.json()] == [issue["issue_id"]]

        faults.lift()

        assert (await service.http.get(at)).json() == issue
        assert [row["issue_id"] for row in (await service.http.get("/api/issues")).json()] == [issue["issue_id"]]


async def test_a_plan_that_cannot_be_read_is_not_damaged_and_holds_up_no_other(
    project: projects.Project, faults: ReadFaults
) -> None:
    """The plan and the list of plans are refused for now; another plan continues, and this one once it can be read."""
    tasks = [{"description": "Do it.", "recipe_id": "quick"}]
    plans = []
    async with served.in_process(project) as service:
        for _ in range(2):
            plan = (await service.http.post("/api/sessions", json={"tasks": tasks})).json()
            await service.http.post(f"/api/sessions/{plan['session_id']}/approve")
            plans.append(f"/api/sessions/{plan['session_id']}")
        before = (await service.http.get(plans[0])).json()
    faults.refuse(f"{before['session_id']}/plan.json")
    async with served.in_process(project) as service:
        answers = [await service.http.get(plans[0]), await service.http.post(f"{plans[0]}/start")]
        page = await service.http.get("/api/sessions")
        other = await service.http.post(f"{plans[1]}/start")

        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(503, "unreadable")] * 2
        assert (page.status_code, page.json()["code"]) == (503, "unreadable")
        assert other.status_code == 200

        faults.lift()

        assert (await service.http.get(plans[0])).json() == before
        assert len((await service.http.get("/api/sessions")).json()) == 2


@pytest.mark.parametrize("file", ["recipes/quick.json", "prompts/prompts.json", "prompts/templates/write.t3.md"])
async def test_a_recipe_that_cannot_be_read_is_not_invalid(
    project: projects.Project, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """A start is refused for now, and succeeds as soon as every file of the recipe can be read, even if unchanged.

    A prompt that cannot be read is never replaced by another layer's.
    """
    recipe_id, args = ("quick", {}) if file.startswith("recipes") else ("draft", ARRIVAL)
    project.say("draft", text=projects.REPLY)
    path = project.data / file
    refused, usual = [True], type(path).open

    def opened(file: Any, *args: Any, **options: Any) -> Any:
        if refused and file == path:
            raise OSError(errno.EIO, "Input/output error", str(file))
        return usual(file, *args, **options)

    monkeypatch.setattr(type(path), "open", opened)
    async with served.in_process(project) as service:
        body = {"recipe_id": recipe_id, "args": args}
        answer = await service.http.post("/api/runs", json=body)
        shown = next(
            recipe for recipe in (await service.http.get("/api/recipes")).json() if recipe["recipe_id"] == recipe_id
        )

        assert (answer.status_code, answer.json()["code"]) == (503, "unreadable")
        assert answer.headers["Retry-After"] == "1"

        assert "unreadable" in {flaw["code"] for flaw in shown["flaws"]}

        refused.clear()

        assert (await service.run(recipe_id, args=args))["status"] == "done"
