"""The roll of workers: a worker asks again and again, and one that does not is missing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("temporalio")

from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse
from temporalio.service import RPCError, RPCStatusCode

from app import errors
from app.clock import FakeClock
from app.domain import operations, views
from app.engine import run_engine
from app.temporal import worker_roster

ENTRY = worker_roster.Entry(worker="here", serves=frozenset({"commands"}))
COMMAND = [operations.Command(argv=("true",))]


class Server:
    """The parts of a Temporal server that record which workers poll a queue."""

    namespace = "default"

    def __init__(self, clock: FakeClock, answer: Callable[[str], Awaitable[None]]) -> None:
        """Args: answer: How the server answers a poll, by the identity of the worker."""
        self.clock, self.answer = clock, answer
        self.asked: dict[str, Any] = {}
        self.workflow_service = SimpleNamespace(poll_activity_task_queue=self.poll, describe_task_queue=self.describe)

    async def poll(self, asking: Any, timeout: timedelta) -> None:
        """Record the poll."""
        self.asked[asking.identity] = self.clock.now()
        await self.answer(asking.identity)

    async def describe(self, asking: Any) -> DescribeTaskQueueResponse:
        """Return which workers have polled, and when."""
        found = DescribeTaskQueueResponse()
        for identity, at in self.asked.items():
            found.pollers.add(identity=identity).last_access_time.FromDatetime(at)
        return found


async def silent(identity: str) -> None:
    """Never answer a poll."""
    await asyncio.Event().wait()


async def test_a_worker_that_asks_no_more_is_missed_soon() -> None:
    """A worker that stopped polling is present for 25 seconds; then `lacks` reports when it was last seen."""
    clock = FakeClock()
    server: Any = Server(clock, silent)
    rolled = worker_roster.WorkerRoster(server, "runs", clock, ())
    server.asked[ENTRY.written()] = clock.now()
    found = []
    for seconds in (25, 6):
        clock.advance(seconds)
        found.append(await rolled.lacks(COMMAND, views.Placed(worker="here", host="its former name")))
    elsewhere = await rolled.lacks(COMMAND, views.Placed(worker="there"))
    known = await rolled.lacks(COMMAND, views.Placed(worker="there", host="second"))

    where, host = "no worker on the machine of worker", socket.gethostname()
    seen = f"{where} here ({host}) serves commands; the last one that did was seen 31 s ago"
    assert found == [{}, {"commands": run_engine.Lack(text=seen)}]
    assert elsewhere == {"commands": run_engine.Lack(text=f"{where} there serves commands")}
    assert known == {"commands": run_engine.Lack(text=f"{where} there (second) serves commands")}


def answering(clock: FakeClock, again: asyncio.Event, *faults: Exception | None) -> Callable[[str], Awaitable[None]]:
    """Return a server's answers: a second later each, by the faults in turn; then it is silent, and sets the event."""
    left = iter(faults)

    async def answer(identity: str) -> None:
        clock.advance(1)
        for fault in left:
            if fault is not None:
                raise fault
            return
        again.set()
        await silent(identity)

    return answer


async def test_a_worker_asks_on_after_an_answer_and_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is listed again after an answer or a failure, and leaves the roster when it stops in order."""
    monkeypatch.setattr(worker_roster, "_AGAIN_SECONDS", 0)
    monkeypatch.setattr(worker_roster, "_POLL_SECONDS", 0)
    clock, again = FakeClock(), asyncio.Event()
    away = RPCError("away", RPCStatusCode.UNAVAILABLE, b"")
    server: Any = Server(clock, answering(clock, again, None, away, RuntimeError("not connected")))
    rolled = worker_roster.WorkerRoster(server, "runs", clock, ())
    async with ENTRY.listed(server, "runs"):
        await again.wait()
        listed = await rolled.lacks(COMMAND, None)

    assert listed == {}
    assert await rolled.lacks(COMMAND, None) == {"commands": run_engine.Lack(text="no worker serves commands")}


async def test_a_worker_says_once_that_its_server_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Polls that fail in a row are one line, and the first answer after them is another."""
    monkeypatch.setattr(worker_roster, "_AGAIN_SECONDS", 0)
    monkeypatch.setattr(worker_roster, "_POLL_SECONDS", 0)
    away = RPCError("tcp connect error", RPCStatusCode.UNAVAILABLE, b"")
    clock, again, late = FakeClock(), asyncio.Event(), RPCError("", RPCStatusCode.DEADLINE_EXCEEDED, b"")
    server: Any = Server(clock, answering(clock, again, None, away, away, late, None))
    async with ENTRY.listed(server, "runs"):
        await again.wait()

    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "the Temporal server does not answer: tcp connect error; no step starts until it does",
        "the Temporal server answers again",
    ]


@pytest.mark.parametrize(
    ("here", "other", "seconds", "refused"),
    [
        ({"worker": "one"}, {"worker": "two"}, 0, ""),
        ({"worker": "one"}, {"worker": ""}, 0, "works with --workspaces shared: start this process with the same"),
        ({"worker": ""}, {"worker": "two"}, 25, "works with --workspaces sticky"),
        ({"worker": ""}, {"worker": "two"}, 26, ""),
        ({"worker": "", "folder": "a"}, {"worker": "", "folder": "a"}, 0, ""),
        ({"worker": "", "folder": "a"}, {"worker": "", "folder": "b-c"}, 0, "the project's folder here is not"),
        ({"worker": "", "folder": "a"}, {"worker": ""}, 0, ""),
    ],
)
async def test_workers_that_keep_workspaces_otherwise_are_not_joined(
    here: dict[str, str], other: dict[str, str], seconds: int, refused: str
) -> None:
    """A process does not start beside a present worker whose runs keep files in another way or another folder."""
    clock = FakeClock()
    server: Any = Server(clock, silent)
    server.asked[worker_roster.Entry(serves=frozenset({"tools"}), **other).written()] = clock.now()
    clock.advance(seconds)
    mine = worker_roster.Entry(serves=frozenset(), **here)
    if not refused:
        await mine.check(server, "runs", clock.now())
        return

    with pytest.raises(errors.ConfigurationError, match=refused) as caught:
        await mine.check(server, "runs", clock.now())
    assert caught.value.code == "workspaces_differ"
