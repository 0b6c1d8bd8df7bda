"""Lists: rows show runs, never decide about them, and can be rebuilt from the folders."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from app import errors
from app.domain.decisions import DecisionKind
from app.domain.records import Usage
from app.domain.runs import Transition
from app.domain.states import RunState
from app.domain.usage_sums import RunFacts
from app.engine import stores
from app.engine.stores import RunQuery, RunSummary
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, StoreHarness


def ids(found: list[RunSummary]) -> list[str]:
    """Return the ids of runs."""
    return [run.run_id for run in found]


LOCAL = {"name": None, "claimed": False, "via": "local"}


async def filled(harness: StoreHarness) -> None:
    """Create five runs, one a minute; the second has ended and the fifth is a child."""
    store = await harness.open()
    for number in range(5):
        facts = {
            "created_at": f"2026-02-10T14:3{number}:00Z",
            "recipe_id": "even" if number % 2 == 0 else "odd",
            "labels": {"team": "a" if number < 3 else "b", "number": str(number)},
            "parent_run_id": "r0" if number == 4 else None,
            "session_id": "sp_one" if number > 2 else "sp_other",
            "started_by": {"name": "anna", "claimed": False, "via": "key"} if number in (1, 3) else LOCAL,
            "description": {2: "Die Straße", 3: "100% and/or nothing"}.get(number, ""),
        }
        await store.create(store_harness.start(f"r{number}", **facts))
    log = await store.open("r1")
    await log.decide(DecisionKind.TAKEN, {})
    await store_harness.end(log)
    await log.close()


ASKED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["r4", "r3", "r2", "r1", "r0"]),
    ({"status": "done"}, ["r1"]),
    ({"status": "pending", "recipe_id": "even"}, ["r4", "r2", "r0"]),
    ({"status": ("done", "pending", "done")}, ["r4", "r3", "r2", "r1", "r0"]),
    ({"status": ("done", "pending"), "limit": 2, "cursor": ("2026-02-10T14:33:00.000Z", "r3")}, ["r2", "r1"]),
    ({"status": ("done", "failed"), "recipe_id": "odd"}, ["r1"]),
    ({"started_by": "anna"}, ["r3", "r1"]),
    ({"started_by": "anna", "status": ("done", "failed")}, ["r1"]),
    ({"started_by": "anna", "label": ("team", "b"), "session_id": "sp_one"}, ["r3"]),
    ({"started_by": "ann"}, []),
    ({"started_by": "local"}, ["r4", "r2", "r0"]),
    ({"started_by": "key"}, []),
    ({"q": "SP_ONE"}, ["r4", "r3"]),
    ({"q": "eVen", "label": ("team", "a")}, ["r2", "r0"]),
    ({"q": "straße"}, ["r2"]),
    ({"q": "STRASSE"}, ["r2"]),
    ({"q": "100%"}, ["r3"]),
    ({"q": "%"}, ["r3"]),
    ({"q": "1_0"}, []),
    ({"q": "/"}, ["r3"]),
    ({"q": "\\"}, []),
    ({"q": "r1\nodd"}, ["r1"]),
    ({"q": "'; DROP TABLE runs; --"}, []),
    ({"recipe_id": "odd"}, ["r3", "r1"]),
    ({"label": ("team", "b")}, ["r4", "r3"]),
    ({"label": ("team", "c")}, []),
    ({"created_after": "2026-02-10T14:32:00Z"}, ["r4", "r3", "r2"]),
    ({"created_before": "2026-02-10T14:32:00.000Z"}, ["r1", "r0"]),
    ({"created_before": "2026-02-10T15:32:00+01:00"}, ["r1", "r0"]),
    ({"failed_after": "2026-02-10T14:30:00Z"}, []),
    ({"parent_run_id": "r0"}, ["r4"]),
    ({"session_id": "sp_one"}, ["r4", "r3"]),
    ({"session_id": "sp_other", "recipe_id": "even", "label": ("team", "a")}, ["r2", "r0"]),
    ({"session_id": "sp_other", "status": "done", "created_before": "2026-02-10T14:32:00Z"}, ["r1"]),
    ({"session_id": "sp_other", "cursor": ("2026-02-10T14:31:00.000Z", "r1")}, ["r0"]),
    ({"session_id": "sp"}, []),
    ({"limit": 2}, ["r4", "r3"]),
    ({"limit": 2, "cursor": ("2026-02-10T14:33:00.000Z", "r3")}, ["r2", "r1"]),
    ({"cursor": ("2026-02-10T14:30:00.000Z", "r0")}, []),
]
"""Filters, and the runs that they select."""


async def test_every_filter_works_alone_and_combined(harness: StoreHarness) -> None:
    """Every filter works, alone and with others, newest run first."""
    await filled(harness)
    shown = [(query, ids(await harness.store.list_runs(RunQuery(**query)))) for query, _ in ASKED]

    assert shown == ASKED


@pytest.mark.parametrize("size", [1, 3, 7, 8])
async def test_runs_of_one_instant_are_paged_without_loss(
    harness: StoreHarness, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of runs that were created at the same instant contain each run once."""
    store = await harness.open()
    for number in range(7):
        await store.create(store_harness.start(f"r{number}"))
    monkeypatch.setattr(stores, "PAGE", size)
    seen = ids([row async for row in stores.every_run(store, RunQuery(status="pending", limit=1))])

    assert seen == [f"r{number}" for number in reversed(range(7))]


