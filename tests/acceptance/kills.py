"""Kills at points of a service, two at a time: a sample of them, or each passing of every point."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NOT_REACHED = "not reached"
"""A judge's answer for a passing that does not occur."""

Judge = Callable[[Path, str, int], str | None]
"""Kills a service in a folder at the nth passing of a point, and returns the fault found afterwards, or None."""


def sampled(folder: Path, sample: Sequence[tuple[str, int]], judge: Judge) -> list[str]:
    """Return the faults after the kills of a sample; a point that is not reached is a fault as well."""
    with ThreadPoolExecutor(2) as threads:
        judged = threads.map(lambda kill: judge(folder / f"{kill[0]}{kill[1]}", *kill), sample)
        return [wrong for wrong in judged if wrong is not None]


def every(folder: Path, points: Sequence[str], judge: Judge) -> list[str | None]:
    """Return the fault after each passing of every point, None where there is none."""

    def sweep(point: str) -> list[str | None]:
        judged: list[str | None] = []
        for nth in range(1, 1000):
            project = folder / f"{point}{nth}"
            judged.append(judge(project, point, nth))
            if judged[-1] == NOT_REACHED:
                return judged[:-1]
            shutil.rmtree(project)
        return judged

    with ThreadPoolExecutor(2) as threads:
        return [wrong for found in threads.map(sweep, points) for wrong in found]
