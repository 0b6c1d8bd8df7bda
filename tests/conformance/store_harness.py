"""Harnesses: a store of any kind that tests can crash, tamper with and make fail."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psycopg

from app import clock, errors
from app.domain import plain, runs
from app.domain.decisions import DecisionKind
from app.domain.states import RunState
from app.storage.committer import Committer
from app.storage.data_directory import DataDirectory
from app.storage.disk.disk_port import AppendFile, Disk, Lock, SyncRefused
from app.storage.disk.os_disk import OsDisk
from app.storage.folder_store import FolderStore
from app.storage.index.sql.index import SqlIndex
from app.storage.memory_store import MemoryStore
from app.storage.objects.bucket import Bucket
from app.storage.objects.disk import ObjectDisk
from app.storage.objects.mark import Target
from app.storage.postgres import store as postgres_store
from app.storage.postgres.disk import PostgresDisk
from app.storage.postgres.store import PostgresStore
from app.storage.runs.disk_store import DiskStore
from app.storage.runs.folder_log import FolderLog
from app.storage.storage_context import StorageContext

RUN = "20260210T143000Z-abc123"
SESSION = "work"


class Died(BaseException):
    """The process died here."""


def die() -> None:
    """Simulate the death of the process at a probe."""
    raise Died


class Passed:
    """Probes that count the points reached, and can run a function at one of them."""

    def __init__(self) -> None:
        self.points: Counter[str] = Counter()
        self.at: dict[str, Callable[[], None]] = {}

    def reach(self, point: str) -> None:
        """Count a point, and run the function registered for it."""
        self.points[point] += 1
        if point in self.at:
            self.at[point]()


class Faults:
    """Operations that the disk refuses from now on."""

    def __init__(self) -> None:
        self.refused: dict[tuple[str, str], int] = {}

    def refuse(self, operation: str, name: str = "", code: int = errno.ENOSPC) -> None:
        """Make an operation (write, sync, short) on files with a name fail."""
        self.refused[operation, name] = code

    def lift(self) -> None:
        """Let all operations succeed again."""
        self.refused.clear()

    def check(self, operation: str, path: str) -> None:
        """Raise an error if the operation is refused."""
        file = path.rpartition("/")[2]
        for (refused, name), code in self.refused.items():
            # A sync of the commit log counts as a sync of each journal.
            stands = operation == "sync" and file.endswith(".log") and name.endswith(".jsonl")
            if refused == operation and (not name or name in file or stands):
                raise OSError(code, os.strerror(code), path)


class FaultyFile:
    """An `AppendFile` that fails on request; a short write leaves half of its content."""

    def __init__(self, file: AppendFile, path: str, faults: Faults) -> None:
        self._file = file
        self._path = path
        self._faults = faults

    def write(self, content: bytes) -> None:
        self._faults.check("write", self._path)
        try:
            self._faults.check("short", self._path)
        except OSError:
            self._file.write(content[: len(content) // 2])
            raise
        self._file.write(content)

    def sync(self) -> None:
        self._faults.check("sync", self._path)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class FaultyDisk:
    """A `Disk` that fails on request."""

    def __init__(self, disk: Disk, faults: Faults) -> None:
        self._disk = disk
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def append_to(self, path: str) -> AppendFile:
        return FaultyFile(self._disk.append_to(path), path, self._faults)

    def write(self, path: str, content: bytes, *, sync: bool) -> None:
        self._faults.check("write", path)
        self._disk.write(path, content, sync=sync)

    def has_folder(self, path: str) -> bool:
        self._look(path)
        return self._disk.has_folder(path)

    def lock(self, folder: str, *, wait: bool = False) -> Lock | None:
        self._look(folder)
        return self._disk.lock(folder, wait=wait)

    def _look(self, path: str) -> None:
        try:
            self._faults.check("look", path)
        except OSError as error:
            raise errors.Unreadable(f"{path} cannot be read now", detail={"path": path}) from error

    def read_synced(self, path: str, offset: int = 0) -> bytes:
        try:
            self._faults.check("settle", path)
        except OSError as error:
            raise SyncRefused(error.errno, error.strerror, path) from error
        return self._disk.read_synced(path, offset)

    def sync_folder(self, path: str) -> None:
        self._faults.check("sync", path)
        self._disk.sync_folder(path)


class StoreHarness:
    """A store with its clock, probes and faults."""

    def __init__(self) -> None:
        self.clock = clock.FakeClock()
        self.passed = Passed()
        self.faults = Faults()
        self.adopted: list[Mapping[str, Any]] = []
        self.store: DiskStore

    async def open(self) -> DiskStore:
        """Start the store."""
        await self.store.start()
        return self.store

    async def crash(self) -> DiskStore:
        """Kill the process and start another."""
        raise NotImplementedError

    def files(self) -> Disk:
        """Return the disk, for inspection and tampering."""
        raise NotImplementedError

    async def adopt(self, manifest: Mapping[str, plain.Json]) -> runs.RunStart:
        """Return a start for a folder written by hand."""
        self.adopted.append(manifest)
        return start(str(manifest["run_id"]), recipe_id=str(manifest["recipe_id"]))

    def refuse_rows(self) -> None:
        """Make every move of a row fail."""

        async def refuse(transition: runs.Transition) -> bool:
            raise errors.StorageFault("the index is full")

        index = self.store._parts.context.index
        index.move = index.move_soon = refuse  # type: ignore[method-assign, assignment]

    def allow_rows(self) -> None:
        """Let rows move again."""
        index = self.store._parts.context.index
        del index.move, index.move_soon

    async def settle(self) -> None:
        """Write all rows, and empty the commit log."""
        context = self.store._parts.context
        await context.index.flush()
        await context.committer.checkpoint()

    # -- inspection and tampering

    def path(self, name: str, run_id: str = RUN) -> str:
        """Return the path of a file in a run's folder."""
        return f"runs/{run_id}/{name}"

    def content(self, name: str, run_id: str = RUN) -> bytes:
        """Return the content of a file in a run's folder."""
        return self.files().read(self.path(name, run_id))

    def put(self, name: str, content: bytes, run_id: str = RUN) -> None:
        """Overwrite a file in a run's folder."""
        self.files().write(self.path(name, run_id), content, sync=True)

    def remove(self, name: str, run_id: str = RUN) -> None:
        """Remove a file in a run's folder durably."""
        path = self.path(name, run_id)
        self.files().remove(path)
        self.files().sync_folder(path.rpartition("/")[0])

    def change(self, name: str, change: Callable[[bytes], bytes], run_id: str = RUN) -> None:
        """Tamper with a file in a run's folder."""
        self.put(name, change(self.content(name, run_id)), run_id)


