"""Lists: rows show runs, never decide about them, and are made again from the folders."""

from __future__ import annotations

import json

import pytest

from app import errors
from app.domain.decisions import DecisionKind
from app.domain.runs import Transition
from app.domain.states import RunState
from app.engine import stores
from app.engine.stores import RunQuery, RunSummary
from tests.conformance import houses
from tests.conformance.houses import RUN, House


def ids(found: list[RunSummary]) -> list[str]:
    """Return the ids of runs."""
    return [run.run_id for run in found]


async def filled(house: House) -> None:
    """Make five runs, one a minute, of which the second has ended and the fifth is a child."""
    store = await house.open()
    for number in range(5):
        facts = {
            "created_at": f"2026-02-10T14:3{number}:00Z",
            "recipe_id": "even" if number % 2 == 0 else "odd",
            "labels": {"team": "a" if number < 3 else "b", "number": str(number)},
            "parent_run_id": "r0" if number == 4 else None,
            "session_id": "sp_one" if number > 2 else "sp_other",
        }
        await store.create(houses.start(f"r{number}", **facts))
    log = await store.open("r1")
    await log.decide(DecisionKind.TAKEN, {})
    await houses.end(log)
    await log.close()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["r4", "r3", "r2", "r1", "r0"]),
        ({"status": "done"}, ["r1"]),
        ({"status": "pending", "recipe_id": "even"}, ["r4", "r2", "r0"]),
        ({"recipe_id": "odd"}, ["r3", "r1"]),
        ({"label": ("team", "b")}, ["r4", "r3"]),
        ({"label": ("team", "c")}, []),
        ({"created_after": "2026-02-10T14:32:00Z"}, ["r4", "r3", "r2"]),
        ({"created_before": "2026-02-10T14:32:00.000Z"}, ["r1", "r0"]),
        ({"created_before": "2026-02-10T15:32:00+01:00"}, ["r1", "r0"]),
        ({"parent_run_id": "r0"}, ["r4"]),
        ({"session_id": "sp_one"}, ["r4", "r3"]),
        ({"session_id": "sp_other", "recipe_id": "even", "label": ("team", "a")}, ["r2", "r0"]),
        ({"session_id": "sp_other", "status": "done", "created_before": "2026-02-10T14:32:00Z"}, ["r1"]),
        ({"session_id": "sp_other", "cursor": ("2026-02-10T14:31:00.000Z", "r1")}, ["r0"]),
        ({"session_id": "sp"}, []),
        ({"limit": 2}, ["r4", "r3"]),
        ({"limit": 2, "cursor": ("2026-02-10T14:33:00.000Z", "r3")}, ["r2", "r1"]),
        ({"cursor": ("2026-02-10T14:30:00.000Z", "r0")}, []),
    ],
)
async def test_a_list_shows_what_was_asked_for(house: House, query: dict[str, object], expected: list[str]) -> None:
    """Every filter, alone and together, newest first."""
    await filled(house)

    assert ids(await house.store.list_runs(RunQuery(**query))) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 3, 7, 8])
