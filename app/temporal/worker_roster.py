"""The roster of workers: lists the present workers with their capabilities, as pollers of one queue.

No step is on that queue. Each worker polls it again and again, so a killed worker is soon noticed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, PollActivityTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from app import clock, errors
from app.domain import capabilities, operations, views
from app.engine import aio, outages, run_engine
from app.temporal import heartbeats, messages

_LONGEST = 900
_EVERYTHING = "*"
_ASKING = timedelta(seconds=10)  # Longest time of one poll; the server records when each begins and ends.
_STALE = timedelta(seconds=25)  # Time without a poll after which a worker does not count as present.
_AGAIN_SECONDS = 1.0
_DEPARTED = " ended"
_PARTING = timedelta(seconds=3)
_POLL_SECONDS = 0.02

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One worker in the roster."""

    worker: str  # Identity of its data directory if runs are placed on workers; otherwise empty.
    serves: frozenset[str]  # Capabilities; `*`: all, since there are too many to list.
    folder: str = ""
    """Identity of `.control-room` in the shared folder; empty: workers share none, or have their data elsewhere."""
    host: str = ""  # Name of its machine, of an entry that was read.

    def written(self) -> str:
        """Return the entry in the form of a poller's identity."""
        text = (
            f"{os.getpid()}@{socket.gethostname()} {self.worker or '-' + self.folder} {','.join(sorted(self.serves))}"
        )
        return text if len(text) <= _LONGEST else f"{text.rpartition(' ')[0]} {_EVERYTHING}"

    @classmethod
    def read(cls, identity: str) -> Entry | None:
        """Read an entry that `written` wrote; None if the identity is not an entry."""
        parts = identity.split(" ")
        if len(parts) != 3:
            return None
        (process, at), serves = parts[:2], frozenset(parts[2].split(","))
        worker, folder = ("", at[1:]) if at.startswith("-") else (at, "")
        return cls(worker=worker, serves=serves, folder=folder, host=process.partition("@")[2])

    @asynccontextmanager
    async def listed(self, client: Client, queue: str) -> AsyncIterator[None]:
        """List this worker during the block; if it is killed, it disappears from the list after a while.

        Args:
            queue: Task queue of the store.
        """
        asking = asyncio.create_task(self._ask(client, queue))
        try:
            yield
        finally:
            await aio.end(asking)
            await self._strike(client, queue)

    async def _ask(self, client: Client, queue: str) -> None:
        outage = outages.Outage(
            _log,
            "the Temporal server does not answer: %s; no step starts until it does",
            "the Temporal server answers again",
        )
        while True:
            try:
                await _poll(client, queue, self.written(), _ASKING)
                outage.worked()
            except RPCError as error:
                # A poll that nothing answers ends with an error, too.
                if error.status is RPCStatusCode.UNAVAILABLE:
                    outage.failed(error)
                else:
                    outage.worked()
            except Exception as error:  # noqa: BLE001 - a worker that asks no more is taken for gone while it works
                _log.warning("the worker roster was not polled: %r", error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _strike(self, client: Client, queue: str) -> None:
        # The server removes no poller. But it shows that a poller with the departed name has polled after this one.
        poll = asyncio.ensure_future(_poll(client, queue, self.written() + _DEPARTED, _PARTING))
        try:
            async with asyncio.timeout(_PARTING.total_seconds()):
                while self.written() in _present(await _pollers(client, queue)) and not poll.done():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SECONDS)
        except (RPCError, TimeoutError) as error:
            _log.info("the worker is listed for a while longer: %s", error)
        finally:
            await aio.end(poll)

    async def check(self, client: Client, queue: str, now: datetime) -> None:
        """Refuse to work beside workers that place workspaces in another way, or share another folder.

        Otherwise steps would be performed on machines without the files of their run.

        Raises:
            errors.ConfigurationError: `workspaces_differ`.
        """
        try:
            asked = await _pollers(client, queue)
        except RPCError as error:
            _log.info("the other workers are not known: %s", error)
            return
        for identity in _present(asked):
            other, name = Entry.read(identity), identity.partition(" ")[0]
            if other is None or now - asked[identity] > _STALE:
                continue
            if message := self._differs(other, name):
                raise errors.ConfigurationError(message, code="workspaces_differ", detail={"worker": name})

    def _differs(self, other: Entry, name: str) -> str:
        if bool(other.worker) != bool(self.worker):
            theirs, ours = ("sticky", "shared") if other.worker else ("shared", "sticky")
            return (
                f"worker {name} works with --workspaces {theirs}: start this process with the same, or stop all "
                f"workers before you start them with --workspaces {ours}"
            )
        if self.folder and other.folder and other.folder != self.folder:
            return (
                f"the project's folder here is not the one of worker {name}: with --workspaces shared, one folder is "
                "mounted on every machine. Mount it here, or start everything with --workspaces sticky"
            )
        return ""

    def does(self, capability: str) -> bool:
        """Return whether the worker performs steps that need a capability."""
        return capability in self.serves or _EVERYTHING in self.serves


