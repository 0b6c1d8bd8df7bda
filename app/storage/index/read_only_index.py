"""The index opened read-only over the standard library's `sqlite3`, without an engine, a pool or a lock.

Rows in which the folders differ from the file are kept in memory, in front of the file: a command that reads shows the
same as a service, whether or not one runs, and changes nothing.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from app import clock, errors
from app.domain import issues, receipts, runs
from app.domain.authors import RunOrder
from app.engine import run_sums, spending, stores
from app.storage.index import index_port, reads, rows, sums
from app.storage.index import spending as run_spending
from app.storage.index.index_port import IndexedRun, ReceiptPlace
from app.storage.index.memory_index import MemoryIndex

if TYPE_CHECKING:
    from app.domain import audit

_COLUMNS = {
    "runs": rows.WRITTEN,
    "run_labels": rows.LABEL,
    "run_usage": ("run_id", *rows.SUM),
    "run_orders": (*rows.ORDER, "author_name"),
    "receipts": rows.RECEIPT,
    "issues": (*rows.ISSUE, "marked"),
}
_BUSY_SECONDS = 5.0

P = ParamSpec("P")
T = TypeVar("T")


class SqliteReader:
    """`reads.Connection` over an SQLite file."""

    def __init__(self, file: Path) -> None:
        """Raises:
        sqlite3.Error: it cannot be opened, or its tables are those of another release.
        """
        address = f"{file.absolute().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        for table, columns in _COLUMNS.items():
            self._connection.execute(f"SELECT {', '.join(columns)} FROM {table} LIMIT 0")
        undated = self.rows("SELECT 1 FROM run_labels WHERE created_at IS NULL LIMIT 1")
        if undated or self.rows("SELECT 1 FROM runs WHERE NOT counted LIMIT 1"):
            raise sqlite3.DatabaseError("the release before has written to it")

    def rows(self, sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
        return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class ReadOnlyIndex(MemoryIndex):
    """`Index` over a file that is only read; newer rows are in memory and hide those of the file."""

    def __init__(self, file: reads.Connection) -> None:
        super().__init__()
        self._file = file
        self._removed: set[str] = set()
        self._removed_issues: set[str] = set()

    async def start(self) -> bool:
        return False

    async def remove_run(self, run_id: str) -> None:
        await super().remove_run(run_id)
        self._removed.add(run_id)

    async def add_missing(self, found: Iterable[IndexedRun]) -> None:
        for run in found:
            if await self.get_run(run.summary.run_id) is None:
                await self.put_run(run)

    async def move(self, transition: runs.Transition) -> bool:
        await self._load(transition.run_id)
        return await super().move(transition)

    async def set_owner(self, run_id: str, owner: str) -> None:
        await self._load(run_id)
        await super().set_owner(run_id, owner)

    async def get_run(self, run_id: str) -> IndexedRun | None:
        if self._hides(run_id):
            return self._runs.get(run_id)
        return self._read(reads.get_run, run_id)

    async def find_key(self, idempotency_key: str) -> IndexedRun | None:
        found = await super().find_key(idempotency_key) or self._read(reads.find_key, idempotency_key)
        return found if found is None or found.summary.run_id not in self._removed else None

    async def find_busy(self, recipe_id: str) -> str | None:
        busy = [run for run in await self.list_unfinished() if run.recipe_id == recipe_id and run.owner != "foreign"]
        return busy[0].run_id if busy else None

    async def run_ids(self) -> set[str]:
        return (self._read(reads.run_ids) - self._removed) | set(self._runs)

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        more = dataclasses.replace(query, limit=query.limit + len(self._runs) + len(self._removed))
        found = [run for run in self._read(reads.list_runs, more) if not self._hides(run.run_id)]
        found += await super().list_runs(query)
        return sorted(found, key=index_port.age, reverse=True)[: query.limit]

    async def list_unfinished(self, key_prefix: str = "") -> list[stores.RunSummary]:
        found = [run for run in self._read(reads.list_unfinished, key_prefix) if not self._hides(run.run_id)]
        return sorted([*found, *await super().list_unfinished(key_prefix)], key=index_port.age)

    async def count_by_status(self) -> dict[str, int]:
        counts = Counter(self._read(reads.count_by_status))
        hidden = [self._read(reads.get_run, run_id) for run_id in {*self._runs, *self._removed}]
        shown = (run.summary for run in hidden if run is not None and not clock.is_internal(run.summary.run_id))
        counts.subtract(summary.status for summary in shown)
        return dict(+(counts + Counter(await super().count_by_status())))

    async def totals(self, since: run_sums.Since, aside: Sequence[str]) -> run_sums.Totals:
        # Hidden rows are read one by one, since only few differ from the file.
        found = self._read(sums.totals, since, [*aside, *self._runs, *self._removed])
        hidden = MemoryIndex()
        for run_id in {*self._runs, *self._removed}:
            if (run := self._read(reads.get_run, run_id)) is not None:
                await hidden.put_run(run)
        # Sums of the file, less those of the hidden runs, plus those of their newer rows.
        gone, shown = await hidden.totals(since, aside), await super().totals(since, aside)
        return run_sums.Totals(
            by_status=await self.count_by_status(),
            parked=found.parked - gone.parked + shown.parked,
            failed=found.failed - gone.failed + shown.failed,
            created=found.created - gone.created + shown.created,
            usage=found.usage.plus(shown.usage),
        )

    async def usage(
        self, query: run_sums.UsageQuery, aside: Sequence[str]
    ) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
        found, total = self._read(sums.usage, query, [*aside, *self._runs, *self._removed])
        more, added = await super().usage(query, aside)
        return run_sums.merged(found, more), total.plus(added)

    async def spent(self, query: spending.SpentQuery, aside: Sequence[str] = ()) -> spending.Spent:
        found = self._read(run_spending.spent, query, [*aside, *self._runs, *self._removed])
        return run_spending.added(found, await super().spent(query, aside))

    async def find_receipt(self, receipt_id: str) -> ReceiptPlace | None:
        return await super().find_receipt(receipt_id) or self._read(reads.find_receipt, receipt_id)

    async def list_receipts(self, query: receipts.ReceiptQuery) -> list[ReceiptPlace]:
        found = {place.receipt_id: place for place in self._read(reads.list_receipts, query)}
        found |= {place.receipt_id: place for place in await super().list_receipts(query)}
        return sorted(found.values(), key=lambda place: place.position)[: query.limit]

    async def put_issues(self, found: Iterable[issues.IssueSummary], *, doubtful: bool = False) -> None:
        marked = await self.issue_rows()
        await super().put_issues([one for one in found if not doubtful or marked.get(one.issue_id, True)])

    async def remove_issues(self, issue_ids: Iterable[str]) -> None:
        gone = list(issue_ids)
        await super().remove_issues(gone)
        self._removed_issues.update(gone)

    async def issue_rows(self) -> dict[str, bool]:
        known = self._read(reads.issue_rows) | await super().issue_rows()
        return {issue_id: marked for issue_id, marked in known.items() if self._shows(issue_id)}

    async def list_issues(self, query: issues.IssueQuery) -> list[issues.IssueSummary]:
        hidden = len(self._issues) + len(self._removed_issues)
        more = dataclasses.replace(query, limit=query.limit + hidden)
        found = [one for one in self._read(reads.list_issues, more) if one.issue_id not in self._issues]
        found = [one for one in [*found, *await super().list_issues(query)] if self._shows(one.issue_id)]
        return sorted(found, key=lambda one: (one.created_at or "", one.issue_id), reverse=True)[: query.limit]

    async def list_orders(self, query: audit.AuditQuery) -> list[RunOrder]:
        # The orders of a run in memory are complete, so those of the file are hidden.
        hidden = {*self._orders, *self._removed}
        more = dataclasses.replace(query, limit=query.limit + sum(map(len, self._orders.values())))
        found = [order for order in self._read(reads.list_orders, more) if order.run_id not in hidden]
        found += await super().list_orders(query)
        return sorted(found, key=lambda order: order.place, reverse=True)[: query.limit]

    async def has_session(self, session_id: str) -> bool:
        return await super().has_session(session_id) or self._read(reads.has_session, session_id)

    async def _load(self, run_id: str) -> None:
        found = await self.get_run(run_id)
        if found is not None:
            self._runs[run_id] = found

    def _hides(self, run_id: str) -> bool:
        return run_id in self._runs or run_id in self._removed

    def _shows(self, issue_id: str) -> bool:
        return issue_id in self._issues or issue_id not in self._removed_issues

    def _read(self, query: Callable[Concatenate[reads.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return query(self._file, *args, **kwargs)
        except sqlite3.Error as error:
            raise errors.StorageFault(f"the index could not be read: {error}", detail={"file": "index"}) from error


def opened(file: Path) -> MemoryIndex:
    """Return the index of a file, or an empty one in memory, to be filled from all folders, if the file is unusable.

    The next process that writes brings a file of an earlier release up to date.
    """
    try:
        return ReadOnlyIndex(SqliteReader(file))
    except sqlite3.Error:
        return MemoryIndex()
