"""W10: many clients that follow one run."""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import children, client, figures, followers, projects, workload

_FOLLOWERS = 500
_STEPS = 1_000


async def _measure(context: workload.Context) -> figures.Raw:
    count, steps = context.size(_FOLLOWERS, 5), context.size(_STEPS, 20)
    project = projects.make_project(context.place / "project", steps=(steps,))
    # Garbage collections of the followers would be measured as delays of the service.
    gc.disable()
    async with children.serving(project, max_running=1) as served:
        connection = await client.connect(served.host, served.port)
        # This run occupies the whole capacity until all followers are connected.
        holder = await _start(connection, projects.AGENT)
        run_id = await _start(connection, projects.STEPS.format(steps))
        following = await _following(served, f"/api/runs/{run_id}/events", count)
        # The server may have closed the first connection, which was idle.
        await (await client.connect(served.host, served.port)).post(f"/api/runs/{holder}/cancel", {})
        await asyncio.gather(*(follower.over for follower in following))
    written = project / ".control-room" / "runs" / run_id / "events.jsonl"
    return _following_figures(following, written)


async def _start(connection: client.Connection, recipe_id: str) -> str:
    started = await connection.post("/api/runs", {"recipe_id": recipe_id})
    run_id: str = started.json()["run_id"]
    return run_id


async def _following(served: children.Served, target: str, count: int) -> list[followers.Follower]:
    # The first part can arrive before the last follower has connected.
    following = [await followers.follow(served, target, keeps=not number) for number in range(count)]
    await asyncio.gather(*(follower.begun.wait() for follower in following))
    return following


def _following_figures(following: Sequence[followers.Follower], written: Path) -> figures.Raw:
    reference = following[0]
    told = list(followers.events(b"".join(reference.parts)))
    # The first event existed before any follower connected.
    lived = told[1:]
    delays = [delay for follower in following for delay in _delays(follower, lived)]
    whole = sum((each.length, each.checksum) == (reference.length, reference.checksum) for each in following)
    lines = written.read_bytes().count(b"\n")
    seconds = lived[-1].at - lived[0].at
    return {
        "reached_share": whole / len(following) * len(told) / lines,
        "p50_ms": statistics.median(delays) * 1000,
        "p99_ms": figures.quantile(delays, 0.99) * 1000,
        "events_per_second": len(lived) / seconds if seconds else 0,
    }


def _delays(follower: followers.Follower, lived: Sequence[followers.StreamEvent]) -> Iterator[float]:
    position = 0
    for length, arrived in follower.arrivals:
        while position < len(lived) and lived[position].end <= length:
            yield arrived - lived[position].at
            position += 1


WORKLOAD = workload.Workload(
    name="W10",
    title="Server-Sent Events of one run with 1,000 no-op steps to 500 followers, from happening to arrival.",
    measure=_measure,
    lines=(
        figures.Line(
            says="p99 delay",
            value="p99_ms",
            unit="ms",
            bar=figures.Bar(kind="under", limit=250, of="figure"),
        ),
        figures.Line(says="p50 delay", value="p50_ms", unit="ms"),
        figures.Line(
            says="share of events that reached everybody",
            value="reached_share",
            unit="",
            bar=figures.Bar(kind="at least", limit=1, of="figure"),
        ),
        figures.Line(says="events told to each", value="events_per_second", unit="/s"),
    ),
)
