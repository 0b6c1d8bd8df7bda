"""What histories keep of errors: reasons and codes, but no secret that a recipe names."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("temporalio")

from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from app import errors
from app.clock import FakeClock
from app.domain import runs
from app.engine import ports, run_equipment
from app.storage import layout
from app.storage.memory_store import MemoryStore
from app.temporal import messages
from app.temporal.activities import Activities
from app.temporal.capacity import StepCapacity
from app.temporal.engine import TemporalEngine
from tests.unit.engine import samples
from tests.unit.temporal import offline

RUN = "20260210T143000Z-abcdef"
SECRET = "the lantern key"
ORDER = messages.StepOrder(run_id=RUN, key="a", operation="", branch="")


class Repeating:
    """A driver that breaks its rules, with a fault that quotes a secret of its recipe."""

    name = "sample"
    driver_version = 1

    def secrets(self, document: Any) -> ports.Secrets:
        """Return the secret."""
        return ports.Secrets(texts=frozenset({SECRET}))

    async def drive(self, ctx: Any) -> runs.Ending:
        """Ask for one key twice."""
        asked = {name: ctx.perform(f"step of {SECRET}", samples.tool("a")) for name in "ab"}
        await ctx.gather(asked)
        return runs.Ending()


def activities(engine: TemporalEngine) -> Activities:
    """Return the activities of a worker."""
    return Activities(engine._steps, engine._runs, engine._placement, StepCapacity(1), engine.live)


async def failure(store: MemoryStore, call: str, *args: Any, raised: BaseException | None = None) -> ApplicationError:
    """Return how an activity fails; `raised` is what its steps raise."""
    driver: Any = Repeating()
    engine = await offline.engine(store, FakeClock(), {"sample": driver})
    if raised is not None:

        async def perform(*_: Any) -> None:
            raise raised from ValueError(SECRET)

        vars(engine._steps)["perform"] = perform
    with pytest.raises(ApplicationError) as failed:
        await ActivityEnvironment().run(getattr(activities(engine), call), *args)
    assert failed.value.__cause__ is None
    return failed.value


async def test_the_fault_of_a_driver_is_masked() -> None:
    """The history has the fault's code, and neither it nor the parked run contains the secret that the fault quotes."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        await store.create(samples.start(run_id=RUN))
        failed = await failure(store, "perform", ORDER)
        driver: Any = Repeating()
        engine = await offline.engine(store, FakeClock(), {"sample": driver})
        state = await ActivityEnvironment().run(activities(engine).complete, messages.CompletionOrder(run_id=RUN))
        shown = store.disk.read(f"{layout.run_folder(RUN)}/{layout.MANIFEST}").decode()

    assert (failed.type, failed.non_retryable, state) == ("key_repeated", True, "paused")
    assert "was asked for twice" in failed.message
    assert "was asked for twice" in shown
    assert SECRET not in failed.message + shown


async def test_why_a_run_waits_for_a_person_is_masked() -> None:
    """The reason why a step is parked contains no secret of the recipe."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        await store.create(samples.start(run_id=RUN))
        parked = run_equipment.Parked("budget_exhausted", errors.StepError(f"no room for {SECRET}", code="x", key="a"))
        failed = await failure(store, "perform", ORDER, raised=parked)

    [facts] = failed.details
    assert failed.message == facts.message
    assert failed.message.startswith("no room for ")
    assert SECRET not in str(facts)


async def test_the_fault_of_an_unreadable_run_is_not_quoted() -> None:
    """The secrets of a damaged run are unknown, so that its fault is not quoted."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        await store.create(samples.start(run_id=RUN))
        await offline.damage(store, RUN)
        failed = await failure(store, "perform", ORDER, raised=errors.DriverFault(f"bad {SECRET}"))

    assert (failed.type, failed.message) == ("driver_fault", "its journal cannot be read now")


async def test_an_unforeseen_error_is_masked_and_repeated() -> None:
    """An unforeseen error of a library is masked as well, and the activity is tried again."""
    store = MemoryStore(clock=FakeClock())
    async with store:
        await store.create(samples.start(run_id=RUN))
        failed = await failure(store, "perform", ORDER, raised=ValueError(f"bad {SECRET}"))

    assert (failed.type, failed.message, failed.non_retryable) == ("ValueError", "bad ***", False)
