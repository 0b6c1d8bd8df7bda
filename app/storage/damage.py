"""
Damage: the errors that say what of a run cannot be believed, and where.
"""

from __future__ import annotations

from app import errors


def corrupt(run_id: str, file: str, reason: str, line: int | None = None) -> errors.JournalCorrupt:
    """
    Make the error that names a damaged place.

    Args:
        line: Number of the line, from 1; None where the whole file is meant.
    """
    place = file if line is None else f"{file} line {line}"
    return errors.JournalCorrupt(
        f"run {run_id}: {place} {reason}; nothing was deleted",
        detail={"run_id": run_id, "file": file, "line": line, "reason": reason},
    )
