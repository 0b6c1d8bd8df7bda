"""W6: polls of a run."""

from __future__ import annotations

import asyncio
import statistics

from bench import children, client, figures, pollers, projects, workload

_STEPS = 50
_CLIENTS = 32
_TURNS = 3
_AGENT = 1
_BETWEEN_SECONDS = 0.2


async def _measure(context: workload.Context) -> figures.Raw:
    project = projects.make_project(context.place / "project", steps=(_STEPS,))
    async with children.serving(project) as served:
        target, shown = await _active_run(await client.connect(served.host, served.port))
        body = context.place / "body.json"
        body.write_bytes(shown.body)
        async with children.routing(body) as bare:
            asked = {
                "polls_per_second": (served, target, ""),
                "bare_per_second": (bare, "/", ""),
                "unchanged_per_second": (served, target, shown.etag),
                "bare_unchanged_per_second": (bare, "/unchanged", shown.etag),
            }
            found: dict[str, list[float]] = {name: [] for name in asked}
            for _ in range(_TURNS):
                for name, (server, address, etag) in asked.items():
                    seconds = context.size(10, 1) / 10
                    rate = await pollers.per_second(server, address, clients=_CLIENTS, seconds=seconds, etag=etag)
                    found[name].append(rate)
        # The server has closed the first connection, which was idle.
        await (await client.connect(served.host, served.port)).post(f"{target}/cancel", {})
    return {name: statistics.median(rates) for name, rates in found.items()}


async def _active_run(connection: client.Connection) -> tuple[str, client.Answer]:
    """Start a run, wait until its steps are done and its agent is called, and return its address and its answer."""
    started = await connection.post("/api/runs", {"recipe_id": projects.STEPS_AND_AGENT.format(_STEPS)})
    target = f"/api/runs/{started.json()['run_id']}"
    shown = await connection.get(target)
    while True:
        before = shown.etag
        await asyncio.sleep(_BETWEEN_SECONDS)
        shown = await connection.get(target)
        if shown.json()["status"] not in ("pending", "running"):
            raise RuntimeError(f"the run is {shown.json()['status']}")
        if shown.etag == before and shown.json()["steps_total"] == _STEPS + _AGENT:
            return target, shown


def _line(says: str, name: str, least: float) -> figures.Line:
    return figures.Line(
        says=says,
        value=f"{name}_per_second",
        unit="/s",
        beside="bare_per_second" if name == "polls" else f"bare_{name}_per_second",
        beside_unit="of a bare route/s",
        bar=figures.Bar(kind="at least", limit=least),
    )


WORKLOAD = workload.Workload(
    name="W6",
    title="`GET /api/runs/{id}` of an active run with 50 steps by 32 pollers; a bare FastAPI route of the same bytes.",
    measure=_measure,
    lines=(_line("answers", "polls", 0.7), _line("304 to If-None-Match", "unchanged", 0.9)),
)
