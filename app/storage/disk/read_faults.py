"""Read faults: records which files cannot be read now, and reads each of them again.

A failed read proves nothing about the file: it is neither damaged nor absent.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import errno
import logging
import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from app import clock, errors
from app.domain import unreadable as unreadables
from app.engine import aio
from app.storage import layout
from app.storage.disk import disk_health
from app.storage.disk.worker_threads import Workers

FIRST_WAIT_SECONDS = 1.0  # Wait before the first repeated read of a file.
LONGEST_WAIT_SECONDS = 60.0  # Longest wait; each wait is twice the one before.
ABSENT = (errno.ENOENT, errno.ENOTDIR)  # System errors for a missing file.

_NO_FILE = (errno.ELOOP, errno.EISDIR, errno.ESPIPE, errno.ENXIO, errno.ENAMETOOLONG, errno.EFBIG)
_MOST = 10_000

_log = logging.getLogger(__name__)

Call: TypeAlias = tuple[str, str]  # A call of the disk: name of the operation, and path.


@dataclass(slots=True, eq=False)
class _Fault:
    path: str
    since: str
    again: Callable[[], Any]
    number: int = 0
    reason: str = ""
    wait_seconds: float = FIRST_WAIT_SECONDS
    due: float = 0.0
    next_try_at: str = ""


def passes(error: OSError) -> bool:
    """Return whether a read error leaves the file's state open: the file is neither absent nor of a wrong kind."""
    return error.errno not in (*ABSENT, *_NO_FILE)


