"""Logs over HTTP, in parts and while they grow, and signs of life of the steps that write them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from app.services import log_tails
from tests.integration import project as projects
from tests.integration import served
from tests.integration.project import Project
from tests.integration.test_showing import ARRIVAL

SECRET = "abcdefgh-the-secret-value"
SPEAKER = """
import os, select, sys
say = lambda text: (sys.stdout.write(text), sys.stdout.flush())
say("first ü ")
say(os.environ["DEPLOY_TOKEN"][:9])
while not os.path.exists("go"):
    select.poll().poll(20)
say(os.environ["DEPLOY_TOKEN"][9:] + " line\\n" + "second line\\n")
while not os.path.exists("end"):
    select.poll().poll(20)
say("last line\\n")
"""


@pytest.fixture
def speaking(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project with a workflow that prints, in an environment with a secret."""
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    folder = project.root / ".control-room" / "recipes" / "orchestrate"
    folder.mkdir()
    step = {"name": "Say", "command": [sys.executable, "-c", SPEAKER], "secrets": ["DEPLOY_TOKEN"]}
    (folder / "speak.yaml").write_text(json.dumps({"version": "1.1", "steps": [step]}), encoding="utf-8")
    return project


@pytest.fixture
async def service(speaking: Project) -> AsyncIterator[served.Served]:
    """Return the service of that project, in process."""
    async with served.in_process(speaking) as service:
        yield service


async def until_logged(service: served.Served, run_id: str, name: str, text: str) -> httpx.Response:
    """Wait until a log contains a text, and return it."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while True:
            answer = await service.http.get(f"/api/runs/{run_id}/logs/{name}")
            if answer.status_code == 200 and text in answer.text:
                return answer
            await served.moment()


async def test_a_running_commands_output_is_in_its_log(service: served.Served) -> None:
    """A running command's output is in its log, with a split secret masked as well, and the step shows its time."""
    run_id = await service.start("speak")
    await service.until(run_id, "running", step="Say")
    (service.project.root / "go").touch()
    early = await until_logged(service, run_id, "Say.stdout", "second line")
    shown = await service.show(run_id)

    assert early.text == "first ü *** line\nsecond line\n"
    assert shown["status"] == "running"
    assert shown["steps"][-1]["output_at"].endswith(".000Z")

    (service.project.root / "end").touch()
    ended = await service.until(run_id, "done")
    late = await service.http.get(f"/api/runs/{run_id}/logs/Say.stdout")

    assert late.text == early.text + "last line\n"
    assert "output_at" not in ended["steps"][-1]
    assert ended["steps"][-1]["duration_ms"] > 0


async def test_a_working_agents_output_is_in_its_log(speaking: Project) -> None:
    """The output of a working agent is in the log of its step, masked, as text of the agent."""
    said = json.dumps({"type": "message", "text": f"Looking at {SECRET}."})
    reply = "A reply of some length that says what there is to say."
    script = f"""
import os, select, sys
sys.stdin.read()
print({said!r}, flush=True)
while not os.path.exists("end"):
    select.poll().poll(20)
print({json.dumps({"done": reply})!r})
"""
    template = {
        "type": "template",
        "command": [sys.executable, "-c", script, "{session_id}"],
        "reply": {"text": "done"},
    }
    agents = json.loads((speaking.root / ".control-room" / "agents.json").read_text(encoding="utf-8"))
    agents["backends"]["said"] = template | {"tools_off": []}
    speaking.write(".control-room/agents.json", json.dumps(agents))
    async with served.in_process(speaking) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        early = await until_logged(service, run_id, "draft.1.output.txt", "Looking")
        shown = await service.show(run_id)
        (speaking.root / "end").touch()
        await service.until(run_id, "done", "failed")

    assert early.text == "Looking at ***.\n"
    assert shown["steps"][-1]["output_at"]


