"""Figures: several repetitions of one measurement, and what is promised of it."""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Raw: TypeAlias = Mapping[str, float]
"""What one repetition found, by name; the name ends in the unit."""

_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    "at most": operator.le,
    "under": operator.lt,
    "at least": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure over all repetitions."""

    values: tuple[float, ...]
    """One value for each repetition, in order; at least one."""

    @property
    def median(self) -> float:
        """Return the value in the middle."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """Return the smallest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """Return the largest value."""
        return max(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What a figure must reach."""

    kind: Literal["at most", "under", "at least"]
    """Side of the limit that is good."""
    limit: float
    """The limit itself."""
    of: Literal["figure", "ratio"] = "ratio"
    """What is held against it."""

    def reached(self, value: float) -> bool:
        """Tell whether a value is good enough."""
        return _HOLDS[self.kind](value, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table: a figure, what stands beside it, and its bar."""

    says: str
    """What the figure is, in a few words."""
    value: str
    """Name of the figure among those of a repetition."""
    unit: str
    """Unit that it is shown in."""
    beside: str | None = None
    """Name of what it is divided by; None: it has no ratio."""
    beside_unit: str = ""
    """Unit of that."""
    times: float = 1
    """How many of that make one; ten appends stand beside a run of ten steps."""
    bar: Bar | None = None
    """What it must reach; None: it is only told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A line, measured."""

    line: Line
    """What was measured."""
    figure: Series
    """The figure."""
    beside: Series | None = None
    """What it is divided by, measured in the same minute."""
    ratio: Series | None = None
    """The quotient of each repetition."""

    @property
    def judged(self) -> Series | None:
        """Return what is held against the bar; None where there is no bar."""
        if self.line.bar is None:
            return None
        return self.ratio if self.line.bar.of == "ratio" else self.figure

    @property
    def reached(self) -> bool | None:
        """Tell whether the median reaches the bar; None where there is no bar."""
        if self.line.bar is None or self.judged is None:
            return None
        return self.line.bar.reached(self.judged.median)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetitions:
    """Everything that was found about one workload."""

    raws: tuple[Raw, ...] = ()
    """One for each repetition that came to its end."""
    failures: tuple[str, ...] = field(default=())
    """Why others did not."""

    def series(self, name: str) -> Series | None:
        """Return a figure over all repetitions; None where none has it."""
        values = tuple(raw[name] for raw in self.raws if name in raw)
        return Series(values=values) if values else None

    def result(self, line: Line) -> Result | None:
        """Return a line, measured; None where its figure, or what stands beside it, was never found."""
        figure = self.series(line.value)
        if figure is None:
            return None
        if line.beside is None:
            return Result(line=line, figure=figure)
        beside, ratio = self.series(line.beside), _quotients(self.raws, line.value, line.beside, line.times)
        return Result(line=line, figure=figure, beside=beside, ratio=ratio) if ratio is not None else None


def quantile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least a share (0 to 1) of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * share) - 1, 0)]


def _quotients(raws: Iterable[Raw], value: str, beside: str, times: float) -> Series | None:
    values = tuple(raw[value] / (raw[beside] * times) for raw in raws if value in raw and raw.get(beside))
    return Series(values=values) if values else None
