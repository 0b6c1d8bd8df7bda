"""The report: two tables for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bench import figures, rounds, surroundings, workload
from bench.others.product import REMARKS

_HEAD = ("", "what", "figure", "beside it", "ratio", "bar", "reached", "appends/s")
OURS = "Control Room"
"""Name of the program among products."""

_EXPLAINED = """\
Each figure is the median over all repetitions, the smallest and the largest in parentheses. A repetition has a
process and a fresh folder of its own; a round is one repetition of everything, and the rounds follow one another.
"beside it" is a measurement for comparison from the same repetition, and the ratio is the figure divided by it. A
bar with a unit is the target of the figure; one without a unit is that of the ratio, where there is one. appends/s
is what a single thread reached in the same minute on the same disk, appending lines of 300 bytes to one file with
an `fdatasync` after each: machines are noisy, and ratios travel better than figures."""
_QUICK = "Made with `--quick`: sizes are small, and the figures mean nothing."
_PROMISED = """\
A figure says little without what was made durable for it. All are set up so that a step that counts as done outlives
both a kill of the process and a loss of power. What else they promise differs."""
_OUR_PROMISE = (
    "its journal line, hash-chained, is in the synced commit log before the next step begins, and before any answer"
    " that shows it; lines that come together share a sync. A recorded step never runs again; one that a crash cut off"
    " does"
)
_COMPARED = """\
The same work done by what could be picked instead, on the same machine and in the same rounds; each in an environment
of its own. After a figure in ms stands how many bare appends fit into it, after steps/s how many steps were finished
for each bare append."""


def markdown(
    found: rounds.Found,
    extent: rounds.Extent,
    place: surroundings.Surroundings,
    charts: Mapping[str, str] | None = None,
) -> str:
    """Return the report as a document.

    Args:
        charts: Titles of its charts, by the names of the files beside it that contain them.
    """
    shown = [f"![{title}]({file})" for file, title in (charts or {}).items()]
    paragraphs = [
        "# Benchmark",
        _made(extent, place),
        *([_QUICK] if extent.quick else ()),
        _EXPLAINED,
        _table(_HEAD, _rows(found, extent.workloads)),
        "\n".join(f"- **{each.key}**: {each.title}" for each in extent.workloads),
        *_failures(found),
        *_shown(shown[:1]),
        *_comparison(found),
        *_shown(shown[1:]),
        *_promises(found),
    ]
    return "\n\n".join(map(_wrapped, paragraphs)) + "\n"


def _wrapped(paragraph: str) -> str:
    if paragraph.startswith(("|", "!")):
        return paragraph
    is_list = paragraph.startswith("- ")
    lines = paragraph.splitlines() if is_list else [" ".join(paragraph.splitlines())]
    indent = "  " if is_list else ""
    wrapper = textwrap.TextWrapper(100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(wrapper.fill, lines))


def number(value: float) -> str:
    """Write a number with three significant digits, or whole."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def spread(series: figures.Series, unit: str = "") -> str:
    """Write a series as its median, followed by its lowest and highest values in parentheses."""
    return f"{number(series.median)}{_joined(unit)} ({number(series.low)}–{number(series.high)})"


def bar(line: figures.Line) -> str:
    """Write the bar of a line; a dash if the line does not have one."""
    if line.bar is None:
        return "–"
    return f"{line.bar.kind} {line.bar.limit:g}{_joined(line.unit) if line.bar.of == 'figure' else ''}"


def _made(extent: rounds.Extent, place: surroundings.Surroundings) -> str:
    often = "one repetition" if extent.repetitions == 1 else f"{extent.repetitions} repetitions"
    program = f"version {place.version}, Python {place.python}"
    machine = f"{place.processors} processors, {place.file_system}, {place.kernel}"
    return f"Made by `python -m bench` on {place.date}: {often}, {program}, {machine}."


def _rows(found: rounds.Found, measured: Iterable[workload.Workload]) -> Iterator[list[str]]:
    for each in measured:
        repetitions = found.workloads[each.key]
        rate = repetitions.series("appends_per_second")
        for line in each.lines:
            cells = _cells(line, repetitions.result(line))
            yield [each.name, f"{each.part}: {line.says}" if each.part else line.says, *cells, _rate(rate)]


def _cells(line: figures.Line, result: figures.Result | None) -> list[str]:
    if result is None:
        return ["not measured", "–", "–", bar(line), "–" if line.bar is None else "no"]
    beside = "–" if result.beside is None else f"{number(result.beside.median)} {line.beside_unit}"
    ratio = "–" if result.ratio is None else spread(result.ratio)
    return [spread(result.figure, line.unit), beside, ratio, bar(line), _verdict(result)]


def _verdict(result: figures.Result) -> str:
    if result.reached is None:
        return "–"
    return "yes" if result.reached else "**no**"


def _rate(series: figures.Series | None) -> str:
    return "–" if series is None else number(series.median)


def _failures(found: rounds.Found) -> Iterator[str]:
    told = [f"- {key}: {trouble}" for key, each in found.workloads.items() for trouble in each.failures]
    if told:
        yield "Repetitions that did not come to their end:"
        yield "\n".join(told)


# -- the comparison


def _comparison(found: rounds.Found) -> Iterator[str]:
    if not found.products:
        return
    lines = [(each.key, line) for each in workload.COMPARISONS if each.key in found.workloads for line in each.lines]
    present = [rounds.ProductFound(label=OURS, workloads=found.workloads)]
    present += [product for product in found.products if not product.absent]
    yield "## Beside others"
    yield _table(
        ("", *(" ".join(filter(None, (product.label, product.version))) for product in present)),
        ([line.says, *(_compared(product, key, line) for product in present)] for key, line in lines),
    )
    yield _COMPARED
    yield "\n".join(f"- **{each.key}**: {each.asks}" for each in workload.COMPARISONS if each.key in found.workloads)
    yield " ".join(("Of all others:", *REMARKS))
    if remarks := [f"- {each.label} {each.version}: {each.remark}." for each in found.products if each.remark]:
        yield "\n".join(remarks)
    if reasons := [*_absences(found.products)]:
        yield "\n".join(reasons)


def _shown(charts: Sequence[str]) -> Iterator[str]:
    if charts:
        yield "\n".join(charts)


def _promises(found: rounds.Found) -> Iterator[str]:
    present = [product for product in found.products if not product.absent]
    if present:
        yield "## What each promises for its figure"
        yield _PROMISED
        rows = [(f"{product.label} {product.version}".strip(), product.promise) for product in present]
        yield _table(("", "when a step counts as done, as it was measured"), [(OURS, _OUR_PROMISE), *rows])


def _compared(product: rounds.ProductFound, key: str, line: figures.Line) -> str:
    result = product.workloads.get(key, figures.Repetitions()).result(line)
    if result is None:
        return "absent"
    beside = "" if result.ratio is None else f"; {number(result.ratio.median)} {line.beside_unit}"
    return spread(result.figure, line.unit) + beside


def _absences(products: Iterable[rounds.ProductFound]) -> Iterator[str]:
    for product in products:
        if product.absent:
            yield f"- {product.label} is absent: {product.absent}"
        for key, each in product.workloads.items():
            yield from (f"- {product.label}, {key}, is absent: {trouble}" for trouble in each.failures)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines])


def _joined(unit: str) -> str:
    return unit if not unit or unit.startswith("/") else f" {unit}"
