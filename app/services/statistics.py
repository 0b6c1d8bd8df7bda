"""Statistics: counts of runs, waits and costs, cached so that many clients may request them all the time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from app import clock, errors
from app.domain import plain, runs, shapes, states
from app.domain.access import Scope
from app.engine import run_engine, run_sums

LOOK_SECONDS = 0.25  # Longest time between counts of the state in memory.

RECOUNT_SECONDS = 5.0
"""Longest time for which a count of rows is valid, since other processes may change rows."""

LARGEST_SHARE = 1 / 20  # Share of the time that counting rows may take, however many there are.
FREE_STEP_BYTES = 64 * 2**20  # Step in which free space is reported, so that a single write does not change it.

_MOST_KEPT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCounts(shapes.Shape):
    """Things that wait for a person."""

    gates: int  # Open gates of loaded and unloaded runs.
    questions: int  # Tasks of session plans whose question is open.
    plans: int  # Session plans that wait for a person: drafts, and plans with an open question.
    parked: int  # Runs that a fault has paused.


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCount(shapes.Shape):
    """Runs that failed lately, without those that a person's denial ended."""

    since: shapes.Instant  # Start of the count.
    count: int  # Number of runs.


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend(shapes.Shape):
    """Runs and costs since an instant."""

    since: shapes.Instant  # Start of the count, in steps of 15 minutes for calls.
    runs: int  # Runs that were created.
    input_tokens: int  # Tokens read, including those of runs that execute now.
    output_tokens: int  # Tokens written.
    cost_usd: float | None  # Sum of the reported prices; None if none was reported.
    calls_without_price: int  # Calls without a reported price.
    calls_silent: int  # Further calls, which reported neither tokens nor a price, or were cut off.
    cost_estimated_usd: float | None
    """Sum of the estimates for calls without a price, by the price file; None if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState(shapes.Shape):
    """Load of the worker pool."""

    slots: int  # Runs that can execute at the same time.
    busy: int  # Runs that execute now.
    queued: int  # Runs that wait for a slot.


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskState(shapes.Shape):
    """Free space for the data directory."""

    free_bytes: int | None  # Free space in steps of 64 MiB; None if it cannot be read.
    needed_bytes: int  # Least free space for opening a data directory.
    is_full: bool  # Whether new runs are refused because the last write failed or the disk is full.


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState(shapes.Shape):
    """Engine and project of the service."""

    engine: str  # Engine of the runs: `embedded` or `temporal`.
    project: str  # Folder of the project.
    local_model: bool
    """Whether all agents use the small local model, which is only for demonstration."""
    temporal_away_since: shapes.Instant | None = shapes.omitted()
    """Since when the Temporal server has not answered; absent while it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStats(shapes.Shape):
    """Counts over all runs."""

    runs: Mapping[str, int]  # Runs in each state.
    waits: WaitCounts  # Things that wait for a person.
    failed: FailedCount  # Runs that failed lately.
    today: Spend  # Runs and costs of today.
    pool: PoolState  # Load of the worker pool.
    disk: DiskState  # Free space for the data directory.
    service: ServiceState  # Engine and project of the service.
    at: shapes.Instant  # Time of the last change of one of these numbers.


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageNamed(run_sums.UsageAmounts):
    """Sums of one name."""

    name: str | None  # Recipe, agent, model, label value or day; None for calls without one.


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageShown(shapes.Shape):
    """Sums of usage."""

    by: run_sums.By  # Dimension by which they are grouped.
    rows: tuple[UsageNamed, ...]
    """At most 1,000 sums, most expensive first, or 366 days, newest first."""
    total: run_sums.UsageAmounts  # Sum over all runs that match the filters, including omitted rows.


