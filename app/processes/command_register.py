"""Registers: the file in which a launcher writes down its commands while they run, so that whoever comes after a crash
knows what to look for.

The first line tells the machine's run, the owner and the launcher; each further one is a place for one command and is
written before the command exists: its number and its run, then its process too. Lines have one length and are
overwritten in place. Nothing is synced: after a reboot no process is left to look for. The launcher holds a lock on the
file as long as it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from typing import NamedTuple

from app.processes import process_tree

_LINE_BYTES = 128
_FIRST_LINES = 32
_NAME = re.compile(r"[0-9a-f]{8}")
_FREE = b" "


class Owner(NamedTuple):
    """The first line."""

    boot_id: str
    """Run of the machine."""
    owner_pid: int
    """Process that the launcher works for."""
    owner_started: int
    """When that one started, in ticks."""
    launcher_pid: int
    """The launcher."""
    launcher_started: int
    """When it started."""
    pid_namespace: int = 0
    """Namespace in which processes have these ids; 0: the reader's."""


class Entry(NamedTuple):
    """A command that had not ended."""

    number: int
    """Which of its launcher's commands."""
    run_id: str
    """Run that it belongs to."""
    pid: int
    """Its first process; 0 if it was about to be started."""
    started_by: int
    """When that one had started, in ticks."""


class Register:
    """A launcher's own register."""

    def __init__(self, folder: str, series: int, owner: Owner) -> None:
        self._path = os.path.join(folder, name_of(series))
        fresh = os.path.join(folder, f".new-{name_of(series)}")
        self._file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._free: list[int] = []
        self._lines = 1
        self._grow(_FIRST_LINES)
        self._put(0, " ".join(str(fact) for fact in owner))
        os.rename(fresh, self._path)

    def announce(self, number: int, run_id: str) -> int:
        """Write down a command that is about to be started, and return its place.

        Raises:
            OSError: there is no room.
        """
        if not self._free:
            self._grow(self._lines)
        place = self._free.pop()
        try:
            self._put(place, f"{number} {run_id} 0 0")
        except OSError:
            self._free.append(place)
            raise
        return place

    def complete(self, place: int, entry: Entry) -> None:
        """Write down the process of a command."""
        self._put(place, " ".join(str(fact) for fact in entry))

    def release(self, place: int) -> None:
        """Strike out a command."""
        self._put(place, "")
        self._free.append(place)

    def discard(self) -> None:
        """Remove the file: nothing is left to look for."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _grow(self, by: int) -> None:
        # Written, not just reserved: a place that was given must never be refused afterwards.
        os.pwrite(self._file, (_FREE * (_LINE_BYTES - 1) + b"\n") * by, self._lines * _LINE_BYTES)
        self._free += range(self._lines, self._lines + by)
        self._lines += by

    def _put(self, line: int, text: str) -> None:
        os.pwrite(self._file, text.encode().ljust(_LINE_BYTES - 1)[: _LINE_BYTES - 1] + b"\n", line * _LINE_BYTES)


def name_of(series: int) -> str:
    """Return the name of the register of a series."""
    return f"{series:08x}"


def series_of(path: str) -> int:
    """Return the series whose register this is."""
    return int(os.path.basename(path), 16)


def found(folder: str) -> list[str]:
    """Return the registers in a folder.

    Raises:
        OSError: it cannot be listed now.
    """
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [os.path.join(folder, name) for name in names if _NAME.fullmatch(name)]


def read(path: str) -> tuple[Owner | None, list[Entry]]:
    """Read a register; None where its first line was never finished.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return None, []
    return _owner(lines[0]) if lines else None, [entry for line in lines[1:] if (entry := _entry(line)) is not None]


def current(owner_pid: int) -> Owner:
    """Return the first line for this process as the launcher of another one."""
    launcher_pid = os.getpid()
    started = process_tree.started(owner_pid), process_tree.started(launcher_pid)
    return Owner(process_tree.boot_id(), owner_pid, started[0], launcher_pid, started[1], process_tree.pid_namespace())


def _owner(line: str) -> Owner | None:
    try:
        boot_id, *numbers = line.split()
        return Owner(boot_id, *map(int, numbers))
    except (ValueError, TypeError):
        return None


def _entry(line: str) -> Entry | None:
    try:
        number, run_id, pid, started = line.split()
        return Entry(int(number), run_id, int(pid), int(started))
    except ValueError:
        return None
