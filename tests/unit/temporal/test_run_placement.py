"""Run placement: the journal names the machine of a run's worker, and so do messages about it."""

from __future__ import annotations

import pytest

pytest.importorskip("temporalio")

from app.clock import FakeClock
from app.domain import decisions, views
from app.storage.memory_store import MemoryStore
from app.temporal import leases, messages, run_placement
from tests.unit.engine import samples

FIRST, SECOND, OLD = (f"20260210T14300{number}Z-abcdef" for number in range(3))


async def test_the_journal_names_the_machine() -> None:
    """A run is placed on the machine that asks, a later one of its session there too, whichever machine asks."""
    store, found = MemoryStore(clock=FakeClock()), []
    async with store:
        for run_id, worker in ((FIRST, "one"), (SECOND, "two")):
            await store.create(samples.start(run_id=run_id, session_id="s"))
            here = messages.Placement(worker=worker, host=f"host-{worker}")
            await run_placement.RunPlacement(store, leases.Leases(store, FakeClock()), here).place(run_id)
            found.append(views.Placed.of((await store.read(run_id)).decisions))

    assert found == [views.Placed(worker="one", host="host-one")] * 2


async def test_a_line_without_a_machine_is_read() -> None:
    """Of a run that an earlier release placed, only the worker is known."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        await store.create(samples.start(run_id=OLD))
        async with leases.Leases(store, FakeClock()).of(OLD) as log:
            await log.decide(decisions.DecisionKind.PLACED, {"worker": "one"})
        placed = views.Placed.of((await store.read(OLD)).decisions)

    assert placed is not None
    assert placed.to_json() == {"worker": "one"}


@pytest.mark.parametrize(
    ("host", "reason", "told"),
    [
        ("two", "worker_gone", "the worker dir_1 on the machine two, which is away"),
        (None, "worker_gone", "the worker dir_1, which is away"),
        ("two", "activity_failed", "the worker dir_1, which is away"),
    ],
)
def test_the_worker_that_is_gone_is_named_with_its_machine(host: str | None, reason: str, told: str) -> None:
    """The message of a run whose worker is gone names the machine, if the journal does."""
    decided = decisions.Decisions(placed="dir_1", placed_host=host)
    parking = messages.Parking(reason=reason, code=reason, message="the worker dir_1, which is away", key=None)
    named = run_placement.RunPlacement.named(parking, decided)

    assert named is not None
    assert named.message == told
