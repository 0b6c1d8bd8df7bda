"""Agent sessions on a disk: a folder for each conversation, with its record, its claim and its turns."""

# An agent session is not a fact of one run, since a later run continues it: our id of the conversation and its
# program's, its turns if the backend remembers none, and its current speaker. A journal belongs to one run, and the
# index may lose rows.
#
# `sessions/agents/<id>/` contains `session.json`, `turns.jsonl`, `claim.json` and, during a prompt, `holder.json`. Each
# but the last is replaced or appended with a sync before a prompt is sent. Ids that are unsafe as file names are
# hashed. Turns that belong together are one line. A torn last line is cut off; any other damage is the error
# `agent_session_damaged`, since silently starting a new conversation is worse than a failed step.
#
# Cost: two or three syncs for the first prompt of a conversation.

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from app import clock, errors
from app.domain import agent_sessions, plain
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.checked_disk import CheckedDisk
from app.storage.disk.disk_health import DiskHealth
from app.storage.disk.disk_port import Disk, Lock
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.disk.os_disk import OsDisk
from app.storage.disk.read_faults import ReadFaults
from app.storage.disk.worker_threads import NextTurnWorker, Workers, WorkerThreads

ID_CHARACTERS = 1000  # Longest id of an agent session.
RETRY_SECONDS = 0.5  # Time between two checks whether another process still holds a conversation.

_SESSION, _TURNS, _CLAIM, _HOLDER = "session.json", "turns.jsonl", "claim.json", "holder.json"
_UNKNOWN = "another process"
_FOLDERS = (layout.AGENT_SESSIONS.partition("/")[0], layout.AGENT_SESSIONS)

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Hold:
    holder: str
    lock: Lock
    count: int = 1


