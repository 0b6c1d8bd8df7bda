"""Charts: bars drawn as SVG from the values of the report's tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from bench import figures, rounds, workload

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 900, 330, 150, 64, 26
_GOOD, _BAD, _OURS, _THEIRS = "#0f766e", "#dc2626", "#4f46e5", "#94a3b8"
_LEAST = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a chart."""

    says: str
    """Label of the bar."""
    value: float
    """Length of the bar."""
    caption: str
    """Text at the end of the bar."""
    colour: str
    """Colour of the bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing of figures."""

    title: str
    """What it shows."""
    svg: str
    """The drawing, as an SVG document."""


def drawn(found: rounds.Found, measured: Sequence[workload.Workload], own_label: str) -> dict[str, Chart]:
    """Return the charts by name, without those that have no measured values."""
    reached = [*_reached(found, measured)]
    charts = {"bars": _chart("Beside what it must reach: 1 is the bar, shorter is better", reached)} if reached else {}
    for key, line in [(each.key, line) for each in workload.COMPARISONS for line in each.lines]:
        compared = [*_compared(found, key, line, own_label)]
        if len(compared) > 1:
            charts[f"{key}-{line.value}".lower().replace("_", "-").replace(".", "-")] = _chart(line.says, compared)
    return charts


def _reached(found: rounds.Found, measured: Sequence[workload.Workload]) -> Iterator[Bar]:
    for each in measured:
        for line in each.lines:
            result = found.workloads[each.key].result(line)
            if result is None or line.bar is None or result.judged is None:
                continue
            value = result.judged.median
            share = line.bar.limit / max(value, _LEAST) if line.bar.kind == "at least" else value / line.bar.limit
            says = f"{each.name} {each.part} {line.says}".replace("  ", " ")
            yield Bar(says=says, value=share, caption=f"{share:.2f}", colour=_GOOD if result.reached else _BAD)


def _compared(found: rounds.Found, key: str, line: figures.Line, own_label: str) -> Iterator[Bar]:
    own = rounds.ProductFound(label=own_label, workloads=found.workloads)
    for product in (own, *found.products):
        result = product.workloads.get(key, figures.Repetitions()).result(line)
        if result is not None:
            caption = f"{result.figure.median:,.3g} {line.unit}".replace(" /", "/")
            colour = _OURS if product is own else _THEIRS
            yield Bar(says=product.label, value=result.figure.median, caption=caption, colour=colour)


def _chart(title: str, bars: Sequence[Bar]) -> Chart:
    """Return a chart of bars, on a logarithmic scale if the longest is more than fifty times the shortest."""
    longest, shortest = max(bar.value for bar in bars), min(max(bar.value, _LEAST) for bar in bars)
    logarithmic = longest > 50 * shortest

    def length(value: float) -> float:
        share = math.log(max(value, _LEAST) / shortest * 2, longest / shortest * 2) if logarithmic else value / longest
        return round(max(share, 0.0) * (_WIDTH - _LEFT - _RIGHT), 1)

    height = _TOP + _ROW * len(bars) + 16
    scale = " (logarithmic)" if logarithmic else ""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"',
        ' font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        f'<text x="20" y="34" font-size="16" font-weight="600">{escape(title + scale)}</text>',
    ]
    for number, bar in enumerate(bars):
        y, end = _TOP + _ROW * number, length(bar.value)
        lines += [
            f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end">{escape(_short(bar.says))}</text>',
            f'<rect x="{_LEFT}" y="{y + 4}" width="{max(end, 1.0)}" height="16" rx="2" fill="{bar.colour}"/>',
            f'<text x="{_LEFT + end + 6}" y="{y + 16}">{escape(bar.caption)}</text>',
        ]
    return Chart(title=title, svg="\n".join([*lines, "</svg>", ""]))


def _short(text: str, most: int = 46) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
