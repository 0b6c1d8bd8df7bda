"""Trials: one repetition, in a process of its own: `python -m bench.trial KEY --place DIR --kept DIR`.

The process prints one JSON object: the figures, or `{"absent": reason}`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench import children, figures, machine, stopping, workload
from bench.others import registry as others
from bench.workloads import registry as workloads

PROGRAM = ""
"""Used instead of a product's name: the program itself."""

_APPENDS = 400
_QUICK_APPENDS = 20
_MOST_SECONDS = 3600.0


class TrialFailed(Exception):
    """A repetition did not complete."""


async def attempt(key: str, context: workload.Context, product: str = PROGRAM) -> figures.Raw:
    """Execute one repetition in a child process and return its figures.

    Raises:
        workload.Absent: the product is absent.
        TrialFailed: the process failed otherwise.
    """
    words = ["-m", "bench.trial", key, "--place", str(context.place), "--kept", str(context.kept)]
    words += ["--product", product, "--cache", str(context.cache)] if product else []
    words += ["--quick"] if context.quick else []
    found = await _printed_figures(words)
    if "absent" in found:
        raise workload.Absent(found["absent"])
    return found


async def live(key: str, context: workload.Context, product: str = PROGRAM) -> figures.Raw:
    """Do a workload once, with the rate of bare appends before and after.

    Raises:
        workload.Absent: the product is absent.
    """
    count = context.size(_APPENDS, _QUICK_APPENDS)
    before = machine.append_seconds(context.place, count)
    found = await _measured(key, context, product)
    after = machine.append_seconds(context.place, count)
    return {**machine.append_rates((before + after) / 2), **found}


async def _printed_figures(words: Sequence[str]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=children.ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            told, _ = await process.communicate()
    except TimeoutError as error:
        raise TrialFailed(f"took longer than {_MOST_SECONDS:,.0f} s") from error
    finally:
        await stopping.end(process)
    if process.returncode:
        raise TrialFailed(f"ended with exit code {process.returncode}")
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


async def _measured(key: str, context: workload.Context, product: str) -> figures.Raw:
    if product:
        return await others.PRODUCTS[product].measure(key, context)
    return await workloads.WORKLOADS[key].measure(context)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.trial", description=__doc__)
    parser.add_argument("key", help="workload, e.g. W1 or W5.gate")
    parser.add_argument("--place", type=Path, required=True, help="fresh folder of this repetition")
    parser.add_argument("--kept", type=Path, required=True, help="folder shared by all repetitions")
    parser.add_argument("--product", default=PROGRAM, help="name of another product")
    parser.add_argument("--cache", type=Path, default=workload.CACHE, help="where other products are installed")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    given = parser.parse_args()
    _raise_file_limit()
    for folder in (given.place, given.kept):
        folder.mkdir(parents=True, exist_ok=True)
    place, kept, cache = (folder.resolve() for folder in (given.place, given.kept, given.cache))
    context = workload.Context(place=place, kept=kept, quick=given.quick, cache=cache)
    print(json.dumps(_lived(given.key, context, given.product)), flush=True)


def _lived(key: str, context: workload.Context, product: str) -> Mapping[str, object]:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(stopping.until_signal(live(key, context, product)))
    except workload.Absent as absent:
        return {"absent": absent.reason}
    except asyncio.CancelledError:
        sys.exit(stopping.EXIT_CODE)


def _raise_file_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    _main()
