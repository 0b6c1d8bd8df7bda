"""The commit listener: passes commits of other processes, which `NOTIFY` announces, to the feed of a shared store."""

# A notification is part of the transaction that it announces. It contains no content, only the run and, if events were
# written, their offset in the run's file of events and the number of the process that wrote them.

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from app import clock, errors
from app.domain import events, states
from app.engine import outages
from app.storage import layout
from app.storage.disk.disk_port import Disk
from app.storage.disk.worker_threads import Workers
from app.storage.postgres.database import CHANNEL, Connection, Database
from app.storage.runs import events_file

if TYPE_CHECKING:
    from app.engine import event_feed, stores

GATHER_SECONDS = 0.03
"""Time for which notifications are gathered, so that events of many commits are read together."""

_RECONNECT_SECONDS = 0.5
_ENDING_READS = 100
_ENDING_READ_SECONDS = 0.1
_RUNS_KNOWN = 4096
_BEGUN = (events.EventType.RUN_CREATED, events.EventType.RUN_RESUMED)
_FORM = re.compile(rb"([A-Za-z0-9_-]{1,64})(?: (\d{1,15}))?(?: (\d{1,15}))?")

_log = logging.getLogger(__name__)


class Source(Protocol):
    """The store whose commits are announced."""

    @property
    def feed(self) -> event_feed.EventFeed:
        """Return the feed of events of all runs."""

    @property
    def checked_disk(self) -> Disk:
        """Return the disk of the runs."""

    async def summary(self, run_id: str) -> stores.RunSummary:
        """Return a run's row."""


class PostgresCommitListener:
    """`event_feed.CommitListener` over a connection that runs `LISTEN`.

    Args:
        number: Number of this process; its own events are already in the feed and are skipped.
    """

    def __init__(self, database: Database, number: int, source: Source, workers: Workers) -> None:
        self._database = database
        self._number = str(number)
        self._source = source
        self._workers = workers
        self._begins: dict[str, int] = {}
        self._reached: OrderedDict[str, int] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._callbacks: set[asyncio.Task[None]] = set()
        self.on_begun: Callable[[str], Awaitable[None]] | None = None
        """Called with each run that another process has begun or resumed."""
        self.is_listening = False
        """Whether every commit is now announced to this process."""
        self._cut_off = outages.Outage(
            _log,
            "the store does not answer, so that commits of other processes are not announced: %s",
            "the store answers again, and announces commits of other processes",
        )

    def start(self, on_write: Callable[[str | None], None]) -> None:
        """Begin to listen.

        Args:
            on_write: Called with each run that was written to; with None if commits may have been missed.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._listen(on_write), name="commit listener")

    @property
    def is_cut_off(self) -> bool:
        """Return whether the last attempt to reach the server failed."""
        return self._cut_off.is_on

    async def stop(self) -> None:
        """Stop listening, and wait for the end."""
        for task in (tasks := [*self._callbacks, *([self._task] if self._task else [])]):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _listen(self, on_write: Callable[[str | None], None]) -> None:
        import psycopg

        while True:
            try:
                connection = await self._workers.run(self._connected)
            except psycopg.Error as error:
                self._cut_off.failed(error)
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            try:
                # Earlier commits are not announced to this connection.
                self._source.feed.interrupt()
                self.is_listening = True
                self._cut_off.worked()
                on_write(None)
                await self._follow(connection, on_write)
            except psycopg.Error as error:
                self._cut_off.failed(error)
            finally:
                self.is_listening = False
                connection.close()

    def _connected(self) -> Connection:
        connection = self._database.connect()
        try:
            connection.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            connection.close()
            raise
        return connection

    async def _follow(self, connection: Connection, on_write: Callable[[str | None], None]) -> None:
        loop, readable, descriptor = asyncio.get_running_loop(), asyncio.Event(), connection.fileno()

        def hear() -> None:
            # The connection stays readable until `_gather`; until then the loop would call this without a pause.
            loop.remove_reader(descriptor)
            readable.set()

        try:
            while True:
                readable.clear()
                self._gather(connection, on_write)
                loop.add_reader(descriptor, hear)
                await self._publish()
                # Events that could not be read are read again in a moment.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(readable.wait(), _RECONNECT_SECONDS if self._begins else None)
                await asyncio.sleep(GATHER_SECONDS)
        finally:
            loop.remove_reader(descriptor)

    def _gather(self, connection: Connection, on_write: Callable[[str | None], None]) -> None:
        """Report the runs that were written to, and note the offsets of new events of other processes."""
        connection.pgconn.consume_input()
        changed: dict[str, None] = {}
        while (notification := connection.pgconn.notifies()) is not None:
            # Every user of the database can notify.
            if (found := _FORM.fullmatch(notification.extra)) is None:
                continue
            run_id, begin, number = (part.decode() for part in found.groups(b""))
            changed[run_id] = None
            if number and number != self._number and not clock.is_internal(run_id):
                # The lowest of several offsets: the events from there on are read at once.
                self._begins[run_id] = min(int(begin), self._begins.get(run_id, int(begin)))
        for run_id in changed:
            on_write(run_id)

    async def _publish(self) -> None:
        for run_id, begin in list(self._begins.items()):
            # Events that were already read are not published again.
            begin = max(begin, self._reached.get(run_id, 0))
            try:
                content = await self._workers.run(functools.partial(self._read, run_id, begin))
                if content:
                    self._publish_of(await self._source.summary(run_id), content)
            except errors.NotFound:
                content = b""
            except (OSError, errors.ControlRoomError, errors.StorageFault) as error:
                # The remaining runs are kept, and read in the next turn.
                _log.warning("events of other processes cannot be read now: %s", error)
                return
            del self._begins[run_id]
            self._reached[run_id] = begin + len(content)
            self._reached.move_to_end(run_id)
        while len(self._reached) > _RUNS_KNOWN:
            self._reached.popitem(last=False)

    def _publish_of(self, run: stores.RunSummary, content: bytes) -> None:
        found = events_file.parse(content)
        held = [event for event in found if event.type == events.EventType.RUN_ENDED]
        self._source.feed.publish(run, [event for event in found if event not in held], len(content))
        if held:
            self._begin(self._publish_ending(run.run_id, held), f"ending {run.run_id}")
        if self.on_begun is not None and any(event.type in _BEGUN for event in found):
            self._begin(self._report_begun(self.on_begun, run.run_id), f"begun {run.run_id}")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)

    async def _report_begun(self, on_begun: Callable[[str], Awaitable[None]], run_id: str) -> None:
        try:
            await on_begun(run_id)
        except (errors.ControlRoomError, errors.StorageFault) as error:
            _log.warning("a run that began elsewhere is not followed: %s", error.message, extra={"run_id": run_id})

    async def _publish_ending(self, run_id: str, held: list[events.Event]) -> None:
        # A client that receives an ending may read the list next, so the row must show it first.
        with contextlib.suppress(errors.NotFound):
            summary = await self._source.summary(run_id)
            for _ in range(_ENDING_READS):
                if states.RunState(summary.status).finished:
                    break
                await asyncio.sleep(_ENDING_READ_SECONDS)
                summary = await self._source.summary(run_id)
            self._source.feed.publish(summary, held, len(events_file.encoded(*held)))

    def _read(self, run_id: str, begin: int) -> bytes:
        try:
            return self._source.checked_disk.read(f"{layout.run_folder(run_id)}/{layout.EVENTS}", begin)
        except FileNotFoundError:
            return b""