async def test_the_store_counts_runs_by_state(harness: StoreHarness) -> None:
    """The store counts the runs in each state that occurs."""
    await filled(harness)

    assert await harness.store.count_by_status() == {"pending": 4, "done": 1}


async def test_unfinished_runs_come_oldest_first(harness: StoreHarness) -> None:
    """Unfinished runs are all those of the service, paused ones too, oldest first."""
    await filled(harness)
    log = await harness.store.open("r3")
    await log.decide(DecisionKind.PAUSED, {"reason": "x"})
    await log.move(Transition.pause("r3", "2026-02-10T15:00:00.000Z"))
    await harness.store.create(store_harness.start("mine", owner="process"))
    await harness.settle()
    store = await harness.crash()

    assert ids(await store.list_unfinished()) == ["r0", "r2", "r3", "r4"]
    assert (await store.summary("mine")).owner == "process"


async def test_a_row_that_lags_errs_towards_unfinished(harness: StoreHarness) -> None:
    """A run that ended right before a crash is listed as unfinished once more."""
    log = await store_harness.begun(harness)
    await log.move(Transition.begin(RUN, "2026-02-10T14:31:00.000Z"))
    await log.decide(DecisionKind.ENDED, {"status": "done"})
    store = await harness.crash()

    assert ids(await store.list_unfinished()) == [RUN]
    assert (await store.open(RUN)).loaded.decisions.status is RunState.DONE


async def test_a_stale_row_of_an_ended_run_is_finished_at_the_start(harness: StoreHarness) -> None:
    """The row of an ended run of another process follows its `ended` line after a start."""
    log = await store_harness.begun(harness, owner="process")
    await log.move(Transition.begin(RUN, "2026-02-10T14:31:00.000Z"))
    await log.decide(DecisionKind.ENDED, {"status": "failed", "error": {"code": "tool_failed"}})
    store = await harness.crash()
    unfinished = await store.list_unfinished()
    summary = await store.summary(RUN)

    assert unfinished == []
    assert (summary.status, summary.error_code) == ("failed", "tool_failed")
    assert summary.completed_at is not None


async def test_the_index_is_rebuilt_from_the_folders(harness: StoreHarness) -> None:
    """After a rebuild of the index, lists, receipts and keys are unchanged."""
    await filled(harness)
    await harness.store.create(store_harness.start("keyed", idempotency_key="k", request_sha256="h"))
    log = await harness.store.open("r0")
    await log.add_receipt(await log.append_step(store_harness.proven("a")))
    await log.decide(DecisionKind.TAKEN, {})
    await log.move(Transition.begin("r0", "2026-02-10T14:30:00.000Z"))
    await log.close()
    await harness.store.issues.open({"issue_id": "iss_1", "title": "x"})
    before = await harness.store.list_runs(RunQuery())
    told = await harness.store.rebuild_index()
    after = await harness.store.list_runs(RunQuery())
    again = await harness.store.create(store_harness.start("second", idempotency_key="k", request_sha256="h"))

    assert told == {"runs": 6, "receipts": 1, "issues": 1}
    assert [(run.run_id, run.status, run.labels, run.started_by) for run in after] == [
        (run.run_id, run.status, run.labels, run.started_by) for run in before
    ]
    assert (await harness.store.find_receipt("rcpt_a"))["key"] == "a"
    assert again.run_id == "keyed"


