"""Figures: medians, spreads, ratios and bars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import figures

_VALUES = st.lists(st.floats(min_value=0.001, max_value=1e6), min_size=1, max_size=20)


def test_a_series_has_a_median_and_a_spread() -> None:
    """A series has a median, and a spread from its smallest to its largest value."""
    series = figures.Series(values=(5.0, 1.0, 3.0, 2.0, 100.0))

    assert (series.median, series.low, series.high) == (3.0, 1.0, 100.0)


@given(_VALUES)
def test_the_median_is_between_low_and_high(values) -> None:
    """For any values, low is at most the median, and the median at most high."""
    series = figures.Series(values=tuple(values))

    assert series.low <= series.median <= series.high


@pytest.mark.parametrize(
    ("kind", "limit", "value", "reached"),
    [
        ("at most", 3, 3.0, True),
        ("at most", 3, 3.01, False),
        ("under", 0.25, 0.25, False),
        ("under", 0.25, 0.24, True),
        ("at least", 2, 2.0, True),
        ("at least", 2, 1.99, False),
    ],
)
def test_a_bar_is_a_predicate(kind, limit, value, reached) -> None:
    """A bar of "at most" or "at least" includes its limit, and one of "under" does not."""
    assert figures.Bar(kind=kind, limit=limit).reached(value) is reached


def test_a_ratio_is_made_within_each_repetition() -> None:
    """A ratio divides the figure of a repetition by that repetition's own comparison value, not by a median."""
    line = figures.Line(says="x", value="x_ms", unit="ms", beside="append_ms", times=10)
    repetitions = figures.Repetitions(
        raws=({"x_ms": 20.0, "append_ms": 1.0}, {"x_ms": 90.0, "append_ms": 3.0}, {"x_ms": 10.0, "append_ms": 2.0})
    )
    result = repetitions.result(line)

    assert result is not None
    assert result.ratio == figures.Series(values=(2.0, 3.0, 0.5))
    assert result.figure.median == 20.0
    assert result.beside == figures.Series(values=(1.0, 3.0, 2.0))


@pytest.mark.parametrize(
    ("bar", "reached"),
    [
        (None, None),
        (figures.Bar(kind="at most", limit=2), True),
        (figures.Bar(kind="at most", limit=1), False),
        (figures.Bar(kind="at most", limit=2, of="figure"), False),
    ],
)
def test_a_bar_judges_the_figure_that_it_names(bar, reached) -> None:
    """A bar judges the median of the ratio or of the figure, as it names."""
    line = figures.Line(says="x", value="x_ms", unit="ms", beside="append_ms", bar=bar)
    result = figures.Repetitions(raws=({"x_ms": 6.0, "append_ms": 4.0},)).result(line)

    assert result is not None
    assert result.reached is reached


def test_a_line_without_its_figure_has_no_result() -> None:
    """A line without its figure or its comparison value has no result."""
    line = figures.Line(says="x", value="x_ms", unit="ms", beside="append_ms")

    assert figures.Repetitions().result(line) is None
    assert figures.Repetitions(raws=({"append_ms": 1.0},)).result(line) is None
    assert figures.Repetitions(raws=({"x_ms": 1.0},)).result(line) is None


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 5), (0.95, 10), (0.99, 10), (0.1, 1), (0.11, 2)])
def test_a_quantile_is_one_of_the_values(share, value) -> None:
    """A quantile is the smallest value that at least that share of all values does not exceed."""
    assert figures.quantile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == value
