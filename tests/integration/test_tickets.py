"""Tickets: streams for clients that cannot send the token with them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import websockets

from app import clock
from app.api import tickets
from tests.integration import served
from tests.integration.project import Project

TOKEN = "a-token-of-some-length"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def guarded(project: Project) -> AsyncIterator[served.Served]:
    """Serve the project on a port, with a token."""
    async with served.on_a_port(project, api_token=TOKEN) as service:
        yield service


async def _ticket(service: served.Served) -> str:
    answer = await service.http.post("/api/tickets", headers=BEARER)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["ticket"])


async def _ended(service: served.Served) -> str:
    started = await service.http.post("/api/runs", json={"recipe_id": "quick"}, headers=BEARER)
    path = str(started.headers["location"])
    while (await service.http.get(f"{path}?wait=5", headers=BEARER)).json()["completed_at"] is None:
        pass
    return path


async def test_a_ticket_opens_one_stream(guarded: served.Served) -> None:
    """A ticket replaces the token once, with the other parameters of the address in force."""
    path, ticket = await _ended(guarded), await _ticket(guarded)
    first = await guarded.http.get(f"{path}/events", params={"ticket": ticket, "after": 1})
    again = await guarded.http.get(f"{path}/events", params={"ticket": ticket})

    assert first.status_code == 200
    assert "event: run.ended" in first.text
    assert "event: run.created" not in first.text
    assert (again.status_code, "the ticket was used" in again.json()["detail"]) == (401, True)


async def test_a_ticket_is_for_streams_alone(guarded: served.Served) -> None:
    """A ticket opens only streams, is not issued without the token, and gives no order."""
    path, ticket = await _ended(guarded), await _ticket(guarded)
    refused = [
        await guarded.http.get(path, params={"ticket": ticket}),
        await guarded.http.get("/api/runs", params={"ticket": ticket}),
        await guarded.http.post("/api/runs", params={"ticket": ticket}, json={"recipe_id": "quick"}),
        await guarded.http.post("/api/tickets", params={"ticket": ticket}),
        await guarded.http.post("/api/tickets"),
    ]

    assert {answer.status_code for answer in refused} == {401}


async def test_two_tickets_open_nothing(guarded: served.Served) -> None:
    """A stream with two tickets is refused with the place of the tickets, and uses none of them up."""
    path, tickets_given = await _ended(guarded), [await _ticket(guarded), await _ticket(guarded)]
    refused = await guarded.http.get(f"{path}/events", params={"ticket": tickets_given})
    opened = await guarded.http.get(f"{path}/events", params={"ticket": tickets_given[0]})

    assert (refused.status_code, refused.json()["flaws"][0]["path"]) == (400, "query.ticket")
    assert opened.status_code == 200


async def test_a_ticket_opens_the_websocket(guarded: served.Served) -> None:
    """A page connects with a ticket, and cannot connect with a used one."""
    address = f"ws://127.0.0.1:{guarded.http.base_url.port}/ws?ticket={await _ticket(guarded)}"
    async with websockets.connect(address) as socket:
        await socket.send('{"type": "get_available_recipes"}')
        heard = await socket.recv()
    with pytest.raises(websockets.InvalidStatus) as caught:
        await websockets.connect(address)

    assert "available_recipes" in str(heard)
    assert caught.value.response.status_code == 401


async def test_without_a_token_a_ticket_is_taken_too(service: served.Served) -> None:
    """A service without a token accepts tickets too, so that a client need not know the difference."""
    run_id = (await service.run("quick"))["run_id"]
    answer: httpx.Response = await service.http.get(f"/api/runs/{run_id}/events?ticket={await _ticket(service)}")

    assert answer.status_code == 200


def test_tickets_expire() -> None:
    """A ticket is valid for a minute, independent of the wall clock, and new tickets displace the oldest."""
    now = clock.FakeClock()
    issued = tickets.Tickets(now, clock.RandomIds())
    early, late = issued.issue()[0], issued.issue()[0]
    now.jump(3600)
    kept = issued.use(early)
    now.advance(tickets.LIFE_SECONDS)
    first = issued.issue()[0]
    for _ in range(tickets.MOST_TICKETS):
        issued.issue()

    assert kept
    assert not issued.use(early)
    assert not issued.use(late)
    assert not issued.use(first)
    assert not issued.use("tkt_\ud800")
