"""Labels: control lines change them, even after an ending; the rows follow, even after a crash."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from app.domain.decisions import DecisionKind
from app.domain.states import RunState
from app.engine.stores import RunQuery
from app.storage.runs.disk_store import DiskStore
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness

CHANGE = {"labels": {"book": "two", "draft": None, "new": "yes"}, "pinned": True}
LEFT = {"book": "two", "new": "yes"}


async def labelled(store: DiskStore) -> list[str]:
    """Return the runs that lists find by the changed label."""
    await counted(store)
    return [run.run_id for run in await store.list_runs(RunQuery(label=("book", "two"), q="yes"))]


async def counted(store: DiskStore) -> None:
    """Wait until rows that may be older than their folders have been read again."""
    assert store._counting is not None
    assert store._counting._task is not None
    await asyncio.wait([store._counting._task])


async def test_an_ended_run_is_labelled(harness: StoreHarness) -> None:
    """After an ended run is labelled, row, list, search, journal and a rebuilt index agree, and its state stays."""
    await store_harness.ended(harness, "a", labels={"book": "one", "draft": "1"})
    await harness.store.rebuild_index()
    before = await harness.store.summary(RUN)
    log = await harness.store.open(RUN)
    await log.decide(DecisionKind.LABELLED, CHANGE)
    start = log.loaded.start
    await log.close()
    after, found = await harness.store.summary(RUN), await labelled(harness.store)
    await harness.store.rebuild_index()
    rebuilt, read = await harness.store.summary(RUN), await harness.store.read(RUN)

    assert dict(start.labels) == dict(after.labels) == dict(rebuilt.labels) == dict(read.start.labels) == LEFT
    assert found == await labelled(harness.store) == [RUN]
    assert (before.pinned, start.pinned, after.pinned, rebuilt.pinned, read.start.pinned) == (False, *[True] * 4)
    assert read.decisions.status is RunState.DONE
    assert (after.status, after.updated_at, after.completed_at) == ("done", before.updated_at, before.completed_at)
    assert (rebuilt.updated_at, rebuilt.completed_at) == (before.updated_at, before.completed_at)
    assert (await harness.store.maintenance.verify(RUN))["ok"]


@pytest.mark.parametrize("written", [False, True])
async def test_row_and_journal_agree_after_a_crash(harness: StoreHarness, written: bool) -> None:
    """After a death before or after the line of a label change, row and journal agree."""
    await store_harness.ended(harness, "a", labels={"book": "one", "draft": "1"})
    log = await harness.store.open(RUN)
    if written:
        harness.passed.at["storage.label.before_row"] = store_harness.die
        with contextlib.suppress(store_harness.Died):
            await log.decide(DecisionKind.LABELLED, CHANGE)
        harness.passed.at.clear()
    else:
        await harness.store._parts.context.index.doubt(RUN)
    store = await harness.crash()
    read = await store.read(RUN)
    found = await labelled(store)

    row = await store.summary(RUN)
    assert (dict(row.labels), row.pinned) == (dict(read.start.labels), read.start.pinned)
    assert found == ([RUN] if written else [])


async def test_a_labelled_run_is_resumed_with_its_labels(harness: StoreHarness) -> None:
    """A resume with overrides keeps the changed labels."""
    await store_harness.ended(harness, "a", status="failed", labels={"book": "one", "draft": "1"})
    log = await harness.store.open(RUN)
    await log.decide(DecisionKind.LABELLED, CHANGE)
    await log.decide(DecisionKind.RESUMED, {"dead": [], "overrides": {"args": {"x": 1}}})
    start = log.loaded.start
    await log.close()

    assert (dict(start.labels), start.args, start.pinned) == (LEFT, {"x": 1}, True)
    assert dict((await harness.store.read(RUN)).start.labels) == LEFT
