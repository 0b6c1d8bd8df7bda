"""Workloads and products: what is measured, and whose."""

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
    """What one repetition is given."""

    place: Path
    """Fresh empty folder of this repetition, on the disk that is measured."""
    kept: Path
    """Folder that all repetitions of the workload share, for what is dear to make; it may be empty."""
    quick: bool = False
    """Whether sizes are small, to see that it works at all; such figures mean nothing."""
    cache: Path = CACHE
    """Where other products are installed: what their `prepare` was given."""

    def size(self, full: int, quick: int) -> int:
        """Return how much of something is asked of this repetition."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One thing that is measured; each repetition lives in a process of its own, on an event loop
    like the service's.
    """

    name: str
    """`W1` and so on; parts of one workload share it."""
    title: str
    """What is done, for the table."""
    measure: Callable[[Context], Awaitable[figures.Raw]]
    """Do it once. The rate of bare appends is added to what it returns (`append_ms`, `appends_per_second`), measured
    before and after, unless it brings those itself.
    """
    lines: tuple[figures.Line, ...]
    """What is shown of it."""
    part: str = ""
    """Which part of it; empty where there is one."""

    @property
    def key(self) -> str:
        """Return the name under which exactly this part is found."""
        return f"{self.name}.{self.part}" if self.part else self.name


class Absent(Exception):
    """A product cannot be installed or started here, or cannot do a workload."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What others have to do to stand beside a workload."""

    key: str
    """Key of the workload."""
    lines: tuple[figures.Line, ...]
    """What a repetition returns, ours as theirs."""
    asks: str
    """What is done, in a sentence."""


class Product(Protocol):
    """Something that a user might pick instead."""

    @property
    def name(self) -> str:
        """Return the short name for `--others`."""

    @property
    def label(self) -> str:
        """Return the name for people."""

    @property
    def remark(self) -> str:
        """Return what it does otherwise than asked; empty: nothing."""

    @property
    def promise(self) -> str:
        """Return when a step counts as done, as it is set up."""

    async def prepare(self, cache: Path) -> str:
        """Install it into an environment of its own below the cache, if it is not there yet, and return its version.

        Raises:
            Absent: it cannot be installed.
        """

    async def measure(self, key: str, context: Context) -> figures.Raw:
        """Do a workload once, in child processes, and return the figures that `COMPARISONS` names.

        Raises:
            Absent: it cannot be started, or does not offer what the workload needs.
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
"""What is compared, in the order of the table."""
