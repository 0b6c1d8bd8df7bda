"""W7: lists of very many runs."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

from bench import children, client, crowds, figures, workload

_RUNS = 100_000
_LATE_PAGE = 500
_SAMPLES = 30
_PAGE = 100
_NEXT = re.compile(rb'<([^>]+)>; rel="next"')


def _filters(count: int) -> Mapping[str, Mapping[str, str]]:
    recipe, label = crowds.RECIPES[0], ":".join(next(iter(crowds.LABELS[0].items())))

    def span(share: float) -> dict[str, str]:
        ends = (count * (1 - share) / 2, count * (1 + share) / 2)
        after, before = (f"{crowds.FIRST_AT + timedelta(minutes=int(end)):%Y-%m-%dT%H:%M:%SZ}" for end in ends)
        return {"created_after": after, "created_before": before}

    return {
        "none": {},
        "status": {"status": "done"},
        "recipe": {"recipe_id": recipe},
        "label": {"label": label},
        "time": span(0.6),
        "together": {"status": "done", "recipe_id": recipe, "label": label, **span(0.96)},
    }


async def _measure(context: workload.Context) -> figures.Raw:
    count, late_page = context.size(_RUNS, 200), context.size(_LATE_PAGE, 2)
    project = await crowds.make(context.kept / "project", finished=count, whole=False)
    samples, limit = context.size(_SAMPLES, 2), context.size(_PAGE, 20)
    medians: list[tuple[float, float]] = []
    async with children.serving(project) as served:
        connection = await client.connect(served.host, served.port)
        for name, chosen in _filters(count).items():
            first = f"/api/runs?{urlencode({**chosen, 'limit': limit})}"
            late = _known(context.kept / name) or await _walked(connection, first, late_page, context.kept / name)
            medians.append(await _medians(connection, first, late, samples))
        connection.close()
    of_first, of_late = zip(*medians, strict=True)
    return {
        "slowest_first_ms": max(of_first),
        "slowest_late_ms": max(of_late),
        "mean_first_ms": statistics.mean(of_first),
        "mean_late_ms": statistics.mean(of_late),
    }


def _known(kept: Path) -> str | None:
    return kept.read_text(encoding="utf-8") if kept.exists() else None


async def _walked(connection: client.Connection, first: str, page: int, kept: Path) -> str:
    """Follow the links from the first page, and save and return the address of a late page."""
    target, seen = first, set[str]()
    for _ in range(page - 1):
        answer = await connection.get(target)
        found = [run["run_id"] for run in answer.json()]
        link = _NEXT.search(answer.headers.get(b"link", b""))
        if link is None or seen & set(found):
            raise RuntimeError(f"{first} has no {page} pages that follow one another")
        seen |= set(found)
        target = link[1].decode()
    kept.write_text(target, encoding="utf-8")  # noqa: ASYNC240 - no measurement runs meanwhile
    return target


async def _medians(connection: client.Connection, first: str, late: str, samples: int) -> tuple[float, float]:
    found: dict[str, list[float]] = {first: [], late: []}
    for _ in range(samples):
        for target, times in found.items():
            began = time.perf_counter()
            answer = await connection.get(target)
            times.append((time.perf_counter() - began) * 1000)
            if answer.status != 200 or not answer.json():
                raise RuntimeError(f"{target} was answered with {answer.status}")
    return statistics.median(found[first]), statistics.median(found[late])


def _line(says: str, value: str) -> figures.Line:
    return figures.Line(says=says, value=value, unit="ms", bar=figures.Bar(kind="under", limit=10, of="figure"))


WORKLOAD = workload.Workload(
    name="W7",
    title=(
        "`GET /api/runs` with 100,000 finished runs: without a filter, by status, recipe, label, time, and by all"
        " together; p50 of the first and of the 500th page of 100, reached by the links."
    ),
    measure=_measure,
    lines=(
        _line("p50 of the first page, the slowest filter", "slowest_first_ms"),
        _line("p50 of the 500th page, the slowest filter", "slowest_late_ms"),
        figures.Line(
            says="p50 of the 500th page, mean of the filters",
            value="mean_late_ms",
            unit="ms",
            beside="mean_first_ms",
            beside_unit="ms for the first page",
            bar=figures.Bar(kind="at most", limit=1.1),
        ),
    ),
)
