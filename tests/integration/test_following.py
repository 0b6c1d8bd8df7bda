"""Events as they are written: Server-Sent Events over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import pytest

from app import errors
from app.cli import following, http_client
from app.domain import events
from tests.integration import project as projects
from tests.integration import served

ARRIVAL = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}


@pytest.fixture
async def service(project: projects.Project) -> AsyncIterator[served.Served]:
    """Return the service of the project, on a loopback port."""
    async with served.on_a_port(project) as service:
        yield service


class Stream:
    """Events that are read from a stream as a browser does."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = _lines(answer)
        self.seen: list[dict[str, Any]] = []

    async def until_the_end(self) -> list[dict[str, Any]]:
        """Return every event to the end of the stream."""
        while await self.next() is not None:
            pass
        return self.seen

    async def next(self) -> dict[str, Any] | None:
        """Return the next event; None at the end of the stream."""
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith(":"):
                continue
            if line == "" and fields:
                self.seen.append(_read(fields))
                return self.seen[-1]
            name, _, value = line.partition(": ")
            fields[name] = value
        return None


async def _lines(answer: httpx.Response) -> AsyncIterator[str]:
    # Lines end at line feeds only, as the standard requires.
    rest = ""
    async for part in answer.aiter_text():
        *lines, rest = (rest + part).split("\n")
        for line in lines:
            yield line


def _read(fields: dict[str, str]) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(fields["data"])
    assert (fields["id"], fields["event"]) == (str(event["seq"]), event["type"])
    return event


