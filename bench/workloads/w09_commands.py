"""W9: runs that start programs."""

from __future__ import annotations

import time

from bench import figures, machine, projects, workload

_RUNS = 1_000
_AT_A_TIME = 200


async def _measure(context: workload.Context) -> figures.Raw:
    project = projects.make_project(context.place / "project")
    count = context.size(_RUNS, 4)
    before = await machine.spawns_per_second(count // 2, _AT_A_TIME)
    async with projects.opened(project, max_running=_AT_A_TIME) as application:
        await projects.execute_many(application, projects.COMMAND, count=context.size(20, 1), at_a_time=_AT_A_TIME)
        began = time.perf_counter()
        await projects.execute_many(application, projects.COMMAND, count=count, at_a_time=_AT_A_TIME)
        took = time.perf_counter() - began
    after = await machine.spawns_per_second(count // 2, _AT_A_TIME)
    return {"runs_per_second": count / took, "spawns_per_second": (before + after) / 2}


WORKLOAD = workload.Workload(
    name="W9",
    title="1,000 runs, 200 at a time, each a subprocess of `/bin/true`.",
    measure=_measure,
    lines=(
        figures.Line(
            says="finished runs",
            value="runs_per_second",
            unit="/s",
            beside="spawns_per_second",
            beside_unit="bare spawns/s",
            bar=figures.Bar(kind="at least", limit=0.7),
        ),
    ),
)
