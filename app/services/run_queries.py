"""Queries of runs, for every interface."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from app import clock, errors
from app.domain import access, events, plain, receipts, records, states
from app.engine import stores
from app.services import event_streams, run_reader, step_portions
from app.services.event_streams import EventFollower
from app.services.progress import ProgressReader, RunListed
from app.services.run_reader import RunReader

if TYPE_CHECKING:
    from app.engine import ports, run_engine
    from app.services.log_tails import LogTails, Piece
    from app.services.long_polls import LongPolls
    from app.services.run_graphs import GraphAnswer, RunGraphs

T = TypeVar("T")


class RunQueries:
    """Shows and follows runs."""

    def __init__(
        self,
        *,
        store: stores.RunStore,
        engine: run_engine.RunEngine,
        drivers: Mapping[str, ports.Driver],
        clock: clock.Clock,
    ) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self.reader = RunReader(store=store, engine=engine, drivers=drivers, clock=clock)
        """Shows the present state of one run."""
        self._drivers = drivers
        self._progress = ProgressReader(store, engine)
        self._follower = EventFollower(store=store, engine=engine, clock=clock)
        self.stopping = self._follower.stopping
        """Set when the service stops, so that polls and streams end."""

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        """Return runs, newest first."""
        return await self._store.list_runs(query)

    async def page(self, query: stores.RunQuery) -> tuple[list[RunListed], bool]:
        """Return a page of runs with their progress, newest first, and whether more follow."""
        rows = await self._store.list_runs(dataclasses.replace(query, limit=query.limit + 1))
        return await self._progress.rows(rows[: query.limit]), len(rows) > query.limit

    async def is_within(
        self, run_id: str, scope: access.Scope, changes: Mapping[str, str | None] | None = None
    ) -> bool:
        """Return whether a run exists and is within a scope.

        Args:
            changes: Changes of its labels before the check; None removes a label.
        """
        if not re.fullmatch(clock.RUN_ID_PATTERN, run_id) or clock.is_internal(run_id):
            return False
        try:
            row = await self._store.summary(run_id)
        except errors.NotFound:
            return False
        labels: dict[str, str | None] = {**row.labels, **(changes or {})}
        return scope.covers(row.recipe_id, {name: value for name, value in labels.items() if value is not None})

    async def is_key_within(self, concurrency_key: str, scope: access.Scope) -> bool:
        """Return whether all unfinished runs of a concurrency key are within a scope."""
        unfinished = tuple(state.value for state in states.RunState if not state.finished)
        query = stores.RunQuery(concurrency_key=concurrency_key, status=unfinished)
        async for row in stores.every_run(self._store, query):
            if not scope.covers(row.recipe_id, row.labels):
                return False
        return True

    @functools.cached_property
    def graphs(self) -> RunGraphs:
        """Return the use cases of graphs, which lists do not load."""
        from app.services.run_graphs import RunGraphs

        return RunGraphs(self._drivers)

    async def graph(self, run_id: str) -> GraphAnswer:
        """Return the graph of a run's frozen recipe, with the state of each node.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the run does not exist, or is damaged.
        """
        return await self.graphs.answer(await self.reader.view(run_id))

    async def steps(self, run_id: str) -> Sequence[records.Record]:
        """Return all journal lines in order, including those of dead and repeated attempts.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the run does not exist, or is damaged.
        """
        return (await self.reader.view(run_id)).records

    async def steps_page(
        self, run_id: str, *, after: int = -1, limit: int | None = None
    ) -> tuple[Sequence[records.Record], bool]:
        """Return a page of the journal, and whether more lines follow.

        Args:
            after: Position of the line before the first.
            limit: Most lines; None: all.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the run does not exist, or is damaged.
        """
        lines = await self.steps(run_id)
        end = len(lines) if limit is None else after + 1 + limit
        return lines[after + 1 : end], end < len(lines)

    async def steps_portion(
        self, run_id: str, *, after: int = -1, limit: int = step_portions.USUAL
    ) -> step_portions.Portion:
        """Return a portion of the valid finished steps, in the form of the consolidated answer.

        Args:
            after: Index of the step before the first.
            limit: Most steps.

        Raises:
            errors.NotFound, errors.JournalCorrupt: the run does not exist, or is damaged.
        """
        return await step_portions.portion(await self.reader.view(run_id), after, limit)

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[events.Event, None]:
        """Return a run's events with numbers above `after`, also future ones, until the run has ended.

        Raises:
            errors.NotFound: the run does not exist.
        """
        await self.reader.status(run_id)
        return self._follower.events(run_id, after, lambda: self._has_ended(run_id))

    async def stream(self, run_id: str, after: int = 0) -> AsyncGenerator[event_streams.Batch, None]:
        """Return the same in batches that all followers share; an empty batch is a keep-alive.

        Raises:
            errors.NotFound: the run does not exist.
        """
        await self.reader.status(run_id)
        return self._follower.batches(run_id, after, lambda: self._has_ended(run_id))

    async def logs(self, run_id: str) -> list[str]:
        """Return the names of a run's logs.

        Raises:
            errors.NotFound: the run does not exist.
        """
        run_reader.check_run_id(run_id)
        return await self._store.list_logs(run_id)

    async def log(self, run_id: str, name: str) -> bytes:
        """Return a log.

        Raises:
            errors.NotFound: the run or the log does not exist.
        """
        _check_log(run_id, name)
        return await self._store.read_log(run_id, name)

    async def log_part(self, run_id: str, name: str, offset: int, most: int) -> stores.LogPart:
        """Return a part of a log; a negative offset counts from its end.

        Raises:
            errors.NotFound: the run or the log does not exist.
        """
        _check_log(run_id, name)
        return await self.tails.part(run_id, name, offset, most)

    async def follow_log(self, run_id: str, name: str, offset: int) -> AsyncGenerator[Piece, None]:
        """Follow a log while it grows, until its run has ended.

        Raises:
            errors.NotFound: the run or the log does not exist.
        """
        begin = await self.log_part(run_id, name, offset, most=0)
        return self.tails.follow(run_id, name, begin, lambda: self._has_ended(run_id))

    async def receipt(self, receipt_id: str) -> dict[str, plain.Json]:
        """Return the receipt of a tool execution, and whether it is still as its run wrote it.

        Raises:
            errors.NotFound: no receipt has that id.
        """
        receipt, alteration = await self._store.find_receipt(receipt_id), None
        try:
            await self._store.prove_receipt(receipt_id)
        except errors.Conflict as altered:
            alteration = altered.message
        return receipt | {"intact": alteration is None, "alteration": alteration}

    async def receipts(self, query: receipts.ReceiptQuery) -> tuple[list[receipts.ListedReceipt], bool]:
        """Return a page of receipts, and whether more follow."""
        rows = await self._store.list_receipts(dataclasses.replace(query, limit=query.limit + 1))
        return rows[: query.limit], len(rows) > query.limit

    def forget(self, run_id: str) -> None:
        """Drop the cached state of a run at rest."""
        self.reader.forget(run_id)
        if "graphs" in self.__dict__:
            self.graphs.forget(run_id)

    @functools.cached_property
    def tails(self) -> LogTails:
        """Return the reader of logs by parts."""
        from app.services.log_tails import LogTails

        return LogTails(store=self._store, clock=self._clock, stopping=self.stopping)

    @functools.cached_property
    def polls(self) -> LongPolls:
        """Return the long polls."""
        from app.services.long_polls import LongPolls

        return LongPolls(reader=self.reader, follower=self._follower, engine=self._engine, clock=self._clock)

    async def _has_ended(self, run_id: str) -> bool:
        finished = (await self.reader.status(run_id)).finished
        if not finished and self._engine.view(run_id) is None:
            # Its process may have died between the end of the run and its row.
            await self._store.rechecks.check_run(run_id)
            finished = (await self.reader.status(run_id)).finished
        return finished


def _check_log(run_id: str, name: str) -> None:
    run_reader.check_run_id(run_id)
    if name.startswith(".") or any(character in name for character in "/\\\0"):
        raise errors.NotFound(f"there is no log {name!r:.80}", code="log_not_found")
