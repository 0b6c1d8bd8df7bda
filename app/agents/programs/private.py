"""Private files: what a program writes while it runs, and a folder that only it and we are told of."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.engine import workspace_faults

_READ_BYTES = 1024 * 1024


class Outlet:
    """A file without a name that takes the standard output of a program and can be read meanwhile."""

    def __init__(self) -> None:
        with workspace_faults.waiting(tempfile.gettempdir()):
            file, path = tempfile.mkstemp(prefix="agent-")
            try:
                os.close(file)
                self.writing = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                """Descriptor for the program; whoever runs it closes it."""
                self._reading = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            finally:
                os.unlink(path)
        self._seen_bytes = 0
        self._torn = b""

    def news(self) -> list[bytes]:
        """Return the lines that were completed since the last time."""
        content = os.pread(self._reading, _READ_BYTES, self._seen_bytes)
        self._seen_bytes += len(content)
        *lines, self._torn = (self._torn + content).split(b"\n")
        return lines

    def lines(self) -> Iterator[bytes]:
        """Yield every line, with its newline."""
        with open(os.dup(self._reading), "rb") as read:
            read.seek(0)
            yield from read

    def close(self) -> None:
        """Forget what was written."""
        os.close(self._reading)


@contextlib.contextmanager
def folder(wanted: bool) -> Iterator[Path | None]:
    """Make a folder that others cannot look into, and remove it with all that is in it."""
    if not wanted:
        yield None
        return
    with workspace_faults.waiting(tempfile.gettempdir()):
        made = Path(tempfile.mkdtemp(prefix="agent-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def fill(folder: Path | None, files: Mapping[str, str]) -> None:
    """Write texts into a private folder."""
    for name, text in files.items():
        assert folder is not None
        with workspace_faults.waiting(str(folder)):
            (folder / name).write_text(text, encoding="utf-8", errors="replace")


def read(folder: Path | None, name: str | None) -> bytes:
    """Return what stands in a private folder under a name; nothing where nothing does."""
    if folder is None or name is None:
        return b""
    try:
        return (folder / name).read_bytes()
    except OSError:
        return b""