async def whole(service: served.Served, run_id: str, query: str = "", **headers: str) -> list[dict[str, Any]]:
    """Return every event of a stream."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with asyncio.timeout(served.WAIT_SECONDS):
        async with service.http.stream("GET", f"/api/runs/{run_id}/events{query}", headers=named) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            return await Stream(answer).until_the_end()


async def test_a_stream_has_every_event_and_ends_with_the_run(service: served.Served) -> None:
    """A stream that is opened during a run contains every event from the first on, in order, and ends with the run."""
    service.project.say("draft", text=projects.REPLY, delay_seconds=0.2)
    run_id = await service.start("draft", args=ARRIVAL)
    events = await whole(service, run_id)
    written = (service.project.data / "runs" / run_id / "events.jsonl").read_text().splitlines()

    assert events == [json.loads(line) for line in written]
    assert [event["type"] for event in events][:2] == ["run.created", "run.started"]
    assert events[-1]["type"] == "run.ended"
    assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})
    finished = [event["key"] for event in events if event["type"] == "step.finished"]
    assert finished[:4] == ["discover", "analyze", "draft", "polish"]


async def test_events_come_while_the_run_lives(service: served.Served) -> None:
    """The stream sends an event as soon as it is written, and not at the end of the run."""
    service.project.say("draft", hang=True)
    run_id = await service.start("draft", args=ARRIVAL)
    async with service.http.stream("GET", f"/api/runs/{run_id}/events") as answer:
        stream = Stream(answer)
        async with asyncio.timeout(served.WAIT_SECONDS):
            while (event := await stream.next()) and (event["type"], event["key"]) != ("step.started", "draft"):
                pass
            await service.http.post(f"/api/runs/{run_id}/cancel")
            rest = await stream.until_the_end()

    assert event is not None
    assert rest[-1]["type"] == "run.ended"
    assert rest[-1]["data"]["status"] == "cancelled"


async def test_a_stream_continues_after_the_named_event(service: served.Served) -> None:
    """With `Last-Event-ID` or `after`, the stream contains later events only, and after the last one none."""
    run_id = (await service.run("draft", args=ARRIVAL))["run_id"]
    events = await whole(service, run_id)
    third = str(events[2]["seq"])
    last = str(events[-1]["seq"])

    assert await whole(service, run_id, Last_Event_ID=third) == events[3:]
    assert await whole(service, run_id, f"?after={third}") == events[3:]
    assert await whole(service, run_id, f"?after={last}", Last_Event_ID=third) == events[3:]
    assert await whole(service, run_id, Last_Event_ID=last) == []


async def test_a_stream_of_a_resumed_run_ends_with_its_last_ending(service: served.Served) -> None:
    """A stream that is opened after a resume contains the first ending too, and ends with the last one."""
    run_id = (await service.run("draft", args={"scene_path": "Story/late.md"}))["run_id"]
    service.project.write("Story/late.md", projects.SCENE)
    service.project.say("draft", text=projects.REPLY, delay_seconds=0.2)
    await service.http.post(f"/api/runs/{run_id}/resume")
    events = await whole(service, run_id)
    endings = [event["data"]["status"] for event in events if event["type"] == "run.ended"]

    assert endings == ["failed", "done"]


@pytest.mark.parametrize("header", ["-1", "x", "99999999999999999999"])
async def test_a_wrong_event_id_is_refused(service: served.Served, header: str) -> None:
    """A number that an event cannot have is refused before the stream begins."""
    run_id = (await service.run("quick"))["run_id"]
    answer = await service.http.get(f"/api/runs/{run_id}/events", headers={"Last-Event-ID": header})

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


async def test_many_may_follow_and_leave(service: served.Served) -> None:
    """A follower that disconnects disturbs neither the run nor other followers."""
    service.project.say("draft", text=projects.REPLY, delay_seconds=0.3)
    run_id = await service.start("draft", args=ARRIVAL)
    async with service.http.stream("GET", f"/api/runs/{run_id}/events") as answer:
        await Stream(answer).next()
    both = await asyncio.gather(whole(service, run_id), whole(service, run_id))

    assert both[0] == both[1]
    assert both[0][-1]["type"] == "run.ended"


async def test_a_deleted_run_ends_its_streams(service: served.Served) -> None:
    """When a run is deleted, its streams and polls end."""
    service.project.say("draft", hang=True)
    run_id = await service.start("draft", args=ARRIVAL)
    await service.until(run_id, step="draft")
    following = asyncio.create_task(whole(service, run_id))
    await service.http.post(f"/api/runs/{run_id}/cancel")
    await service.until(run_id, "cancelled")
    await service.http.delete(f"/api/runs/{run_id}")
    events = await following

    assert events[0]["type"] == "run.created"


async def test_a_stopping_service_answers_streams_and_polls_at_once(project: projects.Project) -> None:
    """A stopping service answers streams and waiting polls at once, and the next start continues the run."""
    project.say("draft", hang=True)
    async with served.on_a_port(project, stop_grace_seconds=0) as service:
        run_id = await service.start("draft", args=ARRIVAL)
        shown = await service.until(run_id, step="draft")
        address = f"/api/runs/{run_id}"
        following = asyncio.create_task(whole(service, run_id))
        etag = (await service.http.get(address)).headers["etag"]
        waiting = asyncio.create_task(service.http.get(f"{address}?wait=60", headers={"If-None-Match": etag}))
        await asyncio.wait({following, waiting}, timeout=0.2)
        still_waiting = not (following.done() or waiting.done())
        service.release()
        events, answer = await following, await waiting
    project.say("draft", text=projects.REPLY)
    async with served.in_process(project) as service:
        ended = await service.until(run_id, "done", "failed")

    assert (shown["status"], still_waiting) == ("running", True)
    assert events[-1]["type"] != "run.ended"
    assert answer.status_code in (200, 304)
    assert ended["status"] == "done"


async def test_real_clients_wait_without_a_slot_of_the_service(service: served.Served) -> None:
    """Fifty waiting polls do not delay another request, and all of them receive the change."""
    service.project.say("draft", hang=True)
    run_id = await service.start("draft", args=ARRIVAL)
    await service.until(run_id, step="draft")
    address = f"/api/runs/{run_id}"
    etag = (await service.http.get(address)).headers["etag"]
    async with served.client(None, str(service.http.base_url)) as crowd:
        polls = [
            asyncio.create_task(crowd.get(f"{address}?wait=60", headers={"If-None-Match": etag})) for _ in range(50)
        ]
        quick = await service.run("quick")
        await service.http.post(f"{address}/cancel")
        answers = await asyncio.gather(*polls)

    assert quick["status"] == "done"
    assert {answer.status_code for answer in answers} == {200}


async def test_a_command_reads_events_that_hold_ends_of_lines(service: served.Served) -> None:
    """A command that follows a run receives every event, also events that contain Unicode line ends."""
    run_id = await service.start("draft", args={"scene_path": "Story/a\u2028b\x85c.md"})
    async with http_client.HttpClient(str(service.http.base_url), None) as client:
        read = [event async for event in client.follow(run_id)]
    failed = next(event for event in read if event["type"] == "step.failed")

    assert failed["data"]["error"]["detail"]["path"] == "Story/a\u2028b\x85c.md"
    assert read == await whole(service, run_id)


LATE_SECONDS = 0.2


class LateStream(http_client.HttpClient):
    """A client whose stream sends its first event later than the command waits for further ones."""

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the run's events."""
        await asyncio.sleep(LATE_SECONDS)
        async for event in super().follow(run_id, after):
            yield event


