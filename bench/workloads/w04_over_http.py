"""W4: runs started and awaited over HTTP."""

from __future__ import annotations

import asyncio
import statistics
import time

from bench import children, client, figures, projects, workload

_STEPS = 10
_CLIENTS = 20


async def _measure(context: workload.Context) -> figures.Raw:
    project = projects.make_project(context.place / "project", steps=(_STEPS,))
    async with children.serving(project, max_running=_CLIENTS) as served:
        await latencies(served, clients=2, runs=context.size(10, 1))
        alone = await latencies(served, clients=1, runs=context.size(100, 2))
        together = await latencies(served, clients=_CLIENTS, runs=context.size(20, 1))
    return {**_latency_figures(alone, "1"), **_latency_figures(together, str(_CLIENTS))}


async def latencies(served: children.Served, *, clients: int, runs: int) -> list[float]:
    """Return how long each run of each client took, from the request until the client saw the end."""
    each = await asyncio.gather(*(_client(served, runs) for _ in range(clients)))
    return [latency for taken in each for latency in taken]


async def _client(served: children.Served, runs: int) -> list[float]:
    connection = await client.connect(served.host, served.port)
    found = []
    for _ in range(runs):
        began = time.perf_counter()
        await _run(connection)
        found.append(time.perf_counter() - began)
    connection.close()
    return found


async def _run(connection: client.Connection) -> None:
    started = await connection.post("/api/runs", {"recipe_id": projects.STEPS.format(_STEPS)})
    if started.status != 201:
        raise RuntimeError(f"a run was refused: {started.status} {started.body.decode()}")
    target, etag, status = f"/api/runs/{started.json()['run_id']}?wait=30", "", ""
    while status != "done":
        answer = await connection.get(target, etag=etag)
        if answer.status == 304:
            continue
        etag, status = answer.etag, answer.json()["status"]
        if status in ("failed", "cancelled", "paused"):
            raise RuntimeError(f"a run is {status}")


def _latency_figures(latencies: list[float], clients: str) -> figures.Raw:
    shown = {"p50": statistics.median(latencies), "p95": figures.quantile(latencies, 0.95)}
    return {f"{name}_{clients}_ms": value * 1000 for name, value in shown.items()}


def _line(name: str, clients: int, most: float | None) -> figures.Line:
    return figures.Line(
        says=f"{name} at {clients} client{'s' if clients > 1 else ''}",
        value=f"{name}_{clients}_ms",
        unit="ms",
        beside="append_ms",
        beside_unit="ms for one append",
        bar=None if most is None else figures.Bar(kind="at most", limit=most),
    )


WORKLOAD = workload.Workload(
    name="W4",
    title="`POST /api/runs` of a run of 10 no-op steps until it is seen done, by long polls; 20 slots.",
    measure=_measure,
    lines=(_line("p50", 1, 35), _line("p95", 1, None), _line("p50", 20, 200), _line("p95", 20, None)),
)