class FolderStoreHarness(StoreHarness):
    """A store in a folder of the machine."""

    def __init__(self, place: Path, migrated: bytes) -> None:
        super().__init__()
        self.place = place / ".control-room"
        self.place.mkdir()
        (self.place / "index.db").write_bytes(migrated)
        self.store: FolderStore = self._built()

    def another(self) -> FolderStore:
        """Return a store of another process over the same folder, not yet open."""
        return self._built()

    def _built(self) -> FolderStore:
        return _FaultyFolderStore(self)

    async def crash(self) -> DiskStore:
        """Abandon the store and open the folder anew."""
        self.store.abandon()
        self.store = self._built()
        return await self.open()

    def files(self) -> Disk:
        """Return the folder."""
        return OsDisk(self.place)


class ObjectStoreHarness(FolderStoreHarness):
    """A store in a folder of the machine, with its blobs and logs in object storage."""

    def __init__(self, place: Path, migrated: bytes, url: str) -> None:
        self.url = url
        super().__init__(place, migrated)

    def _built(self) -> FolderStore:
        store = super()._built()
        store.keep_blobs_in(Target(url=self.url, new_identity="blobs_of_a_test"))
        return store

    def files(self) -> Disk:
        """Return the folder with its objects."""
        return ObjectDisk(super().files(), Bucket(self.url))