class StoredAgentSessions:
    """`agent_sessions.AgentSessions` over any disk.

    Args:
        ends_frozen: Whether the disk ends the lock of a frozen process while others wait for it.
    """

    def __init__(self, files: Disk, workers: Workers, *, ends_frozen: bool = False) -> None:
        self._ends_frozen = ends_frozen
        # One worker, so that writes to a session happen in the order of the requests.
        self._disk = files
        self._workers = workers
        self._disk_health = DiskHealth()
        self._held: dict[str, _Hold] = {}
        self._forgetting = asyncio.Lock()

    async def find(self, agent_session_id: str) -> agent_sessions.AgentSession | None:
        """Return the record of a session."""
        record = await self._read(agent_session_id, _SESSION)
        return None if record is None else _session(record, agent_session_id)

    async def keep(self, session: agent_sessions.AgentSession) -> None:
        await self._replace(session.agent_session_id, _SESSION, dataclasses.asdict(session))

    async def renew(self, session: agent_sessions.AgentSession) -> None:
        # The turns are removed first: after a crash in between, the renewal counts as not done.
        path = f"{_folder(session.agent_session_id)}/{_TURNS}"
        await self._written(path, lambda: self._forget(path))
        await self.keep(session)

    async def turns(self, agent_session_id: str) -> Sequence[Mapping[str, plain.Json]]:
        """Return the turns so far."""
        path = f"{_folder(agent_session_id)}/{_TURNS}"
        return _turns(await self._workers.run(lambda: _content(self._disk, path)), path)

    async def add_turns(self, agent_session_id: str, turns: Sequence[Mapping[str, plain.Json]]) -> None:
        """Append turns as one line, since a crash could keep only some of several lines."""
        path = f"{_folder(agent_session_id)}/{_TURNS}"
        line = plain.encode(plain.plain(list(turns))) + b"\n"
        await self._written(path, lambda: self._append(path, line))

    async def claim(self, agent_session_id: str, run_id: str) -> None:
        await self._replace(agent_session_id, _CLAIM, {"agent_session_id": agent_session_id, "run_id": run_id})

    async def claimant(self, agent_session_id: str) -> str | None:
        claim = await self._read(agent_session_id, _CLAIM)
        if claim is None:
            return None
        run_id = claim.get("run_id")
        if not isinstance(run_id, str) or claim.get("agent_session_id") != agent_session_id:
            raise _damaged(f"{_folder(agent_session_id)}/{_CLAIM}", "it does not say which run has the conversation")
        return run_id

    @asynccontextmanager
    async def hold(self, agent_session_id: str, holder: str) -> AsyncIterator[None]:
        """Keep other runs from using a session during the block."""
        folder, awaited = _folder(agent_session_id), {holder}
        while not await self._is_held(folder, agent_session_id, holder, awaited):
            # While that process lets go, its name is gone, and the lock is not yet free.
            awaited.add(_UNKNOWN)
            # A run sends one prompt at a time: an earlier try of the step holds it, whose process is frozen or cut off.
            if self._ends_frozen:
                await asyncio.to_thread(self._outwait, folder)
            else:
                await asyncio.sleep(RETRY_SECONDS)
        try:
            yield
        finally:
            self._let_go(folder)

    async def claims(self) -> list[tuple[str, str]]:
        """Return the claimed conversations, each with the run that claimed it last; damaged claims are left out."""
        names = await self._workers.run(lambda: self._disk.names(layout.AGENT_SESSIONS))
        all_claims = [await self._workers.run(functools.partial(self._claim_in, name)) for name in names]
        return [claim for claim in all_claims if claim is not None]

    async def forget(self, agent_session_id: str, run_id: str) -> bool:
        """Remove the record of a conversation, and return whether it is gone; not if a run uses it or has claimed it.

        Raises:
            errors.StorageFault: it could not be removed.
        """
        path = _folder(agent_session_id)
        async with self._forgetting:
            try:
                self._acquire(path, agent_session_id, "the sweep of old conversations")
            except errors.Conflict:
                return False
            try:
                if await self.claimant(agent_session_id) != run_id:
                    return False
                await self._written(path, lambda: self._disk.remove_tree(path))
            finally:
                self._let_go(path)
        return True

    def close(self) -> None:
        """Finish pending writes."""
        self._workers.close()

    async def _is_held(self, folder: str, agent_session_id: str, holder: str, awaited: set[str]) -> bool:
        # A removal is short, so a caller that meets one waits and is not refused.
        async with self._forgetting:
            try:
                self._acquire(folder, agent_session_id, holder)
            except errors.Conflict as conflict:
                if conflict.detail["holder"] not in awaited:
                    raise
                return False
        return True

    def _outwait(self, folder: str) -> None:
        if (lock := self._disk.lock(folder, wait=True)) is not None:
            lock.release()

    # -- holding: without an await, so that a cancellation cannot interrupt it halfway

    def _acquire(self, folder: str, agent_session_id: str, holder: str) -> None:
        held = self._held.get(folder)
        if held is not None:
            if held.holder != holder:
                raise agent_sessions.locked(agent_session_id, held.holder)
            held.count += 1
            return
        try:
            self._add(folder)
            lock = self._disk.lock(folder)
            if lock is None:
                raise agent_sessions.locked(agent_session_id, self._holder_elsewhere(folder))
            self._held[folder] = _Hold(holder, lock)
            self._disk.write(f"{folder}/{_HOLDER}", plain.encode({"holder": plain.plain(holder)}), sync=False)
        except OSError as error:
            self._let_go(folder)
            raise self._disk_health.failed(folder, error) from error

    def _let_go(self, folder: str) -> None:
        held = self._held.get(folder)
        if held is None:
            return
        held.count -= 1
        if held.count <= 0:
            del self._held[folder]
            with contextlib.suppress(OSError):
                self._disk.remove(f"{folder}/{_HOLDER}")
            held.lock.release()

    def _holder_elsewhere(self, folder: str) -> str:
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, errors.Unreadable):
            return str(json.loads(self._disk.read(f"{folder}/{_HOLDER}"))["holder"])
        return _UNKNOWN

    # -- reading and writing

    async def _read(self, agent_session_id: str, name: str) -> dict[str, Any] | None:
        path = f"{_folder(agent_session_id)}/{name}"
        content = await self._workers.run(lambda: _content(self._disk, path))
        return None if content is None else _object(content, path)

    def _claim_in(self, name: str) -> tuple[str, str] | None:
        path = f"{layout.AGENT_SESSIONS}/{name}/{_CLAIM}"
        with contextlib.suppress(errors.AgentFailed, errors.Unreadable):
            found = _parsed(_content(self._disk, path) or b"")
            claim = [found.get(field) for field in ("agent_session_id", "run_id")] if isinstance(found, dict) else []
            match claim:
                case [str(agent_session_id), str(run_id)] if path.startswith(f"{_safe_folder(agent_session_id)}/"):
                    return agent_session_id, run_id
        return None

    async def _replace(self, agent_session_id: str, name: str, value: Mapping[str, plain.Json]) -> None:
        path = f"{_folder(agent_session_id)}/{name}"
        content = plain.encode(plain.plain(value)) + b"\n"

        def put() -> None:
            self._add_durably(path)
            disk_port.replace(self._disk, path, content, sync=True)

        await self._written(path, put)

    async def _written(self, path: str, job: Callable[[], None]) -> None:
        try:
            await self._workers.run(job)
        except OSError as error:
            raise self._disk_health.failed(path, error) from error

    def _forget(self, path: str) -> None:
        if self._disk.has_file(path):
            self._disk.remove(path)
            self._disk.sync_folder(path.rpartition("/")[0])

    def _append(self, path: str, line: bytes) -> None:
        self._add_durably(path)
        disk_port.append_whole(self._disk, path, line, sync=True)
        self._disk.sync_folder(path.rpartition("/")[0])

    def _add_durably(self, path: str) -> None:
        if not self._disk.has_file(path):
            # The folder may exist without a durable name: the process that made it may have died.
            self._add(path.rpartition("/")[0])
            for folder in ("", *_FOLDERS):
                self._disk.sync_folder(folder)

    def _add(self, folder: str) -> None:
        for name in (*_FOLDERS, folder):
            self._disk.add_folder(name)


