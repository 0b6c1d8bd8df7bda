"""File drops: find new files in a folder, and wait until they no longer change."""

from __future__ import annotations

import stat
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from app import errors
from app.domain import plain
from app.tools import confinement, globs, reserved

MOST_FILES = 10_000  # Most files that a pattern may match.


def found(root: reserved.Root, pattern: str, left_out: list[str] | None = None) -> dict[str, str] | None:
    """Return the identities of the regular files that match a pattern, by path.

    The result is None if the folder at the beginning of the pattern is missing. Nothing outside of the root is read.

    Args:
        left_out: As for `globs.fitting`.

    Raises:
        errors.ToolFailed: the pattern leads out of the root, matches too many files, or a folder cannot be read.
    """
    if not _begins(root, pattern):
        return None
    paths = globs.fitting(root, pattern, left_out)
    if len(paths) > MOST_FILES:
        raise errors.ToolFailed(f"{pattern} fits more than {MOST_FILES} files", code="too_many_files")
    known = ((path, _identity(root, path)) for path in paths)
    return {path: identity for path, identity in known if identity is not None}


def payload(root: reserved.Root, path: str, identity: str) -> dict[str, plain.Json]:
    """Return the facts about a file that pointers of a trigger can refer to."""
    size, _, _ = identity.partition("-")
    absolute = str(Path(root.path) / path)
    return {"path": path, "absolute_path": absolute, "name": PurePosixPath(path).name, "size_bytes": int(size)}


def occurrence(path: str, identity: str) -> str:
    """Return the name of a file's occurrence."""
    return plain.sha256(f"{path}\0{identity}".encode("utf-8", "surrogateescape"))[:32]


class Settling:
    """Remembers since when files of triggers are unchanged."""

    def __init__(self) -> None:
        self._since: dict[str, dict[str, tuple[str, float]]] = {}

    def settled(self, trigger_id: str, new: Mapping[str, str], now: float, seconds: float) -> dict[str, str]:
        """Return the files among new ones that have been unchanged for a number of seconds."""
        known = self._since.get(trigger_id, {})
        since = {
            path: known[path] if path in known and known[path][0] == identity else (identity, now)
            for path, identity in new.items()
        }
        self._since[trigger_id] = since
        return {path: identity for path, (identity, begun) in since.items() if now - begun >= seconds}

    def keep(self, trigger_ids: Collection[str]) -> None:
        """Forget all other triggers."""
        for trigger_id in self._since.keys() - trigger_ids:
            del self._since[trigger_id]


def _begins(root: reserved.Root, pattern: str) -> bool:
    literal = []
    for part in PurePosixPath(pattern).parts[:-1]:
        if any(character in part for character in "*?["):
            break
        literal.append(part)
    try:
        with confinement.Descent(root, "/".join(literal)) as descent:
            descent.enter(literal)
    except errors.ToolFailed as failure:
        if failure.code in ("file_not_found", "workspace_missing"):
            return False
        raise
    return True


def _identity(root: reserved.Root, path: str) -> str | None:
    try:
        with confinement.Descent(root, path) as descent:
            status = descent.status(confinement.components(path))
    except errors.ToolFailed:
        return None
    return f"{status.st_size}-{status.st_mtime_ns}" if stat.S_ISREG(status.st_mode) else None
