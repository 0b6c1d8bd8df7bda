"""The command register: the file of a launcher's running commands, so that the next start finds leftovers of a crash.

The first line has the boot id, the owner and the launcher. Each further line is a place for one command: the launcher
writes its number and run before the command exists, and adds its process later. All lines have the same length and
are overwritten in place. They are not synced: after a reboot no process is left. The launcher locks the file while it
runs.
"""

from __future__ import annotations

import contextlib
import errno
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
    """The first line of a register."""

    boot_id: str  # Id of the boot.
    owner_pid: int  # Process id of the service.
    owner_started: int  # When the service started, in clock ticks.
    launcher_pid: int  # Process id of the launcher.
    launcher_started: int  # When the launcher started, in clock ticks.
    pid_namespace: int = 0  # Namespace in which processes have these ids; 0: the reader's.


class Entry(NamedTuple):
    """A command that has not ended."""

    number: int  # Number of the command at its launcher.
    run_id: str  # Run that it belongs to.
    pid: int  # Its first process; 0 if it was about to be started.
    started_by: int  # Time by which that process had started, in clock ticks.


class Register:
    """The register of this launcher."""

    def __init__(self, folder: str, series: int, owner: Owner) -> None:
        self._path = os.path.join(folder, name_of(series))
        fresh = os.path.join(folder, f".new-{name_of(series)}")
        self._file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._free: list[int] = []
        self._lines = 1
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._grow(_FIRST_LINES)
            # The owner's line identifies the boot to which the process ids in the other lines belong.
            self._put(0, " ".join(str(fact) for fact in owner))
            # The file gets its name only once it is locked and has its first line: a sweep must not take the register
            # of a living launcher for that of a dead one.
            os.rename(fresh, self._path)
        except OSError:
            # Removed, so that the register can be created later under the same name, once there is room.
            os.close(self._file)
            os.unlink(fresh)
            raise

    def announce(self, number: int, run_id: str) -> int:
        """Register a command that is about to start, and return its place.

        Raises:
            OSError: the disk has no space.
        """
        # The size doubles: a thousand commands at the same time need only a few growths.
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
        """Add the process of a registered command to its line."""
        # A file system that copies on write may have no room even for a line that exists. The command runs already,
        # and a sweep finds its processes by their marker.
        with contextlib.suppress(OSError):
            self._put(place, " ".join(str(fact) for fact in entry))

    def release(self, place: int) -> None:
        """Free the place of a command that has ended."""
        # A line that stays is overwritten by the next command; a sweep compares when its process started.
        with contextlib.suppress(OSError):
            self._put(place, "")
        self._free.append(place)

    def discard(self) -> None:
        """Remove the file, once all commands have ended."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _grow(self, by: int) -> None:
        # The lines are written, not just reserved: a later write to a place must not fail for lack of space.
        content = (_FREE * (_LINE_BYTES - 1) + b"\n") * by
        if os.pwrite(self._file, content, self._lines * _LINE_BYTES) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._free += range(self._lines, self._lines + by)
        self._lines += by

    def _put(self, line: int, text: str) -> None:
        os.pwrite(self._file, text.encode().ljust(_LINE_BYTES - 1)[: _LINE_BYTES - 1] + b"\n", line * _LINE_BYTES)


def name_of(series: int) -> str:
    """Return the name of the register of a series."""
    return f"{series:08x}"


def series_of(path: str) -> int:
    """Return the series of a register."""
    return int(os.path.basename(path), 16)


def list_registers(folder: str) -> list[str]:
    """Return the paths of the registers in a folder.

    Raises:
        OSError: the folder cannot be listed now.
    """
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [os.path.join(folder, name) for name in names if _NAME.fullmatch(name)]


def read(path: str) -> tuple[Owner | None, list[Entry]]:
    """Read a register; the owner is None if its first line was never completed.

    Raises:
        OSError: the register cannot be read now.
    """
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return None, []
    # A killed launcher may have left an incomplete line anywhere.
    return _owner(lines[0]) if lines else None, [entry for line in lines[1:] if (entry := _entry(line)) is not None]


def current(owner_pid: int) -> Owner:
    """Return the first line for this process, as the launcher of another one."""
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
