"""W14: whether 100,000 finished runs slow down later ones."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from app import bootstrap
from bench import children, crowds, figures, projects, workload
from bench.workloads import w04_over_http

_FINISHED = 100_000
_STEPS = 10
_AT_A_TIME = 50
_CLIENTS = 20
_TURNS = 5

_RECIPE = projects.STEPS.format(_STEPS)


async def _measure(context: workload.Context) -> figures.Raw:
    many = await crowds.make(context.kept / "many", finished=context.size(_FINISHED, 200), whole=True)
    none = projects.make_project(context.place / "none", steps=(_STEPS,))
    return {**await _through_engine(context, many, none), **await _over_http(context, many, none)}


async def _through_engine(context: workload.Context, many: Path, none: Path) -> figures.Raw:
    alone: dict[str, list[float]] = {"many": [], "none": []}
    together: dict[str, list[float]] = {"many": [], "none": []}
    async with (
        projects.opened(many, max_running=_AT_A_TIME) as crowded,
        projects.opened(none, max_running=_AT_A_TIME) as empty,
    ):
        both = {"many": crowded, "none": empty}
        for application in both.values():
            await _seconds(application, context.size(_AT_A_TIME, 2))
        # In turns, so that a machine that changes its speed changes it for both.
        for _ in range(context.size(100, 2)):
            for name, application in both.items():
                alone[name].append(await _seconds(application, 1))
        for _ in range(context.size(_TURNS, 1)):
            for name, application in both.items():
                together[name].append(await _seconds(application, context.size(100, 4)))
    found = {f"w1_{name}_ms": statistics.median(values) * 1000 for name, values in alone.items()}
    return found | {f"w2_{name}_ms": statistics.median(values) * 1000 for name, values in together.items()}


async def _seconds(application: bootstrap.Application, count: int) -> float:
    began = time.perf_counter()
    await projects.execute_many(application, _RECIPE, count=count, at_a_time=_AT_A_TIME)
    return time.perf_counter() - began


async def _over_http(context: workload.Context, many: Path, none: Path) -> figures.Raw:
    found: dict[str, list[float]] = {"many": [], "none": []}
    async with (
        children.serving(many, max_running=_CLIENTS) as crowded,
        children.serving(none, max_running=_CLIENTS) as empty,
    ):
        both = {"many": crowded, "none": empty}
        for _ in range(context.size(_TURNS, 1)):
            for name, served in both.items():
                found[name] += await w04_over_http.latencies(served, clients=_CLIENTS, runs=context.size(4, 1))
    return {f"w4_{name}_ms": statistics.median(values) * 1000 for name, values in found.items()}


def _line(name: str, says: str) -> figures.Line:
    return figures.Line(
        says=says,
        value=f"{name}_many_ms",
        unit="ms",
        beside=f"{name}_none_ms",
        beside_unit="ms without any",
        bar=figures.Bar(kind="at most", limit=1.05),
    )


WORKLOAD = workload.Workload(
    name="W14",
    title="W1, W2 and W4 in a project with 100,000 finished runs and in one without any, in turns.",
    measure=_measure,
    lines=(
        _line("w1", "as W1: a run of 10 steps alone, p50"),
        _line("w2", "as W2: 100 runs of 10 steps, 50 at a time"),
        _line("w4", "as W4: over HTTP at 20 clients, p50"),
    ),
)