class MemoryAgentSessions(StoredAgentSessions):
    """The same over a disk in memory, which can lose unsynced writes."""

    def __init__(self, files: MemoryDisk | None = None) -> None:
        self.disk = files or MemoryDisk()
        """The disk that stores them."""
        super().__init__(self.disk, NextTurnWorker())

    def crashed(self, *, lose_unsynced: bool = False) -> MemoryAgentSessions:
        """Return the sessions as a restart finds them.

        Args:
            lose_unsynced: Whether the machine lost power; otherwise only the process died.
        """
        return MemoryAgentSessions(self.disk.crashed(lose_unsynced=lose_unsynced))


def in_folder(data_directory: Path, faults: ReadFaults | None = None) -> StoredAgentSessions:
    """Return the sessions of a data directory, without reading any of them yet.

    Args:
        faults: Notes files that cannot be read now; None: a record that is not shared.
    """
    files = CheckedDisk(OsDisk(data_directory), faults or ReadFaults(clock.SystemClock()))
    return StoredAgentSessions(files, WorkerThreads(1, "agent-sessions"))


def on_disk(disk: Disk) -> StoredAgentSessions:
    """Return the sessions on the disk of a store."""
    return StoredAgentSessions(disk, WorkerThreads(1, "agent-sessions"), ends_frozen=True)


def check(files: Disk, name: str) -> Iterator[tuple[str, str | None]]:
    """Yield each file of a conversation with its flaw; the conversation is named by its folder."""
    folder = f"{layout.AGENT_SESSIONS}/{name}"
    for file, read in ((_SESSION, _check_session), (_TURNS, _turns)):
        with contextlib.suppress(FileNotFoundError):
            yield file, _flaw(files.read(f"{folder}/{file}"), f"{folder}/{file}", read)


def _flaw(content: bytes, path: str, read: Callable[[bytes, str], object]) -> str | None:
    try:
        read(content, path)
    except errors.AgentFailed as error:
        return str(error.detail["reason"])
    return None


def _check_session(content: bytes, path: str) -> None:
    found = _object(content, path)
    session = _session(found, str(found.get("agent_session_id")))
    if _folder(session.agent_session_id) != path.rpartition("/")[0]:
        raise _damaged(path, f"it is about {session.agent_session_id!r:.80}")


def _folder(agent_session_id: str) -> str:
    if not 0 < len(agent_session_id) <= ID_CHARACTERS or not agent_session_id.isprintable():
        raise errors.InputRefused(
            f"No conversation has the id {agent_session_id!r:.80}: it has 1 to {ID_CHARACTERS} printable characters.",
            code="bad_agent_session_id",
        )
    return layout.agent_session_folder(agent_session_id)


def _safe_folder(agent_session_id: str) -> str | None:
    try:
        return _folder(agent_session_id)
    except errors.InputRefused:
        return None


def _content(files: Disk, path: str) -> bytes | None:
    try:
        return files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _damaged(path, f"it cannot be loaded as a file ({error.strerror})") from error


def _session(found: Mapping[str, Any], agent_session_id: str) -> agent_sessions.AgentSession:
    path = f"{_folder(agent_session_id)}/{_SESSION}"
    try:
        session = agent_sessions.AgentSession.from_json(found)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, "a field is missing or of the wrong kind") from error
    if session.agent_session_id != agent_session_id:
        raise _damaged(path, f"it is about {session.agent_session_id!r:.80}")
    return session


def _turns(content: bytes | None, path: str) -> list[Mapping[str, plain.Json]]:
    # After the last newline there may be a torn line, which was never acknowledged.
    lines = (content or b"").split(b"\n")[:-1]
    found: list[Mapping[str, plain.Json]] = []
    for number, line in enumerate(lines, start=1):
        turns = _parsed(line)
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            raise _damaged(path, f"line {number} is not a list of turns")
        found += turns
    return found


def _object(content: bytes, path: str) -> dict[str, Any]:
    value = _parsed(content)
    if not isinstance(value, dict):
        raise _damaged(path, "it is not a JSON object")
    return value


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _damaged(path: str, why: str) -> errors.AgentFailed:
    return errors.AgentFailed(
        f"The record of the conversation is damaged: {path}: {why}. Repair or remove that file.",
        code="agent_session_damaged",
        detail={"file": path, "reason": why},
    )
