"""W5: the memory of runs that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from app import bootstrap
from app.domain import states
from bench import figures, memory, projects, workload

_RUNS = 5_000
_WARM_UP = 50
_STARTED_AT_A_TIME = 50
_LOOK_AGAIN_SECONDS = 1.0

_Rests = Callable[[bootstrap.Application, str], Awaitable[bool]]


async def _at_gate(application: bootstrap.Application, run_id: str) -> bool:
    return (await application.store.summary(run_id)).status == states.RunState.WAITING


async def _at_agent(application: bootstrap.Application, run_id: str) -> bool:
    return bool(await application.store.list_logs(run_id))


async def _measure(context: workload.Context, recipe: str, rests: _Rests) -> figures.Raw:
    project = projects.make_project(context.place / "project")
    count, warm_up = context.size(_RUNS, 20), context.size(_WARM_UP, 2)
    async with projects.opened(project, max_running=count + warm_up) as application:
        await _park(application, recipe, rests, warm_up)
        before = await memory.settled_bytes()
        await _park(application, recipe, rests, count)
        after = await memory.settled_bytes()
        await application.engine.stop(0)
    return {"kib_per_run": (after - before) / 1024 / count}


async def _park(application: bootstrap.Application, recipe: str, rests: _Rests, count: int) -> None:
    places = asyncio.Semaphore(_STARTED_AT_A_TIME)

    async def park() -> None:
        async with places:
            started = await application.runs.start(projects.request(recipe))
            await _until(application, started.run_id, rests)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(park())


async def _until(application: bootstrap.Application, run_id: str, rests: _Rests) -> None:
    while True:
        number = application.engine.change_number(run_id)
        if await rests(application, run_id):
            return
        try:
            async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                await application.engine.changed(run_id, number)
        except TimeoutError:
            continue


async def _measure_gate(context: workload.Context) -> figures.Raw:
    return await _measure(context, projects.GATE, _at_gate)


async def _measure_agent(context: workload.Context) -> figures.Raw:
    return await _measure(context, projects.AGENT, _at_agent)


def _line(most_kib: float) -> figures.Line:
    return figures.Line(
        says="resident memory of each",
        value="kib_per_run",
        unit="KiB",
        bar=figures.Bar(kind="at most", limit=most_kib, of="figure"),
    )


AT_GATE = workload.Workload(
    name="W5",
    part="gate",
    title="5,000 runs that wait at a gate.",
    measure=_measure_gate,
    lines=(_line(4),),
)

AT_AGENT = workload.Workload(
    name="W5",
    part="agent",
    title="5,000 runs at a time, each in a call of an agent that takes its time.",
    measure=_measure_agent,
    lines=(_line(6),),
)
