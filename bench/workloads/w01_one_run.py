"""W1: one run alone, through the engine."""

from __future__ import annotations

import statistics
import time

from bench import figures, machine, projects, workload

_STEPS = 10


async def _measure(context: workload.Context) -> figures.Raw:
    runs, appends = [], []
    project = projects.make_project(context.place / "project", steps=(_STEPS,))
    appender = machine.Appender(context.place)
    async with projects.opened(project) as application:
        recipe = projects.STEPS.format(_STEPS)
        for _ in range(context.size(3, 1)):
            await projects.execute(application, recipe)
        for _ in range(context.size(100, 3)):
            appends.append(appender.seconds(_STEPS))
            began = time.perf_counter()
            await projects.execute(application, recipe)
            runs.append(time.perf_counter() - began)
    appender.close()
    found = {"latency_ms": statistics.median(runs) * 1000, "p95_ms": figures.quantile(runs, 0.95) * 1000}
    burst = statistics.median(appends)
    return {**found, "ten_appends_ms": burst * 1000, **machine.append_rates(burst / _STEPS)}


WORKLOAD = workload.Workload(
    name="W1",
    title="One run of 10 no-op steps alone, through the engine, from its start until its end is known.",
    measure=_measure,
    lines=(
        figures.Line(
            says="latency, p50",
            value="latency_ms",
            unit="ms",
            beside="ten_appends_ms",
            beside_unit="ms for ten appends",
            bar=figures.Bar(kind="at most", limit=3),
        ),
    ),
)
