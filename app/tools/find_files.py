"""Perform `find_files`: which paths of the workspace patterns fit."""

from __future__ import annotations

from collections.abc import Iterable

from app.domain import file_operations, records
from app.engine import ports
from app.tools import failures, globs
from app.tools.reserved import Root
from app.tools.threads import FileThreads
from app.tools.workspace import Workspaces


class FindFilesPerformer:
    """Look for files and folders."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._threads = FileThreads()

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of a `file_operations.FindFiles`."""
        operation = call.operation
        assert isinstance(operation, file_operations.FindFiles)
        root = self._workspaces.of(call.run).place
        found = await self._threads.look(operation, lambda: _found(root, operation.patterns))
        count = sum(map(len, found.values()))
        return records.Result(output={"found": found}, summary=f"{count} {'path' if count == 1 else 'paths'}")


def _found(root: Root, patterns: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    room = globs.MOST_PATHS
    for pattern in dict.fromkeys(patterns):
        found[pattern] = globs.fitting(root, pattern)
        room -= len(found[pattern])
        if room < 0:
            raise failures.too_many(pattern, globs.MOST_PATHS)
    return found