class WorkerRoster:
    """Reports the capabilities that no present worker serves."""

    def __init__(self, client: Client, queue: str, time: clock.Clock, services: Collection[str]) -> None:
        """Args:
        queue: Task queue of the store.
        services: Backends that need no workspace.
        """
        self._client = client
        self._queue = queue
        self._clock = time
        self._services = services

    async def lacks(
        self, asked: Iterable[operations.Operation], placed: views.Placed | None
    ) -> dict[str, run_engine.Lack]:
        """Return why steps cannot be performed now, by capability; capabilities that a worker serves are omitted.

        Args:
            placed: Worker that has the workspace of the run; None: any.
        """
        needed = {capabilities.needed(each): each for each in asked}
        if not needed:
            return {}
        try:
            async with asyncio.timeout(heartbeats.ANSWER_SECONDS):
                seen = await self._seen()
        except (RPCError, TimeoutError) as error:
            reason = str(error)[:200] or f"no answer in {heartbeats.ANSWER_SECONDS:g} s"
            away = run_engine.Lack(text=f"the Temporal server does not answer: {reason}", is_known=False)
            return dict.fromkeys(needed, away)
        found = {}
        for capability, operation in needed.items():
            here = None if capabilities.is_anywhere(operation, self._services) else placed
            there = [(entry, age) for entry, age in seen if here is None or here.worker == entry.worker]
            ages = [age for entry, age in there if entry.does(capability)]
            if all(age > _STALE for age in ages):
                where = f" on the machine of worker {here.worker}{_named(here, there)}" if here else ""
                last = f"; the last one that did was seen {min(ages).total_seconds():.0f} s ago" if ages else ""
                found[capability] = run_engine.Lack(text=f"no worker{where} serves {capability}{last}")
        return found

    async def _seen(self) -> list[tuple[Entry, timedelta]]:
        """Return the workers that have not departed, with the time since the last poll of each."""
        asked, now = await _pollers(self._client, self._queue), self._clock.now()
        return [(entry, now - asked[each]) for each in _present(asked) if (entry := Entry.read(each)) is not None]


async def _poll(client: Client, queue: str, identity: str, within: timedelta) -> None:
    asking = PollActivityTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=messages.workers_queue(queue)), identity=identity
    )
    await client.workflow_service.poll_activity_task_queue(asking, timeout=within)


def _named(placed: views.Placed, seen: Iterable[tuple[Entry, timedelta]]) -> str:
    """Return the name of a worker's machine in brackets; empty if neither the server nor the journal knows it."""
    names = sorted({entry.host for entry, _ in seen if entry.host}) or [placed.host or ""]
    names = [name for name in names if name]
    return f" ({', '.join(names)})" if names else ""


def _present(asked: Mapping[str, datetime]) -> list[str]:
    return [each for each, at in asked.items() if asked.get(each + _DEPARTED, at) <= at]


async def _pollers(client: Client, queue: str) -> dict[str, datetime]:
    """Return the pollers of the queue of workers, with the time of their last poll."""
    found = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=messages.workers_queue(queue)),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
    )
    return {one.identity: one.last_access_time.ToDatetime(UTC) for one in found.pollers}
