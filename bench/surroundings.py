"""Surroundings: properties of the machine that affect figures, without a name that identifies the machine."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from app import __version__, clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Properties of the machine on which figures were measured."""

    version: str
    """Version of the program."""
    python: str
    """Version of Python."""
    processors: int
    """Processors that the process may use."""
    file_system: str
    """Kind of the file system that is measured."""
    kernel: str
    """Operating system and the version of its kernel."""
    date: str
    """Date in UTC."""


def look(place: Path) -> Surroundings:
    """Return the surroundings of measurements in a folder."""
    release = re.match(r"\d+(\.\d+)*", platform.release())
    return Surroundings(
        version=__version__,
        python=platform.python_version(),
        processors=_processors(),
        file_system=_file_system(place.resolve()),
        kernel=" ".join(filter(None, (platform.system(), release and release[0]))),
        date=f"{clock.SystemClock().now():%Y-%m-%d}",
    )


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _file_system(place: Path) -> str:
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return "unknown"
    kinds = {}
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, kind, *_ = line.split(" ")
        # The last mount at a point hides earlier ones.
        kinds[Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point))] = kind
    return next((kinds[folder] for folder in (place, *place.parents) if folder in kinds), "unknown")
