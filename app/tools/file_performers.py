"""Perform `find_files`, `read_files` and `wait_for_files`: find and read files of the workspace, and wait for them."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from app import clock, errors
from app.domain import file_operations, plain, records, states
from app.engine import ports
from app.tools import failures, globs
from app.tools.confinement import Descent, components
from app.tools.reserved import Root
from app.tools.threads import Threads
from app.tools.workspace import Workspaces


class FindFilesPerformer:
    """Find files and folders."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._threads = Threads()

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of a `file_operations.FindFiles`."""
        operation = call.operation
        assert isinstance(operation, file_operations.FindFiles)
        root = self._workspaces.of(call.run).place
        found = await self._threads.perform(operation, lambda: _paths(root, operation.patterns))
        count = sum(map(len, found.values()))
        return records.Result(output={"found": found}, summary=f"{count} {'path' if count == 1 else 'paths'}")


def _paths(root: Root, patterns: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    room = globs.MOST_PATHS
    for pattern in dict.fromkeys(patterns):
        found[pattern] = globs.fitting(root, pattern)
        room -= len(found[pattern])
        if room < 0:
            raise failures.too_many(pattern, globs.MOST_PATHS)
    return found


WHOLE_BYTES = 16 * 1024 * 1024  # Largest total size of files that are read whole.

_GONE = frozenset({"file_not_found", "not_a_file"})

_Entry = dict[str, plain.Json]


class ReadFilesPerformer:
    """Read files as text: some completely, others only from the beginning."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._threads = Threads()

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of a `file_operations.ReadFiles`. Texts are unchanged, byte order marks included.

        Raises:
            errors.ToolFailed: `timeout`, `file_unreadable`, `path_outside_workspace`, and for files that are read whole
                `file_not_found`, `not_a_file`, `file_too_large`, `not_text`.
        """
        operation = call.operation
        assert isinstance(operation, file_operations.ReadFiles)
        root = self._workspaces.of(call.run).place
        files = await self._threads.perform(operation, lambda: _read(root, operation, call.masker))
        return records.Result(output={"files": files}, summary=plain.preview(", ".join(files) or "no files"))


def _read(root: Root, operation: file_operations.ReadFiles, masker: plain.Masker) -> dict[str, _Entry]:
    excerpts = _excerpts(root, operation.excerpts, operation.excerpt_bytes)
    files = excerpts | _whole(root, operation.paths)
    for entry in files.values():
        # The engine masks secrets in every output, so the driver must know that the text differs from the file.
        if entry["text"] is not None and masker.mask(entry["text"]) != entry["text"]:
            entry["masked"] = True
    return files


def _whole(root: Root, paths: Iterable[str]) -> dict[str, _Entry]:
    reported: dict[str, _Entry] = {}
    room = WHOLE_BYTES
    for path in dict.fromkeys(paths):
        with Descent(root, path) as descent:
            content, size_bytes = _content(descent.open_file(components(path)), path, room + 1)
        if max(size_bytes, len(content)) > room:
            raise failures.too_large(path, max(size_bytes, len(content)), WHOLE_BYTES)
        room -= len(content)
        reported[path] = _entry(_text(path, content), len(content))
    return reported


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise failures.not_text(path, f"byte {error.start} is not UTF-8") from None


def _excerpts(root: Root, paths: Iterable[str], room: int) -> dict[str, _Entry]:
    reported: dict[str, _Entry] = {}
    for path in dict.fromkeys(paths):
        reported[path], taken = _excerpt(root, path, room)
        room -= taken
    return reported


def _excerpt(root: Root, path: str, room: int) -> tuple[_Entry, int]:
    parts = components(path)
    try:
        with Descent(root, path) as descent:
            mode = descent.status(parts).st_mode
        if not stat.S_ISREG(mode):
            return _entry(None, 0, folder=stat.S_ISDIR(mode)), 0
        with Descent(root, path) as descent:
            content, size_bytes = _content(descent.open_file(parts), path, room)
    except errors.ToolFailed as failure:
        if failure.code not in _GONE:
            raise
        return _entry(None, 0), 0
    text, is_whole = _beginning(content, size_bytes), len(content) >= size_bytes
    entry = _entry(text, size_bytes) | {"whole": is_whole}
    if not content.startswith(text.encode()):
        entry["not_utf8"] = True
    return entry, len(content)


def _beginning(content: bytes, size_bytes: int) -> str:
    # A character that the limit cuts in two is left out; invalid UTF-8 is replaced.
    is_whole = len(content) >= size_bytes
    return codecs.getincrementaldecoder("utf-8")("replace").decode(content, final=is_whole)


def _content(file: int, path: str, limit: int) -> tuple[bytes, int]:
    try:
        with open(file, "rb", closefd=False) as opened:
            content = opened.read(limit)
        # Check the size again after the read: a file that grows meanwhile is not whole.
        size_bytes = os.fstat(file).st_size
    except OSError as error:
        raise failures.of_system(path, error) from error
    return content, max(size_bytes, len(content))


def _entry(text: str | None, size_bytes: int, *, folder: bool = False) -> _Entry:
    return {"text": text, "size_bytes": size_bytes, "folder": folder}


SHORTEST_POLL_SECONDS = 0.01  # Shortest time between two checks, even if an operation asks for less.
_TICK_SECONDS = 0.001


class WaitForFilesPerformer:
    """Check repeatedly until there are enough files, or the time is over.

    Between two checks the performer holds neither a thread nor a file.
    """

    def __init__(self, workspaces: Workspaces, time: clock.Clock) -> None:
        self._workspaces = workspaces
        self._clock = time
        self._threads = Threads()

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of a `file_operations.WaitForFiles`: check at once, at every poll, and when the time is over.

        A try that fails with `timeout` has a complete output. Time and polls are counted from the last start of the
        process: while the process was down, it made no checks.

        Raises:
            errors.ToolFailed: as `globs.fitting`.
        """
        operation = call.operation
        assert isinstance(operation, file_operations.WaitForFiles)
        root = self._workspaces.of(call.run).place
        span = _Span(begun=self._clock.monotonic(), seconds=operation.timeout_seconds or float("inf"))
        pause = max(operation.poll_ms / 1000, SHORTEST_POLL_SECONDS)
        polls = 0
        while True:
            is_last = span.left_seconds(self._clock) <= 0
            files = await self._threads.run(lambda: _awaited(root, operation))
            polls += 1
            if is_last or len(files) >= operation.min_count:
                return _result(operation, files, span.waited_ms(self._clock), polls)
            # A timer may fire a moment early; the small rest must not cause checks in quick succession.
            await self._clock.sleep(min(pause, max(span.left_seconds(self._clock), _TICK_SECONDS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    begun: float
    seconds: float

    def left_seconds(self, time: clock.Clock) -> float:
        return self.seconds - (time.monotonic() - self.begun)

    def waited_ms(self, time: clock.Clock) -> int:
        return round((time.monotonic() - self.begun) * 1000)


def _awaited(root: Root, wanted: file_operations.WaitForFiles) -> list[str]:
    found = globs.fitting(root, wanted.literal) if wanted.literal is not None else []
    return found if len(found) >= wanted.min_count else globs.fitting(root, wanted.pattern)


def _result(operation: file_operations.WaitForFiles, files: list[str], waited_ms: int, polls: int) -> records.Result:
    timed_out = len(files) < operation.min_count
    output = {"files": files, "wait_duration_ms": waited_ms, "poll_count": polls, "timed_out": timed_out}
    if not timed_out:
        return records.Result(output=output, summary=plain.preview(", ".join(files)))
    limit = operation.timeout_seconds or 0
    message = f"{len(files)} of {operation.min_count} files for {operation.pattern!r:.200} after {limit:g} seconds."
    error = records.StepError(code="timeout", message=message, detail={"timeout_seconds": limit})
    return records.Result(status=states.StepState.FAILED, output=output, summary=plain.preview(message), error=error)
