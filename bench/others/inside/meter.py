"""The meter: does a workload on a product and prints its figures."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from bench.others.inside import census, http

_QUIET_SECONDS = 1.0
_QUIET_SHARE = 0.1
_SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The work to do."""

    key: str
    """Key of the workload."""
    place: Path
    """Fresh folder on the disk that is measured."""
    steps: int
    """Number of no-op steps of a run."""
    runs: int
    """Number of runs that are measured; W4: for each client."""
    at_a_time: int
    """Number of runs (W4: clients) that are under way at a time; W4 also measures one client."""
    warm: int
    """Number of runs beforehand, which are not measured."""


class Engine(Protocol):
    """A running product."""

    async def run(self) -> object:
        """Start a run of no-op steps and wait until its end is known."""

    async def park(self, count: int) -> None:
        """Start a number of runs that wait for a person, and wait until all of them wait."""


EngineT = TypeVar("EngineT", bound=Engine)

Opened = Callable[[Order], AbstractAsyncContextManager[EngineT]]
"""Starts a product and stops it."""

Served = Callable[[Order, EngineT], AbstractAsyncContextManager[http.Door]]
"""Opens a door to a running product."""


def serve(opened: Opened[EngineT], served: Served[EngineT] | None = None) -> None:
    """Do the work that the order describes, and print the figures.

    Args:
        served: The product's own door; without one, a small FastAPI application serves the product.
    """
    threading.Thread(target=_hold, daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # the product's own output is not part of the answer
        given = json.loads(sys.argv[1])
        order = Order(**{**given, "place": Path(given["place"])})
        runner = asyncio.Runner(loop_factory=_loop_factory())
        for figure, value in runner.run(_measured(order, opened, served or _application)).items():
            print(json.dumps({"workload": order.key, "figure": figure, "value": value}), file=answers)
    os._exit(0)  # waiting runs are abandoned


def _hold() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _measured(order: Order, opened: Opened[EngineT], served: Served[EngineT]) -> Mapping[str, float]:
    async with opened(order) as engine:
        if order.key == "W4":
            async with served(order, engine) as door:
                return await _through_http(order, door)
        measures = {"W1": _alone, "W2": _together, "W5.gate": _waiting}
        return await measures[order.key](order, engine)


@contextlib.asynccontextmanager
async def _application(_: Order, engine: Engine) -> AsyncIterator[http.Door]:
    from bench.others.inside import application

    async with application.serving(engine.run) as door:
        yield door


# -- the workloads


async def _alone(order: Order, engine: Engine) -> Mapping[str, float]:
    for _ in range(order.warm):
        await engine.run()
    return {"latency_ms": statistics.median([await _milliseconds(engine.run) for _ in range(order.runs)])}


async def _together(order: Order, engine: Engine) -> Mapping[str, float]:
    await _at_a_time(order.at_a_time, order.warm, engine.run)
    cpu_before, began = census.cpu_seconds(), time.perf_counter()
    await _at_a_time(order.at_a_time, order.runs, engine.run)
    seconds, cpu_seconds = time.perf_counter() - began, census.cpu_seconds() - cpu_before
    steps = order.runs * order.steps
    return {"steps_per_second": steps / seconds, "cpu_ms_per_step": cpu_seconds * 1000 / steps}


async def _through_http(order: Order, door: http.Door) -> Mapping[str, float]:
    await _clients(order.at_a_time, 1, door)
    return {
        "p50_1_ms": statistics.median(await _clients(1, order.runs, door)),
        "p50_20_ms": statistics.median(await _clients(order.at_a_time, order.runs, door)),
    }


async def _waiting(order: Order, engine: Engine) -> Mapping[str, float]:
    await engine.park(order.warm)
    before = await _resting_bytes()
    await engine.park(order.runs)
    return {"kib_per_run": (await _resting_bytes() - before) / order.runs / 1024}


async def _at_a_time(width: int, count: int, run: Callable[[], Awaitable[object]]) -> None:
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await run()

    await asyncio.gather(*(work() for _ in range(width)))


async def _clients(count: int, requests: int, door: http.Door) -> list[float]:
    async def client() -> list[float]:
        async with http.connected(door.port) as connection:
            return [await _milliseconds(lambda: connection.post(door.target, door.body)) for _ in range(requests)]

    return [taken for each in await asyncio.gather(*(client() for _ in range(count))) for taken in each]


async def _milliseconds(done: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await done()
    return (time.perf_counter() - began) * 1000


async def _resting_bytes() -> int:
    """Return the resident memory once the process group is quiet, or after a minute."""
    until = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < until:
        before = census.cpu_seconds()
        await asyncio.sleep(_QUIET_SECONDS)
        if census.cpu_seconds() - before < _QUIET_SECONDS * _QUIET_SHARE:
            break
    gc.collect()
    return census.resident_bytes()
