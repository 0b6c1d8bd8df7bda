"""A journal: appends lines in the order of the calls, as many as possible with one sync."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app import errors
from app.domain import plain
from app.storage import layout
from app.storage.committer import Commit
from app.storage.disk import disk_port
from app.storage.disk.disk_port import AppendFile
from app.storage.journal import chain
from app.storage.storage_context import StorageContext

_MOST_LOOSE_BYTES = 64 * 1024


Accepted = Callable[[Mapping[str, plain.Json], int, dict[str, plain.Json]], Any]
"""Called for each accepted line with its position and the fields added to it, in the order of lines, before the caller
continues; the caller receives its result.
"""

Refused = Callable[[Mapping[str, plain.Json]], None]
"""Called for each line that could not be made durable, before the caller continues."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Entry:
    fields: bytes
    line: Mapping[str, plain.Json] | None
    waiter: asyncio.Future[Any]


class Journal:
    """The one writer of a journal file.

    It works on the event loop, which writes into the kernel's memory and never waits for a disk. A line is accepted
    when the committer reports it durable. After an earlier crash the next start keeps whole lines and cuts a torn one.
    """

    def __init__(
        self,
        path: str,
        points: str,
        context: StorageContext,
        reading: chain.Reading,
        file: AppendFile,
        accepted: Accepted | None = None,
        refused: Refused | None = None,
    ) -> None:
        self._path = path
        self._points = points
        self._before_write = f"{points}.before_write"
        self._context = context
        self._reach = context.probes.reach
        self._run_id = path.rpartition("/")[0].rpartition("/")[2]
        self._anchor = reading.anchor
        self._file = file
        self._accepted = accepted
        self._refused = refused
        self._waiting: list[_Entry] = []
        self._under_way: list[_Entry] = []
        self._sealed: list[chain.Sealed] = []
        self._called = self._must_sync = self._committing = False
        self._drains: list[asyncio.Future[None]] = []
        self._adopt(reading)
        self.fault: errors.StorageFault | None = None
        """Failure that prevents appends until `heal` is called."""

    def append(
        self, fields: bytes, *, sync: bool = True, line: Mapping[str, plain.Json] | None = None
    ) -> asyncio.Future[Any]:
        """Append an encoded JSON object; the future is done once the line is durable, or written if not `sync`.

        It returns the position of the line, or what `accepted` makes of it.

        Lines are written in the order of these calls, even if callers are cancelled.

        Args:
            line: The same object, for `accepted` and `refused`.
        """
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        entry = _Entry(fields=fields, line=line, waiter=waiter)
        if self.fault is not None:
            # A failed journal refuses at once: its caller must not wait for a line that will never be written.
            self._refuse([entry], _again(self.fault))
        elif sync or self._waiting or self._committing:
            self._waiting.append(entry)
            self._must_sync = self._must_sync or sync
            # One turn later, so that branches that append in the same turn share the sync.
            if not (self._called or self._committing):
                self._called = True
                self._context.committer.gather(self._launch)
        elif (sealed := self._write([entry])) is not None:
            self._accept([entry], sealed)
        return waiter

    def begin_sync(self) -> None:
        """Begin to make written lines durable; lines that other journals append in this turn share the sync."""
        if self.lines_due > self._synced and not self._committing and self.fault is None:
            self._must_sync = True
            self._context.committer.gather(self._launch)

    async def synced(self) -> None:
        """Make written lines durable, or raise the `errors.StorageFault` that prevents it."""
        self.begin_sync()
        await self.drained()
        if self.lines_due > self._synced and self.fault is not None:
            raise _again(self.fault)

    async def drained(self) -> None:
        """Wait until no line is pending or under way."""
        if self._waiting or self._committing or self._must_sync:
            drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drains.append(drained)
            await drained

    async def heal(self) -> None:
        """After a failure, continue in a fresh copy of the accepted lines.

        Raises:
            errors.StorageFault: the copy cannot be made.
        """
        if self.fault is None:
            return
        try:
            reading, file = await self._context.workers.run(self._fresh_copy)
        except OSError as error:
            raise self._context.disk_health.failed(self._path, error) from error
        self._context.disk_health.succeeded()
        self._file = file
        self._adopt(reading)
        self.fault = None

    async def close(self) -> None:
        """Finish pending writes and close the file."""
        await self.drained()
        self.abandon()

    def abandon(self) -> None:
        """Close the file at once, and release the owner, which otherwise only a full garbage collection would free."""
        self._file.close()
        self._accepted = self._refused = None
        self.fault = self.fault or errors.StorageFault(f"{self._path} is closed", detail={"file": self._path})

    def _adopt(self, reading: chain.Reading) -> None:
        self.count = len(reading.lines)
        """Number of accepted lines."""
        self.head = reading.head
        """Hash of the last accepted line."""
        self._size = self._end = reading.end
        self._synced = self.count
        self._loose: list[bytes] = []
        self._loose_bytes = self.lines_due = 0
        """`lines_due`: number of lines that must be durable before events show them."""

    def _launch(self) -> None:
        self._called = False
        if self._committing or not (self._waiting or self._must_sync):
            return
        entries, self._waiting = self._waiting, []
        sync, self._must_sync = self._must_sync, False
        if (sealed := self._write(entries) if entries else []) is None:
            return
        if not sync:
            self._accept(entries, sealed)
            self._continue()
            return
        self._committing = True
        self._under_way = entries
        self._sealed = sealed
        # Lines written unsynced before are part of the commit: a later synced line must not follow a gap.
        content = b"".join(self._loose) if self._loose_bytes <= _MOST_LOOSE_BYTES else None
        commit = Commit(
            run_id=self._run_id,
            path=self._path,
            file=self._file,
            offset=self._end - self._loose_bytes,
            content=content,
            points=self._points,
        )
        self._loose, self._loose_bytes = [], 0
        self._context.committer.begin(commit, self._committed)

    def _committed(self, error: BaseException | None) -> None:
        entries, self._under_way = self._under_way, []
        self._committing = False
        if error is not None:
            self._fail(entries, error)
            return
        if not self._context.disk_health.free:
            self._context.disk_health.succeeded()
        self._accept(entries, self._sealed)
        self._synced = self.count
        if self._waiting or self._drains:
            self._continue()

    def _continue(self) -> None:
        if self._waiting:
            self._launch()
        elif self._drains:
            self._release_drains()

    def _release_drains(self) -> None:
        drains, self._drains = self._drains, []
        for drained in drains:
            if not drained.done():
                drained.set_result(None)

    def _write(self, entries: list[_Entry]) -> list[chain.Sealed] | None:
        # Into the kernel's memory only, which is cheaper than a hop to a thread.
        sealed, contents, prev = [], [], self.head
        for entry in entries:
            line = chain.seal(entry.fields, batch=self._synced, prev=prev)
            sealed.append(line)
            contents.append(line.content)
            prev = line.digest
        content = b"".join(contents)
        try:
            self._reach(self._before_write)
            self._file.write(content)
        except OSError as error:
            self._fail(entries, error)
            return None
        self._end = self._end + len(content)
        self._loose.append(content)
        self._loose_bytes += len(content)
        # The memory for a run that seldom syncs is bounded.
        if self._loose_bytes > _MOST_LOOSE_BYTES:
            self._loose.clear()
        return sealed

    def _accept(self, entries: list[_Entry], sealed: list[chain.Sealed]) -> None:
        for entry, line in zip(entries, sealed, strict=True):
            position, self.count = self.count, self.count + 1
            self.head = line.digest
            self._size = self._size + len(line.content)
            is_record = entry.line is not None and self._accepted is not None
            answer = self._accepted(entry.line, position, line.ending) if is_record else position  # type: ignore[misc, arg-type]
            if not entry.waiter.done():
                entry.waiter.set_result(answer)

    def _fail(self, entries: list[_Entry], error: BaseException) -> None:
        # No line may follow bytes that may have reached the disk only in part.
        self._file.close()
        cause = error if isinstance(error, OSError) else OSError(errno.EIO, str(error))
        self.fault = self._context.disk_health.failed(self._path, cause)
        failed, self._waiting = [*entries, *self._waiting], []
        self._must_sync = False
        self._release_drains()
        self._refuse(failed, _again(self.fault) if isinstance(error, OSError) else error)

    def _refuse(self, entries: list[_Entry], error: BaseException) -> None:
        for entry in entries:
            if entry.line is not None and self._refused is not None:
                self._refused(entry.line)
            if not entry.waiter.done():
                entry.waiter.set_exception(error)
                # Retrieved at once, so that a caller that is gone leaves no warning about an unretrieved error.
                entry.waiter.exception()

    def _fresh_copy(self) -> tuple[chain.Reading, AppendFile]:
        # Only the accepted lines: the others were refused, and their callers may have continued differently since.
        content = self._context.disk.read(self._path, 0, self._size)
        reading = chain.read(content, self._anchor)
        # If lines that were confirmed are missing, the disk has lost them, and a copy would make the loss final.
        if len(reading.lines) < max(self._synced, self.lines_due):
            raise OSError(errno.EIO, "confirmed lines cannot be read any more")
        reach = self._context.probes.reach
        disk_port.replace(
            self._context.disk, self._path, content[: reading.end], sync=True, reach=reach, at="storage.heal"
        )
        # A new run's folder may be durable only in the commit log, which does not contain the healed file.
        self._context.disk.sync_folder(layout.RUNS)
        return reading, self._context.disk.append_to(self._path)


def _again(fault: errors.StorageFault) -> errors.StorageFault:
    return type(fault)(fault.message, code=fault.code, detail=fault.detail)
