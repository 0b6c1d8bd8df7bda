"""Child runs: started once and like every run, and awaited without capacity."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.domain import runs, states
from app.engine import stores
from app.storage import memory_store
from app.storage.disk import worker_threads
from tests.unit.worker import failing, pools, toys

Bench = pools.Bench
RunState = states.RunState


def child(key: str, *program: toys.Step, **fields: object) -> toys.Step:
    """Return a step that starts a run."""
    return {"child": key, "program": list(program), **fields}


async def test_a_parent_waits_for_its_child_without_capacity() -> None:
    """With a capacity of one the child runs while its parent waits, and its slots are the step's output."""
    bench = await Bench(limit=1).open()
    run_id = await bench.submit(child("sub", *toys.tools("one")), {"tool": "two"})

    assert await bench.ended(run_id) == [RunState.DONE]

    output = (await bench.store.read(run_id)).records[0].output

    assert output["status"] == "done"
    assert output["ending"] == {"reason": "completed", "partial": False, "failed_steps": []}
    assert list(output["slots"]) == ["one"]
    assert (await bench.store.summary(output["run_id"])).parent_run_id == run_id
    assert bench.toolbox.executed == ["one/1", "two/1"]

    await bench.close()


async def test_a_failed_child_fails_its_step() -> None:
    """The step's error contains how the child ended, and its output contains the child's results."""
    bench = await Bench().open()
    bench.toolbox.fail("one")
    run_id = await bench.submit(child("sub", *toys.tools("one"), forgiven=True))
    await bench.ended(run_id)
    (record,) = (await bench.store.read(run_id)).records

    assert record.error is not None
    assert record.error.code == "child_failed"
    assert record.error.message.endswith(f"ended as failed: {record.output['error']['message']}")
    assert record.output["error"]["code"] == "run_failed"

    await bench.close()


async def test_a_restart_finds_the_child() -> None:
    """A parent that was waiting when its process died continues to wait for the same child."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(child("sub", *toys.tools("one")))
    await bench.toolbox.begun("one")
    await bench.crash()
    bench.toolbox.hold("one").set()
    await bench.restart()

    assert await bench.ended(run_id) == [RunState.DONE]
    assert bench.toolbox.executed == ["one/1", "one/2"]
    assert len(await bench.run_ids()) == 2

    await bench.close()


async def test_cancelling_a_parent_cancels_its_children() -> None:
    """A child and its own child end with the run that waits for them, in any state."""
    bench = await Bench(limit=1).open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(child("sub", child("subsub", *toys.tools("one"))))
    await bench.toolbox.begun("one")
    await bench.pool.cancel(run_id)

    assert await bench.ended(run_id) == [RunState.CANCELLED]

    await bench.until(lambda: not bench.pool.status().idle and not bench.pool.status().running)

    assert await bench.every_status() == ["cancelled"] * 3

    await bench.close()


async def test_cancelling_a_parent_cancels_however_many_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children of an earlier process end with the run that started them, also beyond one page of the list."""
    monkeypatch.setattr(stores, "PAGE", 2)
    bench = await Bench(limit=1).open()
    bench.toolbox.hold("one")
    run_id = await bench.submit({"gather": {f"b{at}": [child(f"sub{at}", *toys.tools("one"))] for at in range(5)}})
    await bench.toolbox.begun("one")
    while len(await bench.run_ids()) < 6:
        await pools.idle()
    await bench.pool.pause(run_id)
    await bench.at_rest(run_id)
    await bench.crash()
    await bench.restart()
    await bench.pool.cancel(run_id)
    await bench.ended(*await bench.run_ids())

    assert await bench.every_status() == ["cancelled"] * 6

    await bench.close()


async def test_a_crash_amid_a_cancel_reaches_the_children_too() -> None:
    """If the crash comes after a parent's cancel was written, the restart cancels the children too."""
    bench = await Bench(limit=1).open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(child("sub", *toys.tools("one")))
    await bench.toolbox.begun("one")
    await bench.crash_at("pool.after_cancel", 1, bench.pool.cancel(run_id))
    await bench.restart()

    assert await bench.ended(*await bench.run_ids()) == [RunState.CANCELLED] * 2

    await bench.close()


async def test_a_child_of_a_cancelled_parent_begins_nothing_after_a_restart() -> None:
    """A crash before or after the end of the cancelled parent makes no difference: its child begins no attempt."""
    for point in ("pool.after_cancel", "run.after_ended"):
        bench = await Bench(limit=9).open()
        bench.toolbox.hold("one")
        run_id = await bench.submit(child("sub", *toys.tools("one")))
        await bench.toolbox.begun("one")
        (sub,) = [found for found in await bench.run_ids() if found != run_id]
        await bench.crash_at(point, 1, bench.pool.cancel(run_id))
        await bench.restart()

        assert await bench.ended(run_id, sub) == [RunState.CANCELLED] * 2
        assert (await bench.store.read(sub)).decisions.highest_attempt == {"one": 1}, point

        await bench.close()


