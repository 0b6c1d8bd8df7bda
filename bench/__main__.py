"""Measure the program: `python -m bench`.

The exit code is 0 if every repetition completed, whether or not bars are reached.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import uvloop

from bench import charts, report, rounds, stopping, surroundings, workload
from bench.others import registry as others
from bench.workloads import registry as workloads


def main(words: Sequence[str] | None = None) -> int:
    """Measure the workloads that the arguments name, write the report, and return the exit code."""
    given = _parser().parse_args(words)
    extent = rounds.Extent(
        workloads=given.only,
        products=given.others,
        repetitions=given.repetitions or (1 if given.quick else 5),
        quick=given.quick,
        place=given.place,
        cache=given.cache,
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(
                stopping.until_signal(rounds.measure(extent, _say, keep=lambda found: _report(given, extent, found)))
            )
    except asyncio.CancelledError:
        return stopping.EXIT_CODE
    return 0 if found.whole else 1


def _report(given: argparse.Namespace, extent: rounds.Extent, found: rounds.Found) -> None:
    around = surroundings.look(given.place)
    drawn = charts.drawn(found, extent.workloads, report.OURS) if given.output is not None else {}
    files = {f"{given.output.stem}-{name}.svg": chart for name, chart in drawn.items()}
    told = report.markdown(found, extent, around, charts={file: chart.title for file, chart in files.items()})
    for file, chart in files.items():
        given.output.with_name(file).write_text(chart.svg, encoding="utf-8")
    if given.json is not None:
        given.json.write_text(json.dumps(_raw(found, around), indent=1) + "\n", encoding="utf-8")
    if given.output is not None:
        given.output.write_text(told, encoding="utf-8")
    print(told, end="", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only",
        type=_workloads,
        default=list(workloads.WORKLOADS.values()),
        metavar="W1,W5.gate",
        help="workloads; all by default",
    )
    parser.add_argument("--repetitions", type=_positive, metavar="N", help="rounds; by default 5, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works; figures mean nothing")
    parser.add_argument(
        "--others", type=_products, default="all", metavar="all|none|NAMES", help="products to compare with"
    )
    parser.add_argument("--place", type=Path, default=Path.cwd(), metavar="DIR", help="folder on the disk to measure")
    parser.add_argument(
        "--cache", type=Path, default=workload.CACHE, metavar="DIR", help="where other products are installed"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the report there, too, and its charts beside it"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every repetition there")
    return parser


def _workloads(text: str) -> list[workload.Workload]:
    names = text.split(",")
    unknown = set(names) - {name for each in workloads.WORKLOADS.values() for name in (each.key, each.name)}
    if unknown:
        raise argparse.ArgumentTypeError(_no_such("workload", unknown, workloads.WORKLOADS))
    return [each for each in workloads.WORKLOADS.values() if each.key in names or each.name in names]


def _products(text: str) -> list[workload.Product]:
    if text in ("all", "none"):
        return list(others.PRODUCTS.values()) if text == "all" else []
    names = text.split(",")
    unknown = set(names) - set(others.PRODUCTS)
    if unknown:
        raise argparse.ArgumentTypeError(_no_such("product", unknown, others.PRODUCTS))
    return [product for name, product in others.PRODUCTS.items() if name in names]


def _no_such(kind: str, unknown: Iterable[str], known: Iterable[str]) -> str:
    return f"no such {kind}: {', '.join(sorted(unknown))}; there are {', '.join(known)}"


def _positive(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return count


def _raw(found: rounds.Found, around: surroundings.Surroundings) -> dict[str, object]:
    return {
        "surroundings": dataclasses.asdict(around),
        "workloads": {key: dataclasses.asdict(each) for key, each in found.workloads.items()},
        "products": [dataclasses.asdict(product) for product in found.products],
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
