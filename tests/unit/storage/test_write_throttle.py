"""The write throttle of projections: writing them does not delay a fast run."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from app.domain.events import EventType
from app.storage import storage_context
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN
from tests.unit.storage import writer_processes

LONG_SECONDS = 0.02


class Writing:
    """Probes that make each snapshot slow, and measure how long all of them took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.count = 0

    def reach(self, point: str) -> None:
        """Take the time of a slow disk."""
        if point == "storage.snapshot.before_write":
            threading.Event().wait(LONG_SECONDS)
            self.seconds += LONG_SECONDS
            self.count += 1


async def test_snapshots_take_at_most_their_share(tmp_path: Path) -> None:
    """However often a run changes, writing its snapshots takes a twentieth of the time at most."""
    writing = Writing()
    store = writer_processes.store_in(tmp_path, writing)
    await store.start()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    loop = asyncio.get_running_loop()
    began, changes = loop.time(), 0
    while (took := loop.time() - began) < 1.5:
        changes += 1
        log.refresh(lambda changes=changes: {"run.json": {"changes": changes}})  # type: ignore[misc]
        log.add_event(EventType.STEP_STARTED, "a")
        await asyncio.sleep(0.001)
    share, written = writing.seconds / took, writing.count
    await log.flush()
    last = (await store.read_snapshots(RUN))["run.json"]
    await log.close()
    await store.close()

    assert written >= 1
    assert share <= storage_context.LARGEST_SHARE + 0.02
    assert last == {"changes": changes}


async def test_a_short_run_writes_its_snapshots_once(tmp_path: Path) -> None:
    """A run that is over at once writes each projection when it rests, and not before."""
    writing = Writing()
    store = writer_processes.store_in(tmp_path, writing)
    await store.start()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    for number in range(10):
        log.refresh(lambda number=number: {"run.json": {"n": number}})  # type: ignore[misc]
    await log.flush()
    count = writing.count
    log.refresh(lambda: {"run.json": {"n": 9}})
    await log.flush()
    await log.close()
    await store.close()

    assert count == 1
    assert writing.count == 1


async def test_a_slow_run_shows_each_change_soon(tmp_path: Path) -> None:
    """Rare changes are written to a snapshot soon, without a request for it."""
    loop, written = asyncio.get_running_loop(), asyncio.Event()

    class WatchingProbe:
        def reach(self, point: str) -> None:
            if point == "storage.snapshot.after_rename":
                loop.call_soon_threadsafe(written.set)

    store = writer_processes.store_in(tmp_path, WatchingProbe())
    await store.start()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    for number in range(3):
        written.clear()
        log.refresh(lambda number=number: {"run.json": {"n": number}})  # type: ignore[misc]
        await asyncio.wait_for(written.wait(), 60)
        assert (await store.read_snapshots(RUN))["run.json"] == {"n": number}
    await log.close()
    await store.close()
