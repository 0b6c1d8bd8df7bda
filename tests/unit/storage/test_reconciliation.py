"""Reconciliation beside other processes: what one does between its read and its write is not undone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from app import clock, errors
from app.domain import issues, runs
from app.domain.decisions import DecisionKind
from app.domain.states import RunState
from app.engine import stores
from app.storage.data_directory import DataDirectory
from app.storage.folder_store import FolderStore
from app.storage.index.index_port import IndexedRun, ReceiptPlace
from app.storage.index.memory_index import MemoryIndex
from app.storage.index.sql.index import SqlIndex
from app.storage.memory_store import MemoryStore
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN


class Meddled(SqlIndex):
    """Rows with a disturbance once before one is written in place of another, or after one has moved."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.before_put: Callable[[], Awaitable[None]] | None = None
        self.after_move: Callable[[], Awaitable[object]] | None = None

    async def put_run(self, run: IndexedRun) -> None:
        await self._meddle()
        await super().put_run(run)

    async def apply(self, rows: Iterable[IndexedRun], *others: Any) -> None:
        await self._meddle()
        await super().apply(rows, *others)

    async def move(self, transition: runs.Transition) -> bool:
        moved = await super().move(transition)
        happening, self.after_move = self.after_move, None
        if happening is not None:
            await happening()
        return moved

    async def _meddle(self) -> None:
        happening, self.before_put = self.before_put, None
        if happening is not None:
            await happening()


class Process:
    """A process on a data directory."""

    def __init__(self, place: Path) -> None:
        directory = DataDirectory(place, clock=clock.SystemClock(), ids=clock.RandomIds())
        self.index = Meddled(directory.index_url())
        self.store = FolderStore(directory, self.index, clock=clock.SystemClock())

    async def resume(self) -> None:
        """Resume the run and release it."""
        log = await self.store.open(RUN)
        await log.decide(DecisionKind.RESUMED, {"dead": []})
        await log.close()


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Process]:
    """Return a process whose run has ended, and which died before its row was updated."""
    made = Process(tmp_path)
    await made.store.start(serve=False)
    await made.store.create(store_harness.start(owner="process"))
    log = await made.store.open(RUN)
    await log.decide(DecisionKind.ENDED, {"status": "failed"})
    log.abandon()
    yield made
    await made.store.close()


@pytest.fixture
async def other(tmp_path: Path, owner: Process) -> AsyncIterator[Process]:
    """Return another process on the same directory."""
    made = Process(tmp_path)
    await made.store.start(serve=False)
    yield made
    await made.store.close()


async def test_a_row_catches_up_with_an_ending(owner: Process, other: Process) -> None:
    """The row of a run whose process died after its ending is completed by the next comparison."""
    await other.store.list_unfinished()

    assert (await owner.store.summary(RUN)).status == "failed"


async def test_a_resume_during_a_row_write_is_refused(owner: Process, other: Process) -> None:
    """A resume between the read of the folder and the write of the row is refused, and works when repeated."""
    refused: list[str] = []

    async def resume() -> None:
        with pytest.raises(errors.Conflict) as refusal:
            await owner.resume()
        refused.append(refusal.value.code)

    other.index.before_put = resume
    await other.store.list_unfinished()
    between = (await other.store.summary(RUN)).status
    await owner.resume()

    assert refused == ["run_busy"]
    assert between == "failed"
    assert (await other.store.summary(RUN)).status == "pending"


async def test_a_run_that_is_being_resumed_is_not_shown_finished(owner: Process, other: Process) -> None:
    """While a resume has moved the row and not yet written its line, the ending on disk is not copied to the row."""
    owner.index.after_move = other.store.list_unfinished
    await owner.resume()

    assert (await other.store.summary(RUN)).status == "pending"
    assert (await owner.store.read(RUN)).decisions.ended is None


class Dying(MemoryIndex):
    """New rows, in a process that dies before one of its writes."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.left = writes

    async def add_missing(self, found: Iterable[IndexedRun]) -> None:
        self._die()
        await super().add_missing(found)

    async def add_receipts(self, places: Iterable[ReceiptPlace]) -> None:
        self._die()
        await super().add_receipts(places)

    async def put_issues(self, found: Iterable[issues.IssueSummary], *, doubtful: bool = False) -> None:
        self._die()
        await super().put_issues(found, doubtful=doubtful)

    def _die(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise store_harness.Died


@pytest.mark.parametrize("writes", [0, 1, 2])
async def test_an_index_that_was_begun_anew_is_completed(writes: int) -> None:
    """If a start that makes every row anew is cut off anywhere, the next one finds all runs of the folders."""
    first = MemoryStore(clock=clock.FakeClock())
    await first.start()
    await first.create(store_harness.start())
    log = await first.open(RUN)
    await log.add_receipt(await log.append_step(store_harness.proven("a")))
    await store_harness.end(log)
    await log.close()
    await first.issues.open({"issue_id": "iss_1", "title": "t"})
    await first.close()
    index = Dying(writes)
    cut_off = MemoryStore(clock=clock.FakeClock(), disk=first.disk, index=index)
    with contextlib.suppress(store_harness.Died):
        await cut_off.start()
        await cut_off.list_unfinished()
    cut_off.abandon()
    store = MemoryStore(clock=clock.FakeClock(), disk=first.disk.crashed(lose_unsynced=False), index=index.copy())
    await store.start()
    await store.list_unfinished()

    assert index.left < 0
    assert [row.run_id for row in await store.list_runs(stores.RunQuery())] == [RUN]
    assert (await store.find_receipt("rcpt_a"))["key"] == "a"
    assert [row.issue_id for row in await store.issues.list(issues.IssueQuery())] == ["iss_1"]
    await store.close()


async def test_an_ended_run_whose_row_was_taken_back_is_shown_as_it_ended(tmp_path: Path) -> None:
    """An ended run whose row a power cut has taken back is shown by its journal until an engine opens it."""
    before = Process(tmp_path)
    await before.store.start(serve=False)
    await before.store.create(store_harness.start())
    log = await before.store.open(RUN)
    await log.decide(DecisionKind.ENDED, {"status": "failed"})
    log.abandon()
    await before.store.close()
    after = Process(tmp_path)
    await after.store.start(serve=True)
    try:
        to_open = [run.run_id for run in await after.store.list_unfinished()]
        row = (await after.index.list_runs(stores.RunQuery()))[0].status
        shown = [run.status for run in await after.store.list_runs(stores.RunQuery())]
        asked = {
            status: len(await after.store.list_runs(stores.RunQuery(status=status)))
            for status in ("pending", "running", "failed")
        }
        detail = (await after.store.summary(RUN)).status
        opened = await after.store.open(RUN)
        await opened.move(runs.Transition.end(RUN, RunState.FAILED, "2026-02-10T14:32:00.000Z"))
        await opened.close()
        await after.resume()
        resumed = [run.status for run in await after.store.list_runs(stores.RunQuery())]
    finally:
        await after.store.close()

    assert (to_open, row) == ([RUN], "pending")
    assert (shown, detail) == (["failed"], "failed")
    assert asked == {"pending": 0, "running": 0, "failed": 1}
    assert resumed == ["pending"]
