"""Links: `latest` beside the runs, and one for each run in a state directory of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from app import errors
from app.cli import terminal
from app.cli.orchestrate.places import DATA, LATEST, RUNS, Place


def point(place: Place, run_id: str) -> None:
    """Point the links at a new run, replacing each atomically; if links cannot be made, only print a
    warning.
    """
    try:
        _replace(place.data / RUNS / LATEST, run_id)
        if place.shown is not None:
            _replace(place.shown / run_id, f"{DATA}/{RUNS}/{run_id}")
            _replace(place.shown / LATEST, run_id)
    except OSError as error:
        terminal.warn(f"orchestrate: no link to the run: {error}")


def newest(place: Place) -> str:
    """Return the run that `latest` points to.

    Raises:
        errors.NotFound: there is none.
    """
    with contextlib.suppress(OSError):
        return os.readlink(place.data / RUNS / LATEST)
    raise errors.NotFound("there is no latest run", code="run_not_found")


def forget(place: Place, run_ids: Iterable[str], left: str | None) -> None:
    """Remove the links to deleted runs.

    Args:
        left: The newest of the remaining runs; None: none remains.
    """
    folders = [place.data / RUNS] if place.shown is None else [place.data / RUNS, place.shown]
    for folder in folders:
        for name in (*run_ids, LATEST):
            link = folder / name
            if link.is_symlink() and not link.exists():
                link.unlink(missing_ok=True)
    if left is not None and not (place.data / RUNS / LATEST).is_symlink():
        point(place, left)


def _replace(link: Path, target: str) -> None:
    # Created beside the link and moved over it: a reader always finds `latest`.
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    try:
        fresh.replace(link)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