async def test_signs_of_life_change_the_answer_once_a_second_at_most(service: served.Served) -> None:
    """Answers within the same second keep their entity tag, even if a step writes often."""
    run_id = await service.start("speak")
    await service.until(run_id, "running", step="Say")
    (service.project.root / "go").touch()
    await until_logged(service, run_id, "Say.stdout", "second line")
    tags: dict[str, set[str]] = {}
    for _ in range(50):
        answer = await service.http.get(f"/api/runs/{run_id}")
        tags.setdefault(answer.json()["steps"][-1]["output_at"], set()).add(answer.headers["etag"])
    (service.project.root / "end").touch()
    await service.until(run_id, "done")

    assert {len(found) for found in tags.values()} == {1}


async def followed(service: served.Served, address: str, **headers: str) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the events of a stream."""
    async with service.http.stream("GET", address, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        event: dict[str, Any] = {}
        async for line in answer.aiter_lines():
            if not line and event:
                yield event
                event = {}
            name, colon, value = line.partition(": ")
            if colon and name:
                event[name] = json.loads(value) if name == "data" else value


async def test_a_log_is_streamed_while_it_grows(speaking: Project) -> None:
    """A follower receives each piece with its offset, continues after an interruption, and receives the end."""
    async with served.on_a_port(speaking) as listening:
        run_id = await listening.start("speak")
        await listening.until(run_id, "running", step="Say")
        (speaking.root / "go").touch()
        await until_logged(listening, run_id, "Say.stdout", "second line")
        address = f"/api/runs/{run_id}/logs/Say.stdout/stream"
        async with asyncio.timeout(served.WAIT_SECONDS), aclosing(followed(listening, address)) as events:
            first = await anext(events)
        (speaking.root / "end").touch()
        async with asyncio.timeout(served.WAIT_SECONDS):
            rest = [event async for event in followed(listening, address, **{"Last-Event-ID": first["id"]})]

    assert first["event"] == "text"
    assert first["data"] == {"offset": 0, "text": "first ü *** line\nsecond line\n"}
    assert int(first["id"]) == len(first["data"]["text"].encode())
    assert "".join(event["data"]["text"] for event in rest if event["event"] == "text") == "last line\n"
    assert (rest[-1]["event"], rest[-1]["data"]) == ("end", {"offset": int(first["id"]) + len("last line\n")})


@pytest.fixture
async def log(service: served.Served) -> str:
    """Return the address of a log of ten bytes, in a run that has ended."""
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    write_log(service, run_id, b"0123456789")
    return f"/api/runs/{run_id}/logs/a.txt"


def write_log(service: served.Served, run_id: str, content: bytes) -> None:
    """Write a log into a run's folder."""
    folder = service.project.root / ".control-room" / "runs" / run_id / "logs"
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_bytes(content)


@pytest.mark.parametrize(
    ("query", "wanted", "status", "text", "part"),
    [
        ("", None, 200, "0123456789", None),
        ("", "bytes=2-4", 206, "234", "bytes 2-4/10"),
        ("", "bytes=7-", 206, "789", "bytes 7-9/10"),
        ("", "bytes=8-1000", 206, "89", "bytes 8-9/10"),
        ("", "bytes=-3", 206, "789", "bytes 7-9/10"),
        ("", "bytes=-1000", 206, "0123456789", "bytes 0-9/10"),
        ("", "bytes=10-", 416, None, "bytes */10"),
        ("", "bytes=9999999999999999-", 416, None, "bytes */10"),
        ("", "bytes=-0", 416, None, "bytes */10"),
        ("", "bytes=4-2", 200, "0123456789", None),
        ("", "bytes=-", 200, "0123456789", None),
        ("", "bytes=0-1,4-5", 200, "0123456789", None),
        ("", "bytes=٣-", 200, "0123456789", None),
        ("", "items=0-1", 200, "0123456789", None),
        ("?tail=4", None, 206, "6789", "bytes 6-9/10"),
        ("?tail=4", "bytes=0-1", 206, "6789", "bytes 6-9/10"),
        ("?tail=5000", None, 206, "0123456789", "bytes 0-9/10"),
    ],
)
async def test_parts_of_a_log(
    service: served.Served, log: str, query: str, wanted: str | None, status: int, text: str | None, part: str | None
) -> None:
    """One range of bytes or a tail is a part, one after the end is refused with the size, and others are ignored."""
    headers = {} if wanted is None else {"Range": wanted.encode()}
    answer = await service.http.get(log + query, headers=headers)  # type: ignore[arg-type]

    assert answer.status_code == status
    assert answer.headers.get("content-range") == part
    if text is None:
        assert answer.json()["code"] == "range_not_satisfiable"
    else:
        assert answer.text == text


