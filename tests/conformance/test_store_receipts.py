"""Receipts in any store: listed by run and by session, page by page, even after their run or file is gone."""

from __future__ import annotations

from app.domain.receipts import ReceiptQuery
from tests.conformance import store_harness
from tests.conformance.store_harness import StoreHarness


async def ids(harness: StoreHarness, **asked: object) -> list[str]:
    """Return the ids of the receipts that a query finds."""
    found = await harness.store.list_receipts(ReceiptQuery(**asked))  # type: ignore[arg-type]
    return [receipt.receipt_id for receipt in found]


async def two_runs(harness: StoreHarness) -> None:
    """Create an ended, deleted run with two receipts, and an open run with one."""
    log = await store_harness.begun(harness)
    for key in ("a", "b"):
        await log.add_receipt(await log.append_step(store_harness.proven(key)))
    await log.flush()
    await store_harness.end(log)
    await log.close()
    await harness.store.delete(store_harness.RUN)
    other = await store_harness.begun(harness, run_id="other", session_id="elsewhere")
    await other.add_receipt(await other.append_step(store_harness.proven("c")))


async def test_receipts_are_listed_by_run_and_session(harness: StoreHarness) -> None:
    """Both filters, alone and together, find receipts of deleted and of open runs."""
    await two_runs(harness)

    assert await ids(harness, run_id=store_harness.RUN) == ["rcpt_a", "rcpt_b"]
    assert await ids(harness, session_id="elsewhere") == ["rcpt_c"]
    assert await ids(harness, run_id=store_harness.RUN, session_id="elsewhere") == []
    assert await ids(harness) == ["rcpt_c", "rcpt_a", "rcpt_b"]


async def test_pages_of_receipts_follow_one_another(harness: StoreHarness) -> None:
    """The next page begins after the last receipt of a page, also after a crash and a rebuild."""
    await two_runs(harness)
    first = await harness.store.list_receipts(ReceiptQuery(limit=2))
    await harness.settle()
    store = await harness.crash()
    await store.rebuild_index()

    assert await ids(harness, cursor=first[-1].position) == ["rcpt_b"]


async def test_a_lost_line_is_still_listed(harness: StoreHarness) -> None:
    """A receipt whose file and run are gone is listed with the fields of the index."""
    await two_runs(harness)
    await harness.settle()
    harness.files().write(f"audit/sessions/{store_harness.SESSION}/tool_receipts.jsonl", b"", sync=True)
    found = await harness.store.list_receipts(ReceiptQuery(run_id=store_harness.RUN, limit=1))

    assert found[0].receipt_id == "rcpt_a"
    assert found[0].tool is None
