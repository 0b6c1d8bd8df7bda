"""What a run on Temporal needs from other runs: a damaged or deleted one does not block it."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest

pytest.importorskip("temporalio")

from app import errors
from app.clock import FakeClock
from app.domain import decisions
from app.engine import stores
from app.storage.memory_store import MemoryStore
from app.temporal import claims, leases, messages, run_placement, steps
from tests.unit.engine import samples
from tests.unit.temporal import offline

PLACED, DAMAGED, RUN = (f"20260210T14300{number}Z-abcdef" for number in range(3))


def places(store: stores.RunStore) -> run_placement.RunPlacement:
    """Return the placement of runs for the worker `here`."""
    here = messages.Placement(worker="here", gone_seconds=1)
    return run_placement.RunPlacement(store, leases.Leases(store, FakeClock()), here)


async def place(store: stores.RunStore, run_id: str, worker: str) -> None:
    """Record where a run is placed."""
    async with leases.Leases(store, FakeClock()).of(run_id) as log:
        await log.decide(decisions.DecisionKind.PLACED, {"worker": worker})


async def test_a_damaged_run_of_the_session_is_passed_over() -> None:
    """Of two earlier runs of a session the newer is damaged: the next run is placed with the older one."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        for run_id in (PLACED, DAMAGED, RUN):
            await store.create(samples.start(run_id=run_id, session_id="s"))
        await place(store, PLACED, "there")
        await offline.damage(store, DAMAGED)

        assert await places(store).place(RUN) == "there"


async def test_a_fork_of_a_deleted_run_is_placed() -> None:
    """A fork whose source was deleted before its first step is placed on the worker that asks."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        await store.create(samples.start(run_id=RUN, forked_from=PLACED))

        assert await places(store).place(RUN) == "here"


async def test_a_damaged_run_holds_no_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workspace whose claim is lost and whose unfinished run is damaged goes to the next run."""
    held: list[str] = []

    async def no_holder(made: claims.Claims, claim: str) -> None:
        return None

    async def hold(made: claims.Claims, claim: str, holder: str) -> str:
        held.append(holder)
        return holder

    monkeypatch.setattr(claims.Claims, "_holder", no_holder)
    monkeypatch.setattr(claims.Claims, "_hold", hold)
    store = MemoryStore(clock=FakeClock())
    async with store:
        for run_id in (DAMAGED, RUN):
            await store.create(samples.start(run_id=run_id, working_dir="/work", exclusive_workspace=True))
        await offline.damage(store, DAMAGED)
        client: Any = None
        shared = run_placement.RunPlacement(store, leases.Leases(store, FakeClock()), None)

        assert await claims.Claims(store, client, "runs", shared).claim(RUN) is None
        assert held == [RUN]


@pytest.mark.parametrize(
    ("refused", "names"),
    [
        (errors.UnknownRecipe("there is no recipe 'three'"), True),
        (errors.NotReady("the backend paid is missing"), True),
        (errors.RequestInvalid("scene_path: is missing"), False),
    ],
)
async def test_a_child_that_a_machine_cannot_start_names_the_machine(
    refused: errors.ControlRoomError, names: bool
) -> None:
    """Recipes and backends belong to a machine, which the failed step names; a wrong argument is wrong anywhere."""

    async def refuse(call: Any) -> str:
        raise refused

    result = await steps.ChildStarts(refuse).perform(cast(Any, None))

    place = f"On the machine {socket.gethostname()}: " if names else ""
    assert result.error is not None
    assert (result.error.code, result.error.message) == (refused.code, f"{place}{refused.message}")
