"""The index in a database, behind one thread."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from app import errors, extras
from app.domain import issues, receipts, runs, states
from app.domain.authors import RunOrder
from app.engine import run_sums, spending, stores
from app.storage.disk import disk_health
from app.storage.disk.worker_threads import WorkerThreads
from app.storage.index import reads, sums
from app.storage.index import spending as run_spending
from app.storage.index.index_port import IndexedRun, ReceiptPlace
from app.storage.index.sql import database, writes
from app.storage.index.sql.database import Database, ReadSession, WriteSession

if TYPE_CHECKING:
    from app.domain import audit

_log = logging.getLogger(__name__)

_BUSY_SECONDS = 20.0
_BROKEN_OFF = ("40001", "40P01")  # Codes of Postgres for a transaction that it rolls back for others.
_WRITERS = 2  # Other processes that may write the same row before this one succeeds.
_FINISHED = frozenset(state for state in states.RunState if state.finished)

P = ParamSpec("P")
T = TypeVar("T")


class SqlIndex:
    """`Index` over SQLite or Postgres."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._database: Database | None = None
        self._thread = WorkerThreads(1, "index")
        # On a thread of their own, long reads do not delay writers.
        self._searching: Database | None = None
        self._searches = WorkerThreads(1, "searches")
        self.changes = 0
        """Always 0; the queue in front of this index counts."""

    async def start(self) -> bool:
        """Migrate the tables; set a damaged index file aside for a new one, since the folders contain all its content.

        Raises:
            errors.ConfigurationError: `index_unusable`; `index_away` if it may be reachable later.
        """
        return await self._thread.run(self._open)

    async def close(self) -> None:
        found, self._database = self._database, None
        if found is not None:
            await self._thread.run(found.close)
        searching, self._searching = self._searching, None
        if searching is not None:
            await self._searches.run(searching.close)
        self._thread.close()
        self._searches.close()

    async def put_run(self, run: IndexedRun) -> None:
        await self._write_over(writes.put_run, run)

    async def apply(
        self, rows: Iterable[IndexedRun], moves: Iterable[runs.Transition], places: Iterable[ReceiptPlace]
    ) -> None:
        given, moved, found = list(rows), list(moves), list(places)
        try:
            await self._write(writes.apply, given, moved, found)
        except database.IntegrityFault:
            for row in given:
                await self._put_or_pass(row)
            await self._write(writes.apply, [], moved, [])
            await self.add_receipts(found)

    async def flush(self) -> None:
        """Do nothing; every transaction is committed before its method returns."""

    async def add_missing(self, found: Iterable[IndexedRun]) -> None:
        await self._write_over(writes.add_missing, list(found))

    async def remove_run(self, run_id: str) -> None:
        await self._write(writes.remove_run, run_id)

    async def move(self, transition: runs.Transition) -> bool:
        if transition.since & _FINISHED:
            return await self._write_durably(writes.move, transition)
        return await self._write(writes.move, transition)

    async def move_soon(self, transition: runs.Transition) -> None:
        await self.move(transition)

    async def set_owner(self, run_id: str, owner: str) -> None:
        await self._write_durably(writes.set_owner, run_id, owner)

    async def doubt(self, run_id: str) -> None:
        await self._write_durably(writes.doubt, run_id)

    async def relabel(self, run_id: str, labels: Mapping[str, str], *, pinned: bool) -> None:
        await self._write(writes.relabel, run_id, labels, pinned=pinned)

    async def get_run(self, run_id: str) -> IndexedRun | None:
        return await self._read(reads.get_run, run_id)

    async def find_key(self, idempotency_key: str) -> IndexedRun | None:
        return await self._read(reads.find_key, idempotency_key)

    async def find_busy(self, recipe_id: str) -> str | None:
        return await self._read(reads.find_busy, recipe_id)

    async def uncounted(self, behind: tuple[str, str] | None, limit: int) -> list[tuple[str, str]]:
        return await self._read(reads.uncounted, behind, limit)

    async def count_again(self, found: Iterable[IndexedRun]) -> None:
        await self._write(writes.count_again, list(found))

    async def run_ids(self) -> set[str]:
        return await self._read(reads.run_ids)

    async def list_runs(self, query: stores.RunQuery) -> list[stores.RunSummary]:
        read = self._read if query.q is None else self._search
        return await read(reads.list_runs, query)

    async def list_unfinished(self, key_prefix: str = "") -> list[stores.RunSummary]:
        return await self._read(reads.list_unfinished, key_prefix)

    async def count_by_status(self) -> dict[str, int]:
        return await self._read(reads.count_by_status)

    async def totals(self, since: run_sums.Since, aside: Sequence[str]) -> run_sums.Totals:
        return await self._search(sums.totals, since, aside)

    async def usage(
        self, query: run_sums.UsageQuery, aside: Sequence[str]
    ) -> tuple[run_sums.Sums, run_sums.UsageAmounts]:
        return await self._search(sums.usage, query, aside)

    async def spent(self, query: spending.SpentQuery, aside: Sequence[str] = ()) -> spending.Spent:
        return await self._search(run_spending.spent, query, aside)

    async def add_receipts(self, places: Iterable[ReceiptPlace]) -> None:
        given = list(places)
        if not given:
            return
        try:
            await self._write(writes.add_receipts, given)
        except database.IntegrityFault:
            await self._write(writes.replace_receipts, given)

    async def find_receipt(self, receipt_id: str) -> ReceiptPlace | None:
        return await self._read(reads.find_receipt, receipt_id)

    async def list_receipts(self, query: receipts.ReceiptQuery) -> list[ReceiptPlace]:
        return await self._read(reads.list_receipts, query)

    async def put_issues(self, found: Iterable[issues.IssueSummary], *, doubtful: bool = False) -> None:
        await self._write_over(writes.put_issues, list(found), doubtful)

    async def mark_issue(self, issue_id: str) -> None:
        await self._write_durably(writes.mark_issue, issue_id)

    async def remove_issues(self, issue_ids: Iterable[str]) -> None:
        await self._write(writes.remove_issues, list(issue_ids))

    async def issue_rows(self) -> dict[str, bool]:
        return await self._read(reads.issue_rows)

    async def list_issues(self, query: issues.IssueQuery) -> list[issues.IssueSummary]:
        return await self._read(reads.list_issues, query)

    async def add_orders(self, found: Iterable[RunOrder]) -> None:
        if given := list(found):
            await self._write_over(writes.add_orders, given)

    async def list_orders(self, query: audit.AuditQuery) -> list[RunOrder]:
        return await self._search(reads.list_orders, query)

    async def has_session(self, session_id: str) -> bool:
        return await self._read(reads.has_session, session_id)

    async def clear(self) -> None:
        await self._write(writes.clear)

    async def _put_or_pass(self, run: IndexedRun) -> None:
        try:
            await self.put_run(run)
        except database.IntegrityFault as error:
            _log.error("a row cannot be written: %s", error.orig, extra={"run_id": run.summary.run_id})

    async def _read(self, query: Callable[Concatenate[ReadSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def work() -> T:
            with self._opened().reading() as session:
                return query(session, *args, **kwargs)

        return await self._thread.run(functools.partial(self._patiently, work))

    async def _search(self, query: Callable[Concatenate[ReadSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def work() -> T:
            if self._searching is None:
                self._opened()
                self._searching = _database_of(self._url)
            with self._searching.reading() as session:
                return query(session, *args, **kwargs)

        return await self._searches.run(functools.partial(self._patiently, work))

    async def _write(self, query: Callable[Concatenate[WriteSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._change(False, query, *args, **kwargs)

    async def _write_over(
        self, query: Callable[Concatenate[WriteSession, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        # On Postgres another process may write a row between this one's read and its write; the next try sees the row.
        for _ in range(_WRITERS):
            with contextlib.suppress(database.IntegrityFault):
                return await self._write(query, *args, **kwargs)
        return await self._write(query, *args, **kwargs)

    async def _write_durably(
        self, query: Callable[Concatenate[WriteSession, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._change(True, query, *args, **kwargs)

    async def _change(
        self, durable: bool, query: Callable[Concatenate[WriteSession, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def work() -> T:
            with self._opened().writing(durable=durable) as session:
                return query(session, *args, **kwargs)

        return await self._thread.run(functools.partial(self._patiently, work))

    def _patiently(self, work: Callable[[], T]) -> T:
        try:
            return _retried(work)
        except database.IntegrityFault:
            raise
        except database.DatabaseFault as error:
            away = self._is_away(error)
            kind = errors.DatabaseAway if away else errors.StorageFault
            raise kind(self._described(str(error.orig), away=away), detail={"file": "index"}) from error

    def _opened(self) -> Database:
        if self._database is None:
            raise errors.StorageFault("the index is closed")
        return self._database

    def _open(self) -> bool:
        if self._database is not None:
            return False
        try:
            return self._migrated_or_renewed()
        except (database.DatabaseFault, ImportError, OSError) as error:
            file = _file(self._url)
            if file is not None and disk_health.is_full(file.parent):
                raise disk_health.no_space(f"the index {file}") from error
            # The driver's own error contains the cause; the error around it only the place.
            reason = getattr(error, "orig", None) or error
            if isinstance(error, ModuleNotFoundError):
                reason = f"its driver, the package {error.name}, is not installed"
                reason += f"; {extras.install('postgres')} brings it" if error.name == "psycopg" else ""
            away = self._is_away(error)
            message = self._described(str(reason), away=away)
            raise errors.ConfigurationError(message, code="index_away" if away else "index_unusable") from error

    def _is_away(self, error: Exception) -> bool:
        is_passing = isinstance(error, database.OperationalFault) and _is_away(str(error.orig))
        return is_passing and _file(self._url) is None

    def _described(self, reason: str, *, away: bool) -> str:
        reason = self._masked(" ".join(reason.split()))
        if away:
            return f"the index {self._shown()} cannot be reached: {reason}"
        return f"the index {self._shown()} cannot be used: {reason}"

    def _migrated_or_renewed(self) -> bool:
        file = _file(self._url)
        if file is None:
            return self._migrated()
        _make_private(file)
        try:
            return self._migrated()
        except database.DatabaseFault as error:
            # The rows are a copy of the journals, which a new index is filled from.
            if not _damaged(error):
                raise
            _log.error("the index is damaged and is rebuilt", extra={"file": str(file), "error": str(error.orig)})
            _set_aside(file)
            _make_private(file)
            return self._migrated()

    def _migrated(self) -> bool:
        found = _database_of(self._url)
        try:
            new = _retried(found.migrate)
        except BaseException:
            found.close()
            raise
        self._database = found
        return new

    def _masked(self, reason: str) -> str:
        if database.path_of(self._url) is not None:
            return reason
        from app.storage.index.sql import servers

        return servers.masked(self._url, reason)

    def _shown(self) -> str:
        if database.path_of(self._url) is not None:
            return self._url
        from app.storage.index.sql import servers

        return servers.shown(self._url)


def _busy(error: BaseException) -> bool:
    if not isinstance(error, database.OperationalFault):
        return False
    return "locked" in str(error.orig) or getattr(error.orig, "sqlstate", None) in _BROKEN_OFF


def _damaged(error: database.DatabaseFault) -> bool:
    return any(words in str(error.orig) for words in ("not a database", "malformed"))


def _retried(work: Callable[[], T]) -> T:
    try:
        return work()
    except database.OperationalFault as error:
        if not _busy(error):
            raise
    # Imported only if a database is busy for longer than its driver waits.
    import tenacity

    for attempt in tenacity.Retrying(
        retry=tenacity.retry_if_exception(_busy),
        wait=tenacity.wait_exponential(multiplier=0.01, max=0.5),
        stop=tenacity.stop_after_delay(_BUSY_SECONDS),
        reraise=True,
    ):
        with attempt:
            result = work()
    return result


def _database_of(url: str) -> Database:
    if (path := database.path_of(url)) is not None:
        from app.storage.index.sql import sqlite_file

        return sqlite_file.SqliteFile(path)
    from app.storage.index.sql import servers

    return servers.Server(url)


def _file(url: str) -> Path | None:
    path = database.path_of(url)
    if path is None:
        from app.storage.index.sql import servers

        path = servers.path_of(url)
    return None if path is None else Path(path)


def _make_private(file: Path) -> None:
    # SQLite creates its side files with the mode of the database file.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _set_aside(file: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        part = file.with_name(file.name + suffix)
        if part.exists():
            os.replace(part, file.with_name(f"{file.name}.damaged{suffix}"))


def _is_away(reason: str) -> bool:
    # A server that answers reports a refusal with FATAL. Only while it starts, stops or is full does that count as
    # away.
    passing = ("starting up", "shutting down", "too many", "connection slots")
    return "FATAL" not in reason or any(words in reason for words in passing)
