"""Cancel, pause, unpause, resume and delete over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration import project as projects
from tests.integration import served
from tests.integration.held import DELAY_SECONDS, Held

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}


async def order(service: served.Served, run_id: str, verb: str, body: Any = None) -> tuple[int, Any]:
    """Send an order and return the answer."""
    answer = await service.http.post(f"/api/runs/{run_id}/{verb}", json=body)
    return answer.status_code, answer.json()


async def speaking(service: served.Served) -> str:
    """Start a run, wait until its writer works without end, and return its id."""
    service.project.say("draft", hang=True)
    run_id = await service.start("draft", args=ARRIVAL)
    await service.until(run_id, step="draft")
    return run_id


async def test_a_running_run_is_cancelled(service: served.Served) -> None:
    """A cancel is answered with exactly the id and the status, and the run ends as cancelled."""
    run_id = await speaking(service)
    answered = await order(service, run_id, "cancel")
    ended = await service.show(run_id)

    assert answered == (200, {"run_id": run_id, "status": "cancelled"})
    assert (ended["status"], ended["phase"]) == ("cancelled", None)
    assert ended["completed_at"] is not None
    assert [step["step_id"] for step in ended["steps"]] == ["discover", "analyze"]


async def test_a_pending_run_is_cancelled(project: projects.Project) -> None:
    """A run that waits for capacity is cancelled without ever running."""
    async with served.in_process(project, max_running=1) as service:
        first = await speaking(service)
        second = await service.start("quick")
        answered = await order(service, second, "cancel")
        ended = await service.until(second, "cancelled", "done")
        await order(service, first, "cancel")

    assert answered[0] == 200
    assert (ended["status"], ended["steps"]) == ("cancelled", [])


async def test_orders_to_an_ended_run_are_refused(service: served.Served) -> None:
    """A done run cannot be cancelled, paused, unpaused or resumed: the answer is a 409 with its state."""
    run_id = (await service.run("quick"))["run_id"]
    answered = {verb: await order(service, run_id, verb) for verb in ("cancel", "pause", "unpause", "resume")}

    assert {verb: status for verb, (status, _) in answered.items()} == dict.fromkeys(answered, 409)
    assert {body["code"] for _, body in answered.values()} == {"wrong_state"}
    assert {body["facts"]["status"] for _, body in answered.values()} == {"done"}
    assert {verb: body["detail"].removeprefix(f"run {run_id} is done; ") for verb, (_, body) in answered.items()} == {
        "cancel": "only an unfinished run is cancelled",
        "pause": "only a pending, running or waiting run is paused",
        "unpause": "only a paused run is unpaused",
        "resume": "only a failed or cancelled run is resumed, and it is done; fork it, or start it again",
    }


@pytest.mark.parametrize("verb", ["cancel", "pause", "unpause", "resume"])
@pytest.mark.parametrize("run_id", ["20260101T000000Z-aaaaaa", "..", "a%00b"])
async def test_an_order_to_an_unknown_run_is_not_found(service: served.Served, verb: str, run_id: str) -> None:
    """An order to a run that does not exist is a 404."""
    answer = await service.http.post(f"/api/runs/{run_id}/{verb}")

    assert answer.status_code == 404


async def test_a_paused_run_starts_no_new_step(service: served.Served, held: Held) -> None:
    """A paused run stops after the step in flight, starts no other, and continues after an unpause."""
    service.project.say("draft", text=projects.REPLY, delay_seconds=DELAY_SECONDS)
    run_id = await service.start("draft", args=ARRIVAL)
    await service.until(run_id, step="draft")
    paused = await order(service, run_id, "pause")
    again = await order(service, run_id, "pause")
    held.release()
    resting = await service.until(run_id, "paused")
    unpaused = await order(service, run_id, "unpause")
    ended = await service.until(run_id, "done")
    late = await order(service, run_id, "unpause")

    assert paused == (200, {"run_id": run_id, "status": "running", "reason": "pausing"})
    assert (again[0], again[1]["code"]) == (409, "wrong_state")
    assert (resting["reason"], resting["error"]) == ("paused_by_person", None)
    assert resting["steps"][-1]["step_id"] == "draft"
    assert (unpaused[0], unpaused[1]["run_id"]) == (200, run_id)
    assert (late[0], late[1]["code"]) == (409, "wrong_state")
    assert [step["step_id"] for step in ended["steps"]][:4] == ["discover", "analyze", "draft", "polish"]


async def test_a_paused_run_can_be_cancelled(service: served.Served, held: Held) -> None:
    """A paused run is unfinished, so it can be cancelled."""
    service.project.say("draft", text=projects.REPLY, delay_seconds=DELAY_SECONDS)
    run_id = await service.start("draft", args=ARRIVAL)
    await service.until(run_id, step="draft")
    await order(service, run_id, "pause")
    held.release()
    await service.until(run_id, "paused")
    answered = await order(service, run_id, "cancel")
    ended = await service.until(run_id, "cancelled", "done")

    assert (answered[0], ended["status"]) == (200, "cancelled")


async def test_a_failed_run_is_resumed_from_its_failed_step(service: served.Served) -> None:
    """A resumed run keeps its finished steps, repeats the failed one, and can end as `done`."""
    run_id = (await service.run("draft", args={"scene_path": "Story/Scenes/SCN-late.md"}))["run_id"]
    failed = await service.show(run_id)
    service.project.write("Story/Scenes/SCN-late.md", projects.SCENE)
    answered = await order(service, run_id, "resume")
    ended = await service.until(run_id, "done", "failed")
    log = (await service.http.get(f"/api/runs/{run_id}/steps")).json()

    assert (failed["status"], failed["error"]["key"]) == ("failed", "analyze")
    assert (answered[0], answered[1]["run_id"]) == (200, run_id)
    assert answered[1]["status"] in ("pending", "running")
    assert (ended["status"], ended["error"]) == ("done", None)
    assert [(step["step_id"], step["status"]) for step in log][:3] == [
        ("discover", "done"),
        ("analyze", "failed"),
        ("analyze", "done"),
    ]


async def test_a_cancelled_run_is_resumed(service: served.Served) -> None:
    """A cancelled run can be resumed, and does not repeat its finished steps."""
    run_id = await speaking(service)
    await order(service, run_id, "cancel")
    await service.until(run_id, "cancelled")
    service.project.say("draft", text=projects.REPLY)
    answered = await order(service, run_id, "resume", {})
    ended = await service.until(run_id, "done", "failed")
    log = (await service.http.get(f"/api/runs/{run_id}/steps")).json()

    assert (answered[0], ended["status"]) == (200, "done")
    assert [step["step_id"] for step in log].count("discover") == 1


async def test_a_resume_may_go_back_to_an_earlier_step(service: served.Served) -> None:
    """With `from`, the named step and the later ones run again."""
    service.project.say("polish", error={"code": "agent_failed", "message": "no"})
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    service.project.say("polish", text="Polished.")
    answered = await order(service, run_id, "resume", {"from": "draft"})
    ended = await service.until(run_id, "done", "failed")
    log = (await service.http.get(f"/api/runs/{run_id}/steps")).json()

    assert (answered[0], ended["status"]) == (200, "done")
    assert [step["step_id"] for step in log][:6] == ["discover", "analyze", "draft", "polish", "draft", "polish"]


async def test_a_resume_may_change_the_arguments(service: served.Served) -> None:
    """With `args`, the run continues with changed arguments, if its finished steps allow that."""
    run_id = (await service.run("draft", args={"scene_path": "Story/none.md", "words": 20}))["run_id"]
    answered = await order(service, run_id, "resume", {"args": ARRIVAL})
    ended = await service.until(run_id, "done", "failed")

    assert (answered[0], ended["status"]) == (200, "done")
    assert ended["task"]["initial_args"] == ARRIVAL | {"words": 20}


async def test_a_resume_may_take_the_recipe_as_it_is_now(service: served.Served) -> None:
    """With `recipe: current`, a changed recipe is frozen again; without it, the run keeps its first one."""
    whole = projects.draft("mended")
    service.project.add_recipe(whole | {"dod": [{"check": "file_exists", "path": "Story/none.md"}]})
    run_id = (await service.run("mended", args=ARRIVAL))["run_id"]
    service.project.add_recipe(whole)
    await order(service, run_id, "resume")
    unchanged = await service.until(run_id, "done", "failed")
    answered = await order(service, run_id, "resume", {"recipe": "current"})
    ended = await service.until(run_id, "done", "failed")

    assert unchanged["status"] == "failed"
    assert (answered[0], ended["status"]) == (200, "done")


async def test_a_recipe_that_does_not_fit_is_refused(service: served.Served) -> None:
    """A recipe whose finished steps have changed is refused, and the run stays failed."""
    whole = projects.draft("changed")
    service.project.add_recipe(whole)
    run_id = (await service.run("changed", args={"scene_path": "Story/none.md"}))["run_id"]
    other = projects.tool_step("discover", "file_locator", "discovery", search_criteria="something else")
    service.project.add_recipe(whole | {"phase_a": [other, projects.ANALYZE]})
    status, problem = await order(service, run_id, "resume", {"recipe": "current"})
    shown = await service.show(run_id)

    assert (status, problem["code"]) == (400, "recipe_differs")
    assert shown["status"] == "failed"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"from": "nowhere"}, "unknown_step"),
        ({"args": {"nothing": 1}}, "args_invalid"),
        ({"recipe": "newest"}, "request_invalid"),
        ({"from": 3}, "request_invalid"),
        ({"form": "draft"}, "request_invalid"),
        ([], "request_invalid"),
    ],
)
async def test_a_wrong_resume_is_refused(service: served.Served, body: Any, code: str) -> None:
    """A resume from an unknown step, or with an invalid body, is refused and leaves the run failed."""
    run_id = (await service.run("draft", args={"scene_path": "Story/none.md"}))["run_id"]
    status, problem = await order(service, run_id, "resume", body)
    shown = await service.show(run_id)

    assert (status, problem["code"], shown["status"]) == (400, code, "failed")
    assert code != "unknown_step" or "its finished steps: discover" in problem["detail"]


async def test_a_finished_run_is_deleted(service: served.Served) -> None:
    """A deleted run is removed from lists and disk; its receipts remain."""
    run_id = (await service.run("quick"))["run_id"]
    receipt_id = (await service.http.get(f"/api/runs/{run_id}/cache/discovery")).json()["receipt_id"]
    deleted = await service.http.delete(f"/api/runs/{run_id}")
    gone = await service.http.get(f"/api/runs/{run_id}")
    again = await service.http.delete(f"/api/runs/{run_id}")
    listed = (await service.http.get("/api/runs")).json()
    receipt = await service.http.get(f"/api/audit/receipts/{receipt_id}")

    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (gone.status_code, again.status_code, listed) == (404, 404, [])
    assert not (service.project.data / "runs" / run_id).exists()
    assert receipt.status_code == 200


async def test_an_unfinished_run_is_not_deleted(service: served.Served) -> None:
    """The deletion of a run that has not ended is refused with a 409."""
    run_id = await speaking(service)
    refused = await service.http.delete(f"/api/runs/{run_id}")
    shown = await service.show(run_id)

    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_state")
    assert shown["status"] == "running"


async def test_a_failed_check_opens_an_issue(service: served.Served) -> None:
    """A definition of done that fails, fails the run and creates one issue for each failed check."""
    bridge = "Story/Scenes/SCN-the-bridge.md"
    ended = await service.run("picky", args=ARRIVAL | {"other_path": bridge})
    issues = [json.loads(path.read_text()) for path in (service.project.data / "issues").glob("*.json")]

    assert ended["status"] == "failed"
    assert ended["error"]["code"]
    assert [issue["run_id"] for issue in issues] == [ended["run_id"]]
