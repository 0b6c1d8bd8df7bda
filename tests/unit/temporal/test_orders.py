"""Orders to runs on Temporal: a fault of one run does not keep an order from the others."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

pytest.importorskip("temporalio")

from temporalio.client import Client

from app import errors
from app.clock import FakeClock
from app.storage.memory_store import MemoryStore
from app.temporal import engine as engines
from app.temporal import run_commands
from tests.unit.engine import samples
from tests.unit.temporal import offline

PARENT = "20260210T143000Z-parent"
CHILDREN = [f"20260210T14300{number}Z-childs" for number in range(1, 4)]


async def family(store: MemoryStore) -> None:
    """Create a run and three runs that it has started."""
    await store.create(samples.start(run_id=PARENT))
    for run_id in CHILDREN:
        await store.create(samples.start(run_id=run_id, parent_run_id=PARENT))


def ordering(store: MemoryStore, told: list[str]) -> run_commands.RunCommands:
    """Return run commands that note the runs whose workflow is signalled."""

    async def tell(run_id: str, signal: str, arguments: list[Any]) -> None:
        told.append(run_id)

    return run_commands.RunCommands(store, offline.carrying(store, FakeClock()), FakeClock(), tell)


@pytest.mark.parametrize(
    ("fault", "repeats"), [(errors.JournalCorrupt("line 1 is damaged"), False), (errors.StorageFault("away"), True)]
)
async def test_a_child_keeps_no_other_from_being_cancelled(
    monkeypatch: pytest.MonkeyPatch, fault: BaseException, repeats: bool
) -> None:
    """The second of three children cannot be opened: the others are cancelled, then a passing fault is raised."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        await family(store)
        told: list[str] = []
        opens = store.open

        async def fails(run_id: str) -> Any:
            if run_id == CHILDREN[1]:
                raise fault
            return await opens(run_id)

        monkeypatch.setattr(store, "open", fails)
        with pytest.raises(errors.StorageFault) if repeats else contextlib.nullcontext():
            await ordering(store, told).cancel(PARENT, None)

        assert sorted(told) == sorted([PARENT, CHILDREN[0], CHILDREN[2]])


async def test_an_order_waits_a_bounded_time_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order waits a bounded time for a server that takes no signal, and reaches the workflow later."""
    monkeypatch.setattr(engines, "SERVER_WAIT_SECONDS", 0)
    arrived, clock = asyncio.Event(), FakeClock()
    calls: list[str] = []

    async def start_workflow(client: Client, *args: Any, **named: Any) -> None:
        calls.append(named["start_signal"])
        if len(calls) == 1:
            await asyncio.Event().wait()
        arrived.set()

    monkeypatch.setattr(Client, "start_workflow", start_workflow)
    async with MemoryStore(clock=clock) as store:
        made = await offline.engine(store, clock)
        await made.signal_run(PARENT, "cancel", [])
        await asyncio.sleep(0)
        clock.advance(1)
        await arrived.wait()
        await made.stop()

    assert calls == ["cancel", "cancel"]