async def test_a_row_without_its_folder_goes(harness: StoreHarness) -> None:
    """A run whose folder was removed is not listed after a start."""
    await filled(harness)
    await harness.settle()
    harness.files().remove_tree("runs/r2")
    harness.files().sync_folder("runs")
    store = await harness.crash()

    assert "r2" not in ids(await store.list_runs(RunQuery()))


async def test_stray_files_among_runs_are_not_listed(harness: StoreHarness) -> None:
    """Stray files and folders among the runs are skipped."""
    await filled(harness)
    harness.files().add_folder("runs/empty")
    harness.files().write("runs/stray", b"x", sync=True)
    await harness.store.rebuild_index()

    assert len(await harness.store.list_runs(RunQuery())) == 5
    with pytest.raises(errors.NotFound):
        await harness.store.summary("stray")
    with pytest.raises(errors.NotFound):
        await harness.store.open("empty")


# -- foreign folders


async def copied(harness: StoreHarness) -> None:
    """Create a run, and copy its folder under another name."""
    log = await store_harness.begun(harness, idempotency_key="k", request_sha256="h")
    await log.append_step(store_harness.step("a"))
    await log.close()
    copy(harness, RUN, "copy")


def copy(harness: StoreHarness, old: str, new: str) -> None:
    """Copy a run's folder."""
    files = harness.files()
    files.add_folder(f"runs/{new}")
    for name in files.names(f"runs/{old}"):
        files.write(f"runs/{new}/{name}", files.read(f"runs/{old}/{name}"), sync=True)
    files.sync_folder(f"runs/{new}")
    files.sync_folder("runs")


async def test_a_copied_folder_is_listed_and_never_started(harness: StoreHarness) -> None:
    """A folder whose name is not its run's id is listed as foreign, and not as unfinished."""
    await copied(harness)
    store = await harness.crash()

    assert ids(await store.list_unfinished()) == [RUN]
    assert (await store.summary("copy")).owner == "foreign"
    assert [record.key for record in (await store.read("copy")).records] == ["a"]


async def test_a_copy_does_not_take_its_originals_key(harness: StoreHarness) -> None:
    """A repeated request finds its own run, not a copy of it."""
    await copied(harness)
    await harness.store.rebuild_index()
    again = await harness.store.create(store_harness.start("second", idempotency_key="k", request_sha256="h"))

    assert again.run_id == RUN


@pytest.mark.parametrize("status", ["waiting", "running", "done"])
async def test_a_rebuilt_row_has_the_state_waiting(harness: StoreHarness, status: str) -> None:
    """A rebuilt row has the state `waiting` of run.json, but takes no other state from it."""
    await copied(harness)
    manifest = {"run_id": RUN, "recipe_id": "x", "status": status}
    for name in (RUN, "copy"):
        harness.files().write(f"runs/{name}/run.json", json.dumps(manifest).encode(), sync=True)
    await harness.store.rebuild_index()

    expected = "waiting" if status == "waiting" else "running"
    assert {run.run_id: run.status for run in await harness.store.list_runs(RunQuery())} == {
        RUN: expected,
        "copy": expected,
    }


async def test_a_folder_of_another_data_directory_is_foreign(harness: StoreHarness) -> None:
    """A run of another data directory is listed as foreign, and never started automatically."""
    store = await harness.open()
    await store.create(store_harness.start())
    harness.change(
        "start.json", lambda content: content.replace(b'"data_directory_id":"', b'"data_directory_id":"other')
    )
    await store.rebuild_index()

    assert (await store.summary(RUN)).owner == "foreign"
    assert await store.list_unfinished() == []


async def test_a_foreign_run_that_is_resumed_belongs_here(harness: StoreHarness) -> None:
    """A foreign run that a person resumes belongs to the service, also after a rebuild, beside its original."""
    await copied(harness)
    store = await harness.crash()
    await store.list_unfinished()
    log = await store.open("copy")
    await log.decide(DecisionKind.RESUMED, {"dead": []})
    await log.move(Transition.begin(RUN, "2026-02-10T15:00:00.000Z"))
    await log.close()
    owners = [(await store.summary("copy")).owner]
    await store.rebuild_index()
    owners.append((await store.summary("copy")).owner)

    assert owners == ["service", "service"]
    assert ids(await store.list_unfinished()) == ["copy", RUN] or ids(await store.list_unfinished()) == [RUN, "copy"]


