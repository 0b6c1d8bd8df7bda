"""A process whose disk refuses: it appends steps until a write fails, makes room, heals, and prints the results.

Run as a program: `python -m tests.unit.storage.refusals FOLDER (limit|plain|shared)`. With `limit` the system itself
cuts a write short, where the file reaches the largest size that the process may write. With `shared` it is the service,
whose commits share a log.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app import errors
from app.domain.decisions import DecisionKind
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN
from tests.unit.storage import writer_processes

STEPS = 40
LIMIT_BYTES = 10_000


async def refused(
    place: Path, tighten: Callable[[], None], loosen: Callable[[], None], *, serve: bool = False
) -> dict[str, Any]:
    """Append steps, repeat the refused one after healing, and return the observations."""
    store = writer_processes.store_in(place)
    await store.start(serve=serve)
    await store.create(store_harness.start())
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    faults: list[dict[str, Any]] = []
    free = []
    tighten()
    for number in range(STEPS):
        line = store_harness.step(f"s{number}", "x" * 300)
        try:
            await log.append_step(line)
        except errors.StorageFault as fault:
            faults.append(fault.detail | {"step": number})
            free.append(store._parts.context.disk_health.free)
            loosen()
            await log.heal()
            await log.append_step(line)
    free.append(await store.write_fault() is None)
    await log.close()
    told = await store.maintenance.verify(RUN)
    loaded = await store.read(RUN)
    await store.close()
    return {"faults": faults, "free": free, "ok": told["ok"], "steps": [record.key for record in loaded.records]}


def limit_size(size: int) -> None:
    """Limit the size of files that this process may write."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def main(folder: str, how: str) -> None:
    """Run once and print the observations."""
    place = Path(folder)
    if how == "limit":
        found = refused(place, lambda: limit_size(LIMIT_BYTES), lambda: limit_size(resource.RLIM_INFINITY))
    else:
        found = refused(place, lambda: None, lambda: None, serve=how == "shared")
    print(json.dumps(asyncio.run(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
