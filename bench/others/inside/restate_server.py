"""Restate: its server as one node, and a service of its Python SDK.

Durability is the default: the log server syncs its write-ahead log before it acknowledges a step. The setting for
that, `log-server.rocksdb-disable-wal-fsync = false`, is its default, and is set here explicitly as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
from collections.abc import AsyncIterator
from pathlib import Path

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from bench.others.inside import http, meter, servers

_service = restate.Service("Bench")
_arrived = asyncio.Semaphore(0)


async def nothing() -> None:
    """Do nothing."""


@_service.handler()
async def steps(context: restate.Context, count: int) -> None:
    """Execute a number of no-op steps, one journal entry each."""
    for _ in range(count):
        await context.run_typed("nothing", nothing)


@_service.handler()
async def gate(context: restate.Context) -> None:
    """Wait for a person."""
    _, answer = context.awakeable()
    _arrived.release()
    await answer


class Engine:
    """The server through its ingress; this process runs the service."""

    def __init__(self, port: int, count: int) -> None:
        self.door = http.Door(port=port, target="/Bench/steps", body=str(count).encode())
        self._idle: list[http.Connection] = []
        self.open = contextlib.AsyncExitStack()

    async def run(self) -> None:
        """Invoke the steps and wait for the answer."""
        await self._post(self.door.target, self.door.body)

    async def park(self, count: int) -> None:
        """Invoke the gate a number of times without waiting for the answer."""
        for _ in range(count):
            await self._post("/Bench/gate/send", b"")
        for _ in range(count):
            await _arrived.acquire()

    async def _post(self, target: str, body: bytes) -> None:
        if self._idle:
            connection = self._idle.pop()
        else:
            connection = await self.open.enter_async_context(http.connected(self.door.port))
        await connection.post(target, body)
        self._idle.append(connection)


@contextlib.asynccontextmanager
async def opened(order: meter.Order) -> AsyncIterator[Engine]:
    """Start the server on a fresh folder and register the address of the service with it."""
    ingress, admin, fabric, endpoint = servers.free_ports(4)
    async with _serving(endpoint), servers.running([_binary()], _variables(order.place, ingress, admin, fabric)):
        told = json.dumps({"uri": f"http://127.0.0.1:{endpoint}"}).encode()
        await servers.until(lambda: _asked(admin, "/deployments", told), OSError, EOFError, http.Refused)
        engine = Engine(ingress, order.steps)
        async with engine.open:
            await servers.until(engine.run, OSError, EOFError, http.Refused)
            yield engine


@contextlib.asynccontextmanager
async def served(_: meter.Order, engine: Engine) -> AsyncIterator[http.Door]:
    """Yield the server's ingress as a door."""
    yield engine.door


@contextlib.asynccontextmanager
async def _serving(port: int) -> AsyncIterator[None]:
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = None
    stopped = asyncio.Event()
    service = restate.app([_service])
    serving = asyncio.create_task(serve(service, config, shutdown_trigger=stopped.wait))
    try:
        yield
    finally:
        serving.cancel()


def _binary() -> Path:
    system = platform.system().lower()
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    packages = Path(os.environ["BENCH_ENVIRONMENT"]) / "node_modules" / "@restatedev"
    return packages / f"restate-server-{system}-{machine}" / "bin" / "restate-server"


def _variables(place: Path, ingress: int, admin: int, fabric: int) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "RESTATE_BASE_DIR": str(place / "restate"),
        "RESTATE_NODE_NAME": "bench",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_ADVERTISED_HOST": "127.0.0.1",
        "RESTATE_BIND_PORT": str(fabric),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_LOG_SERVER__ROCKSDB_DISABLE_WAL_FSYNC": "false",
        "RESTATE_LOG_FILTER": "warn",
        "RESTATE_DISABLE_TELEMETRY": "true",
    }


async def _asked(port: int, target: str, body: bytes) -> None:
    async with http.connected(port) as connection:
        await connection.post(target, body)


if __name__ == "__main__":
    meter.serve(opened, served)
