"""
The index queue: rows of runs that come, move and end are written together, a moment later.

The index is rebuildable and may lag behind; whoever asks through the queue is answered after all that waits is written.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app import errors
from app.engine import plain, runs, states, stores
from app.storage import index
from app.storage.index import Index, IndexedRun, ReceiptPlace

PAUSE_SECONDS = 0.05
"""Time that rows wait for others."""

_MOST_FRESH = 1024
_PAUSE_AFTER_FAILURE_SECONDS = 1.0

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Waiting:
    rows: dict[str, IndexedRun] = field(default_factory=dict)
    moves: dict[str, list[runs.Transition]] = field(default_factory=dict)
    places: list[ReceiptPlace] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows or self.moves or self.places)


class IndexQueue:
    """
    `Index` in front of another.
    """

    def __init__(self, inner: Index) -> None:
        self._inner = inner
        self._waiting = _Waiting()
        # A run that has just come is asked for once, to be queued.
        self._fresh: dict[str, IndexedRun] = {}
        self._turn = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def start(self) -> bool:
        """
        Bring the tables up to date.
        """
        return await self._inner.start()

    async def close(self) -> None:
        """
        Write what waits, and let go of the database.
        """
        try:
            await self._flush()
        except errors.StorageFault as fault:
            _log.warning("rows are left behind: %s", fault.message)
        if self._timer is not None:
            self._timer.cancel()
        await self._inner.close()

    # -- what waits

    async def put_run(self, run: IndexedRun) -> None:
        """
        Queue a run's row, in place of one of the same id.
        """
        self._waiting.rows[run.summary.run_id] = run
        self._waiting.moves.pop(run.summary.run_id, None)
        if len(self._fresh) < _MOST_FRESH:
            self._fresh[run.summary.run_id] = run
        self._write_soon()

    async def move_soon(self, transition: runs.Transition) -> None:
        """
        Queue a move.
        """
        run_id = transition.run_id
        self._fresh.pop(run_id, None)
        row = self._waiting.rows.get(run_id)
        if row is None:
            _join(self._waiting.moves.setdefault(run_id, []), transition)
        elif states.RunState(row.summary.status) in transition.since:
            moved = index.moved(row.summary, transition)
            self._waiting.rows[run_id] = dataclasses.replace(row, summary=moved)
        self._write_soon()

    async def add_receipts(self, places: Iterable[ReceiptPlace]) -> None:
        """
        Queue where receipts lie.
        """
        self._waiting.places += places
        if self._waiting.places:
            self._write_soon()

    async def settle(self) -> None:
        """
        Write what waits, for other processes to see.
        """
        await self._flush()

    # -- what is asked, and changed at once

    async def apply(
        self, rows: Iterable[IndexedRun], moves: Iterable[runs.Transition], places: Iterable[ReceiptPlace]
    ) -> None:
        """
        Write rows, moves and receipts in one go.
        """
        await self._flush(None)
        await self._inner.apply(rows, moves, places)

    async def move(self, transition: runs.Transition) -> bool:
        """
        Apply a move.
        """
        await self._flush(transition.run_id)
        return await self._inner.move(transition)

    async def add_missing(self, found: Iterable[IndexedRun]) -> None:
        """
        Write the rows of runs that have none.
        """
        await self._flush(None)
        await self._inner.add_missing(found)

    async def remove_run(self, run_id: str) -> None:
        """
        Remove a run's row.
        """
        await self._flush(run_id)
        await self._inner.remove_run(run_id)

    async def set_owner(self, run_id: str, owner: str) -> None:
        """
        Note who continues a run.
        """
        await self._flush(run_id)
        await self._inner.set_owner(run_id, owner)

    async def get_run(self, run_id: str) -> IndexedRun | None:
        """
        Return a run's row.
        """
        fresh = self._fresh.pop(run_id, None)
        if (known := self._waiting.rows.get(run_id) or fresh) is not None:
            return known
        if run_id in self._waiting.moves or self._turn.locked():
            await self._flush()
        return await self._inner.get_run(run_id)

    async def find_key(self, idempotency_key: str) -> IndexedRun | None:
        """
        Return the run that was made under a key.
        """
        await self._flush()
        return await self._inner.find_key(idempotency_key)

    async def find_busy(self, recipe_id: str) -> str | None:
        """
        Return an unfinished run of a recipe.
        """
        await self._flush()
        return await self._inner.find_busy(recipe_id)

    async def run_ids(self) -> set[str]:
        """
        Return the ids of all rows.
        """
        await self._flush()
        return await self._inner.run_ids()

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        """
        Return runs, newest first.
        """
        await self._flush()
        return await self._inner.list_runs(query)

    async def list_unfinished(self) -> list[stores.RunSummary]:
        """
        Return every unfinished run.
        """
        await self._flush()
        return await self._inner.list_unfinished()

    async def count_by_status(self) -> dict[str, int]:
        """
        Return how many runs are in each state.
        """
        await self._flush()
        return await self._inner.count_by_status()

    async def find_receipt(self, receipt_id: str) -> ReceiptPlace | None:
        """
        Return where a receipt lies.
        """
        await self._flush()
        return await self._inner.find_receipt(receipt_id)

    async def put_issue(self, issue: Mapping[str, plain.Json]) -> None:
        """
        Write an issue's row.
        """
        await self._inner.put_issue(issue)

    async def clear(self) -> None:
        """
        Remove every row.
        """
        await self._flush(None)
        await self._inner.clear()

    # -- writing

    def _write_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write_or_wait(), name="index")

    async def _write_or_wait(self) -> None:
        try:
            await self._flush()
        except errors.StorageFault as fault:
            _log.warning("rows wait: %s", fault.message)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_PAUSE_AFTER_FAILURE_SECONDS, self._begin)

    async def _flush(self, *changed: str | None) -> None:
        for run_id in changed:
            if run_id is None:
                self._fresh.clear()
            else:
                self._fresh.pop(run_id, None)
        if not self._waiting and not self._turn.locked():
            return
        async with self._turn:
            if not self._waiting:
                return
            taken, self._waiting = self._waiting, _Waiting()
            try:
                moves = [move for moved in taken.moves.values() for move in moved]
                await self._inner.apply(taken.rows.values(), moves, taken.places)
            except errors.StorageFault:
                self._put_back(taken)
                raise

    def _put_back(self, taken: _Waiting) -> None:
        later, self._waiting = self._waiting, taken
        for run_id, row in later.rows.items():
            taken.rows[run_id] = row
            taken.moves.pop(run_id, None)
        for run_id, moves in later.moves.items():
            for move in moves:
                _join(taken.moves.setdefault(run_id, []), move)
        taken.places += later.places


def _join(moves: list[runs.Transition], move: runs.Transition) -> None:
    # Two moves of which the second follows from the first are one, from wherever either could begin.
    if moves and moves[-1].to in move.since:
        move = runs.Transition(
            run_id=move.run_id,
            to=move.to,
            since=moves.pop().since | move.since,
            at=move.at,
            error_code=move.error_code,
        )
    moves.append(move)
