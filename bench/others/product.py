"""A product: its pinned packages, its durability settings, and how the benchmark requests a workload from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import figures
from bench.others import environment, programs
from bench.workload import Absent, Context

_ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Amount of work in one repetition of a workload."""

    runs: int
    """Number of runs that are measured; W4: for each client."""
    at_a_time: int = 1
    """Number of runs (W4: clients) that are under way at a time; W4 also measures one client."""
    warm: int = 5
    """Number of runs beforehand, which are not measured."""
    steps: int = 10
    """Number of steps of a run."""


SIZES: Mapping[str, Size] = {
    "W1": Size(runs=30),
    "W2": Size(runs=500, at_a_time=50, warm=50),
    "W4": Size(runs=10, at_a_time=20, warm=20),
    "W5.gate": Size(runs=1000, warm=50),
}
"""Full sizes, by key of the workload."""

QUICK: Mapping[str, Size] = {
    "W1": Size(runs=2, warm=1),
    "W2": Size(runs=6, at_a_time=3, warm=1),
    "W4": Size(runs=1, at_a_time=2, warm=1),
    "W5.gate": Size(runs=5, warm=1),
}
"""Small sizes, to check that the workloads run at all."""


REMARKS: tuple[str, ...] = (
    "CPU and memory are of all processes of a product: its server, its worker, and what starts the runs.",
    "1,000 runs wait in place of 5,000.",
    "Over HTTP, one request starts a run and is answered when it has ended.",
    "Restate answers it by its own ingress; around the others stands a small FastAPI application.",
    "Event loops are uvloop's.",
)
"""Remarks that apply to all products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A product that a user might choose instead."""

    name: str
    """Short name for `--others`."""
    label: str
    """Name for people."""
    version: str
    """Version, for people."""
    pins: environment.Pins
    """Packages to install."""
    program: tuple[str, ...]
    """Arguments for the interpreter: the program that does the workloads."""
    durability: str
    """When a step counts as done, and the settings that ensure this."""
    sizes: Mapping[str, Size] = field(default_factory=lambda: SIZES)
    """Size of each workload; the product does not offer a workload that is missing here."""
    exception: str = ""
    """How its measurement differs from `REMARKS` and from the workload's description; empty: not at all."""
    start_seconds: float = 60.0
    """Time limit for start and stop, in addition to the work."""
    work_seconds: float = 300.0
    """Time limit for the work."""

    @property
    def remark(self) -> str:
        """Return how its measurement differs from the workload's description."""
        return self.exception

    @property
    def promise(self) -> str:
        """Return when a step counts as done."""
        return self.durability

    async def prepare(self, cache: Path) -> str:
        """Install the product below the cache, if necessary, and return its version.

        Raises:
            Absent: it cannot be installed.
        """
        await environment.prepare(self.name, self.pins, cache)
        return self.version

    async def measure(self, key: str, context: Context) -> figures.Raw:
        """Do a workload once, in child processes, and return its figures.

        Raises:
            Absent: it is not installed, does not start, fails, takes too long, or does not offer the workload.
        """
        if key not in self.sizes:
            raise Absent("it does not offer this")
        found = environment.find(self.name, self.pins, context.cache)
        if not found.ready:
            raise Absent("it is not installed")
        size = QUICK[key] if context.quick else self.sizes[key]
        return await self._asked(found, {"key": key, "place": str(context.place), **asdict(size)}, context.place)

    async def _asked(self, found: environment.Environment, order: Mapping[str, Any], place: Path) -> figures.Raw:
        log = place / "complaints.log"
        seconds = self.start_seconds + self.work_seconds
        try:
            code, answer = await programs.ask(
                (str(found.python), "-P", *self.program, json.dumps(order)),
                folder=place,
                variables={**found.variables(), "PYTHONPATH": str(_ROOT)},
                log=log,
                seconds=seconds,
            )
        except TimeoutError as fault:
            raise Absent(f"it took longer than {seconds:g} s") from fault
        except OSError as fault:
            raise Absent(f"it does not start: {fault.strerror or fault}") from fault
        return printed_figures(code, answer, log)


def printed_figures(code: int, answer: bytes, log: Path) -> figures.Raw:
    """Return the figures among the JSON lines that a program printed; other lines are ignored.

    Args:
        code: Exit code of the program.
        answer: Standard output of the program.
        log: File with its standard error stream.

    Raises:
        Absent: the program failed, or printed no figure.
    """
    raw: dict[str, float] = {}
    for line in answer.splitlines():
        raw |= _figure(line)
    if code != 0 or not raw:
        raise Absent(f"it failed ({code}): {environment.reason(log.read_text(errors='replace'))}")
    return raw


def _figure(line: bytes) -> Mapping[str, float]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(told, dict):
        return {}
    figure, value = told.get("figure"), told.get("value")
    if not isinstance(figure, str) or isinstance(value, bool) or not isinstance(value, int | float):
        return {}
    return {figure: float(value)}
