"""Sweeping: kills processes that a killed launcher left running, before any run continues.

A launcher locks its register while it lives, and removes the register once all its commands have ended. So an unlocked
register is that of a killed launcher, unless the machine has been rebooted since.
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

_KILL_SECONDS = 5.0
_POLL_SECONDS = 0.02
_START_TICKS = 100
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The result of a sweep for one register."""

    run_ids: tuple[str, ...]  # Runs whose commands had not ended.
    killed: int  # Processes that had to be killed.
    survivors: int  # Processes that SIGKILL did not end.


def sweep(folder: Path) -> list[Swept]:
    """Kill the remaining processes of launchers that are gone; commands of living launchers are not touched."""
    swept = []
    for path in _registers(folder):
        try:
            with _claimed(path) as is_claimed:
                if is_claimed:
                    swept.append(_swept(path))
                if is_claimed and not _may_have_hidden_processes(path):
                    # Removed after the kills, under its lock: if this sweep is killed, the next start repeats it,
                    # since the register is still there.
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
        except OSError as error:
            # Its content is unknown now; the register stays for the next sweep.
            _log.error("the register %s of commands cannot be used now: %s", path, error, extra={"file": path})
    return swept


def _registers(folder: Path) -> list[str]:
    try:
        return command_register.list_registers(str(folder))
    except OSError as error:
        _log.error("the registers of commands cannot be listed now: %s", error, extra={"file": str(folder)})
        return []


@contextlib.contextmanager
def _claimed(path: str) -> Iterator[bool]:
    """Hold the lock of a register, unless its launcher lives and has a living service."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        # A locked register belongs to a living launcher; the kernel releases the lock with the process.
        yield _locked(file) or (not _is_owned(path) and _wait_or_kill(path, file))
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
    """Return whether the ids in a register belong to another pid namespace; then only its lock shows its use."""
    return owner is not None and owner.pid_namespace not in (0, process_tree.pid_namespace())


def _may_have_hidden_processes(path: str) -> bool:
    """Return whether the launcher may have processes that this process, itself in a namespace, cannot see."""
    owner, _ = command_register.read(path)
    return _is_elsewhere(owner) and process_markers.read(os.getpid()) is not None


def _wait_or_kill(path: str, file: int) -> bool:
    """Wait for a launcher without a service, which is about to end; kill it if it does not end in time."""
    pause = threading.Event()
    for _ in range(int(2 * _KILL_SECONDS / _POLL_SECONDS)):
        pause.wait(_POLL_SECONDS)
        if _locked(file):
            return True
    owner, _ = command_register.read(path)
    if owner is not None:
        process_tree.send_signal(owner.launcher_pid, owner.launcher_started, signal.SIGKILL)
    # A kill takes time: the lock is tried until it is free.
    return any(_locked(file) or pause.wait(_POLL_SECONDS) for _ in range(int(_KILL_SECONDS / _POLL_SECONDS)))


def _swept(path: str) -> Swept:
    owner, entries = command_register.read(path)
    run_ids = tuple(sorted({entry.run_id for entry in entries}))
    # After a reboot none of the processes is left, and their ids belong to others.
    if owner is not None and owner.boot_id != process_tree.boot_id():
        return Swept(run_ids=(), killed=0, survivors=0)
    killed: set[tuple[int, int]] = set()
    # Ids of another namespace refer to other processes here; only the markers are valid.
    entries = [] if _is_elsewhere(owner) else entries
    series, pause = command_register.series_of(path), threading.Event()
    # Repeated, as processes fork while they are being killed.
    for _ in range(int(_KILL_SECONDS / _POLL_SECONDS)):
        if not (remaining := _remaining(series, entries)):
            break
        for pid, started in remaining.items():
            process_tree.send_signal(pid, started, signal.SIGKILL)
        killed |= set(remaining.items())
        pause.wait(_POLL_SECONDS)
    return Swept(run_ids=run_ids, killed=len(killed), survivors=len(_remaining(series, entries)))


def _remaining(series: int, entries: list[command_register.Entry]) -> dict[int, int]:
    """Return the processes with a marker of the series or an entry in its register, and their descendants."""
    table = process_tree.table()
    known = {entry.pid for entry in entries if _is_process_of(entry, table)}
    with_marker = {
        pid
        for pid in table
        if (marker := process_markers.read(pid)) is not None and process_markers.series_of(marker) == series
    }
    return {pid: table[pid].started for pid in process_tree.descendants(table, known | with_marker)}


def _is_process_of(entry: command_register.Entry, table: process_tree.Table) -> bool:
    """Return whether the process with this id is the registered one: it started just before the entry was written."""
    living = table.get(entry.pid)
    return living is not None and 0 <= entry.started_by - living.started <= _START_TICKS
