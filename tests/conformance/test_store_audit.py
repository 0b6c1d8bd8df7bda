"""The audit log in any store: sealed, synced, continued after any fault, and listed with the orders to runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app import errors
from app.domain.audit import AuditQuery
from app.domain.authors import Author
from app.domain.decisions import DecisionKind
from app.engine import stores
from app.storage import layout
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness

ADA = Author(name="Ada", claimed=False, via="token")


async def listed(harness: StoreHarness, **query: Any) -> list[str]:
    """Return the targets of all pages."""
    found: list[str] = []
    cursor = None
    while True:
        entries, cursor = await harness.store.audit.page(AuditQuery(cursor=cursor, **query))
        found += [entry.target for entry in entries]
        if cursor is None:
            return found


async def verified(harness: StoreHarness) -> dict[str, Any]:
    """Return the verification report of the log's file."""
    (report,) = (await harness.store.maintenance.verify_page("audit/", 10)).reports
    assert report["kind"] == "audit"
    return dict(report["files"][0])


async def test_changes_are_listed_newest_first_page_by_page(harness: StoreHarness) -> None:
    """Every change is listed once, newest first, with its author, for every page size."""
    store = await harness.open()
    for number in range(5):
        await store.audit.append(ADA, "issue.edited", f"iss_{number}", {"revision": number})
    await store.audit.append(None, "run.deleted", "r1")
    (entry,), _ = await store.audit.page(AuditQuery(target="iss_3"))

    assert await listed(harness) == ["r1", "iss_4", "iss_3", "iss_2", "iss_1", "iss_0"]
    assert await listed(harness, limit=2) == await listed(harness)
    assert await listed(harness, action="issue", limit=1) == ["iss_4", "iss_3", "iss_2", "iss_1", "iss_0"]
    assert await listed(harness, author="Ada", action="run.deleted") == []
    assert entry.to_json() == {
        "number": 3,
        "at": entry.at,
        "author": {"name": "Ada", "claimed": False, "via": "token"},
        "action": "issue.edited",
        "target": "iss_3",
        "details": {"revision": 3},
    }