async def test_an_ended_run_is_shown_however_late_its_stream_begins(
    service: served.Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that follows an ended run shows its events, even if the stream begins late."""
    monkeypatch.setattr(following, "_FIRST_SECONDS", LATE_SECONDS / 10)
    run_id = (await service.run("quick"))["run_id"]
    async with LateStream(str(service.http.base_url), None) as client:
        code = await following.follow(client, run_id, following.Shown.TEXT)

    assert code == 0
    assert f"run {run_id} done" in capsys.readouterr().out


async def test_a_paused_run_is_shown_however_late_its_stream_begins(
    service: served.Served,
    project: projects.Project,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command that follows a paused run waits longer for its first event than for a further one."""
    monkeypatch.setattr(following, "_QUIET_SECONDS", LATE_SECONDS / 10)
    project.say("draft", hang=True)
    run_id = await service.start("draft", args=ARRIVAL)
    await service.until(run_id, step="draft")
    await service.http.post(f"/api/runs/{run_id}/pause", json={"interrupt": True})
    await service.until(run_id, "paused")
    async with LateStream(str(service.http.base_url), None) as client:
        code = await following.follow(client, run_id, following.Shown.TEXT)

    assert code == 1
    assert f"run {run_id} " in capsys.readouterr().out.splitlines()[0]


class EndedStream(http_client.HttpClient):
    """A client of a service that stops: it ends each stream at once, and still answers requests, which are counted."""

    asked = 0

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[dict[str, Any], None]:
        """Yield no event."""
        no_events: tuple[dict[str, Any], ...] = ()
        for event in no_events:
            yield event

    async def call(self, wanted: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the answer of the service."""
        self.asked += 1
        return await super().call(wanted, *args, **kwargs)


async def test_a_command_pauses_between_requests_to_a_service_that_stops(
    service: served.Served, project: projects.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that follows a run asks a service that stops at intervals, and not as fast as it answers."""
    monkeypatch.setattr(following, "_LOOK_SECONDS", served.WAIT_SECONDS)
    project.say("draft", hang=True)
    run_id = await service.start("draft", args=ARRIVAL)
    await service.until(run_id, step="draft")

    async def show(event: dict[str, Any]) -> None:
        raise AssertionError(event)

    client = EndedStream(str(service.http.base_url), None)
    async with client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(following.watch(client, run_id, show), 1)

    assert client.asked <= 1


async def test_a_command_reports_a_malformed_stream(project: projects.Project) -> None:
    """A command reports a malformed stream of events as an error of the server."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 12\r\n\r\ndata: {half\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with http_client.HttpClient(f"http://127.0.0.1:{port}", None) as client:
            with pytest.raises(errors.ConfigurationError) as refused:
                [event async for event in client.follow("20260210T143000Z-abcdef")]

    assert refused.value.code == "server_error"


async def test_events_have_the_fields_of_the_catalogue(service: served.Served) -> None:
    """Every event of finished, failed, cancelled and resumed runs has exactly the documented fields of its type."""
    service.project.say("draft", hang=True)
    done, failed = await service.run("quick"), await service.run("picky", args={"scene_path": "no", "other_path": "no"})
    stopped = await service.start("unguarded")
    await service.until(stopped, step="draft")
    for verb in ("cancel", "resume", "pause", "unpause", "cancel"):
        await service.http.post(f"/api/runs/{stopped}/{verb}")
    await service.until(stopped, "cancelled")
    seen = set()
    for run_id in (done["run_id"], failed["run_id"], stopped):
        text = (await service.http.get(f"/api/runs/{run_id}/events")).text
        for line in text.splitlines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                seen.add(event["type"])

                assert set(event["data"]) == set(events.FIELDS[events.EventType(event["type"])] or ()), event
    assert {"run.created", "run.started", "run.ended", "step.finished", "step.failed", "run.resumed"} <= seen