async def test_a_cancelled_child_fails_its_parents_step() -> None:
    """Cancelling only the child fails the step that waits for it."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(child("sub", *toys.tools("one"), forgiven=True))
    await bench.toolbox.begun("one")
    (sub,) = [found for found in await bench.run_ids() if found != run_id]
    await bench.pool.cancel(sub)

    assert await bench.ended(run_id) == [RunState.DONE]
    assert (await bench.store.read(run_id)).records[0].output["status"] == "cancelled"

    await bench.close()


async def test_a_stop_and_a_pause_leave_the_child_alone() -> None:
    """Only the end of a parent ends its children; a paused parent finds its child done when it continues."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(child("sub", *toys.tools("one")))
    await bench.toolbox.begun("one")
    await bench.pool.pause(run_id)
    await bench.at_rest(run_id)
    bench.toolbox.hold("one").set()
    (sub,) = [found for found in await bench.run_ids() if found != run_id]

    assert await bench.ended(sub) == [RunState.DONE]

    await bench.pool.unpause(run_id)

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()


async def test_a_child_of_a_failed_parent_is_cancelled() -> None:
    """When a sibling branch fails the parent, the child of the other branch is cancelled."""
    bench = await Bench().open()
    bench.toolbox.hold("one")
    bench.toolbox.hold("two")
    bench.toolbox.fail("two")
    run_id = await bench.submit({"gather": {"left": [child("sub", *toys.tools("one"))], "right": toys.tools("two")}})
    await bench.toolbox.begun("one")
    await bench.toolbox.begun("two")
    bench.toolbox.hold("two").set()

    assert await bench.ended(run_id) == [RunState.FAILED]

    (sub,) = [found for found in await bench.run_ids() if found != run_id]

    assert await bench.ended(sub) == [RunState.CANCELLED]

    await bench.close()


class LateBirths(memory_store.MemoryStore):
    """A store that holds back the creation of children, and finishes it even if its caller is cancelled."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def create(self, start: runs.RunStart, **how: Any) -> stores.Created:
        return await worker_threads.uncut(self._late(start, how))

    async def _late(self, start: runs.RunStart, how: dict[str, Any]) -> stores.Created:
        if start.parent_run_id is not None:
            self.asked.set()
            await self.let.wait()
        return await super().create(start, **how)


@pytest.mark.parametrize("order", ["pause", "cancel"])
async def test_an_order_to_a_parent_that_starts_its_child_leaves_no_run_behind(order: str) -> None:
    """A child whose folder is being made when its parent is paused is executed; with a cancelled parent it ends."""
    bench = Bench()
    store = LateBirths(clock=bench.clock, probes=bench.probes)
    bench.take_store(store)
    await bench.open()
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(child("sub", *toys.tools("one")))
    await pools.soon(store.asked.wait())
    await (bench.pool.pause(run_id) if order == "pause" else bench.pool.cancel(run_id))
    await pools.idle()
    store.let.set()
    await bench.at_rest(run_id)
    (sub,) = [found for found in await bench.run_ids() if found != run_id]
    if order == "pause":
        held.set()

    assert await bench.ended(sub) == [RunState.DONE if order == "pause" else RunState.CANCELLED]

    await bench.close()


async def test_a_restart_cancels_the_child_that_its_parents_cancel_could_not_reach() -> None:
    """A child whose folder could not be read when its parent was cancelled ends at the next start."""
    bench = Bench()
    store = failing.LateReads(clock=bench.clock, probes=bench.probes)
    bench.take_store(store)
    await bench.open()
    bench.toolbox.hold("one")
    run_id = await bench.submit(child("sub", *toys.tools("one", "two")))
    await bench.toolbox.begun("one")
    (sub,) = [found for found in await bench.run_ids() if found != run_id]
    await bench.pool.pause(sub, interrupt=True)
    await bench.at_rest(sub)
    store.bad = True
    await bench.pool.cancel(run_id)
    await bench.at_rest(run_id)
    await bench.crash()
    await bench.restart()

    assert await bench.ended(run_id, sub) == [RunState.CANCELLED] * 2

    await bench.close()


async def test_a_restart_keeps_the_child_that_was_resumed_after_its_parents_cancel() -> None:
    """A child that a person resumed after its parent's cancel continues after a restart."""
    bench = await Bench().open()
    held = bench.toolbox.hold("one")
    run_id = await bench.submit(child("sub", *toys.tools("one")))
    await bench.toolbox.begun("one")
    (sub,) = [found for found in await bench.run_ids() if found != run_id]
    await bench.pool.cancel(run_id)
    await bench.ended(run_id, sub)
    bench.advance(1)
    await bench.resumed(sub)
    await bench.crash()
    held.set()
    await bench.restart()

    assert await bench.ended(sub) == [RunState.DONE]

    await bench.close()


async def test_a_child_shares_its_parents_workspace() -> None:
    """A parent that holds its workspace alone does not lock out the child that it waits for."""
    bench = await Bench().open()
    run_id = await bench.submit(child("sub", *toys.tools("one")), exclusive_workspace=True)

    assert await bench.ended(run_id) == [RunState.DONE]

    await bench.close()