class MemoryStoreHarness(StoreHarness):
    """A store in memory."""

    def __init__(self, *, lose_unsynced: bool) -> None:
        super().__init__()
        self._lose_unsynced = lose_unsynced
        self.store: _FaultyMemoryStore = _FaultyMemoryStore(self)

    async def crash(self) -> DiskStore:
        """Crash, and open a store on the remaining data."""
        left = self.store.crashed(lose_unsynced=self._lose_unsynced)
        self.store = _FaultyMemoryStore(self, disk=left.disk, index=left.index)
        return await self.open()

    def files(self) -> Disk:
        """Return the disk."""
        return self.store.disk


class PostgresStoreHarness(StoreHarness):
    """A store in a database of a real server."""

    def __init__(
        self, place: Path, migrated: bytes, url: str, *, shared: bool = False, index_url: str | None = None
    ) -> None:
        super().__init__()
        self.place = place / ".control-room"
        self.place.mkdir()
        (self.place / "index.db").write_bytes(migrated)
        self.url = url
        self.shared = shared
        self.index_url = index_url
        self.objects = Target()
        self.store: _FaultyPostgresStore = _FaultyPostgresStore(self)

    def keep_objects(self, url: str) -> None:
        """Keep blobs and logs in object storage."""
        self.objects = Target(url=url, new_identity="blobs_of_a_test")
        self.store.keep_blobs_in(self.objects)

    async def crash(self) -> DiskStore:
        """Abandon the store and open the database anew."""
        self.store.abandon()
        self.store = _FaultyPostgresStore(self)
        return await self.open()

    def files(self) -> Disk:
        """Return the disk of the store, open or not."""
        disk = self.store.bare_disk()
        return disk if self.objects.url is None else ObjectDisk(disk, Bucket(self.objects.url))


class _FaultyPostgresStore(PostgresStore):
    def __init__(self, harness: PostgresStoreHarness) -> None:
        directory = DataDirectory(harness.place, clock=harness.clock, ids=clock.RandomIds())
        super().__init__(
            postgres_store.Target(url=harness.url, new_identity="store_of_a_test", shared=harness.shared),
            directory,
            SqlIndex(harness.index_url or directory.index_url()),
            clock=harness.clock,
            probes=harness.passed,
            adopt=harness.adopt,
        )
        self._faults = harness.faults
        self.keep_blobs_in(harness.objects)

    def abandon(self) -> None:
        """Abandon the store, and wait until the server has ended its sessions, because leases end with them."""
        number = self._ownership.number if self._ownership is not None and self._target.shared else 0
        super().abandon()
        if number:
            with psycopg.connect(self._target.url, autocommit=True) as connection:
                connection.execute("SELECT pg_advisory_lock_shared(%s)", (-number,))

    def bare_disk(self) -> Disk:
        """Return the disk; connect a store that is not open yet."""
        if self._database is None:
            self._connect()
        if self._disk is None:
            self._open_disk()
        assert self._disk is not None
        return self._disk

    def _prepare(self) -> tuple[StorageContext, str]:
        return _faulty(super()._prepare(), self._faults)

    def _make_disk(self, *parts: Any) -> PostgresDisk:
        return _FaultyPostgresDisk(self._faults, *parts, shared=self._target.shared)


class _FaultyPostgresDisk(PostgresDisk):
    def __init__(self, faults: Faults, *parts: Any, shared: bool) -> None:
        super().__init__(*parts, shared=shared)
        self._faults = faults

    def commit(self, paths: Iterable[str]) -> Mapping[str, OSError]:
        refused: dict[str, OSError] = {}
        for path in paths:
            try:
                self._faults.check("sync", path)
            except OSError as error:
                refused[path] = error
                self._pending.pop(path, None)
        return {**super().commit(path for path in paths if path not in refused), **refused}


class _FaultyFolderStore(FolderStore):
    def __init__(self, harness: FolderStoreHarness) -> None:
        directory = DataDirectory(harness.place, clock=harness.clock, ids=clock.RandomIds())
        index = SqlIndex(directory.index_url())
        super().__init__(directory, index, clock=harness.clock, probes=harness.passed, adopt=harness.adopt)
        self._faults = harness.faults

    def _prepare(self) -> tuple[StorageContext, str]:
        return _faulty(super()._prepare(), self._faults)

    def _make_committer(self, files: Disk, *others: Any) -> Committer:
        return super()._make_committer(FaultyDisk(files, self._faults), *others)


