"""Nesting: what a command knows of the run that it was started from."""

from __future__ import annotations

import os
from collections.abc import Mapping

from app import errors, settings


def parent_run_id(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the run that started this process; None outside of runs."""
    return environ.get(settings.RUN_ID) or None


def runs_above(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return how many runs are above a run that this process starts, as far as the environment tells.

    Raises:
        errors.ConfigurationError: it tells no number.
    """
    told = environ.get(settings.DEPTH)
    if not told:
        return None
    if not told.isascii() or not told.isdigit():
        raise errors.ConfigurationError(f"{settings.DEPTH}={told!r:.80} is no number", code="settings_invalid")
    return int(told) + 1
