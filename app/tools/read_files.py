"""Perform `read_files`: texts of the workspace, for prompts."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterable

from app import errors
from app.domain import file_operations, plain, records
from app.engine import ports
from app.tools import failures
from app.tools.confinement import Descent, components
from app.tools.reserved import Root
from app.tools.threads import FileThreads
from app.tools.workspace import Workspaces

WHOLE_BYTES = 16 * 1024 * 1024  # Most that files which are read whole may have, all together.

_GONE = frozenset({"file_not_found", "not_a_file"})

_Entry = dict[str, plain.Json]


class ReadFilesPerformer:
    """Read files as text: some whole, of others the beginning."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._threads = FileThreads()

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of a `file_operations.ReadFiles`. Texts stay as they are, byte order marks included.

        Raises:
            errors.ToolFailed: `timeout`, `file_unreadable`, `path_outside_workspace`, and of files that are read whole
                `file_not_found`, `not_a_file`, `file_too_large`, `not_text`.
        """
        operation = call.operation
        assert isinstance(operation, file_operations.ReadFiles)
        root = self._workspaces.of(call.run).place
        files = await self._threads.look(operation, lambda: _read(root, operation))
        return records.Result(output={"files": files}, summary=plain.preview(", ".join(files) or "no files"))


def _read(root: Root, operation: file_operations.ReadFiles) -> dict[str, _Entry]:
    excerpts = _excerpts(root, operation.excerpts, operation.excerpt_bytes)
    return excerpts | _whole(root, operation.paths)


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
    return _entry(_beginning(content, size_bytes), size_bytes), len(content)


def _beginning(content: bytes, size_bytes: int) -> str:
    # A character that the limit has cut in two is left out; what is no UTF-8 is replaced.
    is_whole = len(content) >= size_bytes
    return codecs.getincrementaldecoder("utf-8")("replace").decode(content, final=is_whole)


def _content(file: int, path: str, limit: int) -> tuple[bytes, int]:
    try:
        with open(file, "rb", closefd=False) as opened:
            content = opened.read(limit)
        size_bytes = os.fstat(file).st_size
    except OSError as error:
        raise failures.of_system(path, error) from error
    return content, max(size_bytes, len(content))


def _entry(text: str | None, size_bytes: int, *, folder: bool = False) -> _Entry:
    return {"text": text, "size_bytes": size_bytes, "folder": folder}
