"""W2: many runs, through the engine."""

from __future__ import annotations

import time

from bench import figures, projects, workload

_RUNS = 500
_AT_A_TIME = 50
_STEPS = 10


async def _measure(context: workload.Context) -> figures.Raw:
    project = projects.make_project(context.place / "project", steps=(_STEPS,))
    count, recipe = context.size(_RUNS, 20), projects.STEPS.format(_STEPS)
    async with projects.opened(project, max_running=_AT_A_TIME) as application:
        await projects.execute_many(application, recipe, count=context.size(_AT_A_TIME, 1), at_a_time=_AT_A_TIME)
        began, cpu = time.perf_counter(), time.process_time()
        await projects.execute_many(application, recipe, count=count, at_a_time=_AT_A_TIME)
        took, used = time.perf_counter() - began, time.process_time() - cpu
    steps = count * _STEPS
    return {
        "steps_per_second": steps / took,
        "cpu_ms_per_step": used * 1000 / steps,
        "runs_per_second": count / took,
    }


WORKLOAD = workload.Workload(
    name="W2",
    title="500 runs of 10 no-op steps, 50 at a time, their creation included.",
    measure=_measure,
    lines=(
        figures.Line(
            says="finished steps",
            value="steps_per_second",
            unit="/s",
            beside="appends_per_second",
            beside_unit="appends/s",
            bar=figures.Bar(kind="at least", limit=2),
        ),
        figures.Line(
            says="CPU per step, all threads",
            value="cpu_ms_per_step",
            unit="ms",
            bar=figures.Bar(kind="under", limit=0.25, of="figure"),
        ),
    ),
)
