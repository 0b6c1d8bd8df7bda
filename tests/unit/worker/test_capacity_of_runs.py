"""A run that was granted capacity: its state until the journal records that a process took it up."""

from __future__ import annotations

from app.domain import states
from tests.unit.worker import toys
from tests.unit.worker.pools import Bench, soon


async def test_a_seated_run_shows_that_it_runs() -> None:
    """A run that was shown as `running` is not shown as `pending` while it is loaded and its take-up is written."""
    bench = await Bench().open()
    run_id = await bench.create(*toys.tools("one"))
    seen: list[str | None] = []

    def look() -> None:
        view = bench.pool.view(run_id)
        seen.append(None if view is None else view.status.value)

    for point in ("run.before_taken", "run.after_taken"):
        bench.probes.at(point, 1, look)
    told = await bench.pool.submit(run_id)
    await soon(bench.pool.ended(run_id))
    await bench.close()

    assert told is states.RunState.RUNNING
    assert seen == ["running", "running"]
