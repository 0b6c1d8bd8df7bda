"""Recovery on Temporal: every unfinished run gets a workflow, even if another run is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("temporalio")

from temporalio.client import Client

from app import errors
from app.clock import FakeClock
from app.domain import inputs, records
from app.engine import stores
from app.storage.memory_store import MemoryStore
from app.temporal import messages, registration, steps, workflow_recovery
from tests.unit.engine import samples
from tests.unit.temporal import offline

RUNS = [f"20260210T14300{number}Z-abcdef" for number in range(3)]


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """Return a store with three unfinished runs."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        for run_id in RUNS:
            await store.create(samples.start(run_id=run_id))
        yield store


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of workflows that are begun, on a server that only records them."""
    begun: list[str] = []

    async def start_workflow(client: Client, *args: Any, **named: Any) -> None:
        begun.append(named["id"])

    async def keep(known: registration.Registration) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Client, "start_workflow", start_workflow)
    monkeypatch.setattr(registration.Registration, "keep", keep)
    return begun


async def test_a_damaged_run_does_not_keep_the_others_from_beginning(store: MemoryStore, begun: list[str]) -> None:
    """The journal of one of three runs is damaged: all get a workflow, which reports it, and the engine continues."""
    await offline.damage(store, RUNS[1])
    made = await offline.engine(store, FakeClock())

    made.start()
    found = await made.recovered()

    assert begun == [messages.workflow_id(run_id) for run_id in RUNS]
    assert found == len(RUNS)
    assert not made.status().stopping
    await made.stop()


async def test_unfinished_runs_are_listed_again_after_a_fault(store: MemoryStore, begun: list[str]) -> None:
    """If the store cannot be read at the start, the runs begin when it can be read again."""
    time, tries = FakeClock(), asyncio.Event()
    list_unfinished = store.list_unfinished

    async def fails() -> list[stores.RunSummary]:
        tries.set()
        raise errors.StorageFault("the disk is away")

    store.list_unfinished = fails  # type: ignore[method-assign]
    made = await offline.engine(store, time)
    made.start()
    await tries.wait()
    before = list(begun)
    store.list_unfinished = list_unfinished  # type: ignore[method-assign]
    time.advance(workflow_recovery.KEEP_SECONDS)

    assert await made.recovered() == len(RUNS)
    assert before == []
    assert len(begun) == len(RUNS)
    await made.stop()


async def test_a_delivery_to_an_unopenable_run_begins_its_workflow(
    store: MemoryStore, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workflow begins for a recorded delivery although the store can no longer open the run."""
    made = await offline.engine(store, FakeClock())
    line = samples.record("asked", samples.tool("asked"))

    async def fails(run_id: str) -> Any:
        raise errors.StorageFault("the disk is away")

    async def key_order(carried: steps.Steps, run_id: str, key: str, kind: str) -> messages.StepOrder:
        return messages.StepOrder(run_id=run_id, key=key, operation="", branch="")

    async def deliver(carried: steps.Steps, *given: Any) -> records.Record:
        monkeypatch.setattr(store, "open", fails)
        return line

    monkeypatch.setattr(steps.Steps, "key_order", key_order)
    monkeypatch.setattr(steps.Steps, "deliver", deliver)

    assert await made.deliver(RUNS[0], "asked", inputs.Delivery(value=1, author=inputs.SYSTEM)) is line
    assert begun == [messages.workflow_id(RUNS[0])]
    await made.stop()