class Store(run_sums.SummingStore, Protocol):
    """The store whose runs are counted."""

    async def write_fault(self) -> errors.StorageFault | None:
        """Return why new runs are refused; None if they are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    changes: int
    counted_at: float
    took_seconds: float
    totals: run_sums.Totals
    questions: int
    plans: int
    disk: DiskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """An answer as bytes."""

    body: bytes  # JSON.
    etag: str  # Entity tag, which changes whenever a number does.


class Statistics:
    """Counts and adds up over all runs.

    Args:
        asking: Counts the open questions of session plans within a scope, and the plans that wait for a person.
        space: Returns the free and the needed space of the data directory.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: run_engine.RunEngine,
        asking: Callable[[Scope | None], Awaitable[tuple[int, int]]],
        space: Callable[[], tuple[int | None, int]],
        service: ServiceState,
        clock: clock.Clock,
    ) -> None:
        self._store = store
        self._engine = engine
        self._asking = asking
        self._space = space
        self._service = service
        self._clock = clock
        self._rows: OrderedDict[run_sums.Since, _Rows] = OrderedDict()
        self._counting: dict[run_sums.Since, asyncio.Task[_Rows]] = {}
        self._answers: OrderedDict[run_sums.Since, tuple[float, bytes, Ready]] = OrderedDict()

    async def stats(
        self, failed_since: str | None = None, today: str | None = None, scope: Scope | None = None
    ) -> Ready:
        """Return counts over all runs; the same bytes until one changes.

        Args:
            failed_since: Start of the count of failed runs; None: 24 hours ago, to the minute.
            today: Local midnight; None: midnight in UTC.
            scope: Runs to count; None: all.
        """
        now = self._clock.now()
        yesterday = now.replace(second=0, microsecond=0) - timedelta(days=1)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        since = run_sums.Since(
            failed=failed_since or clock.stamp(yesterday), today=today or clock.stamp(midnight), scope=scope
        )
        known = self._answers.get(since)
        rows = await self._counted(since)
        if known is not None and rows is self._rows.get(since) and self._clock.monotonic() < known[0] + LOOK_SECONDS:
            return known[2]
        return self._answer(since, rows, known)

    async def usage(self, query: run_sums.UsageQuery) -> UsageShown:
        """Return sums of usage, including that of runs that execute now."""
        live = {view.start.run_id: view.usage_sums() for view in self._engine.executing()}
        sums, total = await self._store.sum_usage(query, live)
        rows = [
            UsageNamed(name=name, **{field: getattr(found, field) for field in found.__slots__})
            for name, found in sums.items()
        ]
        if query.by == "day":
            rows.sort(key=lambda row: row.name or "", reverse=True)
        else:
            rows.sort(key=lambda row: (-(row.cost_usd or 0), -row.input_tokens, row.name or ""))
        most = run_sums.MOST_DAYS if query.by == "day" else run_sums.MOST_ROWS
        return UsageShown(by=query.by, rows=tuple(rows[:most]), total=total)

    async def _counted(self, since: run_sums.Since) -> _Rows:
        known = self._rows.get(since)
        if known is not None and self._clock.monotonic() < known.counted_at + self._pause_seconds(known):
            return known
        task = self._counting.get(since)
        if task is None:
            # All requests meanwhile share one count, even if some of them are cancelled.
            task = self._counting[since] = asyncio.create_task(self._count(since), name="count runs")
        return await asyncio.shield(task)

    def _pause_seconds(self, known: _Rows) -> float:
        if known.changes == self._store.changes:
            return RECOUNT_SECONDS
        return known.took_seconds / LARGEST_SHARE

    async def _count(self, since: run_sums.Since) -> _Rows:
        began, changes = self._clock.monotonic(), self._store.changes
        try:
            aside = [view.start.run_id for view in self._engine.executing()]
            totals = await self._store.totals(since, aside)
            (questions, plans), fault = await self._asking(since.scope), await self._store.write_fault()
            free, needed = await asyncio.to_thread(self._space)
            shown = None if free is None else free // FREE_STEP_BYTES * FREE_STEP_BYTES
            is_full = fault is not None or (free is not None and free < needed)
            disk = DiskState(free_bytes=shown, needed_bytes=needed, is_full=is_full)
            now = self._clock.monotonic()
            counted = _Rows(
                changes=changes,
                counted_at=now,
                took_seconds=now - began,
                totals=totals,
                questions=questions,
                plans=plans,
                disk=disk,
            )
            self._rows[since] = counted
            while len(self._rows) > _MOST_KEPT:
                self._rows.popitem(last=False)
            return counted
        finally:
            del self._counting[since]

    def _answer(self, since: run_sums.Since, rows: _Rows, known: tuple[float, bytes, Ready] | None) -> Ready:
        usage = self._usage(since, rows)
        gates = sum(_covered(since, asked.start) for asked in self._engine.open_gates())
        shown = RunStats(
            runs={state.value: rows.totals.by_status.get(state.value, 0) for state in states.RunState},
            waits=WaitCounts(gates=gates, questions=rows.questions, plans=rows.plans, parked=rows.totals.parked),
            failed=FailedCount(since=since.failed, count=rows.totals.failed),
            today=Spend(
                since=since.today,
                runs=rows.totals.created,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost_usd=usage.cost_usd,
                calls_without_price=usage.calls_without_price,
                calls_silent=usage.calls_silent,
                cost_estimated_usd=usage.cost_estimated_usd,
            ),
            pool=self._pool(since, rows),
            disk=rows.disk,
            service=dataclasses.replace(self._service, temporal_away_since=self._engine.status().server_away_since),
            at="",
        ).to_json()
        content = plain.encode(shown)
        now = self._clock.monotonic()
        if known is None or known[1] != content:
            body = plain.encode(shown | {"at": clock.stamp(self._clock.now())})
            known = now, content, Ready(body=body, etag=plain.entity_tag(content))
        self._answers[since] = now, content, known[2]
        self._answers.move_to_end(since)
        while len(self._answers) > _MOST_KEPT:
            self._answers.popitem(last=False)
        return known[2]

    def _pool(self, since: run_sums.Since, rows: _Rows) -> PoolState:
        pool = self._engine.status()
        if since.scope is None:
            return PoolState(slots=pool.limit, busy=pool.running, queued=pool.queued)
        busy = sum(_covered(since, view.start) for view in self._engine.executing())
        queued = rows.totals.by_status.get(states.RunState.PENDING.value, 0)
        return PoolState(slots=pool.limit, busy=busy, queued=queued)

    def _usage(self, since: run_sums.Since, rows: _Rows) -> run_sums.UsageAmounts:
        # The count contains no usage of runs that began after it, and runs that ended since are soon counted again.
        counted = (view for view in self._engine.executing() if _covered(since, view.start))
        live = (part for view in counted for part in view.usage_sums())
        total = rows.totals.usage
        for part in live:
            if part.quarter >= since.today:
                total = total.plus(run_sums.UsageAmounts.of(part, 0))
        return total


def _covered(since: run_sums.Since, start: runs.RunStart) -> bool:
    return since.scope is None or since.scope.covers(start.recipe_id, start.labels)