async def test_a_long_log_is_read_in_bounded_parts(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends early after many lines without a match, and following pages still reach all matches."""
    monkeypatch.setattr("app.storage.audit._PART_BYTES", 1000)
    monkeypatch.setattr("app.storage.audit._PAGE_BYTES", 2000)
    store = await harness.open()
    for number in range(40):
        await store.audit.append(ADA, "issue.edited" if number % 20 else "run.deleted", f"t{number}")
    first, cursor = await store.audit.page(AuditQuery(action="run"))

    assert first == []
    assert cursor is not None
    assert await listed(harness, action="run") == ["t20", "t0"]
    assert len(await listed(harness, limit=7)) == 40


@pytest.mark.parametrize("point", ["before_append", "after_append"])
async def test_a_change_that_is_cut_off_leaves_a_sound_log(harness: StoreHarness, point: str) -> None:
    """After a death at any moment, the log is sound, contains all confirmed changes, and can be continued."""
    store = await harness.open()
    await store.audit.append(ADA, "key.added", "first")
    harness.passed.at[f"storage.audit.{point}"] = store_harness.die
    with pytest.raises(store_harness.Died):
        await store.audit.append(ADA, "key.added", "second")
    harness.passed.at.clear()
    store = await harness.crash()
    await store.audit.append(ADA, "key.added", "third")

    assert await listed(harness) == ["third", *(["second"] if point == "after_append" else []), "first"]
    assert (await verified(harness))["state"] == "ok"


@pytest.mark.parametrize("operation", ["write", "sync", "short"])
async def test_a_change_is_not_confirmed_while_the_disk_refuses(harness: StoreHarness, operation: str) -> None:
    """A refused write raises an error, and leaves no bytes that hide later entries."""
    store = await harness.open()
    await store.audit.append(ADA, "key.added", "first")
    harness.faults.refuse(operation, "orders.jsonl")
    with pytest.raises(errors.StorageFault):
        await store.audit.append(ADA, "key.added", "second")
    harness.faults.lift()
    await store.audit.append(ADA, "key.added", "third")

    assert await listed(harness) == ["third", "first"]
    assert (await verified(harness))["lines"] == 2


@pytest.mark.parametrize("tail", [b'{"at":"2026', b'{"at":"x"}\n', b"\x00" * 100, b"\x00" * 100 + b"\n"])
async def test_an_end_that_was_never_confirmed_is_cut_off(harness: StoreHarness, tail: bytes) -> None:
    """A tail that a power cut leaves after the last sealed line does not count as an entry."""
    store = await harness.open()
    await store.audit.append(ADA, "key.added", "first")
    file = harness.files().append_to(layout.AUDIT_ORDERS)
    file.write(tail)
    file.sync()
    file.close()
    store = await harness.crash()
    before = await verified(harness)
    await store.audit.append(ADA, "key.added", "second")

    assert before["state"] == "torn"
    assert await listed(harness) == ["second", "first"]
    assert (await verified(harness))["state"] == "ok"


@pytest.mark.parametrize("line", [0, 1])
async def test_a_changed_entry_is_found(harness: StoreHarness, line: int) -> None:
    """An altered entry fails the verification, and does not prevent further entries."""
    store = await harness.open()
    for name in ("first", "second", "third"):
        await store.audit.append(ADA, "key.added", name)
    lines = harness.files().read(layout.AUDIT_ORDERS).split(b"\n")
    lines[line] = lines[line].replace(b"Ada", b"Eve")
    harness.files().write(layout.AUDIT_ORDERS, b"\n".join(lines), sync=True)
    store = await harness.crash()
    await store.audit.append(ADA, "key.added", "fourth")
    found = await verified(harness)

    assert (found["state"], found["line"]) == ("corrupt", line + 1)
    assert len(await listed(harness)) == 3
    json.loads(harness.files().read(layout.AUDIT_ORDERS).rstrip(b"\n").rpartition(b"\n")[2])


ORDERS: dict[DecisionKind, tuple[str, dict[str, Any], dict[str, Any]]] = {
    DecisionKind.PAUSED: ("run.paused", {"reason": "paused_by_person"}, {}),
    DecisionKind.UNPAUSED: ("run.unpaused", {}, {}),
    DecisionKind.LIMITED: ("run.limited", {"limits": {"calls": 3}}, {"limits": {"calls": 3}}),
    DecisionKind.LABELLED: ("run.labelled", {"labels": {"a": "b"}}, {"labels": {"a": "b"}}),
    DecisionKind.VOTED: (
        "gate.voted",
        {"gate_id": "g", "decision": "approve", "message": "", "name": "Ada", "at": "2026-02-10T14:30:00.000Z"},
        {"gate_id": "g", "decision": "approve"},
    ),
    DecisionKind.CANCEL_REQUESTED: ("run.cancelled", {}, {}),
}
"""Each order to a run, with its action, the fields of its line, and the details that lists show."""


async def ordered(log: stores.RunLog, kind: DecisionKind) -> None:
    """Append an order to a run."""
    await log.decide(kind, {**ORDERS[kind][1], "author": ADA.to_json()})


async def actions(harness: StoreHarness, **query: Any) -> list[str]:
    """Return the actions of all pages."""
    found: list[str] = []
    cursor = None
    while True:
        entries, cursor = await harness.store.audit.page(AuditQuery(cursor=cursor, **query))
        found += [entry.action for entry in entries]
        if cursor is None:
            return found


async def test_orders_to_runs_are_listed_with_changes_of_other_things(harness: StoreHarness) -> None:
    """Orders to runs and other changes are one list, complete for every page size and filter and after a rebuild."""
    store = await harness.open()
    await store.audit.append(ADA, "key.added", "first")
    await store.create(store_harness.start(RUN, started_by=ADA.to_json()))
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    for kind in ORDERS:
        await ordered(log, kind)
        await store.audit.append(ADA, "issue.edited", f"iss_{kind}")
    await log.close()
    listed_before = await actions(harness)
    wanted = [action for action, _, _ in reversed(ORDERS.values())]
    entries, _ = await store.audit.page(AuditQuery(action="run.limited"))

    assert [action for action in listed_before if action in wanted] == wanted
    assert "run.started" in listed_before
    assert len(listed_before) == 2 * len(ORDERS) + 2
    for limit in (1, 2, 3, 100):
        assert await actions(harness, limit=limit) == listed_before
        assert sorted(await actions(harness, limit=limit, target=RUN)) == sorted([*wanted, "run.started"])
    assert len(await actions(harness, author="Ada", action="run")) == len(ORDERS)
    assert await actions(harness, author="Eve") == []
    assert await actions(harness, created_before="2000-01-01T00:00:00.000Z") == []
    assert [entry.details for entry in entries] == [{"limits": {"calls": 3}}]
    assert (entries[0].run_id, entries[0].file, entries[0].number) == (RUN, "control.jsonl", 3)
    await store.rebuild_index()
    assert await actions(harness) == listed_before


@pytest.mark.parametrize("kind", ORDERS)
async def test_an_order_is_listed_after_a_crash(harness: StoreHarness, kind: DecisionKind) -> None:
    """After a crash right after its line became durable, an order is listed exactly once."""
    store = await harness.open()
    await store.create(store_harness.start(RUN))
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    if kind is DecisionKind.UNPAUSED:
        await ordered(log, DecisionKind.PAUSED)
    await ordered(log, kind)
    store = await harness.crash()
    await (await store.open(RUN)).close()
    await actions(harness)

    assert (await actions(harness, target=RUN)).count(ORDERS[kind][0]) == 1


async def test_orders_to_a_deleted_run_go_with_its_journal(harness: StoreHarness) -> None:
    """Orders to a deleted run leave the list, and the deletion itself stays."""
    await store_harness.ended(harness, "a", started_by=ADA.to_json())
    await harness.store.rebuild_index()
    before = await actions(harness)
    await harness.store.audit.append(ADA, "run.deleted", RUN)
    await harness.store.delete(RUN)

    assert before == ["run.started"]
    assert await actions(harness) == ["run.deleted"]
