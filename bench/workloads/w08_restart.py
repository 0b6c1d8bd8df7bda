"""W8: a restart with very many runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from app import bootstrap
from bench import children, client, crowds, figures, projects, workload

_FINISHED = 100_000
_UNFINISHED = 2_000
_BETWEEN_SECONDS = 0.02


async def _measure(context: workload.Context) -> figures.Raw:
    unfinished = context.size(_UNFINISHED, 20)
    crowd = await _crowd(context.kept / "project", context.size(_FINISHED, 200), unfinished)
    empty = projects.make_project(context.place / "project")
    async with projects.opened(empty):
        pass
    await _started(empty, 0)
    empty_seconds, _ = await _started(empty, 0)
    ready_seconds, continued_seconds = await _started(crowd, unfinished)
    return {
        "ready_seconds": ready_seconds,
        "continued_seconds": continued_seconds,
        "empty_seconds": empty_seconds,
    }


async def _crowd(project: Path, finished: int, unfinished: int) -> Path:
    await crowds.make(project, finished=finished, whole=True)
    if not (project / "unfinished").exists():
        # A process that executes none of these runs accepts them, as before a crash.
        async with bootstrap.build(projects.choose(project), bootstrap.OpenMode(), projects.platform()) as application:
            for _ in range(unfinished):
                await application.store.create(application.starter.prepare_now(projects.request(projects.GATE)))
        (project / "unfinished").touch()
    return project


async def _started(project: Path, unfinished: int) -> tuple[float, float]:
    """Start a service; return how long it took to be ready, and until every unfinished run waited at its gate again."""
    began = time.perf_counter()
    async with children.serving(project) as served:
        connection = await client.connect(served.host, served.port)
        await _until(connection, lambda found: found.status == 200)
        ready = time.perf_counter() - began
        await _until(connection, lambda found: found.json()["resting"] >= unfinished)
        continued = time.perf_counter() - began
        connection.close()
    return ready, continued


async def _until(connection: client.Connection, holds: Callable[[client.Answer], bool]) -> None:
    while True:
        if holds(await connection.get("/readyz")):
            return
        await asyncio.sleep(_BETWEEN_SECONDS)


WORKLOAD = workload.Workload(
    name="W8",
    title="Restart with 100,000 finished runs and 2,000 at a gate; from the start of the process.",
    measure=_measure,
    lines=(
        figures.Line(
            says="ready to serve",
            value="ready_seconds",
            unit="s",
            beside="empty_seconds",
            beside_unit="s without any run",
            bar=figures.Bar(kind="at most", limit=0.6, of="figure"),
        ),
        figures.Line(
            says="all unfinished runs wait again",
            value="continued_seconds",
            unit="s",
            bar=figures.Bar(kind="at most", limit=2, of="figure"),
        ),
    ),
)
