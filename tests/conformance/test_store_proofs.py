"""Proofs: a receipt is valid as long as its line is unchanged since its run wrote it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app import errors
from app.domain import plain
from tests.conformance import store_harness
from tests.conformance.store_harness import StoreHarness

FILE = f"audit/sessions/{store_harness.SESSION}/tool_receipts.jsonl"


async def proven(harness: StoreHarness, *, deleted: bool = False) -> None:
    """Create an ended run with receipts, and optionally delete it."""
    log = await store_harness.begun(harness)
    payload = {"found": ["é", 1.5, 10**20, -0.0, 1e16, None], "text": "\u2028"}
    await log.add_receipt(await log.append_step(store_harness.proven("a", payload)))
    await log.add_receipt(await log.append_step(store_harness.step("b", "", receipt_id="rcpt_b")))
    failed = {"status": "failed", "output": None, "output_hash": None, "error": {"code": "x", "message": "y"}}
    await log.add_receipt(await log.append_step(store_harness.step("c", receipt_id="rcpt_c") | failed))
    await log.flush()
    await store_harness.end(log)
    await log.close()
    if deleted:
        await harness.store.delete(store_harness.RUN)


def rewrite(harness: StoreHarness, change: Callable[[dict[str, Any]], dict[str, Any]], path: str = FILE) -> None:
    """Change the first receipt by hand."""
    first, *others = harness.files().read(FILE).splitlines(keepends=True)
    content = plain.encode(change(json.loads(first))) + b"\n" + b"".join(others)
    harness.files().write(path, content, sync=True)


@pytest.mark.parametrize("deleted", [False, True])
async def test_receipts_are_proven(harness: StoreHarness, deleted: bool) -> None:
    """The receipts of an ended or deleted run are valid."""
    await proven(harness, deleted=deleted)
    await harness.settle()
    store = await harness.crash()

    for name in ("rcpt_a", "rcpt_b", "rcpt_c"):
        assert await store.prove_receipt(name) == await store.find_receipt(name)


async def test_a_receipt_of_an_open_run_is_proven(harness: StoreHarness) -> None:
    """A receipt that is only queued is valid."""
    log = await store_harness.begun(harness)
    await log.add_receipt(await log.append_step(store_harness.proven("a")))

    assert (await harness.store.prove_receipt("rcpt_a"))["key"] == "a"


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_changed_payload_is_refused(harness: StoreHarness, deleted: bool) -> None:
    """A payload that does not match its hash is refused, with or without its run."""
    await proven(harness, deleted=deleted)
    payloads: tuple[Any, ...] = (
        "forged", None, {"found": []}, {"found": ["é", 1.5, 10**20, -0.0, 1e16, None], "text": " "},
    )  # fmt: skip
    for payload in payloads:
        rewrite(harness, lambda receipt, payload=payload: receipt | {"payload": payload})  # type: ignore[misc]
        with pytest.raises(errors.Conflict) as caught:
            await harness.store.prove_receipt("rcpt_a")

        assert caught.value.code == "receipt_altered"
        assert "holds another payload" in caught.value.message


@pytest.mark.parametrize(
    "changed",
    [
        {"payload": "forged", "sha256": plain.sha256(b"forged")},
        {"key": "z"},
        {"tool": "other"},
        {"args": {"q": "z"}},
        {"run_id": "20260210T143000Z-other1"},
    ],
)
async def test_the_journal_knows_better(harness: StoreHarness, changed: dict[str, Any]) -> None:
    """While the run exists, a receipt that differs from its journal is refused, even with a matching hash."""
    await proven(harness)
    await harness.store.create(store_harness.start("20260210T143000Z-other1"))
    rewrite(harness, lambda receipt: receipt | changed)

    with pytest.raises(errors.Conflict) as caught:
        await harness.store.prove_receipt("rcpt_a")
    assert caught.value.code == "receipt_altered"


@pytest.mark.parametrize("changed", [{}, {"key": "z"}, {"tool": "other"}, {"args": {"q": "z"}}])
async def test_a_verification_compares_receipts_with_journals(harness: StoreHarness, changed: dict[str, Any]) -> None:
    """A verification reports a receipt that differs from its journal, as the proof of the single receipt does."""
    await proven(harness)
    rewrite(harness, lambda receipt: receipt | changed)
    (report,) = (await harness.store.maintenance.verify_page("receipts/", 1)).reports

    (file,) = report["files"]
    assert (report["state"], file["line"]) == (("damaged", 1) if changed else ("sound", None))
    assert ("says something else than the journal" in str(file["reason"])) is bool(changed)


async def test_a_receipt_cannot_move_to_another_session(harness: StoreHarness) -> None:
    """A receipt line that names another session, or was added to another session's file, is refused."""
    await proven(harness)
    rewrite(harness, lambda receipt: receipt | {"session_id": "other"})
    with pytest.raises(errors.Conflict):
        await harness.store.prove_receipt("rcpt_a")
    harness.files().add_folder("audit/sessions/other")
    rewrite(harness, lambda receipt: receipt | {"session_id": "other"}, "audit/sessions/other/tool_receipts.jsonl")
    await harness.store.rebuild_index()
    with pytest.raises(errors.Conflict):
        await harness.store.prove_receipt("rcpt_a")


async def test_an_added_line_proves_nothing(harness: StoreHarness) -> None:
    """A receipt line that no run has written is unknown, and refused once a rebuilt index contains it."""
    await proven(harness)
    forged = json.loads(harness.files().read(FILE).splitlines()[0]) | {"receipt_id": "rcpt_z"}
    harness.files().write(FILE, harness.files().read(FILE) + plain.encode(forged) + b"\n", sync=True)
    with pytest.raises(errors.NotFound):
        await harness.store.prove_receipt("rcpt_z")
    await harness.store.rebuild_index()
    with pytest.raises(errors.Conflict) as caught:
        await harness.store.prove_receipt("rcpt_z")

    assert "is not in the journal of its run" in caught.value.message
    assert (await harness.store.prove_receipt("rcpt_a"))["key"] == "a"


@pytest.mark.parametrize("payload", ['"\\ud800"', "NaN", "[[[[[[[[[[1]]]]]]]]]]", "1e999", "0"])
async def test_strange_payloads_break_nothing(harness: StoreHarness, payload: str) -> None:
    """A payload that cannot be hashed is refused like one that does not match its hash."""
    await proven(harness, deleted=True)
    first, *others = harness.files().read(FILE).splitlines(keepends=True)
    changed = json.dumps(json.loads(first) | {"payload": 7777}).replace("7777", payload).encode() + b"\n"
    harness.files().write(FILE, changed + b"".join(others), sync=True)

    with pytest.raises(errors.Conflict):
        await harness.store.prove_receipt("rcpt_a")
