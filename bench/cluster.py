"""The costs of a cluster: `python -m bench.cluster FOLDER` measures processor time, bytes and events of its members."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
from temporalio.client import Client

from app.storage.postgres.database import SCHEMA

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KINDS = {"app worker": "worker", "app serve": "service", "start-dev": "temporal", "postgres": "postgres"}
_GATE = {
    "schema": "1.7",
    "name": "gate",
    "description": "Asks",
    "version": "1.0.0",
    "stages": [
        {
            "name": "one",
            "steps": [{"id": "a", "type": "bash", "command": "true"}],
            "approval": {"required": True, "prompt": "Go on?", "timeout": 0},
        },
    ],
}


_HOLD = {
    "schema": "1.7",
    "name": "hold",
    "description": "Holds",
    "version": "1.0.0",
    "steps": [{"id": "a", "type": "bash", "command": "echo began >> began; sleep 3600", "timeout": 3600}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster."""

    folder: Path
    """The project of the cluster."""
    pid: int
    """Id of the process of the `dev-cluster` command."""
    http: httpx.AsyncClient
    """Client of the service of the cluster."""
    postgres: str
    """Address of the database."""
    temporal: str
    """Address of the Temporal server."""

    def processes(self) -> Iterator[tuple[str, int, int]]:
        """Yield the kind, the id and the member of each process of the cluster."""
        parents = {int(path.name): _stat(path)[1] for path in Path("/proc").iterdir() if path.name.isdigit()}
        for pid, parent in parents.items():
            top, above = pid, parent
            while above not in (0, self.pid):
                top, above = above, parents.get(above, 0)
            if above == self.pid:
                line = (Path("/proc") / str(top) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                yield next((kind for word, kind in _KINDS.items() if word in line), "other"), pid, top

    def used(self) -> dict[str, tuple[float, int]]:
        """Return processor seconds and resident bytes of each kind of member."""
        found: dict[str, tuple[float, int]] = {}
        for kind, pid, _ in self.processes():
            with contextlib.suppress(OSError):
                stat = _stat(Path("/proc") / str(pid))
                seconds, held = found.get(kind, (0.0, 0))
                found[kind] = (seconds + sum(stat[11:15]) / _TICKS, held + stat[21] * _PAGE)
        return found

    def worker_of(self, run_id: str) -> int:
        """Return the worker that performs a step of a run."""
        wanted = f"CONTROL_ROOM_RUN_ID={run_id}\0".encode()
        for kind, pid, top in self.processes():
            with contextlib.suppress(OSError):
                if kind == "worker" and wanted in (Path("/proc") / str(pid) / "environ").read_bytes():
                    return top
        raise RuntimeError(f"no process of {run_id} was found")

    def stored(self) -> dict[str, int]:
        """Return the bytes that each database occupies."""
        sized = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n"
        query = f"{sized} ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%'"
        with psycopg.connect(self.postgres) as connection:
            [size] = connection.execute(query).fetchone() or (0,)
        files = (self.folder / ".dev-cluster").glob("temporal.db*")
        return {"postgres_bytes": int(size), "temporal_bytes": sum(file.stat().st_size for file in files)}

    def lines(self) -> int:
        """Return the number of step lines of the run that has most."""
        query = f"SELECT coalesce(max(lines), 0) FROM {SCHEMA}.journals WHERE journal = 'steps.jsonl'"
        with psycopg.connect(self.postgres) as connection:
            [count] = connection.execute(query).fetchone() or (0,)
        return int(count)

    async def start(self, recipe: str) -> str:
        """Start a run and return its id."""
        answer = await self.http.post("/api/runs", json={"recipe_id": recipe})
        answer.raise_for_status()
        return str(answer.json()["run_id"])

    async def until(self, run_id: str, status: str) -> None:
        """Wait until a run has a status."""
        while True:
            # A long poll would wait for the next change, and a run at a gate does not change.
            shown = (await self.http.get(f"/api/runs/{run_id}")).json()
            if shown["status"] == status:
                return
            if shown["status"] in ("failed", "cancelled", "paused", "done"):
                raise RuntimeError(f"{run_id} is {shown['status']}: {shown.get('error')}")
            await asyncio.sleep(0.2)

    async def parts(self, run_id: str, steps: int) -> list[dict[str, Any]]:
        """Return the cost of every `steps` steps of a run, once the run is done."""
        found: list[dict[str, Any]] = []
        begun, before, last = time.perf_counter(), self.used(), 0
        while True:
            [shown] = (await self.http.get("/api/runs", params={"limit": 1})).json()
            if shown["run_id"] != run_id:
                raise RuntimeError(f"{shown['run_id']} was started beside {run_id}")
            if shown["status"] in ("failed", "cancelled", "paused"):
                raise RuntimeError(f"{run_id} is {shown['status']}: {shown['error_code']}")
            finished = self.lines()
            if finished >= last + steps or (shown["status"] == "done" and finished > last):
                used, now, count = self.used(), time.perf_counter(), finished - last
                found.append(
                    {
                        "steps": count,
                        "steps_per_second": round(count / (now - begun), 1),
                        "cpu_ms_of_a_step": {
                            kind: round(1000 * (seconds - before.get(kind, (0.0, 0))[0]) / count, 1)
                            for kind, (seconds, _) in used.items()
                        },
                    }
                )
                begun, before, last = now, used, finished
            if shown["status"] == "done":
                return found
            await asyncio.sleep(2)

    async def histories(self, run_id: str) -> tuple[int, int]:
        """Return the number of workflows that a run had, and of their events."""
        client = await Client.connect(self.temporal)
        seen = [each async for each in client.list_workflows(f"WorkflowId = 'control-room-{run_id}'")]
        lengths = [
            (await client.get_workflow_handle(each.id, run_id=each.run_id).describe()).history_length for each in seen
        ]
        return len(lengths), sum(lengths)


def _stat(place: Path) -> list[int]:
    try:
        fields = (place / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return [0] * 50
    return [0, *(int(each) for each in fields[1:])]


@contextlib.asynccontextmanager
async def running(folder: Path, workers: int, recipes: Mapping[str, Mapping[str, Any]]) -> AsyncIterator[Cluster]:
    """Start a cluster with Postgres and stop it when the block ends."""
    write(folder, recipes)
    command = [sys.executable, "-m", "app", "dev-cluster", str(folder), "--port", "0", "--store", "postgres"]
    begun = subprocess.Popen(  # noqa: ASYNC220 - starting a process takes a millisecond
        [*command, "--workers", str(workers)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    assert begun.stdout is not None
    said: dict[str, str] = {}
    try:
        while (line := await asyncio.to_thread(begun.stdout.readline)) and "Ctrl-C" not in line:
            name, _, value = line.partition(" ")
            said[name] = value.strip()
        secret = (folder / ".dev-cluster" / "postgres" / "password").read_text()
        async with httpx.AsyncClient(base_url=said["service"], timeout=120, trust_env=False) as http:
            yield Cluster(
                folder=folder,
                pid=begun.pid,
                http=http,
                postgres=f"postgresql://control_room:{secret}@{said['Postgres']}",
                temporal=said["Temporal"],
            )
    finally:
        begun.send_signal(signal.SIGTERM)
        await asyncio.to_thread(begun.wait, 120)


async def cost(cluster: Cluster, recipe: str, runs: int, status: str, steps: int) -> dict[str, Any]:
    """Return the resources that runs use until they have a status."""
    # The first run loads caches and modules that later runs use.
    await cluster.until(await cluster.start(recipe), status)
    before, stored, began = cluster.used(), cluster.stored(), time.perf_counter()
    started = [await cluster.start(recipe) for _ in range(runs)]
    for run_id in started:
        await cluster.until(run_id, status)
    seconds, after, now = time.perf_counter() - began, cluster.used(), cluster.stored()
    workflows, events = await cluster.histories(started[-1])
    return {
        "runs": runs,
        "steps_of_a_run": steps,
        "wall_seconds": round(seconds, 1),
        "cpu_seconds": {kind: round(used - before.get(kind, (0.0, 0))[0], 2) for kind, (used, _) in after.items()},
        "rss_mib": {kind: round(held / 2**20) for kind, (_, held) in after.items()},
        "rss_growth_kib_of_a_run": {
            kind: round((held - before.get(kind, (0.0, 0))[1]) / 1024 / runs, 1) for kind, (_, held) in after.items()
        },
        "bytes_of_a_run": {name: round((size - stored[name]) / runs) for name, size in now.items()},
        "workflows_of_a_run": workflows,
        "events_of_a_run": events,
    }


async def take_over(cluster: Cluster) -> float:
    """Kill a worker and return the seconds until the next attempt of the step that it performed."""
    began = cluster.folder / "began"
    count = _lines(began)
    run_id = await cluster.start("hold")
    await _grown(began, count + 1)
    os.kill(cluster.worker_of(run_id), signal.SIGKILL)
    killed = time.perf_counter()
    await _grown(began, count + 2)
    seconds = time.perf_counter() - killed
    (await cluster.http.post(f"/api/runs/{run_id}/cancel")).raise_for_status()
    return seconds


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


async def _grown(file: Path, lines: int) -> None:
    while _lines(file) < lines:  # noqa: ASYNC110 - polls, since no event reports it
        await asyncio.sleep(0.02)


def tools(name: str, steps: int) -> dict[str, Any]:
    """Return a recipe of cheap steps."""
    step = {"tool": "file_locator", "args": {"search_criteria": "none"}}
    phase = [{**step, "step_id": f"s{number}", "output_slot": f"o{number}"} for number in range(steps)]
    return {"recipe_id": name, "label": name, "phase_a": phase, "dod": []}


def loop(name: str, steps: int) -> dict[str, Any]:
    """Return a recipe of very many cheap steps, which only a loop can contain."""
    step = {"id": "s", "type": "bash", "command": "true", "foreach": "{{items}}", "max_iterations": steps}
    whole = {"schema": "1.7", "name": name, "description": "Loops", "version": "1.0.0"}
    return {**whole, "context": {"items": list(range(steps))}, "steps": [step]}


def recipes_of(steps: int) -> dict[str, dict[str, Any]]:
    """Return the recipes to measure, by their files.

    Args:
        steps: Steps of the long run.
    """
    asking = {f"amplifier/{recipe['name']}": recipe for recipe in (_GATE, _HOLD)}
    return {"ten": tools("ten", 10), "amplifier/long": loop("long", steps), **asking}


def write(folder: Path, recipes: Mapping[str, Mapping[str, Any]]) -> None:
    """Write recipes into a project."""
    for name, recipe in recipes.items():
        # JSON is valid YAML.
        file = folder / ".control-room" / "recipes" / f"{name}{'.yaml' if '/' in name else '.json'}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(recipe))


async def measure(folder: Path, given: argparse.Namespace) -> None:
    """Run all measurements, and print a line of JSON for each part."""
    recipes = recipes_of(given.steps)
    for workers in given.workers:
        async with running(folder / f"with-{workers}", workers, recipes) as cluster:
            found = await cost(cluster, "ten", given.runs, "done", 10)
            _say(f"{given.runs} runs of 10 steps, {workers} workers", found)
    async with running(folder / "waiting", 2, recipes) as cluster:
        _say(f"{given.waiting} runs at gates", await cost(cluster, "gate", given.waiting, "waiting", 0))
    async with running(folder / "kills", 2, recipes) as cluster:
        seconds = [round(await take_over(cluster), 1) for _ in range(given.kills)]
        _say(f"{given.kills} workers killed", {"take_over_seconds": sorted(seconds)})
    async with running(folder / "long", 2, recipes) as cluster:
        began, before = time.perf_counter(), cluster.used()
        run_id = await cluster.start("long")
        parts = await cluster.parts(run_id, max(given.steps // 10, 1))
        cpu = {kind: round(used - before.get(kind, (0.0, 0))[0], 1) for kind, (used, _) in cluster.used().items()}
        workflows, events = await cluster.histories(run_id)
        facts = {"workflows": workflows, "events": events, "cpu_seconds": cpu, **cluster.stored(), "parts": parts}
        _say(f"a run of {given.steps} steps", {"wall_seconds": round(time.perf_counter() - began, 1), **facts})


def _say(name: str, found: Mapping[str, Any]) -> None:
    print(json.dumps({"part": name, **found}), flush=True)


def main() -> int:
    """Measure with the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("folder", type=Path, help="empty folder that every user may enter")
    parser.add_argument("--runs", type=int, default=50, help="runs of ten steps for each number of workers")
    parser.add_argument("--waiting", type=int, default=2000, help="runs at gates")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of the long run")
    parser.add_argument("--kills", type=int, default=10, help="workers that are killed, one after the other")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4], help="numbers of workers")
    given = parser.parse_args()
    asyncio.run(measure(given.folder.resolve(), given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
