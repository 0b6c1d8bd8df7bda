"""Damage: errors that name the part of a run that cannot be trusted."""

from __future__ import annotations

from app import clock, errors
from app.storage import layout


def corrupt(run_id: str, file: str, reason: str, line: int | None = None) -> errors.JournalCorrupt:
    """Return the error that names a damaged place.

    Args:
        line: Number of the line, from 1; None for the whole file.
    """
    place = file if line is None else f"{file} line {line}"
    return errors.JournalCorrupt(
        f"run {run_id}: {place} {reason}; nothing was deleted; {advice(run_id, file)}",
        detail={"run_id": run_id, "file": file, "line": line, "reason": reason},
    )


def advice(run_id: str, file: str) -> str:
    """Return advice for a run with a damaged file; without its start, the other files are useless."""
    if clock.is_internal(run_id):
        return f"its plan continues in another run; once it does, delete this one: control-room runs delete {run_id}"
    if file == layout.START:
        return f"put {file} back from a backup, or delete the run: control-room runs delete {run_id}"
    return f"see what can be kept: control-room runs repair {run_id}"
