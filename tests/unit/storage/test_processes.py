"""Several processes on one data directory: none repeats or touches what another makes or holds."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from app import clock
from app.engine.stores import RunQuery
from app.storage import layout
from app.storage.data_directory import DataDirectory
from app.storage.disk.disk_port import Lock
from app.storage.disk.os_disk import OsDisk
from app.storage.folder_store import FolderStore
from app.storage.index.sql.index import SqlIndex
from app.storage.runs import deletion
from app.storage.runs.commit_log_lock import CommitLogLock
from app.storage.storage_context import StorageContext
from tests.architecture import sources
from tests.conformance import store_harness
from tests.conformance.store_harness import SESSION
from tests.unit.storage import writer_processes

CREATE = """
import asyncio, json, sys
from pathlib import Path
from tests.conformance import store_harness
from tests.unit.storage import writer_processes

async def create(place, name):
    store = writer_processes.store_in(place)
    await store.start(serve=False)
    made = []
    for number in range(10):
        keyed = {"idempotency_key": f"k{number}", "request_sha256": "h", "session_id": "work"}
        made.append((await store.create(store_harness.start(f"{name}-{number}", **keyed))).existed)
        if not made[-1]:
            log = await store.open(f"{name}-{number}")
            await log.add_receipt(await log.append_step(store_harness.proven(f"{name}-{number}")))
            await log.close()
    await store.close()
    print(json.dumps(made))

asyncio.run(create(Path(sys.argv[1]), sys.argv[2]))
"""

HOLD = """
import sys
from pathlib import Path
from app.storage.disk.os_disk import OsDisk
disk = OsDisk(Path(sys.argv[1]))
disk.add_folder("runs/.new-held")
lock = disk.lock("runs/.new-held")
print(flush=True)
sys.stdin.read()
"""


class Watched(OsDisk):
    """A disk that calls a function once a folder has been released."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.then: dict[str, Callable[[], None]] = {}

    def lock(self, folder: str, *, wait: bool = False) -> Lock | None:
        lock = super().lock(folder, wait=wait)
        return None if lock is None else _Watched(lock, lambda: self.then.pop(folder, lambda: None)())


class _Watched:
    def __init__(self, lock: Lock, then: Callable[[], None]) -> None:
        self._lock = lock
        self._then = then

    def release(self) -> None:
        self._lock.release()
        self._then()


class Swept(FolderStore):
    """A store beside which a service starts just before the first new folder is locked."""

    def __init__(self, place: Path) -> None:
        directory = DataDirectory(place, clock=clock.SystemClock(), ids=clock.RandomIds())
        super().__init__(directory, SqlIndex(directory.index_url()), clock=clock.SystemClock())
        self._place = place
        self.swept = 0

    def _prepare(self) -> tuple[StorageContext, str]:
        context, identity = super()._prepare()
        disk = _SweptDisk(self._place, self)
        return dataclasses.replace(context, disk=disk, bare_disk=disk), identity


class _SweptDisk(OsDisk):
    def __init__(self, place: Path, store: Swept) -> None:
        super().__init__(place)
        self._place = place
        self._store = store

    def lock(self, folder: str, *, wait: bool = False) -> Lock | None:
        if folder == layout.new_folder(store_harness.RUN) and not self._store.swept:
            self._store.swept += 1
            deletion.remove_unfinished(OsDisk(self._place))
        return super().lock(folder, wait=wait)


class ReadsNoted(FolderStore):
    """A store that records every file it reads."""

    def __init__(self, place: Path) -> None:
        directory = DataDirectory(place, clock=clock.SystemClock(), ids=clock.RandomIds())
        super().__init__(directory, SqlIndex(directory.index_url()), clock=clock.SystemClock())
        self.disk = _NotingDisk(place)

    def read_of(self, run_id: str) -> list[str]:
        """Return the paths in the folder of a run that were read so far."""
        return [path for path in self.disk.looked_at if path.startswith(f"{layout.run_folder(run_id)}/")]

    def _prepare(self) -> tuple[StorageContext, str]:
        context, identity = super()._prepare()
        return dataclasses.replace(context, disk=self.disk, bare_disk=self.disk), identity


