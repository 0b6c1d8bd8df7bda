"""Projections of an open run, written behind its steps."""

from __future__ import annotations

import pytest

from app import clock
from app.storage import memory_store
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN


class Broken:
    """Probes with a bug that occurs once."""

    def __init__(self) -> None:
        self.has_failed = False

    def reach(self, point: str) -> None:
        """Fail just before the first receipt is indexed."""
        if point == "storage.receipt.before_row" and not self.has_failed:
            self.has_failed = True
            raise RuntimeError("a bug")


async def test_a_failed_write_is_reported_and_repeated() -> None:
    """A waiting caller gets the error of a failed write, and the next write completes it."""
    store = memory_store.MemoryStore(clock=clock.FakeClock(), probes=Broken())
    await store.start()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    await log.add_receipt(await log.append_step(store_harness.proven("a", {"found": ["x"]})))
    with pytest.raises(RuntimeError, match="a bug"):
        await log.flush()
    await log.flush()
    found = await store.index.find_receipt("rcpt_a")
    await log.close()
    await store.close()

    assert found is not None
