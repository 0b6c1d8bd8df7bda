"""Tracing: record the writes of a process to its data directory, and disturb one of them (strace)."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app import errors

CALLS = (
    "write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "syncfs", "ftruncate", "rename", "renameat",
    "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "link", "linkat",
)  # fmt: skip
"""System calls that change the content of a disk, or make it durable."""

_LINE = re.compile(r"(\d+) +(\w+)\((.*)")
_PLACE = re.compile(r'<(/[^<>]*)>|"(/[^"]*)"')
_INJECTED = "(INJECTED)"
_REFUSED = ") = -1 "
_PID = "{pid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePoint:
    """One writing call of a process."""

    call: str  # System call.
    path: str
    """File or folder of the call, below the data directory; the old name for a rename. `{pid}` is the process."""
    nth: int  # Its number among calls of its kind, from 1.

    def __str__(self) -> str:
        return f"{self.call} {self.path} {self.nth}"

    @property
    def kind(self) -> str:
        """Return the common part of similar calls: call and file name."""
        return f"{self.call} {self.path.rpartition('/')[2]}"


def available() -> bool:
    """Return whether the tracer is installed."""
    return shutil.which("strace") is not None


@contextlib.contextmanager
def traced(pid: int, output: Path) -> Iterator[None]:
    """Record every writing call of a process."""
    with _attached(pid, "-y", "-s", "0", "-e", f"trace={_names(CALLS)}", "-o", str(output)):
        yield


@contextlib.contextmanager
def faulted(pid: int, data_directory: Path, point: WritePoint, how: str, output: Path) -> Iterator[None]:
    """Disturb a process at one call.

    Args:
        how: `signal=SIGKILL`, or `error=` and the name of an error; the call itself is not made.
    """
    place = str(data_directory / point.path.replace(_PID, str(pid)))
    chosen = ("-P", place, "-e", f"trace=?{point.call}", "-e", f"inject=?{point.call}:{how}:when={point.nth}")
    with _attached(pid, "-s", "0", *chosen, "-o", str(output)):
        yield


def was_disturbed(output: Path) -> bool:
    """Return whether the disturbed call was reached."""
    return output.exists() and _INJECTED in output.read_text(encoding="utf-8", errors="replace")


def points(output: Path, data_directory: Path) -> list[WritePoint]:
    """Return the calls that changed a data directory, each once, in their order."""
    seen: Counter[tuple[str, str, str]] = Counter()
    found: dict[WritePoint, None] = {}
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    pid = lines[0].partition(" ")[0] if lines else ""
    for line in lines:
        matched = _LINE.match(line)
        if matched is None:
            continue
        thread, call, arguments = matched.groups()
        places = [place for pair in _PLACE.findall(arguments) if (place := _below(pair[0] or pair[1], data_directory))]
        for place in dict.fromkeys(places):
            seen[thread, call, place] += 1
        if places and _REFUSED not in line:
            # The tracer counts calls separately for each thread.
            path = re.sub(rf"\.{pid}$", f".{_PID}", places[0])
            found[WritePoint(call=call, path=path, nth=seen[thread, call, places[0]])] = None
    return list(found)


@contextlib.contextmanager
def _attached(pid: int, *options: str) -> Iterator[None]:
    tracer = subprocess.Popen(  # noqa: S603 - the tracer, with arguments of our own
        ["strace", "-f", "-e", "signal=none", *options, "-p", str(pid)],  # noqa: S607 - found on the path by its name
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert tracer.stderr is not None
        told = []
        for line in tracer.stderr:
            told.append(line)
            if " attached" in line:
                break
        else:
            raise errors.ControlRoomError(f"strace cannot attach: {''.join(told)}", code="tracer_failed")
        yield
        tracer.stderr.read()
    finally:
        if tracer.poll() is None:
            tracer.terminate()
        tracer.communicate()


def _names(calls: tuple[str, ...]) -> str:
    return ",".join(f"?{call}" for call in calls)


def _below(place: str, folder: Path) -> str | None:
    text, root = place.removesuffix(" (deleted)"), str(folder)
    if text == root:
        return "."
    return text[len(root) + 1 :] if text.startswith(f"{root}/") else None