async def test_a_log_is_read_once(service: served.Served, log: str) -> None:
    """An unchanged log is a 304, and a range of another version returns the whole log."""
    whole = await service.http.get(log)
    tag = whole.headers["etag"]
    same = await service.http.get(log, headers={"If-None-Match": tag})
    part = await service.http.get(log, headers={"Range": "bytes=0-0", "If-Range": tag})
    write_log(service, log.split("/")[3], b"another text")
    other = await service.http.get(log, headers={"If-None-Match": tag})
    changed = await service.http.get(log, headers={"Range": "bytes=0-0", "If-Range": tag})

    assert (same.status_code, same.content) == (304, b"")
    assert (part.status_code, part.text) == (206, "0")
    assert (other.status_code, other.text) == (200, "another text")
    assert (changed.status_code, changed.text) == (200, "another text")


async def test_large_and_binary_logs(service: served.Served, log: str) -> None:
    """A large log is sent in parts, byte for byte, and a stream of it replaces bytes that are not text."""
    content = bytes(range(256)) * 2_800
    write_log(service, log.split("/")[3], content)
    whole = await service.http.get(log)
    part = await service.http.get(log, headers={"Range": "bytes=5-600004"})
    pieces = [event async for event in followed(service, f"{log}/stream?tail=1000")]

    assert len(content) > log_tails.PART_BYTES
    assert whole.content == content
    assert part.content == content[5:600_005]
    assert pieces[0]["data"] == {"offset": len(content) - 1000, "text": content[-1000:].decode("utf-8", "replace")}
    assert [event["event"] for event in pieces] == ["text", "end"]


async def test_a_stream_of_a_log_that_is_gone_ends(service: served.Served, log: str) -> None:
    """A deleted run has no logs, and a name outside the folder of logs is not found."""
    run_id = log.split("/")[3]
    empty = await service.http.get(f"/api/runs/{run_id}/logs/none/stream")
    outside = await service.http.get(f"/api/runs/{run_id}/logs/..%2Fstart.json/stream")
    hidden = await service.http.get(f"/api/runs/{run_id}/logs/.hidden")
    write_log(service, run_id, b"")
    nothing = await service.http.get(f"{log}?tail=10")
    assert (await service.http.delete(f"/api/runs/{run_id}")).status_code == 204
    gone = await service.http.get(f"{log}/stream")

    assert (empty.status_code, empty.json()["code"]) == (404, "log_not_found")
    assert f"; its logs: {log.rpartition('/')[2]}" in empty.json()["detail"]
    assert outside.status_code == hidden.status_code == 404
    assert (nothing.status_code, nothing.content) == (200, b"")
    assert (gone.status_code, gone.json()["code"]) == (404, "run_not_found")


async def test_earlier_attempts_are_shown(service: served.Served) -> None:
    """A resumed step shows its earlier attempts with their errors, and its cost."""
    service.project.say("draft", error={"code": "agent_error", "message": "no credit"})
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25}
    service.project.say("draft", text=projects.REPLY, usage=usage)
    await service.http.post(f"/api/runs/{run_id}/resume", json={})
    shown = await service.until(run_id, "done", "failed")
    (step,) = [step for step in shown["steps"] if step["key"] == "draft"]
    portion = (await service.http.get(f"/api/runs/{run_id}/steps?attempts=true")).json()

    assert portion == shown["steps"]
    assert (step["attempt"], step["status"], step["usage"]) == (2, "done", usage)
    assert [(each["attempt"], each["status"]) for each in step["attempts"]] == [(1, "failed")]
    assert step["attempts"][0]["error"]["code"] == "agent_error"
    assert step["attempts"][0]["started_at"] <= step["attempts"][0]["completed_at"] <= step["started_at"]