class _FaultyMemoryStore(MemoryStore):
    def __init__(self, harness: MemoryStoreHarness, **left: Any) -> None:
        super().__init__(clock=harness.clock, probes=harness.passed, adopt=harness.adopt, **left)
        self._faults = harness.faults

    def _prepare(self) -> tuple[StorageContext, str]:
        return _faulty(super()._prepare(), self._faults)

    def _make_committer(self, files: Disk, *others: Any) -> Committer:
        return super()._make_committer(FaultyDisk(files, self._faults), *others)


def _faulty(prepared: tuple[StorageContext, str], faults: Faults) -> tuple[StorageContext, str]:
    context, identity = prepared
    disk, bare_disk = FaultyDisk(context.disk, faults), FaultyDisk(context.bare_disk, faults)
    return dataclasses.replace(context, disk=disk, bare_disk=bare_disk), identity


def start(run_id: str = RUN, **facts: Any) -> runs.RunStart:
    """Return the start of a run."""
    given: dict[str, Any] = {
        "run_id": run_id,
        "recipe_id": "draft",
        "dialect": "control_room",
        "driver_version": 1,
        "created_at": "2026-02-10T14:30:00.000Z",
        "recipe": {"recipe_id": "draft"},
        "recipe_sha256": "0" * 64,
        "session_id": SESSION,
    }
    return runs.RunStart(**(given | facts))


def step(key: str, output: plain.Json = None, **facts: Any) -> dict[str, Any]:
    """Return a journal line as the engine writes it."""
    output = f"output of {key}" if output is None else output
    line = {
        "step_index": 0,
        "step_id": key,
        "phase": "a",
        "tool": "file_locator",
        "agent_archetype": None,
        "agent_id": None,
        "status": "done",
        "output_slot": key,
        "receipt_id": None,
        "input_slot_refs": [],
        "output_hash": plain.labelled_sha256(plain.content(output)),
        "output_preview": plain.preview(output),
        "started_at": "2026-02-10T14:30:01.000Z",
        "completed_at": "2026-02-10T14:30:02.000Z",
        "error": None,
        "key": key,
        "attempt": 1,
        "visit": 1,
        "branch": "",
        "operation": {
            "hash": f"sha256:{key}",
            "body": {"kind": "tool_call", "tool": "file_locator", "args": {"q": key}},
        },
        "output": output,
        "blob": None,
        "usage": None,
        "agent_session_id": None,
        "duration_ms": 1.5,
        "final": True,
        "retry_at": None,
    }
    return line | facts


def proven(key: str, output: plain.Json = None) -> dict[str, Any]:
    """Return a journal line that has a receipt."""
    return step(key, {"found": key} if output is None else output, receipt_id=f"rcpt_{key}")


async def begun(harness: StoreHarness, **facts: Any) -> FolderLog:
    """Create a run, open and take it."""
    store = await harness.open()
    await store.create(start(**facts))
    log = await store.open(facts.get("run_id", RUN))
    await log.decide(DecisionKind.TAKEN, {})
    return log


async def ended(harness: StoreHarness, *keys: str, status: str = "done", **facts: Any) -> None:
    """Create a run that has ended."""
    log = await begun(harness, **facts)
    for key in keys:
        await log.append_step(step(key))
    await end(log, status)
    await log.close()


async def end(log: FolderLog, status: str = "done") -> bool:
    """Write an ending, and move the row as the engine does."""
    written = await log.decide(DecisionKind.ENDED, {"status": status, "causes": [], "error": None, "ending": None})
    await log.move(runs.Transition.begin(log.run_id, "2026-02-10T14:31:00.000Z"))
    await log.move(runs.Transition.end(log.run_id, RunState(status), "2026-02-10T14:32:00.000Z"))
    return written


def types(told: list[Any]) -> list[str]:
    """Return the types of events."""
    return [event.type for event in told]


Make = Callable[..., PostgresStoreHarness]
"""Creates the store of a process of its own."""


async def close_all(made: Iterable[StoreHarness]) -> None:
    """Close stores, some of which cannot write any more."""
    for harness in made:
        with contextlib.suppress(errors.StorageFault):
            await harness.store.close()
