"""Figures: several repetitions of one measurement, and the bar that a figure must reach."""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Raw: TypeAlias = Mapping[str, float]
"""Values that one repetition measured, by name; the name ends in the unit."""

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
    """Value that is compared with the limit."""

    def reached(self, value: float) -> bool:
        """Return whether a value is good enough."""
        return _HOLDS[self.kind](value, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table: a figure, the value that it is compared with, and its bar."""

    says: str
    """Description of the figure in a few words."""
    value: str
    """Name of the figure among those of a repetition."""
    unit: str
    """Unit that it is shown in."""
    beside: str | None = None
    """Name of the value that divides the figure; None: the line has no ratio."""
    beside_unit: str = ""
    """Unit of that value."""
    times: float = 1
    """How many of that value are compared with one figure: a run of ten steps is compared with ten appends."""
    bar: Bar | None = None
    """Bar that the figure must reach; None: the report only shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A line, measured."""

    line: Line
    """The line that was measured."""
    figure: Series
    """The figure."""
    beside: Series | None = None
    """The divisor, measured in the same minute."""
    ratio: Series | None = None
    """The quotient of each repetition."""

    @property
    def judged(self) -> Series | None:
        """Return the values to compare with the bar; None if there is not a bar."""
        if self.line.bar is None:
            return None
        return self.ratio if self.line.bar.of == "ratio" else self.figure

    @property
    def reached(self) -> bool | None:
        """Return whether the median reaches the bar; None if there is not a bar."""
        if self.line.bar is None or self.judged is None:
            return None
        return self.line.bar.reached(self.judged.median)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetitions:
    """All measurements of one workload."""

    raws: tuple[Raw, ...] = ()
    """One for each repetition that completed."""
    failures: tuple[str, ...] = field(default=())
    """Reasons why the other repetitions failed."""

    def series(self, name: str) -> Series | None:
        """Return a figure over all repetitions; None if no repetition has it."""
        values = tuple(raw[name] for raw in self.raws if name in raw)
        return Series(values=values) if values else None

    def result(self, line: Line) -> Result | None:
        """Return a measured line; None if no repetition has its figure, or has the figure together with its divisor."""
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
