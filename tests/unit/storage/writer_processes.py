"""Lives of a run, from its creation to its deletion, in real processes that are killed at every point.

The process is the service, whose commits share a log, or a process by itself, which syncs each file.

`python -m tests.unit.storage.writer_processes FOLDER MOST` lives one life for each of the first MOST passings of each
point, in a fork of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app import clock
from app.domain import plans, runs
from app.domain.decisions import DecisionKind
from app.domain.states import RunState
from app.engine.probes import Probes
from app.storage.data_directory import DataDirectory
from app.storage.folder_store import FolderStore
from app.storage.index.sql.index import SqlIndex
from app.worker import crash_probes
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN

KEY = {"idempotency_key": "k", "request_sha256": "h"}
STEPS = ("a", "b", "c")
LABELS = {"book": "one"}
BLOB = b"x" * 70_000
AT = "2026-02-10T14:31:00.000Z"

Tell = Callable[[str], None]


class Counting:
    """Probes that record which points were passed, in order."""

    def __init__(self) -> None:
        self.story: list[str] = []

    def reach(self, point: str) -> None:
        """Record a passing."""
        self.story.append(point)


def store_in(place: Path, points: Probes | None = None) -> FolderStore:
    """Return a store over a folder."""
    directory = DataDirectory(place, clock=clock.SystemClock(), ids=clock.RandomIds())
    return FolderStore(directory, SqlIndex(directory.index_url()), clock=clock.SystemClock(), probes=points)


async def live(store: FolderStore, tell: Tell, *, serve: bool = True) -> None:
    """Live a whole life, and print each answer as soon as it is given."""
    await store.start(serve=serve)
    await store.create(store_harness.start(**KEY))
    tell("created")
    log = await store.open(RUN)
    await log.decide(DecisionKind.TAKEN, {})
    tell("taken")
    await log.move(runs.Transition.begin(RUN, AT))
    blob = await log.put_blob(BLOB, text=True)
    for key in STEPS:
        await log.decide(DecisionKind.STARTED, {"key": key, "attempt": 1, "operation": "x"}, sync=key == "b")
        line = store_harness.proven(key)
        if key == "c":
            line |= {"output": None, "blob": blob.to_json(), "output_hash": f"sha256:{blob.sha256}"}
        record = await log.append_step(line)
        tell(f"step {key}")
        await log.add_receipt(record)
        log.refresh(lambda key=key: {"run.json": {"last": key}, "cache.json": {"last": key}})  # type: ignore[misc]
        await log.flush()
    await store.issues.open({"issue_id": "iss_1", "title": "t"})
    tell("issue")
    for number in range(2):
        await store.audit.append(None, "issue.edited", f"iss_{number}")
        tell("change")
    for revision in (1, 2):
        await store.plans.put(plans.Plan(session_id="sp_1", created_at=AT, updated_at=AT, revision=revision))
        tell(f"plan {revision}")
    await store.plans.put(plans.Plan(session_id="sp_2", created_at=AT, updated_at=AT))
    await store.plans.remove("sp_2")
    tell("removed")
    documents = store.documents("triggers")
    for name in ("kept", "gone"):
        await documents.put(name, {"name": name})
        tell(f"document {name}")
    await documents.remove("gone")
    tell("document removed")
    await log.decide(DecisionKind.LABELLED, {"labels": LABELS})
    tell("labelled")
    await log.decide(DecisionKind.ENDED, {"status": "done"})
    tell("ended")
    await log.flush()
    await log.move(runs.Transition.end(RUN, RunState.DONE, AT))
    await log.close()
    await store.delete(RUN)
    tell("deleted")
    if store._sweeping is not None:
        await store._sweeping
    await store.close()


def story(folder: Path) -> list[tuple[bool, str]]:
    """Return every point that an undisturbed life passes, as the service and as a process by itself."""
    passed = []
    for serve in (True, False):
        counting = Counting()
        asyncio.run(live(store_in(folder / str(serve), counting), lambda told: None, serve=serve))
        passed += [(serve, point) for point in counting.story]
    return passed


def lived(place: Path, point: str, nth: int, *, serve: bool) -> None:
    """Live in a process that kills itself at the nth passing of a point."""
    answers = place.with_suffix(".answers").open("a", buffering=1, encoding="utf-8")
    store = store_in(place, crash_probes.CrashProbes(point, nth))
    asyncio.run(live(store, lambda told: print(told, file=answers), serve=serve))


def sweep(folder: Path, most: int) -> list[dict[str, Any]]:
    """Live one life for each of the first passings of each point, and return how each process ended."""
    template = folder / "template"
    passed = _story(folder, template)
    lives = []
    seen: Counter[tuple[bool, str]] = Counter()
    for number, (serve, point) in enumerate(passed):
        seen[serve, point] += 1
        nth = seen[serve, point]
        if nth > most:
            continue
        place = folder / f"life-{number}"
        shutil.copytree(template, place)
        child = os.fork()
        if child == 0:
            lived(place, point, nth, serve=serve)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        lives.append({"place": str(place), "point": point, "nth": nth, "signal": os.WTERMSIG(status)})
    return lives


async def _migrated(store: FolderStore) -> None:
    await store.start()
    await store.close()


def _story(folder: Path, template: Path) -> list[tuple[bool, str]]:
    # In a child, so that the forking process has no thread of a store.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        asyncio.run(_migrated(store_in(template)))
        os.write(write, json.dumps(story(folder / "undisturbed")).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        passed: list[tuple[bool, str]] = json.load(told)
    os.waitpid(child, 0)
    return passed


if __name__ == "__main__":
    print(json.dumps(sweep(Path(sys.argv[1]), int(sys.argv[2]))))
