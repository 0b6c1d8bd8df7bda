"""Sweeping: killing what a launcher left behind that was killed itself, before anybody goes on in its place.

A launcher holds a lock on its register while it lives, and removes the register once nothing is left of its commands.
A register that nobody holds is therefore that of a launcher that was killed, unless the machine was started anew since.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.processes import command_register, process_markers, process_tree

_PATIENCE_SECONDS = 5.0
_LOOK_SECONDS = 0.02
_BIRTH_TICKS = 100
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What came of one register."""

    run_ids: tuple[str, ...]
    """Runs whose commands had not ended."""
    killed: int
    """Processes that had to be killed."""
    survivors: int
    """Those that would not die."""


def sweep(folder: Path) -> list[Swept]:
    """Kill whatever is left of the commands of launchers that are gone; those of others are let alone."""
    swept = []
    for path in _found(folder):
        try:
            with _held(path) as held:
                if held:
                    swept.append(_swept(path))
                if held and not _is_from_above(path):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
        except OSError as error:
            # What it names cannot be known now; the register stays for the next sweep.
            _log.error("the register %s of commands cannot be used now: %s", path, error, extra={"file": path})
    return swept


def _found(folder: Path) -> list[str]:
    try:
        return command_register.found(str(folder))
    except OSError as error:
        _log.error("the registers of commands cannot be listed now: %s", error, extra={"file": str(folder)})
        return []


@contextlib.contextmanager
def _held(path: str) -> Iterator[bool]:
    """Hold the lock of a register; not if its launcher lives and works for somebody."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        yield _locked(file) or (not _is_owned(path) and _outlived(path, file))
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_owned(path: str) -> bool:
    owner, _ = command_register.read(path)
    return owner is None or _is_elsewhere(owner) or process_tree.is_alive(owner.owner_pid, owner.owner_started)


def _is_elsewhere(owner: command_register.Owner | None) -> bool:
    """Tell whether ids in a register name processes in another namespace than ours: its lock tells
    whether it is used.
    """
    return owner is not None and owner.pid_namespace not in (0, process_tree.pid_namespace())


def _is_from_above(path: str) -> bool:
    """Tell whether whoever wrote a register may have processes that we cannot see, for we are in a
    namespace ourselves.
    """
    owner, _ = command_register.read(path)
    return _is_elsewhere(owner) and process_markers.of(os.getpid()) is not None


def _outlived(path: str, file: int) -> bool:
    """Wait for a launcher that is alone, and so about to end; one that cannot is killed."""
    pause = threading.Event()
    for _ in range(int(2 * _PATIENCE_SECONDS / _LOOK_SECONDS)):
        pause.wait(_LOOK_SECONDS)
        if _locked(file):
            return True
    owner, _ = command_register.read(path)
    if owner is not None:
        process_tree.strike(owner.launcher_pid, owner.launcher_started, signal.SIGKILL)
    return any(_locked(file) or pause.wait(_LOOK_SECONDS) for _ in range(int(_PATIENCE_SECONDS / _LOOK_SECONDS)))


def _swept(path: str) -> Swept:
    owner, entries = command_register.read(path)
    run_ids = tuple(sorted({entry.run_id for entry in entries}))
    if owner is not None and owner.boot_id != process_tree.boot_id():
        return Swept(run_ids=(), killed=0, survivors=0)
    killed: set[tuple[int, int]] = set()
    entries = [] if _is_elsewhere(owner) else entries
    series, pause = command_register.series_of(path), threading.Event()
    for _ in range(int(_PATIENCE_SECONDS / _LOOK_SECONDS)):
        if not (left := _left(series, entries)):
            break
        for pid, started in left.items():
            process_tree.strike(pid, started, signal.SIGKILL)
        killed |= set(left.items())
        pause.wait(_LOOK_SECONDS)
    return Swept(run_ids=run_ids, killed=len(killed), survivors=len(_left(series, entries)))


def _left(series: int, entries: list[command_register.Entry]) -> dict[int, int]:
    """Return the processes that bear a mark of the series or stand in its register, and their descendants."""
    table = process_tree.table()
    known = {entry.pid for entry in entries if _is_entered(entry, table)}
    marked = {
        pid
        for pid in table
        if (mark := process_markers.of(pid)) is not None and process_markers.series_of(mark) == series
    }
    return {pid: table[pid].started for pid in process_tree.descendants(table, known | marked)}


def _is_entered(entry: command_register.Entry, table: process_tree.Table) -> bool:
    """Tell whether a process is the one in a register: it has its id, and started just before that was written."""
    living = table.get(entry.pid)
    return living is not None and 0 <= entry.started_by - living.started <= _BIRTH_TICKS