async def test_a_process_run_that_is_resumed_is_the_services(harness: StoreHarness) -> None:
    """After a resume with the service as owner, the service continues a run of a process."""
    log = await store_harness.begun(harness, owner="process")
    await log.decide(DecisionKind.RESUMED, {"dead": [], "overrides": {"owner": "service"}})
    store = await harness.crash()

    assert ids(await store.list_unfinished()) == [RUN]


async def test_a_damaged_run_is_listed_as_failed(harness: StoreHarness) -> None:
    """A run whose start.json cannot be read is listed as failed, with the reason."""
    await filled(harness)
    harness.put("start.json", b"{", "r2")
    await harness.store.rebuild_index()
    summary = await harness.store.summary("r2")

    assert (summary.status, summary.error_code) == ("failed", "journal_corrupt")


# -- issues


async def test_an_issue_is_kept_by_its_id(harness: StoreHarness) -> None:
    """An issue is a JSON file named by its id; writing it again replaces it, and a hostile id stays in the folder."""
    store = await harness.open()
    await store.issues.open({"issue_id": "iss_1", "title": "First", "run_id": RUN})
    await store.issues.open({"issue_id": "iss_1", "title": "Second", "run_id": RUN})
    await store.issues.open({"issue_id": "../evil", "title": "Third"})
    store = await harness.crash()

    assert json.loads(harness.files().read("issues/iss_1.json"))["title"] == "Second"
    assert len(harness.files().names("issues")) == 2


async def test_an_issue_on_a_full_disk_is_refused(harness: StoreHarness) -> None:
    """On a full disk an issue is refused, and the old one stays unchanged."""
    store = await harness.open()
    await store.issues.open({"issue_id": "iss_1", "title": "First"})
    harness.faults.refuse("write", "iss_1")
    with pytest.raises(errors.StorageFault):
        await store.issues.open({"issue_id": "iss_1", "title": "Second"})

    assert json.loads(harness.files().read("issues/iss_1.json"))["title"] == "First"


def test_every_state_is_finished_or_not() -> None:
    """Exactly the states done, failed and cancelled count as finished."""
    assert {state for state in RunState if state.finished} == {RunState.DONE, RunState.FAILED, RunState.CANCELLED}


async def test_a_rebuilt_row_has_the_sums_of_its_run(harness: StoreHarness) -> None:
    """A row rebuilt from the folder has the start, reason and summed usage of its run."""
    store = await harness.open()
    await store.create(store_harness.start(labels={"book": "one"}))
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": None}
    await log.append_step(store_harness.step("a", agent_id="writer-1", model="haiku", usage=usage))
    await log.append_step(store_harness.step("b", usage={**usage, "cost_usd": 0.5}))
    await log.decide(DecisionKind.PAUSED, {"reason": "paused_by_person", "error": None})
    await log.close()
    await store.rebuild_index()
    (row,) = await store.list_runs(RunQuery(q="ONE"))

    assert row.started_at == log.loaded.decisions.first_taken_at
    assert (row.reason, row.usage) == ("paused_by_person", Usage(input_tokens=20, output_tokens=10, cost_usd=0.5))


async def test_a_move_writes_its_facts_to_the_row(harness: StoreHarness) -> None:
    """A move writes its facts to the row; a move without facts keeps them and clears the reason."""
    store = await harness.open()
    await store.create(store_harness.start())
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    at = "2026-02-10T14:31:00.000Z"
    facts = RunFacts(started_at=at, usage=Usage(input_tokens=3, output_tokens=4, cost_usd=0.25))
    await log.move(dataclasses.replace(Transition.pause(RUN, at, None, "paused_by_person"), facts=facts))
    paused = await store.summary(RUN)
    await log.move(Transition.queue(RUN, at))
    queued = await store.summary(RUN)
    await log.close()

    assert (paused.reason, paused.started_at, paused.usage) == ("paused_by_person", at, facts.usage)
    assert (queued.reason, queued.started_at, queued.usage) == (None, at, facts.usage)
