"""The index queue: writes the rows of new, moved and ended runs together, a moment later.

The index is rebuildable and may lag behind; the queue answers a query after all pending writes.
"""

# Five transactions for each run took longer than a short run itself. A move out of a finished state, and a row whose
# key another process may look up, are written at once.

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app import errors
from app.domain import issues, receipts, runs, states
from app.domain.authors import RunOrder
from app.engine import outages, run_sums, spending, stores
from app.storage.disk.disk_health import DiskHealth
from app.storage.index import index_port
from app.storage.index.index_port import Index, IndexedRun, ReceiptPlace

if TYPE_CHECKING:
    from app.domain import audit

PAUSE_SECONDS = 0.05  # Time that a row waits for others.

_PAUSE_AFTER_FAILURE_SECONDS = 1.0

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Waiting:
    rows: dict[str, IndexedRun] = field(default_factory=dict)
    missing: dict[str, IndexedRun] = field(default_factory=dict)  # Written only for runs that still have no row.
    moves: dict[str, list[runs.Transition]] = field(default_factory=dict)
    places: dict[str, ReceiptPlace] = field(default_factory=dict)
    orders: list[RunOrder] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows or self.missing or self.moves or self.places or self.orders)

    def forget(self, run_id: str) -> None:
        for waiting in (self.rows, self.missing, self.moves):
            waiting.pop(run_id, None)

    def seen(self) -> Iterator[IndexedRun]:
        """Yield the waiting rows."""
        yield from (self.missing | self.rows).values()

    def apart(self) -> Iterator[_Waiting]:
        """Yield the same writes in parts, each for one run or one receipt."""
        yield from (_Waiting(rows={run_id: row}) for run_id, row in self.rows.items())
        yield from (_Waiting(missing={run_id: row}) for run_id, row in self.missing.items())
        yield from (_Waiting(moves={run_id: moves}) for run_id, moves in self.moves.items())
        yield from (_Waiting(places={receipt_id: place}) for receipt_id, place in self.places.items())
        yield from (_Waiting(orders=[order]) for order in self.orders)


