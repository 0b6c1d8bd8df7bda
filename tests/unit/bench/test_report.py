"""The report: its tables, its words for missing figures, and no detail that names a machine."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from bench import figures, report, rounds, surroundings, workload

_PLACE = surroundings.Surroundings(
    version="1.2", python="3.11.0", processors=2, file_system="ext4", kernel="Linux 6.1", date="2026-02-10"
)
_RATES = {"append_ms": 1.0, "appends_per_second": 1000.0}


async def _unmeasured(context: workload.Context) -> figures.Raw:
    raise AssertionError


_W1 = workload.Workload(
    name="W1",
    title="One run alone.",
    measure=_unmeasured,
    lines=(
        figures.Line(
            says="latency, p50",
            value="latency_ms",
            unit="ms",
            beside="append_ms",
            beside_unit="ms for ten appends",
            times=10,
            bar=figures.Bar(kind="at most", limit=3),
        ),
        figures.Line(says="p95", value="p95_ms", unit="ms"),
    ),
)
_W5 = workload.Workload(
    name="W5",
    part="gate",
    title="Runs at a gate.",
    measure=_unmeasured,
    lines=(
        figures.Line(
            says="memory",
            value="kib_per_run",
            unit="KiB",
            bar=figures.Bar(kind="under", limit=12, of="figure"),
        ),
    ),
)


def _repetitions(*values: float) -> figures.Repetitions:
    return figures.Repetitions(raws=tuple({"latency_ms": value, "p95_ms": value * 2, **_RATES} for value in values))


def _report_lines(**found) -> list[str]:
    whole = rounds.Found(**found)
    extent = rounds.Extent(workloads=[each for each in (_W1, _W5) if each.key in whole.workloads])
    return report.markdown(whole, extent, _PLACE).splitlines()


def test_the_head_names_the_environment_of_the_figures() -> None:
    """Python, processors, file system, kernel, date and version are above the table."""
    head = _report_lines(workloads={"W1": _repetitions(20.0)})[2:4]

    assert head == [
        "Made by `python -m bench` on 2026-02-10: 5 repetitions, version 1.2, Python 3.11.0, 2 processors,",
        "ext4, Linux 6.1.",
    ]


def test_a_line_shows_figure_ratio_bar_and_verdict() -> None:
    """A line of the table has median and spread, the comparison value, the ratio, and whether the bar is reached."""
    lines = _report_lines(workloads={"W1": _repetitions(20.0, 25.0, 22.5)})
    cells = ["W1", "latency, p50", "22.5 ms (20.0–25.0)", "1.00 ms for ten appends", "2.25 (2.00–2.50)", "at most 3"]

    assert f"| {' | '.join(cells)} | yes | 1,000 |" in lines
    assert "| W1 | p95 | 45.0 ms (40.0–50.0) | – | – | – | – | 1,000 |" in lines


def test_a_missed_bar_is_shown() -> None:
    """The table shows where the median does not reach the bar."""
    raws = ({"kib_per_run": 40.25, **_RATES},)
    lines = _report_lines(workloads={"W5.gate": figures.Repetitions(raws=raws)})

    assert "| W5 | gate: memory | 40.2 KiB (40.2–40.2) | – | – | under 12 KiB | **no** | 1,000 |" in lines


def test_an_unmeasured_workload_has_its_reason() -> None:
    """A workload without a repetition reaches no bar, and the report gives the reason."""
    lines = _report_lines(workloads={"W5.gate": figures.Repetitions(failures=("ended with exit code 1",))})

    assert "| W5 | gate: memory | not measured | – | – | under 12 KiB | no | – |" in lines
    assert "- W5.gate: ended with exit code 1" in lines


def test_each_product_has_a_column_with_its_version() -> None:
    """Each product has a column with its version; figures of time and rate are compared with bare appends."""
    theirs = rounds.ProductFound(label="Theirs", version="3.4", workloads={"W1": _repetitions(80.0)})
    lines = _report_lines(workloads={"W1": _repetitions(20.0)}, products=[theirs])

    assert "|  | Control Room | Theirs 3.4 |" in lines
    assert (
        "| W1: 10 steps alone, p50 | 20.0 ms (20.0–20.0); 20.0 appends | 80.0 ms (80.0–80.0); 80.0 appends |" in lines
    )


def test_absent_products_are_listed_with_their_reasons() -> None:
    """A product that cannot be installed or cannot run a workload is listed as absent, with the reason."""
    unable = rounds.ProductFound(
        label="Unable", version="1", workloads={"W1": figures.Repetitions(failures=("no server",))}
    )
    gone = rounds.ProductFound(label="Gone", absent="pip found nothing")
    lines = _report_lines(workloads={"W1": _repetitions(20.0)}, products=[unable, gone])

    assert "|  | Control Room | Unable 1 |" in lines
    assert "| W1: 10 steps alone, p50 | 20.0 ms (20.0–20.0); 20.0 appends | absent |" in lines
    assert "- Unable, W1, is absent: no server" in lines
    assert "- Gone is absent: pip found nothing" in lines


def test_the_report_shows_each_measured_products_promise() -> None:
    """The report shows when a step counts as done for each measured product, and for no other."""
    theirs = rounds.ProductFound(label="Theirs", version="3.4", promise="synced", workloads={"W1": _repetitions(80.0)})
    gone = rounds.ProductFound(label="Gone", promise="eternity", absent="pip found nothing")
    lines = _report_lines(workloads={"W1": _repetitions(20.0)}, products=[theirs, gone])

    assert "## What each promises for its figure" in lines
    assert "| Theirs 3.4 | synced |" in lines
    assert not any("eternity" in line for line in lines)


def test_without_products_there_is_one_table() -> None:
    """A report of Control Room alone has no comparison."""
    assert "## Beside others" not in _report_lines(workloads={"W1": _repetitions(20.0)})


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (0, "0.000"), (1.2345, "1.23"), (12.345, "12.3"), (123.45, "123"), (12345.6, "12,346")],
)
def test_numbers_have_three_digits(value, text) -> None:
    """A number is written with three significant digits, or whole."""
    assert report.number(value) == text


def test_surroundings_name_no_machine(tmp_path: Path) -> None:
    """The surroundings contain versions, counts and kinds, but neither the name of the machine nor a path."""
    seen = surroundings.look(tmp_path)
    words = " ".join(map(str, (seen.python, seen.processors, seen.file_system, seen.kernel, seen.date)))

    assert seen.processors >= 1
    assert seen.kernel.startswith(platform.system())
    assert platform.node() not in words
    assert "/" not in words
