"""W12: how long other clients wait while one client, recipe or file does its worst."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import websockets.asyncio.client

from bench import children, client, figures, nastiest, projects, workload

_SECONDS = 10
_BRANCHES = 3_000
_STEPS = 10_000
_SHORT = 10
_HEAD_BYTES = 40 * 1024 * 1024
_HEALTH = "/healthz"
_UNFINISHED = ("pending", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The service and the runs that loads use."""

    served: children.Served
    """The service."""
    polled: str
    """Address of the short run that is polled."""
    long: str
    """Address of the run with many steps."""


async def _measure(context: workload.Context) -> figures.Raw:
    steps, seconds = context.size(_STEPS, 50), context.size(_SECONDS, 1)
    project = projects.make_project(context.place / "project", steps=(_SHORT, steps))
    _add_recipe(project, context.size(_BRANCHES, 20))
    found: dict[str, float] = {}
    async with children.serving(project) as served:
        polled, long = [await _ended(served, projects.STEPS.format(count)) for count in (_SHORT, steps)]
        place = _Place(served=served, polled=polled, long=long)
        for name, load in _LOADS.items():
            async with _probed(place, name) as raw:
                await _for_seconds(seconds, place, load)
            found |= raw
    return found


def _add_recipe(project: Path, branches: int) -> None:
    recipe = {
        "name": "branches",
        "description": "Many branches at once.",
        "version": "1.0.0",
        "schema": "1.7",
        "context": {"items": list(range(branches))},
        "steps": [
            {
                "id": "each",
                "type": "bash",
                "command": "true {{item}}",
                "foreach": "{{items}}",
                "as": "item",
                "parallel": True,
                "max_iterations": branches,
            }
        ],
    }
    folder = project / ".control-room" / "recipes" / "amplifier"
    folder.mkdir(parents=True)
    (folder / "branches.yaml").write_text(json.dumps(recipe), encoding="utf-8")


async def _ended(served: children.Served, recipe_id: str) -> str:
    connection = await client.connect(served.host, served.port)
    started = await connection.post("/api/runs", {"recipe_id": recipe_id})
    if started.status != 201:
        raise RuntimeError(f"{recipe_id} was not started: {started.body[:200]!r}")
    target, etag = f"/api/runs/{started.json()['run_id']}", ""
    while True:
        shown = await connection.get(f"{target}?wait=20", etag=etag)
        if shown.status == 200 and shown.json()["status"] not in _UNFINISHED:
            connection.close()
            return target
        etag = shown.etag or etag


@contextlib.asynccontextmanager
async def _probed(place: _Place, name: str) -> AsyncIterator[dict[str, float]]:
    words = ("bench.prober", place.served.host, str(place.served.port), _HEALTH, place.polled)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *words,
        cwd=children.ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    found: dict[str, float] = {}
    yield found
    told, _ = await process.communicate(b"")
    took = json.loads(told)
    for asked, target in (("health", _HEALTH), ("poll", place.polled)):
        waits = [seconds * 1000 for seconds in took[target]]
        found[f"{name}_{asked}_p50_ms"] = figures.quantile(waits, 0.5)
        found[f"{name}_{asked}_p99_ms"] = figures.quantile(waits, 0.99)
        found[f"{name}_{asked}_max_ms"] = max(waits)


async def _for_seconds(seconds: float, place: _Place, load: Callable[[_Place, int], Awaitable[None]]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for turn in itertools.count():
                with contextlib.suppress(ConnectionError):
                    await load(place, turn)


async def _nothing(_: _Place, turn: int) -> None:
    await asyncio.sleep(0.1)


async def _heads(place: _Place, turn: int) -> None:
    _, writer = await asyncio.open_connection(place.served.host, place.served.port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(_HEAD_BYTES // nastiest.BYTES):
            writer.write(b"x" * nastiest.BYTES)
            await writer.drain()
    finally:
        writer.close()


async def _bodies(place: _Place, turn: int) -> None:
    document = json.loads((children.ROOT / "openapi" / "openapi.json").read_text(encoding="utf-8"))
    # Every seventh body, so that each address is used soon.
    for body in itertools.islice(nastiest.bodies(document), turn, None, 7):
        if "{" not in body.path:
            connection = await client.connect(place.served.host, place.served.port)
            await connection.request(
                body.method, body.path, headers="Content-Type: application/json\r\n", body=body.content
            )
            connection.close()


async def _messages(place: _Place, turn: int) -> None:
    address = f"ws://{place.served.host}:{place.served.port}/ws"
    async with websockets.asyncio.client.connect(address, proxy=None, compression=None, max_size=None) as socket:
        for _, content in nastiest.contents({"properties": {"args": {}}}, {"type": "start_recipe"}):
            await socket.send(content.decode())
            await socket.recv()
        for _ in range(1_000):
            await socket.send("{}")
        for _ in range(1_000):
            await socket.recv()


async def _branches(place: _Place, turn: int) -> None:
    await _ended(place.served, "branches")


async def _reading(place: _Place, turn: int) -> None:
    for address in (place.long, f"{place.long}/steps", f"{place.long}/events"):
        connection = await client.connect(place.served.host, place.served.port)
        await connection.get(address)
        connection.close()


_LOADS: Mapping[str, Callable[[_Place, int], Awaitable[None]]] = {
    "idle": _nothing,
    "heads": _heads,
    "bodies": _bodies,
    "messages": _messages,
    "branches": _branches,
    "reading": _reading,
}
"""Loads that act on the service while the waits are measured."""

_SAYS = {
    "idle": "nothing",
    "heads": "heads of 40 MB",
    "bodies": "the worst bodies",
    "messages": "the worst WebSocket messages",
    "branches": "3,000 parallel branches",
    "reading": "a run of 10,000 steps being read",
}


def _lines() -> tuple[figures.Line, ...]:
    return tuple(
        figures.Line(
            says=f"{says}: {asked} {quantile}",
            value=f"{name}_{asked}_{quantile}_ms",
            unit="ms",
            beside=None if name == "idle" else f"idle_{asked}_{quantile}_ms",
            beside_unit="ms idle",
            bar=_bar(asked, quantile),
        )
        for name, says in _SAYS.items()
        for asked in ("health", "poll")
        for quantile in ("p50", "p99", "max")
    )


def _bar(asked: str, quantile: str) -> figures.Bar | None:
    most = {"p99": 100, "max": 250 if asked == "health" else None}.get(quantile)
    return None if most is None else figures.Bar(kind="at most", limit=most, of="figure")


WORKLOAD = workload.Workload(
    name="W12",
    title="`GET /healthz` and polls of a short run while something else does its worst, from a process of its own.",
    measure=_measure,
    lines=_lines(),
)
