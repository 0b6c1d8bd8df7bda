"""The journal: the event loop continues during a slow sync, and the committer can be exchanged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app import clock, errors
from app.domain import plain
from app.engine import probes
from app.engine.event_feed import EventFeed
from app.storage.committer import Commit, FileCommitter
from app.storage.disk.disk_health import DiskHealth
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.disk.os_disk import OsDisk
from app.storage.disk.read_faults import ReadFaults
from app.storage.disk.worker_threads import NextTurnWorker, WorkerThreads
from app.storage.index.memory_index import MemoryIndex
from app.storage.journal import chain
from app.storage.journal.journal import Journal
from app.storage.storage_context import StorageContext, WriteThrottle

ANCHOR = plain.labelled_sha256(b"{}\n")


class SharedLog:
    """A committer that makes the lines of all journals durable at once, like a log over all runs."""

    def __init__(self) -> None:
        self.syncs: list[list[str]] = []
        self._begun: list[tuple[Commit, Callable[[BaseException | None], None]]] = []

    def gather(self, launch: Callable[[], None]) -> None:
        """Call back in the next turn."""
        asyncio.get_running_loop().call_soon(launch)

    def begin(self, commit: Commit, done: Callable[[BaseException | None], None]) -> None:
        """Accept a commit; all commits of one turn share a sync."""
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._sync)
        self._begun.append((commit, done))

    def _sync(self) -> None:
        begun, self._begun = self._begun, []
        self.syncs.append([commit.path for commit, _ in begun])
        for _, done in begun:
            done(None)


def context_over(disk: MemoryDisk | OsDisk, committer: object = None) -> StorageContext:
    """Return the context that a journal needs."""
    workers = NextTurnWorker()
    return StorageContext(
        disk=disk,
        bare_disk=disk,
        read_faults=ReadFaults(clock.FakeClock()),
        committer=committer or FileCommitter(workers, probes.NoProbes()),  # type: ignore[arg-type]
        workers=workers,
        quick_workers=workers,
        index=MemoryIndex(),
        disk_health=DiskHealth(),
        clock=clock.FakeClock(),
        probes=probes.NoProbes(),
        throttle=WriteThrottle(0.05),
        feed=EventFeed(clock.FakeClock().monotonic),
    )


def journal_of(context: StorageContext, path: str) -> Journal:
    """Return a new journal."""
    return Journal(path, "storage.append", context, chain.read(b"", ANCHOR), context.disk.append_to(path))


@pytest.fixture
async def threads() -> AsyncIterator[WorkerThreads]:
    """Return two threads, and end them."""
    made = WorkerThreads(2, "test")
    yield made
    made.close()


async def test_a_slow_sync_does_not_block_the_loop(tmp_path: Path, threads: WorkerThreads) -> None:
    """A slow sync delays only the caller of its line; lines that come meanwhile share the next one."""
    loop, hold, syncing, syncs = asyncio.get_running_loop(), threading.Event(), asyncio.Event(), []

    class Slow:
        def reach(self, point: str) -> None:
            if point.endswith("before_sync"):
                syncs.append(point)
                loop.call_soon_threadsafe(syncing.set)
                hold.wait(60)

    context = replace(context_over(OsDisk(tmp_path)), committer=FileCommitter(threads, Slow()))
    journal = journal_of(context, "j")
    first = journal.append(b'{"n":1}')
    await syncing.wait()
    others = [journal.append(plain.encode({"n": n})) for n in range(2, 10)]
    for _ in range(100):
        await asyncio.sleep(0)
    waited = not first.done() and not any(other.done() for other in others)
    hold.set()
    placed = await asyncio.gather(first, *others)
    await journal.close()
    reading = chain.read((tmp_path / "j").read_bytes(), ANCHOR)

    assert waited
    assert len(syncs) == 2
    assert list(placed) == list(range(9))
    assert [line.fields["batch"] for line in reading.lines] == [0, *[1] * 8]
    assert reading.integrity is chain.Integrity.WHOLE


async def test_journals_of_all_runs_can_share_a_sync() -> None:
    """A committer over all runs fits the interface: lines of many journals, one sync."""
    shared, disk = SharedLog(), MemoryDisk()
    context = context_over(disk, shared)
    journals = [journal_of(context, f"j{number}") for number in range(5)]
    await asyncio.gather(*(journal.append(b'{"n":1}') for journal in journals for _ in range(3)))

    assert shared.syncs == [[f"j{number}" for number in range(5)]]
    for number in range(5):
        assert len(chain.read(disk.read(f"j{number}"), ANCHOR).lines) == 3


async def test_a_commit_error_outside_the_disk_reaches_its_caller() -> None:
    """An error of a commit that is not a refusal of the disk reaches the caller unchanged."""

    class Broken(SharedLog):
        def begin(self, commit: Commit, done: Callable[[BaseException | None], None]) -> None:
            asyncio.get_running_loop().call_soon(done, RuntimeError("broken"))

    journal = journal_of(context_over(MemoryDisk(), Broken()), "j")
    with pytest.raises(RuntimeError):
        await journal.append(b'{"n":1}')

    assert journal.fault is not None


async def test_draining_waits_for_lines_whose_callers_went_away() -> None:
    """Draining writes the lines whose callers went away before the file is released."""
    disk = MemoryDisk()
    journal = journal_of(context_over(disk), "j")
    journal.append(b'{"n":1}').cancel()
    journal.append(b'{"n":2}', sync=False).cancel()
    await journal.close()

    assert [line.fields["n"] for line in chain.read(disk.read("j"), ANCHOR).lines] == [1, 2]


async def test_healing_keeps_every_confirmed_line(tmp_path: Path) -> None:
    """If confirmed lines can no longer be read, healing fails and the file stays unchanged."""
    context = context_over(OsDisk(tmp_path))
    journal = journal_of(context, "j")
    await journal.append(b'{"n":1}')
    (tmp_path / "j").write_bytes(b"overwritten")
    journal._file.close()
    with pytest.raises(errors.StorageFault):
        await journal.append(b'{"n":2}')
    with pytest.raises(errors.StorageFault):
        await journal.heal()

    assert (tmp_path / "j").read_bytes() == b"overwritten"


async def test_an_append_to_a_closed_journal_is_refused() -> None:
    """An append after the close is refused, and not reported as a full disk."""
    context = context_over(MemoryDisk())
    journal = journal_of(context, "j")
    await journal.close()
    for sync in (True, False):
        with pytest.raises(errors.StorageFault):
            await journal.append(b'{"n":1}', sync=sync)

    assert context.disk_health.free


async def test_threads_hand_results_and_errors_back(threads: WorkerThreads) -> None:
    """A job's result or error returns to the loop; the threads outlive both."""

    def fail() -> None:
        raise OSError("no")

    found = await asyncio.gather(threads.run(lambda: 1), threads.run(fail), return_exceptions=True)

    assert found[0] == 1
    assert isinstance(found[1], OSError)
    assert await threads.run(threading.get_ident) != threading.get_ident()


async def test_threads_are_started_when_they_are_needed() -> None:
    """Jobs in sequence use one thread; jobs at the same time use more, up to the limit."""
    threads = WorkerThreads(3, "test")
    for _ in range(5):
        await threads.run(lambda: None)
    alone = len(threads._threads)
    barrier = threading.Barrier(3, timeout=60)
    await asyncio.gather(*(threads.run(barrier.wait) for _ in range(3)))
    together = len(threads._threads)
    threads.close()

    assert (alone, together) == (1, 3)
