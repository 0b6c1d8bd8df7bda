"""A store that several processes share: each run has one writer at a time, and only the writer's lines count."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app import clock, errors
from app.domain import budgets, limits, operations
from app.domain.decisions import DecisionKind
from app.engine import run_equipment, spending
from app.storage import layout
from app.storage.postgres.database import CHANNEL
from app.storage.runs.disk_store import DiskStore
from app.storage.runs.folder_log import FolderLog
from app.worker import shared_ledger
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN, FolderStoreHarness, Make, PostgresStoreHarness

BUDGET = budgets.Budget(name="all", limits=limits.RunLimits(cost_usd=3))
QUOTE = spending.Quote(cost_usd=1.0)
OPERATION = operations.AgentCall(agent_id="a", backend="said", prompt=("Write it.",))


def execute(url: str, statement: str) -> list[Any]:
    """Execute a statement, and return its rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(statement)
        return found.fetchall() if found.description else []


async def opened(harness: PostgresStoreHarness) -> FolderLog:
    """Open the run as soon as no other process holds it."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(errors.Conflict):
                return await harness.store.open(RUN)
            await asyncio.sleep(0.01)


def expire(url: str) -> None:
    """Let the leases of all runs expire."""
    execute(url, "UPDATE control_room.runs SET held_until = now() - interval '1 s' WHERE holder IS NOT NULL")


async def keys(harness: PostgresStoreHarness) -> list[str]:
    """Return the step keys of the journal, after verifying that the journal is sound."""
    assert (await harness.store.maintenance.verify(RUN))["ok"]
    return [record.key for record in (await harness.store.read(RUN)).records]


async def test_of_three_writers_only_the_last_lease_writes(make: Make, url: str) -> None:
    """Of three processes that believe they hold a run, only the one with the latest lease can write to it."""
    writers = [make() for _ in range(3)]
    logs = []
    for number, writer in enumerate(writers):
        store = await writer.open()
        if number == 0:
            await store.create(store_harness.start())
        log = await opened(writer)
        logs.append(log)
        await log.append_step(store_harness.step(f"by {number}"))
        await log.flush()
        # The earlier holders get no message that the next one has the run.
        expire(url)
    late = [log.append_step(store_harness.step(f"late {number}")) for number, log in enumerate(logs)]
    results = await asyncio.gather(*late, return_exceptions=True)
    logs[2].refresh(lambda: {"cache.json": {"slots": {}}})
    await logs[2].flush()
    shown = writers[2].content("cache.json")
    healed = await asyncio.gather(*(log.heal() for log in logs[:2]), return_exceptions=True)
    logs[0].refresh(lambda: {"cache.json": {"slots": "of an earlier lease"}})
    with contextlib.suppress(errors.StorageFault):
        await logs[0].flush()

    assert [isinstance(result, errors.LeaseLost) for result in results] == [True, True, False]
    assert [isinstance(result, errors.LeaseLost) for result in healed] == [True, True]
    assert await keys(writers[2]) == ["by 0", "by 1", "by 2", "late 2"]
    assert writers[2].content("cache.json") == shown


@pytest.mark.slow
async def test_a_run_is_written_by_one_process_after_the_other(make: Make) -> None:
    """While one process holds a run the others are refused, and each finds all earlier lines, even unsynced ones."""
    writers = [make() for _ in range(3)]
    for writer in writers:
        await writer.open()
    await writers[0].store.create(store_harness.start())
    for turn in range(6):
        log = await opened(writers[turn % 3])
        with pytest.raises(errors.Conflict, match="another process"):
            await writers[(turn + 1) % 3].store.open(RUN)
        assert len(log.loaded.decisions.highest_attempt) == turn
        facts = {"key": f"s{turn}", "attempt": 1, "operation": "sha256:0"}
        await log.append_step(store_harness.step(f"s{turn}"))
        await log.decide(DecisionKind.STARTED, facts, sync=False)
        await log.set_aside()

    assert await keys(writers[1]) == [f"s{turn}" for turn in range(6)]


@pytest.mark.slow
async def test_the_runs_of_a_dead_process_are_free_at_once(make: Make, url: str) -> None:
    """A run of a dead process can be opened at once, although its lease has time left."""
    dead, other = make(), make()
    log = await store_harness.begun(dead)
    await log.append_step(store_harness.step("a"))
    dead.store.abandon()
    held = execute(url, f"SELECT held_until > now() FROM control_room.runs WHERE place = 'runs/{RUN}'")
    await other.open()
    log = await other.store.open(RUN)
    await log.append_step(store_harness.step("b"))

    assert held == [(True,)]
    assert await keys(other) == ["a", "b"]


@pytest.mark.slow
async def test_ended_sessions_cost_no_lease(make: Make, url: str) -> None:
    """A process whose sessions the server ends keeps its run, unless another process takes the run meanwhile."""
    first, second = make(), make()
    log = await store_harness.begun(first)
    await second.open()
    mine = "datname = current_database() AND pid <> pg_backend_pid()"
    execute(url, f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {mine}")
    await log.append_step(store_harness.step("a"))
    with pytest.raises(errors.Conflict):
        await second.store.open(RUN)
    await log.close()
    log = await opened(second)
    await log.append_step(store_harness.step("b"))

    assert await keys(second) == ["a", "b"]


@pytest.mark.slow
async def test_one_request_makes_one_run_whichever_process_gets_it(make: Make) -> None:
    """Of requests with one key, sent to three processes at once, one makes the run and the others find it."""
    writers = [make() for _ in range(3)]
    for writer in writers:
        await writer.open()
    starts = [
        store_harness.start(f"{RUN}-{number}", idempotency_key="key", request_sha256="sha256:0") for number in range(9)
    ]
    made = await asyncio.gather(*(writers[n % 3].store.create(start) for n, start in enumerate(starts)))

    assert len({created.run_id for created in made}) == 1
    assert [created.existed for created in made].count(False) == 1


@pytest.mark.slow
@pytest.mark.parametrize("first_shares", [True, False])
async def test_engines_do_not_share_a_store(make: Make, first_shares: bool) -> None:
    """A store refuses an owner while others share it, and refuses to be shared while it has an owner."""
    first, second = make(shared=first_shares), make(shared=not first_shares)
    await first.open()
    with pytest.raises(errors.ConfigurationError) as refusal:
        await second.open()
    await first.store.close()

    assert refusal.value.code == "other_engine"
    await second.open()


@pytest.mark.slow
async def test_a_process_without_its_session_cannot_write(make: Make, url: str) -> None:
    """A process that has lost its session cannot write any more after an owner has opened the store."""
    sharing, owner = make(), make(shared=False)
    log = await store_harness.begun(sharing)
    ownership = sharing.store._ownership
    assert ownership is not None
    ownership.transact(lambda cursor: cursor.execute("SELECT pg_advisory_unlock_all()"))
    await owner.open()
    expire(url)
    later = await owner.store.open(RUN)
    await later.append_step(store_harness.step("a"))
    with pytest.raises(errors.StorageFault):
        await log.append_step(store_harness.step("late"))

    assert await keys(owner) == ["a"]


async def test_a_run_taken_again_while_it_is_returned_keeps_its_lines(make: Make) -> None:
    """A line without its own commit is flushed under its writer's lease before the process takes the run again."""
    harness = make()
    store = await harness.open()
    await store.create(store_harness.start())
    log = await opened(harness)
    leases: Any = harness.store.bare_disk()._leases  # type: ignore[attr-defined]
    database, flush = leases._database, leases._flush
    flushing, taken, flushed = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class SlowToHear:
        def write(self, epoch: int, job: Any) -> Any:
            found = database.write(epoch, job)
            taken.set()
            flushed.wait(1)
            return found

    def held(run: str) -> None:
        loop.call_soon_threadsafe(flushing.set)
        taken.wait(1)
        try:
            flush(run)
        finally:
            flushed.set()

    leases._flush = held
    await log.decide(DecisionKind.STARTED, {"key": "one", "attempt": 1, "operation": "sha256:a"}, sync=False)
    await log.set_aside()
    async with asyncio.timeout(30):
        await flushing.wait()
    leases._database = SlowToHear()
    again = await opened(harness)

    assert again.loaded.decisions.highest_attempt == {"one": 1}
    await again.append_step(store_harness.step("one"))
    assert await keys(harness) == ["one"]