class _NotingDisk(OsDisk):
    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.looked_at: list[str] = []

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        self.looked_at.append(path)
        return super().read(path, offset, size)

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        self.looked_at.append(path)
        return super().read_synced(path, offset)


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a process."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, cwd=sources.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_processes_make_one_run_for_one_key(tmp_path: Path) -> None:
    """Equal requests in several processes at once make one run each, listed once, with its receipt."""
    store = writer_processes.store_in(tmp_path)
    await store.start()
    processes = [started(CREATE, str(tmp_path), name) for name in ("one", "two", "three")]
    told = [json.loads(process.communicate()[0]) for process in processes]
    listed = await store.list_runs(RunQuery())
    receipts = (tmp_path / layout.receipts_file(SESSION)).read_text().splitlines()
    await store.close()

    assert [sum(not existed for existed in made) for made in zip(*told, strict=True)] == [1] * 10
    assert len(listed) == 10
    assert sorted(json.loads(line)["key"] for line in receipts) == sorted(run.run_id for run in listed)


async def test_a_living_processs_half_built_run_is_not_swept(tmp_path: Path) -> None:
    """The start of a service removes only the half-built runs of dead processes."""
    store = writer_processes.store_in(tmp_path)
    await store.start()
    await store.close()
    names = []
    with started(HOLD, str(tmp_path)) as other:
        assert other.stdout is not None
        other.stdout.readline()
        for _ in range(2):
            store = writer_processes.store_in(tmp_path)
            await store.start()
            await store.close()
            names.append(layout.unfinished_folders(lives_names(tmp_path)))
            other.kill()
            other.wait()

    assert names == [["runs/.new-held"], []]


async def test_a_run_folder_swept_before_its_lock_is_built_again(tmp_path: Path) -> None:
    """A run is still made if a service starts between the creation and the locking of its folder."""
    store = Swept(tmp_path)
    await store.start()
    await store.create(store_harness.start())
    kept = await store.read(store_harness.RUN)
    await store.close()

    assert kept.start.run_id == store_harness.RUN
    assert store.swept == 1


async def test_finished_runs_are_not_read_at_start(tmp_path: Path) -> None:
    """A start reads unfinished rows and folders without one, but not ended runs that have their rows."""
    store = writer_processes.store_in(tmp_path)
    await store.start()
    for name in ("ended", "going"):
        await store.create(store_harness.start(name))
    log = await store.open("ended")
    await store_harness.end(log)
    log.refresh(lambda: {"run.json": {"status": "done"}})
    await log.close()
    await store.close()
    noting = ReadsNoted(tmp_path)
    await noting.start()
    unfinished = [run.run_id for run in await noting.list_unfinished()]
    statuses = {run.run_id: run.status for run in await noting.list_runs(RunQuery())}
    read = {name: noting.read_of(name) for name in statuses}
    await noting.close()

    assert unfinished == ["going"]
    assert read["going"]
    assert read["ended"] == []
    assert statuses == {"ended": "done", "going": "pending"}


async def test_a_service_has_its_log_from_the_moment_it_is_let_in(tmp_path: Path) -> None:
    """A process that has recovered beside a service releases the commit log before the next service may look for it."""
    disk = Watched(tmp_path)
    for folder in layout.FOLDERS:
        disk.add_folder(folder)
    beside = CommitLogLock(disk, serves=False)
    service: list[CommitLogLock] = []
    disk.then[layout.RUNS] = lambda: service.append(CommitLogLock(OsDisk(tmp_path), serves=True))
    beside.let_others_in()
    writes = service[0].writes
    service[0].release()

    assert writes


def lives_names(place: Path) -> list[str]:
    """Return the names in the folder of runs."""
    return [path.name for path in (place / "runs").iterdir()]
