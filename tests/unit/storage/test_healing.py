"""Healing that is cut off: if its caller goes away, no valid line is undone."""

from __future__ import annotations

import asyncio
import threading

import pytest

from app import errors
from app.storage.runs.folder_log import FolderLog
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN

A_WHILE_SECONDS = 0.2


class Late:
    """A copy of a journal that is ready, and waits before it replaces the journal."""

    def __init__(self, passed: store_harness.Passed) -> None:
        self.ready = threading.Event()
        self.may_go_on = threading.Event()
        self._over = threading.Event()
        self._passed = passed
        passed.at["storage.heal.before_write"] = self._wait

        passed.at["storage.heal.after_rename"] = self._over.set

    async def is_over(self) -> None:
        """Wait until the copy has replaced the journal."""
        await asyncio.to_thread(self._over.wait)

    def _wait(self) -> None:
        # Only the first one waits.
        if self._passed.points["storage.heal.before_write"] == 1:
            self.ready.set()
            self.may_go_on.wait()
            self._over.clear()


async def cut_off(harness: store_harness.FolderStoreHarness, log: FolderLog) -> Late:
    """Let a line be refused, and cut off the healing when its copy is ready."""
    harness.faults.refuse("write", "steps.jsonl")
    with pytest.raises(errors.StorageFault):
        await log.append_step(store_harness.step("b"))
    harness.faults.lift()
    late = Late(harness.passed)
    healing = asyncio.create_task(log.heal())
    await asyncio.to_thread(late.ready.wait)
    healing.cancel()
    await asyncio.wait([healing])
    assert healing.cancelled()
    return late


async def test_a_copy_that_comes_late_takes_nothing_back(harness: store_harness.FolderStoreHarness) -> None:
    """After a healing that was cut off, the next one waits for it, and lines written later are kept."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    late = await cut_off(harness, log)
    again = asyncio.create_task(log.heal())
    await asyncio.wait([again], timeout=A_WHILE_SECONDS)
    if waited := not again.done():
        late.may_go_on.set()
    await again
    await log.append_step(store_harness.step("b"))
    late.may_go_on.set()
    await log.close()
    await late.is_over()

    assert waited
    assert [record.key for record in (await harness.store.read(RUN)).records] == ["a", "b"]


async def test_a_run_is_not_let_go_of_before_its_copy_is_in_place(harness: store_harness.FolderStoreHarness) -> None:
    """A close waits for a healing that was cut off, so that no later opening loses a line to it."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    late = await cut_off(harness, log)
    closing = asyncio.create_task(log.close())
    await asyncio.wait([closing], timeout=A_WHILE_SECONDS)
    if waited := not closing.done():
        late.may_go_on.set()
    await closing
    again = await harness.store.open(RUN)
    await again.append_step(store_harness.step("b"))
    late.may_go_on.set()
    await again.close()
    await late.is_over()

    assert waited
    assert [record.key for record in (await harness.store.read(RUN)).records] == ["a", "b"]
    with pytest.raises(errors.StorageFault):
        await log.heal()
