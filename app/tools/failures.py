"""The expected failures of tools, made in one module so that each code has one wording."""

from __future__ import annotations

import errno

from app import errors
from app.engine import workspace_faults

_SHOWN_CHARACTERS = 200
_MISSING = {
    errno.ENOENT: "does not exist in the workspace",
    errno.ENOTDIR: "names a folder above it that is not a folder",
    errno.ENAMETOOLONG: "has a name that is longer than the file system allows",
}


def outside(path: str, reason: str) -> errors.ToolFailed:
    """Return the refusal of a path outside the workspace."""
    return _about(path, "path_outside_workspace", f"is not a path inside the workspace: {reason}")


def no_workspace(path: str, error: OSError) -> errors.ToolFailed | errors.WorkspaceFault:
    """Return the failure of a workspace whose folder cannot be opened."""
    if workspace_faults.passes(error.errno):
        return workspace_faults.waits(path, error)
    message = f"The workspace {path!r:.200} cannot be opened: {error.strerror}."
    return errors.ToolFailed(message, code="workspace_missing", detail={"working_dir": path})


def not_allowed(working_dir: str) -> errors.ToolFailed:
    """Return the refusal of a folder that runs may not work in."""
    message = f"The run's working_dir {working_dir!r:.200} is not in the folders that runs may work in, or is reserved."
    return errors.ToolFailed(message, code="workspace_not_allowed", detail={"working_dir": working_dir})


def linked(working_dir: str) -> errors.ToolFailed:
    """Return the refusal of a folder that a link leads to; a run begins with a resolved folder."""
    message = (
        f"The run's working_dir {working_dir!r:.200} leads through a link or '..'; a run works in the folder itself."
    )
    return errors.ToolFailed(message, code="workspace_not_allowed", detail={"working_dir": working_dir})


def moved(working_dir: str, failure: errors.ToolFailed) -> str:
    """Return the message for a run that has begun in a folder and cannot continue there."""
    return (
        f"{failure.message} The run works in {working_dir!r:.200}: put the folder back, or allow it with"
        " CONTROL_ROOM_ALLOWED_ROOTS, and restart the service, or on Temporal the worker; or cancel the run."
    )


def missing(path: str) -> errors.ToolFailed:
    """Return the failure of a path that does not exist."""
    return _about(path, "file_not_found", _MISSING[errno.ENOENT])


def not_a_file(path: str) -> errors.ToolFailed:
    """Return the failure of a path that names a folder, a device or a pipe."""
    return _about(path, "not_a_file", "is not a regular file")


def not_text(path: str, reason: str) -> errors.ToolFailed:
    """Return the failure of a file, or of a text to be written, that is not UTF-8 text."""
    return _about(path, "not_text", f"is not text: {reason}")


def too_large(path: str, size_bytes: int, limit_bytes: int) -> errors.ToolFailed:
    """Return the failure of a file over the limit."""
    failure = _about(path, "file_too_large", f"has {size_bytes} bytes, more than the {limit_bytes} that a tool reads")
    failure.detail.update(size_bytes=size_bytes, limit_bytes=limit_bytes)
    return failure


def too_much_text(max_files: int, max_characters: int) -> errors.ToolFailed:
    """Return the failure of files that together exceed a tool's limits."""
    return errors.ToolFailed(
        f"The files are more than a tool reads at once: {max_files} files, {max_characters} characters.",
        code="too_much_text",
        detail={"max_files": max_files, "max_characters": max_characters},
    )


def too_many_entries(path: str, max_files: int, max_entries: int) -> errors.ToolFailed:
    """Return the failure of a folder that contains more than a tool reads at once."""
    failure = _about(
        path,
        "too_much_text",
        f"contains more than {max_files} texts, which a tool reads at once, or {max_entries} entries",
    )
    failure.detail.update(max_files=max_files, max_entries=max_entries)
    return failure


def already_exists(path: str) -> errors.ToolFailed:
    """Return the failure of a write to a path that already has a file."""
    return _about(path, "file_exists", "exists already, and the write may not replace it")


def invalid_pattern(pattern: str, reason: str) -> errors.ToolFailed:
    """Return the refusal of an invalid pattern."""
    return _about(pattern, "invalid_pattern", f"is not a pattern: {reason}")


def too_many(pattern: str, most: int) -> errors.ToolFailed:
    """Return the failure of a pattern that matches more files than the limit."""
    failure = _about(pattern, "too_many_files", f"matches more than the {most} files that are listed")
    failure.detail["limit"] = most
    return failure


def overrun(what: str, seconds: float) -> errors.ToolFailed:
    """Return the failure of work that exceeded its time limit."""
    message = f"{what} did not end within {seconds:g} seconds."
    return errors.ToolFailed(message, code="timeout", detail={"timeout_seconds": seconds})


def of_system(path: str, error: OSError, code: str = "file_unreadable") -> errors.ToolFailed | errors.WorkspaceFault:
    """Return the failure for an error of the operating system, or the fault if the error is temporary."""
    if workspace_faults.passes(error.errno, reading=code == "file_unreadable"):
        return workspace_faults.waits(path, error)
    if error.errno in _MISSING:
        return _about(path, "file_not_found", _MISSING[error.errno])
    name = errno.errorcode.get(error.errno or 0, "unknown")
    verb = "read" if code == "file_unreadable" else "written"
    failure = _about(path, code, f"cannot be {verb}: {error.strerror or name}")
    failure.detail["errno"] = name
    return failure


def _about(path: str, code: str, text: str) -> errors.ToolFailed:
    shown = path.encode("utf-8", "replace").decode()[:_SHOWN_CHARACTERS]
    return errors.ToolFailed(f"{shown!r} {text}.", code=code, detail={"path": shown})