async def test_runs_of_one_instant_are_paged_without_loss(
    house: House, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of runs that were created at the same instant hold each of them once."""
    store = await house.open()
    for number in range(7):
        await store.create(houses.start(f"r{number}"))
    monkeypatch.setattr(stores, "PAGE", size)
    seen = ids([row async for row in stores.every_run(store, RunQuery(status="pending", limit=1))])

    assert seen == [f"r{number}" for number in reversed(range(7))]


async def test_counts_are_told_by_state(house: House) -> None:
    """The number of runs in each state that occurs is told."""
    await filled(house)

    assert await house.store.count_by_status() == {"pending": 4, "done": 1}


async def test_unfinished_runs_come_oldest_first(house: House) -> None:
    """What is to be continued is every unfinished run of the service, the oldest first, paused ones too."""
    await filled(house)
    log = await house.store.open("r3")
    await log.decide(DecisionKind.PAUSED, {"reason": "x"})
    await log.move(Transition.pause("r3", "2026-02-10T15:00:00.000Z"))
    await house.store.create(houses.start("mine", owner="process"))
    await house.settle()
    store = await house.crash()

    assert ids(await store.list_unfinished()) == ["r0", "r2", "r3", "r4"]
    assert (await store.summary("mine")).owner == "process"


async def test_a_row_that_lags_errs_towards_unfinished(house: House) -> None:
    """A run that ended right before a crash is given to the service once more, so that its projections are made."""
    log = await houses.begun(house)
    await log.move(Transition.take(RUN, "2026-02-10T14:31:00.000Z"))
    await log.decide(DecisionKind.ENDED, {"status": "done"})
    store = await house.crash()

    assert ids(await store.list_unfinished()) == [RUN]
    assert (await store.open(RUN)).loaded.decisions.status is RunState.DONE


async def test_a_row_that_lags_and_is_nobodys_is_finished_at_start(house: House) -> None:
    """The row of another owner's run, which no service opens, is brought in line with its `ended` line."""
    log = await houses.begun(house, owner="process")
    await log.move(Transition.take(RUN, "2026-02-10T14:31:00.000Z"))
    await log.decide(DecisionKind.ENDED, {"status": "failed", "error": {"code": "tool_failed"}})
    store = await house.crash()
    unfinished = await store.list_unfinished()
    summary = await store.summary(RUN)

    assert unfinished == []
    assert (summary.status, summary.error_code) == ("failed", "tool_failed")
    assert summary.completed_at is not None


async def test_the_index_is_rebuilt_from_the_folders(house: House) -> None:
    """After every row is made anew, lists, receipts and keys are what they were."""
    await filled(house)
    await house.store.create(houses.start("keyed", idempotency_key="k", request_sha256="h"))
    log = await house.store.open("r0")
    await log.add_receipt(await log.append_step(houses.proven("a")))
    await log.decide(DecisionKind.TAKEN, {})
    await log.move(Transition.take("r0", "2026-02-10T14:30:00.000Z"))
    await log.close()
    await house.store.issues.open({"issue_id": "iss_1", "title": "x"})
    before = await house.store.list_runs(RunQuery())
    told = await house.store.rebuild_index()
    after = await house.store.list_runs(RunQuery())
    again = await house.store.create(houses.start("second", idempotency_key="k", request_sha256="h"))

    assert told == {"runs": 6, "receipts": 1, "issues": 1}
    assert [(run.run_id, run.status, run.labels) for run in after] == [
        (run.run_id, run.status, run.labels) for run in before
    ]
    assert (await house.store.find_receipt("rcpt_a"))["key"] == "a"
    assert again.run_id == "keyed"


async def test_a_row_without_its_folder_goes(house: House) -> None:
    """A run whose folder was taken away is no longer listed after a start."""
    await filled(house)
    await house.settle()
    house.files().remove_tree("runs/r2")
    house.files().sync_folder("runs")
    store = await house.crash()

    assert "r2" not in ids(await store.list_runs(RunQuery()))


async def test_a_folder_that_turns_up_is_found(house: House) -> None:
    """A run that was put back while the store was open is found when it is asked for."""
    await filled(house)
    house.files().rename("runs/r2", "audit/r2")
    await house.store.rebuild_index()
    house.files().rename("audit/r2", "runs/r2")

    assert (await house.store.summary("r2")).recipe_id == "even"


async def test_what_is_no_run_is_not_listed(house: House) -> None:
    """Stray files and folders among the runs are passed over."""
    await filled(house)
    house.files().add_folder("runs/empty")
    house.files().write("runs/stray", b"x", sync=True)
    await house.store.rebuild_index()

    assert len(await house.store.list_runs(RunQuery())) == 5
    with pytest.raises(errors.NotFound):
        await house.store.summary("stray")
    with pytest.raises(errors.NotFound):
        await house.store.open("empty")


# -- foreign folders


async def copied(house: House) -> None:
    """Make a run, and copy its folder under another name."""
    log = await houses.begun(house, idempotency_key="k", request_sha256="h")
    await log.append_step(houses.step("a"))
    await log.close()
    copy(house, RUN, "copy")


def copy(house: House, old: str, new: str) -> None:
    """Copy a run's folder."""
    files = house.files()
    files.add_folder(f"runs/{new}")
    for name in files.names(f"runs/{old}"):
        files.write(f"runs/{new}/{name}", files.read(f"runs/{old}/{name}"), sync=True)
    files.sync_folder(f"runs/{new}")
    files.sync_folder("runs")


async def test_a_copied_folder_is_listed_and_never_started(house: House) -> None:
    """A folder whose name is not its run's is shown as foreign, and continued by nobody."""
    await copied(house)
    store = await house.crash()

    assert ids(await store.list_unfinished()) == [RUN]
    assert (await store.summary("copy")).owner == "foreign"
    assert [record.key for record in (await store.read("copy")).records] == ["a"]


async def test_a_copy_does_not_take_its_originals_key(house: House) -> None:
    """A repeated request finds the run that it made, not the copy of it."""
    await copied(house)
    await house.store.rebuild_index()
    again = await house.store.create(houses.start("second", idempotency_key="k", request_sha256="h"))

    assert again.run_id == RUN


async def test_a_folder_of_another_data_directory_is_foreign(house: House) -> None:
    """A run that was begun elsewhere is listed and never started unasked."""
    store = await house.open()
    await store.create(houses.start())
    house.change("start.json", lambda content: content.replace(b'"data_directory_id":"', b'"data_directory_id":"other'))
    await store.rebuild_index()

    assert (await store.summary(RUN)).owner == "foreign"
    assert await store.list_unfinished() == []


async def test_a_foreign_run_that_is_resumed_belongs_here(house: House) -> None:
    """Once a person sends a foreign run on it is the service's, also in a new row; its original is not moved."""
    await copied(house)
    store = await house.crash()
    await store.list_unfinished()
    log = await store.open("copy")
    await log.decide(DecisionKind.RESUMED, {"dead": []})
    await log.move(Transition.take(RUN, "2026-02-10T15:00:00.000Z"))
    await log.close()
    owners = [(await store.summary("copy")).owner]
    await store.rebuild_index()
    owners.append((await store.summary("copy")).owner)

    assert owners == ["service", "service"]
    assert ids(await store.list_unfinished()) == ["copy", RUN] or ids(await store.list_unfinished()) == [RUN, "copy"]


async def test_a_process_run_that_is_resumed_is_the_services(house: House) -> None:
    """A run whose process went away is continued by the service after a resume that says so."""
    log = await houses.begun(house, owner="process")
    await log.decide(DecisionKind.RESUMED, {"dead": [], "overrides": {"owner": "service"}})
    store = await house.crash()

    assert ids(await store.list_unfinished()) == [RUN]


async def test_a_damaged_run_is_listed_as_failed(house: House) -> None:
    """A folder whose start.json cannot be read still shows in the list, with the reason."""
    await filled(house)
    house.put("start.json", b"{", "r2")
    await house.store.rebuild_index()
    summary = await house.store.summary("r2")

    assert (summary.status, summary.error_code) == ("failed", "journal_corrupt")


# -- issues


async def test_an_issue_is_kept_by_its_id(house: House) -> None:
    """An issue is a JSON file named by its id; writing it again replaces it, and no name leads out of the folder."""
    store = await house.open()
    await store.issues.open({"issue_id": "iss_1", "title": "First", "run_id": RUN})
    await store.issues.open({"issue_id": "iss_1", "title": "Second", "run_id": RUN})
    await store.issues.open({"issue_id": "../evil", "title": "Third"})
    store = await house.crash()

    assert json.loads(house.files().read("issues/iss_1.json"))["title"] == "Second"
    assert len(house.files().names("issues")) == 2


async def test_an_issue_that_cannot_be_written_is_told(house: House) -> None:
    """A full disk refuses an issue, and leaves the old one as it was."""
    store = await house.open()
    await store.issues.open({"issue_id": "iss_1", "title": "First"})
    house.faults.refuse("write", "iss_1")
    with pytest.raises(errors.StorageFault):
        await store.issues.open({"issue_id": "iss_1", "title": "Second"})

    assert json.loads(house.files().read("issues/iss_1.json"))["title"] == "First"


def test_every_state_is_finished_or_not() -> None:
    """The index counts exactly the finished states as finished."""
    assert {state for state in RunState if state.finished} == {RunState.DONE, RunState.FAILED, RunState.CANCELLED}
