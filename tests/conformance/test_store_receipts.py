"""Receipts in any store: listed by run and by session, page by page, for as long as their files are there."""

from __future__ import annotations

from app.domain.receipts import ReceiptQuery
from tests.conformance import houses
from tests.conformance.houses import House


async def ids(house: House, **asked: object) -> list[str]:
    """Return the ids of the receipts that a query finds."""
    found = await house.store.list_receipts(ReceiptQuery(**asked))  # type: ignore[arg-type]
    return [str(receipt.facts["receipt_id"]) for receipt in found]


async def two_runs(house: House) -> None:
    """Make a run with two receipts that has ended and is deleted, and one with a receipt that is still open."""
    log = await houses.begun(house)
    for key in ("a", "b"):
        await log.add_receipt(await log.append_step(houses.proven(key)))
    await log.rest()
    await houses.end(log)
    await log.close()
    await house.store.delete(houses.RUN)
    other = await houses.begun(house, run_id="other", session_id="elsewhere")
    await other.add_receipt(await other.append_step(houses.proven("c")))


async def test_receipts_are_listed_by_run_and_session(house: House) -> None:
    """Receipts of deleted and of open runs are found by both filters, and by both together."""
    await two_runs(house)

    assert await ids(house, run_id=houses.RUN) == ["rcpt_a", "rcpt_b"]
    assert await ids(house, session_id="elsewhere") == ["rcpt_c"]
    assert await ids(house, run_id=houses.RUN, session_id="elsewhere") == []
    assert await ids(house) == ["rcpt_c", "rcpt_a", "rcpt_b"]


async def test_pages_of_receipts_follow_one_another(house: House) -> None:
    """Behind the last receipt of a page the next page begins, also after a crash and a new index."""
    await two_runs(house)
    first = await house.store.list_receipts(ReceiptQuery(limit=2))
    await house.settle()
    store = await house.crash()
    await store.rebuild_index()

    assert await ids(house, cursor=first[-1].position) == ["rcpt_b"]


async def test_a_lost_line_is_still_listed(house: House) -> None:
    """A receipt whose file and run are gone is listed with what the index knows."""
    await two_runs(house)
    await house.settle()
    house.files().write(f"audit/sessions/{houses.SESSION}/tool_receipts.jsonl", b"", sync=True)
    found = await house.store.list_receipts(ReceiptQuery(run_id=houses.RUN, limit=1))

    assert found[0].facts["receipt_id"] == "rcpt_a"
    assert found[0].facts["tool"] is None
