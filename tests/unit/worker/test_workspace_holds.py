"""Workspaces held alone: from a run's start to its end, across pauses and restarts."""

from __future__ import annotations

from app.domain import states
from tests.unit.worker import pools, toys

Bench = pools.Bench
RunState = states.RunState


async def begun(bench: Bench, key: str) -> str:
    """Submit a run that holds its workspace and whose step is under way."""
    bench.toolbox.hold(key)
    run_id = await bench.submit(*toys.tools(key, f"{key}-after"), exclusive_workspace=True)
    await bench.toolbox.begun(key)
    return run_id


async def test_a_run_waiting_for_a_workspace_names_its_holder() -> None:
    """A run that wants a held workspace is pending and names the holder; others pass it; then it has its turn."""
    bench = await Bench().open()
    holder = await begun(bench, "one")
    waiting = await bench.create(*toys.tools("two"), exclusive_workspace=True)

    assert await bench.pool.submit(waiting) is RunState.PENDING

    standing = bench.pool.standing(waiting)

    assert standing is not None
    assert (standing.status, standing.reason, standing.holder) == (RunState.PENDING, "workspace_busy", holder)

    sharing = await bench.submit(*toys.tools("three"))
    elsewhere = await bench.submit(*toys.tools("four"), exclusive_workspace=True, working_dir="/elsewhere")

    assert await bench.ended(sharing, elsewhere) == [RunState.DONE] * 2

    bench.toolbox.hold("one").set()

    assert await bench.ended(waiting) == [RunState.DONE]

    await bench.close()


async def test_a_pause_does_not_free_the_workspace() -> None:
    """A paused run keeps its workspace, and a cancelled one releases it."""
    bench = await Bench().open()
    holder = await begun(bench, "one")
    await bench.pool.pause(holder)
    bench.toolbox.hold("one").set()
    await bench.at_rest(holder)
    waiting = await bench.submit(*toys.tools("two"), exclusive_workspace=True)
    await pools.idle()

    assert bench.toolbox.executed == ["one/1"]

    await bench.pool.cancel(holder)

    assert await bench.ended(waiting) == [RunState.DONE]

    await bench.close()


async def test_a_restart_does_not_free_the_workspace() -> None:
    """After a crash the workspace belongs to its earlier holder, paused or not, whichever run is queued before it."""
    bench = await Bench(limit=1).open()
    early = await bench.create(*toys.tools("early"), exclusive_workspace=True)
    holder = await begun(bench, "one")
    await bench.pool.pause(holder)
    bench.toolbox.hold("one").set()
    await bench.at_rest(holder)
    await bench.crash()
    await bench.restart()
    await pools.idle()
    standing = bench.pool.standing(early)

    assert standing is not None
    assert (standing.reason, standing.holder) == ("workspace_busy", holder)

    await bench.pool.unpause(holder)

    assert await bench.ended(holder, early) == [RunState.DONE] * 2
    assert bench.toolbox.executed == ["one/1", "one-after/1", "early/1"]

    await bench.close()


async def test_a_run_that_never_began_holds_nothing() -> None:
    """A run paused in the queue does not keep others out of its workspace."""
    bench = await Bench(limit=1).open()
    keeper = await bench.keep_busy(1)
    paused = await bench.submit(*toys.tools("one"), exclusive_workspace=True)
    await bench.pool.pause(paused)
    await bench.at_rest(paused)
    other = await bench.submit(*toys.tools("two"), exclusive_workspace=True)
    keeper.set()

    assert await bench.ended(other) == [RunState.DONE]

    await bench.close()
