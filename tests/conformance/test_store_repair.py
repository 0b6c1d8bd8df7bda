"""Verify and repair: the sound part is reported and kept, and no file is deleted."""

from __future__ import annotations

from typing import Any

import pytest

from app import errors
from app.domain.decisions import DecisionKind
from app.domain.states import RunState
from app.engine.maintenance_port import Verification
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness

STARTED = {"key": "a", "attempt": 1, "operation": "sha256:a"}


async def three_steps(harness: StoreHarness) -> None:
    """Create an unfinished run of three steps, and close it."""
    log = await store_harness.begun(harness)
    for key in "abc":
        await log.append_step(store_harness.step(key))
        await log.decide(DecisionKind.STARTED, STARTED | {"key": key})
    await log.close()


def line_changed(number: int) -> Any:
    """Return a function that changes one line of a journal."""

    def change(content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        lines[number] = lines[number].replace(b"a", b"b", 1)
        return b"".join(lines)

    return change


def states(told: Verification) -> dict[str, str]:
    """Return the state of each file in a report."""
    return {file["file"]: file["state"] for file in told["files"]}


async def test_an_undamaged_run_is_reported_as_sound(harness: StoreHarness) -> None:
    """An undamaged run is reported as sound, and a repair does not change it."""
    await three_steps(harness)
    before = harness.content("steps.jsonl"), harness.content("control.jsonl")
    told = await harness.store.maintenance.verify(RUN)
    repaired = await harness.store.maintenance.repair(RUN)

    assert told["ok"]
    assert states(told) == {"start.json": "ok", "steps.jsonl": "ok", "control.jsonl": "ok"}
    assert not repaired["changed"]
    assert (harness.content("steps.jsonl"), harness.content("control.jsonl")) == before


async def test_a_torn_end_does_not_count_as_damage(harness: StoreHarness) -> None:
    """A torn end after the last confirmed line is reported as torn, and the run as sound."""
    await three_steps(harness)
    harness.change("steps.jsonl", lambda content: content + content[:20])
    told = await harness.store.maintenance.verify(RUN)

    assert told["ok"]
    assert states(told)["steps.jsonl"] == "torn"
    assert told["files"][1]["line"] == 4


async def test_a_torn_confirmed_line_is_reported_as_damage(harness: StoreHarness) -> None:
    """If a confirmed line is torn, the run is shown as paused, reported as damaged, and can be repaired."""
    await three_steps(harness)
    harness.change("steps.jsonl", lambda content: content[:-5])
    told = await harness.store.maintenance.verify(RUN)
    shown = (await harness.store.read(RUN)).decisions
    repaired = await harness.store.maintenance.repair(RUN)

    assert (told["state"], states(told)["steps.jsonl"]) == ("damaged", "corrupt")
    assert (shown.status, shown.paused) == (RunState.PAUSED, "journal_lines_missing")
    assert (repaired["changed"], repaired["status"]) == (True, "paused")
    assert (await harness.store.maintenance.verify(RUN))["ok"]
    assert (await harness.store.read(RUN)).decisions.paused == "repaired"


@pytest.mark.parametrize(("name", "kept"), [("steps.jsonl", 1), ("control.jsonl", 1)])
async def test_a_repair_keeps_the_lines_before_the_damage(harness: StoreHarness, name: str, kept: int) -> None:
    """A repair sets the damaged journal aside, keeps its sound beginning, and leaves the run paused for a person."""
    await three_steps(harness)
    harness.change(name, line_changed(1))
    damaged = harness.content(name)
    found = await harness.store.maintenance.verify(RUN)
    told = await harness.store.maintenance.repair(RUN)
    file = next(file for file in told["files"] if file["file"] == name)
    log = await harness.store.open(RUN)
    again = await log.append_step(store_harness.step("z"))

    assert not found["ok"]
    assert next(item for item in found["files"] if item["file"] == name)["line"] == 2
    assert (file["kept"], file["lost"] + file["kept"]) == (kept, damaged.count(b"\n"))
    assert harness.content(str(file["aside"])) == damaged
    assert log.loaded.decisions.status is RunState.PAUSED
    assert log.loaded.decisions.paused == "repaired"
    assert again.position == (1 if name == "steps.jsonl" else 3)
    assert (await harness.store.summary(RUN)).status == "paused"


async def test_an_ending_that_no_longer_fits_goes(harness: StoreHarness) -> None:
    """If a finished run has lost lines, a repair drops its ending as well, and leaves the run paused."""
    await store_harness.ended(harness, "a", "b", "c")
    harness.change("steps.jsonl", line_changed(1))
    await harness.store.maintenance.repair(RUN)
    loaded = await harness.store.read(RUN)

    assert [record.key for record in loaded.records] == ["a"]
    assert loaded.decisions.ended is None
    assert loaded.decisions.paused == "repaired"
    assert "ended" in harness.content("control.jsonl.damaged-1").decode()


@pytest.mark.blobs
async def test_a_lost_blob_costs_the_lines_from_its_own_on(harness: StoreHarness) -> None:
    """Repair keeps the lines before the one whose blob is missing."""
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    blob = await log.put_blob(b"x" * 70_000, text=True)
    facts = {"output_hash": f"sha256:{blob.sha256}", "blob": blob.to_json(), "output": None}
    await log.append_step(store_harness.step("b") | facts)
    await log.append_step(store_harness.step("c"))
    await log.close()
    harness.remove(f"blobs/{blob.sha256}")
    await harness.store.maintenance.repair(RUN)

    assert [record.key for record in (await harness.store.read(RUN)).records] == ["a"]


async def test_a_missing_journal_is_begun_anew(harness: StoreHarness) -> None:
    """A repair replaces a missing journal by an empty one."""
    await three_steps(harness)
    harness.remove("steps.jsonl")
    await harness.store.maintenance.repair(RUN)
    loaded = await harness.store.read(RUN)

    assert list(loaded.records) == []
    assert loaded.decisions.paused == "repaired"


async def test_repairs_are_kept_apart(harness: StoreHarness) -> None:
    """A second repair sets its original aside beside that of the first."""
    await three_steps(harness)
    for _ in range(2):
        harness.change("control.jsonl", line_changed(0))
        await harness.store.maintenance.repair(RUN)
    names = harness.files().names(f"runs/{RUN}")

    assert {"control.jsonl.damaged-1", "control.jsonl.damaged-2"} <= set(names)


async def test_a_run_is_found_by_its_key_while_it_is_repaired(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated request finds its run while that run is repaired."""
    await store_harness.ended(harness, "a", "b", idempotency_key="k1", request_sha256="h")
    harness.change("steps.jsonl", line_changed(1))
    index, found = harness.store._parts.context.index, list[str | None]()

    def watched(change: Any) -> Any:
        async def changed(*given: Any) -> Any:
            told = await change(*given)
            found.append(await harness.store.find_repeated("k1", "h"))
            return told

        return changed

    for name in ("remove_run", "add_missing", "apply", "put_run"):
        monkeypatch.setattr(index, name, watched(getattr(index, name)))
    await harness.store.maintenance.repair(RUN)

    assert found
    assert set(found) == {RUN}
    assert (await harness.store.summary(RUN)).status == "paused"


async def test_without_a_start_there_is_nothing_to_repair(harness: StoreHarness) -> None:
    """An unreadable start.json is reported as corrupt, and a repair is refused."""
    await three_steps(harness)
    harness.put("start.json", b"{")
    told = await harness.store.maintenance.verify(RUN)
    with pytest.raises(errors.JournalCorrupt):
        await harness.store.maintenance.repair(RUN)

    assert not told["ok"]
    assert states(told) == {"start.json": "corrupt"}


async def test_a_repair_after_a_failed_opening_brings_the_run_back(harness: StoreHarness) -> None:
    """A run parked as damaged is unfinished again after its repair, and its event stays."""
    await three_steps(harness)
    harness.change("steps.jsonl", line_changed(1))
    with pytest.raises(errors.JournalCorrupt):
        await harness.store.open(RUN)
    parked = await harness.store.list_unfinished()
    await harness.store.maintenance.repair(RUN)

    assert parked == []
    assert [run.run_id for run in await harness.store.list_unfinished()] == [RUN]
    assert "recovery.corrupt" in store_harness.types(await harness.store.read_events(RUN))
