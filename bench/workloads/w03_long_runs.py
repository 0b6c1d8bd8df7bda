"""W3: the cost of a step in short and long runs."""

from __future__ import annotations

import statistics
import time

from app import bootstrap
from app.domain import records
from app.engine import ports
from bench import dialect, figures, projects, workload

_SHORT, _LONGER, _LONG = 100, 1_000, 10_000


class _Beginnings(dialect.NothingPerformer):
    """The performer of no-op steps that notes when the first step of each run begins."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}

    async def perform(self, call: ports.Call) -> records.Result:
        """Note the time if it is the run's first step, and perform one attempt of a `Nothing`."""
        self.of.setdefault(call.run.run_id, time.perf_counter())
        return await super().perform(call)


async def _measure(context: workload.Context) -> figures.Raw:
    project = projects.make_project(context.place / "project", steps=(_SHORT, _LONGER, _LONG))
    started_listeners = _Beginnings()
    found: dict[int, list[float]] = {_SHORT: [], _LONGER: [], _LONG: []}
    async with projects.opened(project, performers={dialect.Nothing.kind: started_listeners}) as application:
        await _run(application, started_listeners, _SHORT)
        # The short runs come before, between and after the long ones: a disk that becomes slower affects all equally.
        for length in (_LONGER, _LONG, _LONGER, None):
            for _ in range(context.size(15, 1)):
                found[_SHORT].append(await _run(application, started_listeners, _SHORT))
            if length is not None and (length != _LONG or not context.quick):
                found[length].append(await _run(application, started_listeners, length))
    milliseconds = {length: statistics.mean(values) * 1000 for length, values in found.items() if values}
    return {f"step_of_{length}_ms": value for length, value in milliseconds.items()}


async def _run(application: bootstrap.Application, started_listeners: _Beginnings, steps: int) -> float:
    run_id = await projects.execute(application, projects.STEPS.format(steps))
    return (time.perf_counter() - started_listeners.of[run_id]) / steps


def _line(length: int, bar: figures.Bar | None = None) -> figures.Line:
    return figures.Line(
        says=f"one step of {length:,}",
        value=f"step_of_{length}_ms",
        unit="ms",
        beside=f"step_of_{_SHORT}_ms",
        beside_unit=f"ms for one step of {_SHORT}",
        bar=bar,
    )


WORKLOAD = workload.Workload(
    name="W3",
    title="One run of 100, 1,000 and 10,000 no-op steps: time per step, from the first step to the end.",
    measure=_measure,
    lines=(_line(_LONGER), _line(_LONG, figures.Bar(kind="at most", limit=1.05))),
)
