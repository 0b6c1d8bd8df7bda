"""The engine on Temporal without a server, with runs in memory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from temporalio.client import Client

from app import clock
from app.domain import decisions, plain
from app.engine import ports, probes, stores
from app.engine.run_equipment import Equipment
from app.storage import layout
from app.storage.memory_store import MemoryStore
from app.temporal import slices, steps, worker
from app.temporal.engine import TemporalEngine


def equipment(time: clock.Clock) -> Equipment:
    """Return equipment that performs no step."""
    return Equipment(performers={}, clock=time, masker=plain.Masker(), probes=probes.NoProbes())


def carrying(store: stores.RunStore, time: clock.Clock) -> steps.Steps:
    """Return the steps of the runs in a store."""
    return steps.Steps(store=store, drivers={}, equipment=equipment(time), contents=slices.Contents(store))


async def engine(
    store: stores.RunStore, time: clock.Clock, drivers: Mapping[str, ports.Driver] = MappingProxyType({})
) -> TemporalEngine:
    """Return the engine of a service that performs no step."""

    async def start_child(call: Any) -> str:
        raise AssertionError(call)

    return TemporalEngine(
        client=await Client.connect("127.0.0.1:1", lazy=True),
        store=store,
        drivers=drivers,
        equipment=equipment(time),
        start_child=start_child,
        bounds=worker.WorkerLimits(queue="runs"),
        works=False,
    )


async def damage(store: MemoryStore, run_id: str) -> None:
    """Damage a run's journal: change the first of two lines."""
    log = await store.open(run_id)
    for _ in range(2):
        await log.decide(decisions.DecisionKind.TAKEN, {})
    await log.close()
    path = f"{layout.run_folder(run_id)}/{layout.CONTROL}"
    store.disk.write(path, store.disk.read(path).replace(b"taken", b"tokan", 1), sync=True)
