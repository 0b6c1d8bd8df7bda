"""Pauses: an order returns the state that is shown, and may interrupt steps in flight, in every language."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.integration import project as projects
from tests.integration import served
from tests.unit.dialects.agent_recipes import recipe_harness as agent_recipes
from tests.unit.dialects.amplifier import recipe_harness as amplifier

SCENE = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}

# A command whose first attempt never ends, with a process that never ends either.
SLEEP = f"sleep {30_000 + os.getpid()}"
STUCK = f"[ -e again ] && exit 0; {SLEEP} & touch again; wait"
WORKFLOW = {"version": "1.1", "name": "stuck", "steps": [{"name": "Work", "command": ["sh", "-c", STUCK]}]}

COMMANDS = ("amplifier", "orchestrate")
LANGUAGES = {
    "control_room": ("draft", SCENE, "draft"),
    "agent_recipes": ("review-and-commit", {"backend": "said"}, "code-review"),
    "amplifier": ("stuck", {}, "work"),
    "orchestrate": ("stuck", {}, "Work"),
}


def prepare(project: projects.Project, language: str) -> None:
    """Write the recipe, and let agents hang."""
    if language == "amplifier":
        bash = {"id": "work", "type": "bash", "command": STUCK}
        project.write(".control-room/recipes/amplifier/stuck.yaml", json.dumps(amplifier.later(bash, name="stuck")))
    elif language == "orchestrate":
        project.write(".control-room/recipes/orchestrate/stuck.yaml", json.dumps(WORKFLOW))
    else:
        project.say(LANGUAGES[language][2], hang=True)


def mend(project: projects.Project) -> None:
    """Let agents answer."""
    project.say("draft", text=projects.REPLY)
    project.say("code-review", text=agent_recipes.says("no-issues"))
    project.say("commit", text=agent_recipes.says("committed"))


def sleeping() -> list[str]:
    """Return the processes that a hanging command has started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            found += [process.name] if command == SLEEP else []
    return found


async def ordered(service: served.Served, run_id: str, verb: str, body: Any = None) -> tuple[int, Any]:
    """Send an order and return the answer."""
    answer = await service.http.post(f"/api/runs/{run_id}/{verb}", json=body)
    return answer.status_code, answer.json()


def shown(run: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a polled run that an order's answer contains."""
    names = ("run_id", "status") if run["reason"] is None else ("run_id", "status", "reason")
    return {name: run[name] for name in names}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_step_interrupted_by_a_pause_runs_again(project: projects.Project, language: str) -> None:
    """A step that a pause interrupts leaves no record, and runs again as its next attempt."""
    recipe_id, args, key = LANGUAGES[language]
    prepare(project, language)
    async with served.in_process(project) as service:
        run_id = await service.start(recipe_id, args=args)
        await service.until(run_id, step=key)
        async with asyncio.timeout(served.WAIT_SECONDS):
            while language in COMMANDS and not (sleeping() and (project.root / "again").exists()):
                await service.http.get(f"/api/runs/{run_id}?wait=0.05")
        paused = await ordered(service, run_id, "pause", {"interrupt": True})
        left = sleeping()
        resting = await service.show(run_id)
        log = (await service.http.get(f"/api/runs/{run_id}/steps")).json()
        again = await ordered(service, run_id, "pause", {"interrupt": True})
        mend(project)
        unpaused = await ordered(service, run_id, "unpause")
        ended = await service.until(run_id, "done", "failed", "paused")
        stream = (await service.http.get(f"/api/runs/{run_id}/events")).text

    assert paused == (200, {"run_id": run_id, "status": "paused", "reason": "paused_by_person"})
    assert (resting["status"], resting["error"]) == ("paused", None)
    assert all(line["key"] != key for line in log)
    assert (again[0], again[1]["code"]) == (409, "wrong_state")
    assert unpaused[0] == 200
    assert ended["status"] == "done"
    assert [step["attempt"] for step in ended["steps"] if step["key"] == key] == [2]
    assert stream.count("event: step.interrupted") == 1
    assert left == []


async def test_an_order_returns_the_state_that_is_shown(service: served.Served) -> None:
    """A pause waiting for its step is `pausing`, an immediate one makes it `paused`, and a cancel is `cancelled`."""
    service.project.say("draft", hang=True)
    run_id = await service.start("draft", args=SCENE)
    await service.until(run_id, step="draft")
    answers = [(await ordered(service, run_id, "pause"), await service.show(run_id))]
    answers.append((await ordered(service, run_id, "pause", {"interrupt": True}), await service.show(run_id)))
    answers.append((await ordered(service, run_id, "cancel"), await service.show(run_id)))

    assert [(run["status"], run["reason"]) for _, run in answers] == [
        ("running", "pausing"),
        ("paused", "paused_by_person"),
        ("cancelled", None),
    ]
    assert [answer for answer, _ in answers] == [(200, shown(run)) for _, run in answers]


async def test_a_run_that_waits_for_its_turn_is_paused(project: projects.Project) -> None:
    """A run without a performer is `paused` in the answer of the order, and queued again after an unpause."""
    project.say("draft", hang=True)
    async with served.in_process(project, max_running=1) as service:
        first = await service.start("draft", args=SCENE)
        await service.until(first, step="draft")
        second = await service.start("quick")
        answers = [(await ordered(service, second, verb), await service.show(second)) for verb in ("pause", "unpause")]

    assert [run["status"] for _, run in answers] == ["paused", "pending"]
    assert [answer for answer, _ in answers] == [(200, shown(run)) for _, run in answers]


@pytest.mark.parametrize("body", [{"interrupt": "yes"}, {"now": True}, [], 3])
async def test_a_wrong_pause_is_refused(service: served.Served, body: Any) -> None:
    """An invalid body of a pause is refused, and the run does not change."""
    service.project.say("draft", hang=True)
    run_id = await service.start("draft", args=SCENE)
    await service.until(run_id, step="draft")
    status, problem = await ordered(service, run_id, "pause", body)

    assert (status, problem["code"]) == (400, "request_invalid")
    assert (await service.show(run_id))["reason"] is None
