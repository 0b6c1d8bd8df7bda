"""Temporal: its development server, a worker and a client of its Python SDK.

Durability comes from a database file with `journal_mode=WAL` and `synchronous=FULL`: each commit is synced. A step is
an activity; a local activity would not be on disk before the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from bench.others.inside import meter, servers
from bench.others.inside.temporal_flows import Gate, Steps

_QUEUE = "bench"
_arrived = asyncio.Semaphore(0)


@activity.defn
async def nothing() -> None:
    """Do nothing."""


@activity.defn
async def arrive() -> None:
    """Note that a workflow is about to wait."""
    _arrived.release()


class Engine:
    """A client; this process also runs the worker."""

    def __init__(self, client: Client, count: int) -> None:
        self._client = client
        self._count = count
        self._ids = itertools.count()

    async def run(self) -> None:
        """Execute a workflow of no-op steps."""
        await self._client.execute_workflow(Steps.run, self._count, id=f"steps-{next(self._ids)}", task_queue=_QUEUE)

    async def park(self, count: int) -> None:
        """Start workflows that wait."""
        for _ in range(count):
            await self._client.start_workflow(Gate.run, id=f"gate-{next(self._ids)}", task_queue=_QUEUE)
        for _ in range(count):
            await _arrived.acquire()


@contextlib.asynccontextmanager
async def opened(order: meter.Order) -> AsyncIterator[Engine]:
    """Start the server on a fresh database and a worker on it."""
    port, *others = servers.free_ports(3)
    async with servers.running(_words(order.place, port, *others)):
        client = await _connected(port)
        async with Worker(client, task_queue=_QUEUE, workflows=[Steps, Gate], activities=[nothing, arrive]):
            yield Engine(client, order.steps)


async def _connected(port: int) -> Client:
    found: list[Client] = []

    async def connect() -> None:
        found.append(await Client.connect(f"127.0.0.1:{port}"))

    await servers.until(connect, RuntimeError)
    return found[0]


def _words(place: Path, port: int, http_port: int, metrics_port: int) -> list[str]:
    ports = {"port": port, "http-port": http_port, "metrics-port": metrics_port}
    listens = [word for name, number in ports.items() for word in (f"--{name}", str(number))]
    pragmas = ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=FULL"]
    database = ["--db-filename", str(place / "temporal.sqlite"), *pragmas]
    binary = Path(os.environ["BENCH_ENVIRONMENT"]) / "venv" / "bin" / "temporal"
    return [
        str(binary),
        "server",
        "start-dev",
        "--headless",
        "--ip",
        "127.0.0.1",
        *listens,
        *database,
        "--log-level",
        "error",
    ]


if __name__ == "__main__":
    meter.serve(opened)
