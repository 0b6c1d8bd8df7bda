"""Busy receivers: no message is sent to an endpoint before the time of its `Retry-After`."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app import clock
from tests.integration import endpoints, scheduled, served
from tests.integration.project import Project
from tests.integration.test_notifications import ADDRESS, ALLOWED, _add, _listed

LATER = timedelta(seconds=100)


async def _shows(service: served.Served, endpoint_id: str, **wanted: Any) -> dict[str, Any]:
    """Wait until the list shows an endpoint with these values, and return it."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while (shown := await _listed(service, endpoint_id)) != shown | wanted:
            await served.moment()
    return shown


async def _settled() -> None:
    """Let tasks run that a moved clock has woken, so that an unexpected post would be sent now."""
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.mark.parametrize("retry_after", ["100", "Tue, 10 Feb 2026 14:31:40 GMT"])
@pytest.mark.parametrize("status", [429, 503])
async def test_messages_wait_until_the_receivers_retry_time(tmp_path: Path, status: int, retry_after: str) -> None:
    """The refused message and that of another run wait, also after a restart; then both are sent."""
    project, time = Project(tmp_path), clock.FakeClock(scheduled.BEGIN)
    async with endpoints.receiver() as receiver:
        receiver.statuses, receiver.retry_after = [status], retry_after
        async with scheduled.in_process(project, time, **ALLOWED) as service:
            endpoint_id = (await _add(service, url=receiver.url))["endpoint_id"]
            first = await service.start("quick")
            refused = await _shows(service, endpoint_id, attempts=1)
            second = await service.start("quick")
            await _shows(service, endpoint_id, waiting=2)
            time.advance(30)
            await _settled()
            at_first = len(receiver.posts)
        time.advance(30)
        async with scheduled.in_process(project, time, **ALLOWED) as service:
            await _shows(service, endpoint_id, waiting=2, attempts=1)
            time.advance(39)
            await _settled()
            before = len(receiver.posts)
            receiver.statuses = [204]
            # The waiting messages are checked at other seconds than the end of their wait.
            async with asyncio.timeout(served.WAIT_SECONDS):
                while len(receiver.posts) < 3:
                    time.advance(1)
                    await served.moment()
            after = await _shows(service, endpoint_id, waiting=0)

    assert (at_first, before, len(receiver.posts)) == (1, 1, 3)
    assert refused["next_try_at"] == clock.stamp(scheduled.BEGIN + LATER)
    assert {post.content["data"]["run_id"] for post in receiver.posts[1:]} == {first, second}
    assert after["next_try_at"] is None


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("9" * 400, 86_400), ("Tue, 10 Feb 9999 14:31:40 GMT", 86_400), ("1", 5), ("-7", 5), ("nan", 5), ("soon", 5)],
)
async def test_a_receiver_cannot_hold_messages_for_ever(tmp_path: Path, retry_after: str, seconds: int) -> None:
    """Whatever a receiver requests, the next try is within a day, and not before the usual pause is over."""
    async with endpoints.receiver() as receiver:
        receiver.statuses, receiver.retry_after = [503], retry_after
        async with scheduled.in_process(Project(tmp_path), **ALLOWED) as service:
            endpoint_id = (await _add(service, url=receiver.url))["endpoint_id"]
            await service.start("quick")
            shown = await _shows(service, endpoint_id, attempts=1)

    assert shown["next_try_at"] == clock.stamp(scheduled.BEGIN + timedelta(seconds=seconds))


async def test_a_changed_address_ends_the_long_wait(tmp_path: Path) -> None:
    """An endpoint with a changed address waits no longer than usual, and a give-up does not wait either."""
    project, time = Project(tmp_path), clock.FakeClock(scheduled.BEGIN)
    async with endpoints.receiver() as receiver, endpoints.receiver() as other:
        receiver.statuses, receiver.retry_after = [503], "86400"
        async with scheduled.in_process(project, time, **ALLOWED) as service:
            endpoint_id = (await _add(service, url=receiver.url))["endpoint_id"]
            await service.start("quick")
            await _shows(service, endpoint_id, attempts=1)
            second = await service.start("quick")
            await _shows(service, endpoint_id, waiting=2)
            await service.http.post(f"{ADDRESS}/{endpoint_id}/give-up", json={})
            given_up = await _shows(service, endpoint_id, waiting=1, dead=1)
            await service.http.patch(f"{ADDRESS}/{endpoint_id}", json={"url": other.url})
            kept = json.loads((project.data / "outbox" / f"{endpoint_id}.json").read_text())["held_until"]
            async with asyncio.timeout(served.WAIT_SECONDS):
                while not other.posts:
                    time.advance(1)
                    await served.moment()

    assert (given_up["failing"], kept) == (0, None)
    assert [post.content["data"]["run_id"] for post in other.posts] == [second]
    assert time.now() - scheduled.BEGIN < timedelta(hours=1)
    assert len(receiver.posts) == 1