class IndexQueue:
    """`Index` that collects writes in front of another index."""

    def __init__(self, inner: Index, disk_health: DiskHealth) -> None:
        self._inner = inner
        self._disk_health = disk_health
        self._waiting = _Waiting()
        self._outage = outages.Outage(_log, "rows wait: %s", "rows are written again")
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[errors.StorageFault | None] | None = None
        self._closed = False
        self.changes = 0
        """Grows whenever rows are written."""

    async def start(self) -> bool:
        self._closed = False
        return await self._inner.start()

    async def close(self) -> None:
        try:
            await self.flush()
        except errors.StorageFault as fault:
            _log.warning("rows are left behind: %s", fault.message)
        self.abandon()
        await self._inner.close()

    def abandon(self) -> None:
        """Write no further rows, like a killed process; the next process reads them from the folders."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._waiting = _Waiting()

    # -- pending rows

    async def put_run(self, run: IndexedRun) -> None:
        self.changes += 1
        self._waiting.forget(run.summary.run_id)
        self._waiting.rows[run.summary.run_id] = run
        self._write_soon()

    async def move_soon(self, transition: runs.Transition) -> None:
        self.changes += 1
        run_id = transition.run_id
        row = self._waiting.rows.get(run_id)
        if row is None:
            _join(self._waiting.moves.setdefault(run_id, []), transition)
        elif (new_row := _moved(row, [transition])) is not None:
            self._waiting.rows[run_id] = new_row
        self._write_soon()

    async def add_receipts(self, places: Iterable[ReceiptPlace]) -> None:
        self._waiting.places |= {place.receipt_id: place for place in places}
        if self._waiting.places:
            self._write_soon()

    async def add_orders(self, found: Iterable[RunOrder]) -> None:
        self._waiting.orders += found
        if self._waiting.orders:
            self._write_soon()

    async def flush(self) -> None:
        """Write the pending rows, so that other processes see them.

        Raises:
            errors.StorageFault: they cannot be written, and stay pending.
        """
        if not self._waiting and self._writing is None:
            self._disk_health.rows_free = True
        # First the write under way, then the pending rows; later rows are not waited for.
        for _ in range(2 if self._writing is not None else 1):
            fault = await self._written() if self._waiting or self._writing is not None else None
            if fault is not None:
                raise errors.StorageFault(fault.message, detail=fault.detail)

    # -- queries, and immediate changes

    async def apply(
        self, rows: Iterable[IndexedRun], moves: Iterable[runs.Transition], places: Iterable[ReceiptPlace]
    ) -> None:
        self.changes += 1
        await self.flush()
        await self._inner.apply(rows, moves, places)

    async def move(self, transition: runs.Transition) -> bool:
        self.changes += 1
        await self.flush()
        return await self._inner.move(transition)

    async def add_missing(self, found: Iterable[IndexedRun]) -> None:
        """Write the rows of runs that have none; while that fails they wait, and readers see them."""
        self.changes += 1
        rows = list(found)
        try:
            await self.flush()
            await self._inner.add_missing(rows)
        except errors.StorageFault:
            self._waiting.missing |= {row.summary.run_id: row for row in rows}
            self._write_soon()

    async def remove_run(self, run_id: str) -> None:
        self.changes += 1
        if self._writing is not None:
            await self._written()
        self._waiting.forget(run_id)
        await self._inner.remove_run(run_id)

    async def set_owner(self, run_id: str, owner: str) -> None:
        await self.flush()
        await self._inner.set_owner(run_id, owner)

    async def doubt(self, run_id: str) -> None:
        await self.flush()
        await self._inner.doubt(run_id)

    async def relabel(self, run_id: str, labels: Mapping[str, str], *, pinned: bool) -> None:
        self.changes += 1
        await self.flush()
        await self._inner.relabel(run_id, labels, pinned=pinned)

    async def get_run(self, run_id: str) -> IndexedRun | None:
        if (row_ahead := self._waiting.rows.get(run_id)) is not None:
            return row_ahead
        if run_id in self._waiting.moves or self._writing is not None:
            await self._flush_if_possible()
        waiting = self._waiting
        row, moves = waiting.rows.get(run_id), list(waiting.moves.get(run_id, ()))
        return row or _moved(await self._inner.get_run(run_id) or waiting.missing.get(run_id), moves)

    async def find_key(self, idempotency_key: str) -> IndexedRun | None:
        await self._flush_if_possible()
        rows = (row for row in self._waiting.seen() if row.idempotency_key == idempotency_key)
        return next(rows, None) or await self._inner.find_key(idempotency_key)

    async def find_busy(self, recipe_id: str) -> str | None:
        await self._flush_if_possible()
        rows = (row.summary for row in self._waiting.seen() if row.summary.recipe_id == recipe_id)
        busy = (run.run_id for run in rows if not index_port.is_finished(run) and run.owner != "foreign")
        return next(busy, None) or await self._inner.find_busy(recipe_id)

    async def uncounted(self, behind: tuple[str, str] | None, limit: int) -> list[tuple[str, str]]:
        return await self._inner.uncounted(behind, limit)

    async def count_again(self, found: Iterable[IndexedRun]) -> None:
        self.changes += 1
        await self._flush_if_possible()
        await self._inner.count_again(found)

    async def run_ids(self) -> set[str]:
        await self._flush_if_possible()
        return {row.summary.run_id for row in self._waiting.seen()} | await self._inner.run_ids()

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        await self._flush_if_possible()
        if self._disk_health.rows_free:
            return await self._inner.list_runs(query)
        ahead = await self._ahead()
        rows = await self._inner.list_runs(dataclasses.replace(query, limit=query.limit + len(ahead)))
        listed_runs = [run for run in rows if run.run_id not in ahead]
        listed_runs += [row.summary for row in ahead.values() if index_port.fits(row.summary, query)]
        return sorted(listed_runs, key=index_port.age, reverse=True)[: query.limit]

    async def list_unfinished(self, key_prefix: str = "") -> list[stores.RunSummary]:
        await self._flush_if_possible()
        found = await self._inner.list_unfinished(key_prefix)
        if self._disk_health.rows_free:
            return found
        ahead = await self._ahead()
        found = [run for run in found if run.run_id not in ahead]
        found += [row.summary for row in ahead.values() if index_port.is_unfinished(row, key_prefix)]
        return sorted(found, key=index_port.age)

    async def count_by_status(self) -> dict[str, int]:
        await self._flush_if_possible()
        return await self._inner.count_by_status()

    async def totals(self, since: run_sums.Since, aside: Sequence[str]) -> run_sums.Totals:
        await self._flush_if_possible()
        return await self._inner.totals(since, aside)

    async def usage(
        self, query: run_sums.UsageQuery, aside: Sequence[str]
    ) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
        await self._flush_if_possible()
        return await self._inner.usage(query, aside)

    async def spent(self, query: spending.SpentQuery, aside: Sequence[str] = ()) -> spending.Spent:
        await self._flush_if_possible()
        return await self._inner.spent(query, aside)

    async def find_receipt(self, receipt_id: str) -> ReceiptPlace | None:
        await self._flush_if_possible()
        return self._waiting.places.get(receipt_id) or await self._inner.find_receipt(receipt_id)

    async def list_receipts(self, query: receipts.ReceiptQuery) -> list[ReceiptPlace]:
        await self._flush_if_possible()
        places = {place.receipt_id: place for place in await self._inner.list_receipts(query)}
        # Only written rows show whether the run of a receipt is in the scope.
        places_ahead = self._waiting.places.values() if query.scope is None else ()
        places |= {place.receipt_id: place for place in places_ahead if place.fits(query)}
        return sorted(places.values(), key=lambda place: place.position)[: query.limit]

    async def put_issues(self, found: Iterable[issues.IssueSummary], *, doubtful: bool = False) -> None:
        await self._inner.put_issues(found, doubtful=doubtful)

    async def mark_issue(self, issue_id: str) -> None:
        await self._inner.mark_issue(issue_id)

    async def remove_issues(self, issue_ids: Iterable[str]) -> None:
        await self._inner.remove_issues(issue_ids)

    async def issue_rows(self) -> dict[str, bool]:
        return await self._inner.issue_rows()

    async def list_issues(self, query: issues.IssueQuery) -> list[issues.IssueSummary]:
        return await self._inner.list_issues(query)

    async def list_orders(self, query: audit.AuditQuery) -> list[RunOrder]:
        await self._flush_if_possible()
        return await self._inner.list_orders(query)

    async def has_session(self, session_id: str) -> bool:
        await self._flush_if_possible()
        return await self._inner.has_session(session_id)

    async def clear(self) -> None:
        await self.flush()
        await self._inner.clear()

    async def _ahead(self) -> dict[str, IndexedRun]:
        rows, missing = dict(self._waiting.rows), dict(self._waiting.missing)
        moves = dict.fromkeys(missing, ()) | {name: tuple(made) for name, made in self._waiting.moves.items()}
        for run_id in moves.keys() - rows.keys():  # A row that waits includes the moves after it.
            row = _moved(await self._inner.get_run(run_id) or missing.get(run_id), moves[run_id])
            rows |= {} if row is None else {run_id: row}
        return rows

    # -- writing

    async def _flush_if_possible(self) -> None:
        # While rows cannot be written, the written ones can still be read.
        if self._disk_health.rows_free:
            with contextlib.suppress(errors.StorageFault):
                await self.flush()
        elif self._writing is not None:
            await self._written()

    def _write_soon(self, pause_seconds: float = PAUSE_SECONDS) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(pause_seconds, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._waiting:
            self._start()

    async def _written(self) -> errors.StorageFault | None:
        # In a task of its own: a cancelled reader must not lose pending rows.
        return await asyncio.shield(self._start())

    def _start(self) -> asyncio.Task[errors.StorageFault | None]:
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="index")
        return self._writing

    async def _write(self) -> errors.StorageFault | None:
        batch, self._waiting = self._waiting, _Waiting()
        try:
            await self._apply_or_isolate(batch)
        except errors.StorageFault as fault:
            # The rows wait: the journals are complete, and the rows follow when the database answers again.
            self._outage.failed(fault.message)
            self._disk_health.rows_free = False
            self._put_back(batch)
            self._write_soon(_PAUSE_AFTER_FAILURE_SECONDS)
            return fault
        finally:
            self._writing = None
        self._disk_health.rows_free = True
        self._outage.worked()
        # Rows that arrived during the write form the next batch.
        if self._waiting:
            self._write_soon()
        return None

    async def _apply_or_isolate(self, batch: _Waiting) -> None:
        try:
            await self._apply(batch)
        except Exception as error:  # noqa: BLE001 - what one run brought must not cost the others their rows
            _log.warning("rows are written one by one: %s: %s", type(error).__name__, error)
            for part in batch.apart():
                await self._apply_or_drop(part)

    async def _apply_or_drop(self, part: _Waiting) -> None:
        try:
            await self._apply(part)
        except Exception:  # noqa: BLE001 - logged
            # If kept, it would fail every later batch. The next start rebuilds the row from the run's folder.
            about = [*part.rows, *part.missing, *part.moves, *part.places, *(order.run_id for order in part.orders)]
            _log.exception("not indexed until the next start: %s", about[0])

    async def _apply(self, batch: _Waiting) -> None:
        moves = [move for run_moves in batch.moves.values() for move in run_moves]
        await self._inner.add_orders(batch.orders)
        if batch.missing:
            await self._inner.add_missing(batch.missing.values())
        await self._inner.apply(batch.rows.values(), moves, batch.places.values())

    def _put_back(self, batch: _Waiting) -> None:
        later, self._waiting = self._waiting, batch
        for run_id, row in later.rows.items():
            batch.rows[run_id] = row
            batch.moves.pop(run_id, None)
        for run_id, moves in later.moves.items():
            if (moved := _moved(batch.rows.get(run_id), moves)) is not None:
                batch.rows[run_id] = moved
                continue
            for move in moves:
                _join(batch.moves.setdefault(run_id, []), move)
        batch.missing |= later.missing
        batch.places |= later.places
        batch.orders += later.orders


def _moved(row: IndexedRun | None, moves: Iterable[runs.Transition]) -> IndexedRun | None:
    for move in moves:
        if row is not None and states.RunState(row.summary.status) in move.since:
            row = index_port.moved(row, move)
    return row


def _join(moves: list[runs.Transition], move: runs.Transition) -> None:
    if moves and moves[-1].to in move.since:
        move = move.joined(moves.pop())
    moves.append(move)
