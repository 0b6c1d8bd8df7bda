"""Requests of a running step: the prompt, the command or the arguments, and the agent that receives them."""

from __future__ import annotations

import asyncio
import json

import pytest

from app.cli import root
from tests.integration import served
from tests.integration.held import DELAY_SECONDS, Held
from tests.integration.project import REPLY, Project

SECRET = "a-secret-of-many-letters"
WAITING = """\
name: waiting
description: Wait for a file
version: "1.0.0"
steps:
  - {id: hold, type: bash, command: "until [ -e go ]; do sleep 0.05; done # a-secret-of-many-letters"}
schema: "1.7"
"""


async def test_a_prompt_is_shown_with_its_agent_while_it_is_answered(project: Project, held: Held) -> None:
    """The whole prompt is shown before the reply, with agent and backend; afterwards no request is open."""
    project.say("draft", text=REPLY, delay_seconds=DELAY_SECONDS)
    async with served.in_process(project) as service:
        run_id = await service.start("unguarded", description="Write on")
        await service.until(run_id, step="draft")
        found = (await service.http.get(f"/api/runs/{run_id}/request", params={"key": "draft"})).json()
        held.release()
        await service.until(run_id, "done")
        after = await service.http.get(f"/api/runs/{run_id}/request", params={"key": "draft"})

    assert (found["key"], found["attempt"], found["kind"]) == ("draft", 1, "agent_call")
    assert (found["agent_id"], found["backend"], found["truncated"]) == ("writer-1", "said", False)
    assert found["text"].startswith("The writer.")
    assert "Write it." in found["text"]
    assert (after.status_code, after.json()["code"]) == (404, "step_not_open")


async def test_a_command_is_shown_without_its_secrets(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of a shell is shown while it runs, with the value of a secret masked."""
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    project.write(".control-room/recipes/amplifier/waiting.yaml", WAITING)
    async with served.in_process(project) as service:
        run_id = await service.start("waiting")
        await service.until(run_id, step="hold")
        found = (await service.http.get(f"/api/runs/{run_id}/request", params={"key": "hold"})).json()
        unknown = await service.http.get(f"/api/runs/{run_id}/request", params={"key": "other"})
        project.write("go", "")
        await service.until(run_id, "done")

    assert (found["kind"], found["text"]) == ("command", "until [ -e go ]; do sleep 0.05; done # ***")
    assert unknown.json()["code"] == "step_not_open"


async def test_the_command_prints_it_from_a_folder_and_of_a_service(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """`runs request` prints the agent and the text, with the same output with --server and beside the service."""
    project.say("draft", hang=True)
    async with served.on_a_port(project, stop_grace_seconds=0) as service:
        run_id = await service.start("unguarded", description="Write on")
        await service.until(run_id, step="draft")
        found = (await service.http.get(f"/api/runs/{run_id}/request", params={"key": "draft"})).json()
        places = (["--server", str(service.http.base_url)], ["--project", str(project.root)])

        async def ask(*arguments: str) -> tuple[int, str]:
            code = await asyncio.to_thread(root.execute, ["runs", "request", run_id, *arguments])
            return code, capsys.readouterr().out

        objects = [await ask("draft", "--json", *place) for place in places]
        texts = [await ask("draft", *place) for place in places]
        unknown = [await ask("other", *place) for place in places]

    assert [(code, json.loads(out)) for code, out in objects] == [(0, found)] * 2
    assert texts[0] == texts[1]
    assert texts[0][1].splitlines()[:5] == [
        "key       draft",
        "attempt   1",
        "kind      agent_call",
        "agent_id  writer-1",
        "backend   said",
    ]
    assert found["text"] in texts[0][1]
    assert [code for code, _ in unknown] == [4, 4]