class ReadFaults:
    """Records failed reads, and repeats them with growing waits until they succeed."""

    def __init__(self, clock: clock.Clock) -> None:
        self._clock = clock
        self.noted: dict[Call, _Fault] = {}
        """Failed reads."""
        self._waiting: dict[str, str] = {}
        self.held: dict[str, errors.Unreadable] = {}
        """Runs that must not be read before they are restored."""
        self._restoring = ("", 0)
        self._guard = threading.Lock()
        self._news = aio.LightEvent()
        self._readable = aio.LightEvent()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._workers: Workers | None = None
        self._task: asyncio.Task[None] | None = None

    # -- on any thread

    def failed(self, call: Call, error: OSError, again: Callable[[], Any]) -> errors.Unreadable:
        """Note a read that failed, and return the fault to raise.

        Args:
            again: Repeats the read.
        """
        with self._guard:
            known = self.noted.get(call)
            fault = known or _Fault(path=call[1], since=clock.stamp(self._clock.now()), again=again)
            fault.number, fault.reason = error.errno or errno.EIO, disk_health.reason_of(error)
            fault.again = again
            # A caller may repeat a read early; that does not postpone the next try.
            if known is None or self._clock.monotonic() >= fault.due:
                self._postpone(fault, known is not None)
            # Bounded, since a folder full of damaged files must not fill the memory.
            if len(self.noted) < _MOST:
                self.noted[call] = fault
        if known is None:
            _log.warning("%s cannot be read now: %s", call[1] or ".", error, extra={"file": call[1]})
            self._notify()
        return _error_of(fault, max(1, math.ceil(fault.due - self._clock.monotonic())))

    def succeeded(self, call: Call) -> None:
        """Note that a read succeeds again."""
        self._clear(call)

    def hold_back(self, run_id: str, fault: errors.Unreadable, restore: Callable[[], None]) -> None:
        """Refuse reads of a run until it is restored, since it may lack lines that the commit log has."""

        def again() -> None:
            self._restoring = run_id, threading.get_ident()
            try:
                restore()
            except OSError as error:
                raise errors.Unreadable(fault.message, detail=fault.detail) from error
            finally:
                self._restoring = "", 0
            self.held.pop(run_id, None)

        self.held[run_id] = fault
        number = getattr(errno, fault.detail["errno"], errno.EIO)
        self.failed(("restore", fault.detail["path"]), OSError(number, os.strerror(number)), again)

    def check(self, path: str) -> None:
        """Refuse to read a run that is held back.

        Raises:
            errors.Unreadable: the run is held back.
        """
        place = layout.run_of(path) if self.held else None
        if place is None or self._restoring == (place[0], threading.get_ident()):
            return
        if (fault := self.held.get(place[0])) is not None:
            raise errors.Unreadable(fault.message, detail=fault.detail)

    def refuse(self) -> None:
        """Refuse while a folder that all runs share cannot be read.

        Raises:
            errors.Unreadable: one cannot.
        """
        with self._guard:
            shared = [fault for fault in self.noted.values() if fault.path in layout.FOLDERS]
        for fault in shared:
            raise _error_of(fault, max(1, math.ceil(fault.due - self._clock.monotonic())))

    @property
    def found(self) -> bool:
        """Return whether any file cannot be read now."""
        return bool(self.noted or self._waiting)

    def by_run(self) -> dict[str, unreadables.Unreadable]:
        """Return the runs with a file that cannot be read now, each with the file that failed first."""
        found: dict[str, unreadables.Unreadable] = {}
        with self._guard:
            faults = sorted(self.noted.values(), key=lambda fault: fault.since) if self.noted else []
        for fault in faults:
            if (place := layout.run_of(fault.path)) is not None:
                found.setdefault(place[0], _shown(fault, place[1]))
        by_path = {fault.path: fault for fault in reversed(faults)}
        for run_id, path in list(self._waiting.items()):
            if path in by_path:
                found.setdefault(run_id, _shown(by_path[path], path))
        return found

    def wait_for(self, run_id: str, fault: errors.Unreadable) -> None:
        """Note that a run waits for a file outside its folder, such as that of a conversation or of its receipts."""
        if fault.detail["run_id"] != run_id:
            self._waiting[run_id] = fault.detail["path"]

    def forget(self, run_id: str) -> None:
        """Note that a run waits for no such file any more."""
        self._waiting.pop(run_id, None)

    # -- on the loop

    def begin(self, workers: Workers) -> None:
        """Start to repeat failed reads."""
        self._loop = asyncio.get_running_loop()
        self._workers = workers
        self._notify()

    def end(self) -> None:
        """Stop repeating reads."""
        task, self._task, self._loop = self._task, None, None
        if task is not None:
            task.cancel()

    async def until_readable(self, run_id: str) -> None:
        """Wait until all files of a run can be read."""
        while run_id in self.by_run():
            self._readable.clear()
            await self._readable.wait()

    def _notify(self) -> None:
        if self._loop is not None and self.noted:
            # A loop that was closed meanwhile repeats no read.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._news.set()
        if self._loop is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._repeat(), name="read again")

    async def _repeat(self) -> None:
        assert self._workers is not None
        while self.noted:
            self._news.clear()
            now = self._clock.monotonic()
            due = [call for call, fault in list(self.noted.items()) if fault.due <= now]
            for call in due:
                await self._try(call, self._workers)
            if not due:
                await self._sleep(min((fault.due for fault in list(self.noted.values())), default=now) - now)

    async def _try(self, call: Call, workers: Workers) -> None:
        fault = self.noted.get(call)
        if fault is None:
            return
        try:
            # The next reader of the file reports any other error.
            with contextlib.suppress(OSError):
                await workers.run(fault.again)
        except errors.Unreadable:
            with self._guard:
                if fault.due <= self._clock.monotonic():
                    self._postpone(fault, True)
        else:
            self._clear(call)

    async def _sleep(self, seconds: float) -> None:
        sleeping, news = asyncio.ensure_future(self._clock.sleep(seconds)), self._news.wait()
        try:
            await asyncio.wait((sleeping, news), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            news.cancel()

    def _postpone(self, fault: _Fault, repeated: bool) -> None:
        fault.wait_seconds = min(fault.wait_seconds * (2 if repeated else 1), LONGEST_WAIT_SECONDS)
        fault.due = self._clock.monotonic() + fault.wait_seconds
        fault.next_try_at = clock.stamp(self._clock.now() + dt.timedelta(seconds=fault.wait_seconds))

    def _clear(self, call: Call) -> None:
        with self._guard:
            fault = self.noted.pop(call, None)
        if fault is not None:
            _log.info("%s can be read again", fault.path or ".", extra={"file": fault.path})
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(partial(self._readable.set))


def _error_of(fault: _Fault, seconds: int) -> errors.Unreadable:
    run_id, file = layout.run_of(fault.path) or (None, fault.path)
    place, reason = fault.path or "the data directory", fault.reason
    return errors.Unreadable(
        f"{place} cannot be read now: {reason}; nothing was changed, and it is tried again",
        detail={
            "run_id": run_id,
            "file": file,
            "path": fault.path,
            "errno": _name(fault),
            "since": fault.since,
            "next_try_at": fault.next_try_at,
            "retry_after_seconds": seconds,
        },
    )


def _shown(fault: _Fault, file: str) -> unreadables.Unreadable:
    return unreadables.Unreadable(file=file, errno=_name(fault), since=fault.since, next_try_at=fault.next_try_at)


def _name(fault: _Fault) -> str:
    return errno.errorcode.get(fault.number, str(fault.number))
