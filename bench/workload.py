"""Workloads and products: the measurements, and the products that are measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench import figures

CACHE = Path("~/.cache/control-room-bench").expanduser()
"""Where other products are installed, unless `--cache` names another folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Context of one repetition."""

    place: Path
    """Fresh empty folder of this repetition, on the disk that is measured."""
    kept: Path
    """Folder that all repetitions of the workload share, for data that is expensive to make; it may be empty."""
    quick: bool = False
    """Whether sizes are small, to check that the workload runs at all; such figures have no meaning."""
    cache: Path = CACHE
    """Where other products are installed: the folder that their `prepare` received."""

    def size(self, full: int, quick: int) -> int:
        """Return the size to use in this repetition."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One measurement; each repetition runs in a process of its own, on an event loop like the service's."""

    name: str
    """`W1` and so on; parts of one workload share it."""
    title: str
    """Description of the work, for the table."""
    measure: Callable[[Context], Awaitable[figures.Raw]]
    """Do the work once and return its figures.

    The rate of bare appends (`append_ms`, `appends_per_second`), measured before and after, is added unless the figures
    contain it already.
    """
    lines: tuple[figures.Line, ...]
    """Lines of the table that show its figures."""
    part: str = ""
    """Name of the part; empty if the workload has only one."""

    @property
    def key(self) -> str:
        """Return the name that identifies exactly this part."""
        return f"{self.name}.{self.part}" if self.part else self.name


class Absent(Exception):
    """A product cannot be installed or started here, or cannot do a workload."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The work that other products do for comparison with a workload."""

    key: str
    """Key of the workload."""
    lines: tuple[figures.Line, ...]
    """Lines for the figures that each repetition returns, of the program and of the products."""
    asks: str
    """Description of the work, in a sentence."""


class Product(Protocol):
    """A product that a user might choose instead."""

    @property
    def name(self) -> str:
        """Return the short name for `--others`."""

    @property
    def label(self) -> str:
        """Return the name for people."""

    @property
    def remark(self) -> str:
        """Return how its measurement differs from the workload's description; empty: not at all."""

    @property
    def promise(self) -> str:
        """Return when a step counts as done with its settings."""

    async def prepare(self, cache: Path) -> str:
        """Install the product into an environment of its own below the cache, if necessary, and return its version.

        Raises:
            Absent: it cannot be installed.
        """

    async def measure(self, key: str, context: Context) -> figures.Raw:
        """Do a workload once, in child processes, and return the figures that `COMPARISONS` names.

        Raises:
            Absent: the product cannot be started, or does not offer the workload.
        """


COMPARISONS: tuple[Comparison, ...] = (
    Comparison(
        key="W1",
        lines=(
            figures.Line(
                says="W1: 10 steps alone, p50", value="latency_ms", unit="ms", beside="append_ms", beside_unit="appends"
            ),
        ),
        asks="Runs of ten no-op steps, one after the other: median time from start to end of one.",
    ),
    Comparison(
        key="W2",
        lines=(
            figures.Line(
                says="W2: steps, 50 runs at a time",
                value="steps_per_second",
                unit="/s",
                beside="appends_per_second",
                beside_unit="of appends",
            ),
            figures.Line(says="W2: CPU per step", value="cpu_ms_per_step", unit="ms"),
        ),
        asks="500 runs of ten no-op steps, 50 at a time: finished steps a second; CPU time of all its processes.",
    ),
    Comparison(
        key="W4",
        lines=tuple(
            figures.Line(
                says=f"W4: over HTTP, {clients} client{'s' if clients > 1 else ''}, p50",
                value=f"p50_{clients}_ms",
                unit="ms",
                beside="append_ms",
                beside_unit="appends",
            )
            for clients in (1, 20)
        ),
        asks="Start a run of ten no-op steps over HTTP until its end is seen, at 1 and at 20 clients: median time.",
    ),
    Comparison(
        key="W5.gate",
        lines=(figures.Line(says="W5: a run at a gate", value="kib_per_run", unit="KiB"),),
        asks="5,000 runs that wait for a person: resident memory of the process that holds them, for each.",
    ),
)
"""Comparisons with other products, in the order of the table."""
