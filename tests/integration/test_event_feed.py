"""The events of all runs: one stream with filters, which continues at a client's place, or resets the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from app.engine import event_feed
from tests.integration import served
from tests.integration.project import Project

READ_SECONDS = 20


class Stream:
    """The stream of a client."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.last_id = ""
        self._lines = answer.aiter_lines()

    async def hear(self) -> tuple[str, dict[str, Any]]:
        """Return the next event and its data; lines without data only move the place of the stream."""
        name, data = "", None
        async with asyncio.timeout(READ_SECONDS):
            while True:
                line = await anext(self._lines)
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    data = json.loads(value)
                elif field == "id":
                    self.last_id = value
                    if data is None:
                        return "", {}
                elif not line and data is not None:
                    return name, data

    async def until(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Return all events up to one of a type."""
        heard: list[tuple[str, dict[str, Any]]] = []
        while not heard or heard[-1][0] != name:
            event = await self.hear()
            heard += [event] if event[0] else []
        return heard


@asynccontextmanager
async def following(service: served.Served, query: str = "", last_id: str | None = None) -> AsyncIterator[Stream]:
    """Follow all runs, and wait until the stream is open."""
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    async with service.http.stream("GET", f"/api/events{query}", headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        stream = Stream(answer)
        if last_id is None:
            assert await stream.hear() == ("", {})
        yield stream


async def test_a_client_receives_the_events_of_all_runs(project: Project) -> None:
    """A client receives every numbered event of every run; at a `run.ended`, the run's row already shows the end."""
    async with served.on_a_port(project) as service, following(service) as stream:
        first = await service.start("quick")
        heard = await stream.until("run.ended")
        row = (await service.http.get("/api/runs")).json()[0]
        await service.run("quick")
        more = await stream.until("run.ended")
        known = {}
        async with service.http.stream("GET", f"/api/runs/{first}/events") as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    known[event["seq"]] = event

    assert {data["seq"]: data for _, data in heard if data["run_id"] == first} == known
    assert heard[0][0] == "run.created"
    assert (row["run_id"], row["status"]) == (first, "done")
    assert {data["run_id"] for _, data in more} != {first}


async def test_a_returning_client_receives_missed_events_once(project: Project) -> None:
    """A returning client receives each missed event once; a cursor of another process is answered by a reset."""
    async with served.on_a_port(project) as service:
        async with following(service) as stream:
            await service.start("quick")
            await stream.until("run.created")
            place = stream.last_id
        run_id = (await service.run("quick"))["run_id"]
        async with following(service, last_id=place) as stream:
            assert await stream.hear() == ("", {})
            heard = [data["run_id"] for _, data in await stream.until("run.ended")]
            while run_id not in heard:
                heard += [data["run_id"] for _, data in await stream.until("run.ended")]
    async with served.on_a_port(project) as service, following(service, last_id=place) as stream:
        reset = await stream.hear()
        again = await service.start("quick")
        created = await stream.until("run.created")

    assert reset == ("reset", {"reason": "unknown_cursor"})
    assert created[-1][1]["run_id"] == again


@pytest.mark.parametrize("cursor", ["x", "-", "%", "0", "x-1", "-1", "9" * 150])
async def test_a_foreign_cursor_is_reset(project: Project, cursor: str) -> None:
    """A cursor of another process is not an error: the client receives a reset, and then later events."""
    async with served.on_a_port(project) as service, following(service, last_id=cursor) as stream:
        reset = await stream.hear()
        await service.start("quick")
        heard = await stream.until("run.ended")

    assert reset == ("reset", {"reason": "unknown_cursor"})
    assert heard[-1][0] == "run.ended"


async def test_filters_choose_events(project: Project) -> None:
    """The stream contains only events of the requested types and runs."""
    async with served.on_a_port(project) as service:
        query = "?type=run.ended&type=run.created&label=book:one"
        async with following(service, query) as stream, following(service, "?recipe_id=none") as silent:
            await service.run("quick", labels={"book": "two"})
            run_id = (await service.run("quick", labels={"book": "one"}))["run_id"]
            heard = await stream.until("run.ended")
            place = silent.last_id

    assert [(name, data["run_id"]) for name, data in heard] == [("run.created", run_id), ("run.ended", run_id)]
    assert place.endswith("-0")


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("type=run.never", "query.type.0"),
        ("&".join(["type=run.ended"] * 1000), "query.type"),
        ("label=book", "query.label"),
        ("run_id=" + "x" * 201, "query.run_id"),
        ("cursor=1", "query.cursor"),
        ("after=" + "x" * 201, "query.after"),
    ],
)
async def test_absurd_filters_are_refused(service: served.Served, query: str, path: str) -> None:
    """A filter that makes no sense is refused with its place, before a stream begins."""
    answer = await service.http.get(f"/api/events?{query}")

    assert (answer.status_code, answer.json()["flaws"][0]["path"]) == (400, path)


async def test_a_ticket_opens_the_stream_once(project: Project) -> None:
    """A browser follows all runs with a ticket instead of the token, and a ticket opens only one stream."""
    async with served.on_a_port(project, api_token="a-token-of-some-length") as service:
        headers = {"Authorization": "Bearer a-token-of-some-length"}
        ticket = (await service.http.post("/api/tickets", headers=headers)).json()["ticket"]
        async with following(service, f"?ticket={ticket}") as stream:
            place = stream.last_id
        again = await service.http.get(f"/api/events?ticket={ticket}")

    assert place
    assert again.status_code == 401


async def test_a_client_that_was_away_too_long_is_reset(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose place is no longer kept receives a reset."""
    monkeypatch.setattr(event_feed, "KEPT_EVENTS", 3)
    async with served.on_a_port(project) as service:
        async with following(service) as stream:
            place = stream.last_id
        await service.run("quick")
        async with following(service, last_id=place) as stream:
            reset = await stream.hear()

    assert reset == ("reset", {"reason": "unknown_cursor"})