def _ledger(store: Any, quote: spending.Quote = QUOTE) -> shared_ledger.SharedLedger:
    made = shared_ledger.SharedLedger(store, lambda _: quote, clock.SystemClock(), store.turns(layout.SPENDING))
    made.set_budgets([BUDGET])
    return made


async def _begin(ledger: shared_ledger.SharedLedger, log: FolderLog, attempt: int = 1) -> None:
    reservation = await ledger.reserve(log.loaded, "write", OPERATION)
    try:
        facts = {"key": "write", "attempt": attempt, "operation": "sha256:0", **reservation.begin(attempt)}
        await log.decide(DecisionKind.STARTED, facts)
    finally:
        assert reservation.release is not None
        reservation.release()


async def test_of_calls_with_unknown_prices_one_is_under_way_in_all_processes(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With limited money, a call with an unknown price waits for one of another process, and then its run parks."""
    monkeypatch.setattr(shared_ledger, "WAIT_SECONDS", 0.0)
    stores = [await process.open() for process in (make(), make())]
    ledgers = [_ledger(store, spending.Quote()) for store in stores]
    logs = []
    for number, store in enumerate(stores):
        await store.create(store_harness.start(f"{RUN}-{number}"))
        logs.append(await store.open(f"{RUN}-{number}"))
    first, second = logs
    await _begin(ledgers[0], first)
    await _begin(ledgers[0], first, attempt=2)
    with pytest.raises(run_equipment.Parked) as parked:
        await ledgers[1].reserve(second.loaded, "write", OPERATION)
    # A call with a known price fits beside it.
    await _begin(_ledger(stores[1]), second)
    await second.append_step(store_harness.step("write"))
    await second.decide(DecisionKind.PAUSED, {"reason": parked.value.reason, "error": parked.value.error.to_json()})
    before = await ledgers[1].has_room(second.loaded)
    await first.append_step(store_harness.step("write", attempt=2))
    after = await ledgers[1].has_room(second.loaded)
    await second.decide(DecisionKind.UNPAUSED, {})
    await _begin(ledgers[1], second, attempt=2)

    assert parked.value.reason == "budget_exhausted"
    assert "made one after another" in parked.value.error.message
    assert parked.value.error.detail["limit"] == "cost_usd"
    assert (before, after) == (False, True)
    for log in logs:
        await log.close()


async def _given_away(stores: Sequence[DiskStore]) -> tuple[list[str | None], list[float | None]]:
    """Return the outcomes of six calls that two processes begin at once, and the remaining budget in each process."""
    ledgers = [_ledger(store) for store in stores]

    async def call(number: int) -> str | None:
        store, ledger = stores[number % 2], ledgers[number % 2]
        begun = store_harness.start(f"{RUN}-{number}")
        await store.create(begun)
        log = await store.open(begun.run_id)
        try:
            reservation = await ledger.reserve(log.loaded, "write", OPERATION)
            facts = {"key": "write", "attempt": 1, "operation": "sha256:0", **reservation.begin(1)}
            await log.decide(DecisionKind.STARTED, facts)
            assert reservation.release is not None
            reservation.release()
        except run_equipment.Parked as parked:
            return str(parked.reason)
        finally:
            await log.close()
        return None

    outcomes = await asyncio.gather(*map(call, range(6)))
    return outcomes, [(await ledger.standing(BUDGET)).left.cost_usd for ledger in ledgers]


async def test_a_budget_is_given_away_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of calls that two processes begin at once, exactly as many are reserved as the budget allows."""
    monkeypatch.setattr(shared_ledger, "WAIT_SECONDS", 0.0)
    outcomes, left = await _given_away([await process.open() for process in (make(), make())])

    assert outcomes.count(None) == 3
    assert set(outcomes) == {None, "budget_exhausted"}
    assert left == [0.0, 0.0]


async def test_a_budget_is_given_away_once_by_processes_that_share_folders(
    tmp_path: Path, migrated: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that share folders also reserve exactly as many calls as the budget allows."""
    monkeypatch.setattr(shared_ledger, "WAIT_SECONDS", 0.0)
    harness = FolderStoreHarness(tmp_path, migrated)
    stores = [harness.store, harness.another()]
    async with contextlib.AsyncExitStack() as closing:
        for store in stores:
            store.share()
            await store.start(serve=False)
            closing.push_async_callback(store.close)
        outcomes, left = await _given_away(stores)

    assert outcomes.count(None) == 3
    assert set(outcomes) == {None, "budget_exhausted"}
    assert left == [0.0, 0.0]


async def test_waiting_notifications_wake_the_loop_once_each(
    make: Make, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notifications that wait to be read together do not wake the event loop more than once each."""
    loop, calls, told = asyncio.get_running_loop(), list[int](), asyncio.Event()
    add_reader = loop.add_reader

    def counted(descriptor: int, callback: Callable[[], object]) -> None:
        def called() -> None:
            calls.append(descriptor)
            callback()

        add_reader(descriptor, called)

    monkeypatch.setattr(loop, "add_reader", counted)
    listener = (await make().open()).commit_listener
    assert listener is not None
    listener.start(lambda run_id: told.set())
    # The listener begins with a call, because commits may have been missed.
    await asyncio.wait_for(told.wait(), 30)
    for _ in range(3):
        told.clear()
        await asyncio.to_thread(execute, url, f"NOTIFY {CHANNEL}, '{RUN}'")
        async with asyncio.timeout(30):
            while not told.is_set():  # noqa: ASYNC110 - each turn of the loop is one in which it could be called
                await asyncio.sleep(0)
    await listener.stop()

    assert 1 <= len(calls) <= 3
