"""Workspace paths: relative paths that name a place inside a workspace, whatever files it has."""

from __future__ import annotations

from collections.abc import Iterable

MAX_COMPONENTS = 64  # Most components of a path, after links are resolved.
RESERVED = frozenset({".control-room", ".git", ".orchestrate"})
"""Names of reserved folders; compared without case, since some file systems ignore case."""


def parts_of(path: str) -> tuple[str, ...]:
    """Return the components of a path."""
    return tuple(part for part in path.split("/") if part not in {"", "."})


def why_outside(path: str) -> str | None:
    """Return why a path has a form that could name a place outside; None if it has not."""
    if "\0" in path:
        return "it holds a NUL byte"
    if path.startswith(("/", "~/")) or path == "~":
        return "it is absolute"
    parts = parts_of(path)
    if ".." in parts:
        return "it holds '..'"
    return f"it has more than {MAX_COMPONENTS} components" if len(parts) > MAX_COMPONENTS else None


def why_reserved(parts: Iterable[str]) -> str | None:
    """Return why components lead into a reserved folder; None if they do not."""
    found = reserved_name(parts)
    return None if found is None else f"{found} does not belong to it"


def reserved_name(parts: Iterable[str]) -> str | None:
    """Return the first reserved name; None if there is none."""
    return next((part for part in parts if part.casefold() in RESERVED), None)


def problem_of_file(path: str) -> str | None:
    """Return why no file can have a path, None if one may, in words that follow the path."""
    if (why := why_outside(path) or why_reserved(parts_of(path))) is not None:
        return f"is not a path inside the workspace: {why}"
    if not path.strip():
        return "is blank"
    return "names a folder; write the name of a file" if path.endswith(("/", "/.")) or path == "." else None
