"""A service of toy runs as a process of its own: a pool over real folders that tests can kill and restart."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app import clock
from app.crash_lab import forks
from app.domain import operations, plain
from app.engine import ports, probes, stores
from app.engine.run_equipment import Equipment
from app.storage import data_directory, folder_store
from app.storage.index.sql import index
from app.worker import crash_probes, pool
from tests.acceptance import forking
from tests.unit.worker import pools, toys

Tried = tuple[str, str, int]
"""Run, key and attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The content of a data directory after its service has ended."""

    status: dict[str, str]
    """State of each run."""
    records: dict[str, dict[str, Any]]
    """The sum of each run's lines."""
    slots: dict[str, Any]
    """Each run's cache.json."""
    shown: dict[str, Any]
    """The ending of each run in its run.json."""


class CountingProbes:
    """Count the passings of every point, from any thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def reach(self, point: str) -> None:
        """Count one passing of a point."""
        self.counts[point] += 1


def serve(folder: Path, programs: Sequence[Sequence[toys.Step]], crash_at: str | None = None) -> int:
    """Run a service in a process of its own until every program has ended, and return its exit code."""
    process = forking.processes().Process(target=_serve, args=(folder, programs, crash_at))
    forks.begin(process)
    code = forks.ended(process, 60)
    if code is None:
        forks.buried(process)
        raise TimeoutError(f"the service did not end after {crash_at}")
    return code


def side_by_side(jobs: Sequence[Any], work: Any) -> list[Any]:
    """Do jobs that wait for processes, two at a time."""
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(work, jobs))


def prepare(folder: Path) -> None:
    """Create an empty data directory with its index."""
    asyncio.run(_prepare(folder))


def passings(folder: Path) -> Counter[str]:
    """Return how often the last service passed each point."""
    return Counter(json.loads((folder / "passings.json").read_text()))


def executed(folder: Path) -> list[Tried]:
    """Return every attempt that was performed."""
    file = folder / "executed.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(run_id, key, int(attempt)) for run_id, key, attempt in (line.split(" ") for line in lines)]


def recorded(folder: Path) -> set[Tried]:
    """Return every attempt with a complete line, without changing any file."""
    found = set()
    for journal in (folder / ".control-room" / "runs").glob("*/steps.jsonl"):
        for line in journal.read_bytes().split(b"\n")[:-1]:
            fields = json.loads(line)
            found.add((journal.parent.name, fields["key"], fields["attempt"]))
    return found


async def outcome(folder: Path) -> Outcome:
    """Read the results in a data directory."""
    async with _store(folder, probes.NoProbes()) as found:
        summaries = await found.list_runs(stores.RunQuery(limit=1000))
        loaded = {summary.run_id: await found.read(summary.run_id) for summary in summaries}
        snapshots = {summary.run_id: await found.read_snapshots(summary.run_id) for summary in summaries}
    return Outcome(
        status={summary.run_id: summary.status for summary in summaries},
        records={run_id: pools.ending(run) for run_id, run in loaded.items()},
        slots={run_id: files.get("cache.json") for run_id, files in snapshots.items()},
        shown={run_id: _shown(files.get("run.json", {})) for run_id, files in snapshots.items()},
    )


def run_id(number: int) -> str:
    """Return the id of the nth program's run."""
    return f"20260210T143000Z-{number:06d}"


def _shown(manifest: dict[str, Any]) -> dict[str, Any]:
    return {name: manifest.get(name) for name in ("status", "current_step_index", "error", "ending")}


def _serve(folder: Path, programs: Sequence[Sequence[toys.Step]], crash_at: str | None) -> None:
    counting = CountingProbes()
    asyncio.run(_run_all(folder, programs, crash_probes.parse(crash_at) if crash_at else counting))
    (folder / "passings.json").write_text(json.dumps(counting.counts))


async def _prepare(folder: Path) -> None:
    async with _store(folder, probes.NoProbes()):
        return


async def _run_all(folder: Path, programs: Sequence[Sequence[toys.Step]], points: probes.Probes) -> None:
    async with _store(folder, points) as found:
        running = _pool(found, folder, points)
        running.start()
        for number, program in enumerate(programs, 1):
            created = await found.create(pools.start(run_id(number), program, idempotency_key=str(number)))
            if not created.existed:
                await running.submit(created.run_id)
        await asyncio.gather(*(running.ended(run_id(number)) for number in range(1, len(programs) + 1)))
        await running.stop()


def _store(folder: Path, points: probes.Probes) -> folder_store.FolderStore:
    place = data_directory.DataDirectory(folder / ".control-room", clock=clock.SystemClock(), ids=clock.RandomIds())
    place.prepare()
    return folder_store.FolderStore(place, index.SqlIndex(place.index_url()), clock=clock.SystemClock(), probes=points)


def _pool(found: stores.RunStore, folder: Path, points: probes.Probes) -> pool.Pool:
    toolbox = toys.Toolbox(folder / "executed.txt")
    kinds = (operations.ToolCall.kind, operations.AgentCall.kind)
    return pool.Pool(
        store=found,
        drivers={"toy": toys.TOY},
        equipment=Equipment(
            performers=dict.fromkeys(kinds, toolbox),
            clock=clock.SystemClock(),
            masker=plain.Masker(),
            probes=points,
        ),
        start_child=_no_child,
        limit=2,
    )


async def _no_child(call: ports.Call) -> str:
    raise NotImplementedError(call.key)
