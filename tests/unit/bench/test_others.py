"""Other products: installed separately, run in child processes, and absent with a reason."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from bench import workload
from bench.others import environment, product, programs, registry
from bench.others.inside import servers

_ROOT = Path(__file__).resolve().parents[3]
_COMPARED = [(comparison.key, {line.value for line in comparison.lines}) for comparison in workload.COMPARISONS]
_START = """
import asyncio, pathlib, sys
from bench import workload
from tests.unit.bench import test_others

place, cache = map(pathlib.Path, sys.argv[1:])
asyncio.run(test_others.tiny("hang").measure("W1", workload.Context(place=place, kept=place, quick=True, cache=cache)))
"""


def tiny(behaviour: str) -> product.Other:
    """Return the tiny product, which needs only an interpreter."""
    return product.Other(
        name="tiny",
        label="Tiny",
        version="1",
        pins=environment.Pins(),
        program=("-m", "tests.unit.bench.tiny_product", behaviour),
        durability="none",
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def context(tmp_path: Path, cache: Path) -> workload.Context:
    return workload.Context(place=tmp_path, kept=tmp_path, quick=True, cache=cache)


@pytest.mark.parametrize(("key", "figures"), _COMPARED)
async def test_a_product_reports_every_figure(key: str, figures: set[str], context: workload.Context) -> None:
    """A product that can be measured reports every compared figure, even if it prints other lines."""
    quick = tiny("quick")

    version = await quick.prepare(context.cache)
    raw = await quick.measure(key, context)

    assert version == "1"
    assert set(raw) >= figures
    assert all(value >= 0 for value in raw.values())


async def test_an_environment_is_made_once(cache: Path) -> None:
    """A second preparation reuses the environment of the first one, or makes it anew if its last file is missing."""
    first = await environment.prepare("once", environment.Pins(), cache)
    (first.folder / "kept").touch()

    second = await environment.prepare("once", environment.Pins(), cache)
    kept = (second.folder / "kept").exists()
    (first.folder / "ready").unlink()
    third = await environment.prepare("once", environment.Pins(), cache)

    assert second == first
    assert kept
    assert third.ready
    assert not (third.folder / "kept").exists()


@pytest.mark.slow
async def test_a_failed_installation_makes_a_product_absent(tmp_path: Path) -> None:
    """A package that pip refuses makes the product absent, with pip's message as the reason."""
    wheel = tmp_path / "broken-1-py3-none-any.whl"
    wheel.write_bytes(b"this is no wheel")
    pins = environment.Pins(python=(str(wheel),))

    with pytest.raises(workload.Absent, match=r"^pip failed: ERROR: Wheel 'broken'"):
        await environment.prepare("broken", pins, tmp_path / "cache")

    assert not environment.find("broken", pins, tmp_path / "cache").ready


async def test_a_slow_installation_is_given_up(tmp_path: Path) -> None:
    """An installation that takes too long is given up."""
    with pytest.raises(workload.Absent, match=r"^venv took longer than 0\.001 s$"):
        await environment.prepare("slow", environment.Pins(python=("anything==1",)), tmp_path, seconds=0.001)


async def test_a_product_from_npm_is_absent_without_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product from npm is absent when npm is absent."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(workload.Absent, match="npm is not on this machine"):
        await environment.prepare("node", environment.Pins(node=("anything@1",)), tmp_path)


async def test_an_unwritable_cache_makes_products_absent(tmp_path: Path) -> None:
    """A file in place of the cache folder makes products absent."""
    (tmp_path / "cache").touch()

    with pytest.raises(workload.Absent, match="no environment can be made"):
        await environment.prepare("tiny", environment.Pins(), tmp_path / "cache")


async def test_an_unprepared_product_is_absent(context: workload.Context, tmp_path: Path) -> None:
    """A product that was not prepared is absent."""
    with pytest.raises(workload.Absent, match="it is not installed"):
        await tiny("quick").measure("W1", dataclasses.replace(context, cache=tmp_path))


async def test_a_product_is_absent_from_unsupported_workloads(context: workload.Context) -> None:
    """A product is absent from workloads for which it has no size."""
    with pytest.raises(workload.Absent, match="it does not offer this"):
        await tiny("quick").measure("W7", context)


async def test_a_failed_product_reports_its_last_complaint(context: workload.Context) -> None:
    """The last complaint of a product is the reason, without addresses."""
    broken = tiny("broken")
    await broken.prepare(context.cache)

    with pytest.raises(
        workload.Absent, match=r"^it failed \(1\): RuntimeError: the engine is broken, see \(address\)$"
    ):
        await broken.measure("W1", context)


async def test_the_server_of_a_failed_product_has_ended(context: workload.Context) -> None:
    """The server of a failed product has ended when the failure is reported."""
    failing = tiny("fail")
    await failing.prepare(context.cache)

    with pytest.raises(workload.Absent, match=r"^it failed \(3\)"):
        await failing.measure("W1", context)

    assert _gone(context.place)


async def test_a_hanging_product_is_ended_with_its_server(context: workload.Context) -> None:
    """A product that takes too long is ended, with its server."""
    hanging = dataclasses.replace(tiny("hang"), start_seconds=1.0, work_seconds=1.0)
    await hanging.prepare(context.cache)

    with pytest.raises(workload.Absent, match=r"^it took longer than 2 s$"):
        await hanging.measure("W1", context)

    assert _gone(context.place)


async def test_a_product_ends_when_the_benchmark_is_killed(context: workload.Context) -> None:
    """A product and its server end when the measuring process is killed."""
    await tiny("hang").prepare(context.cache)
    words = [sys.executable, "-c", _START, str(context.place), str(context.cache)]
    measuring = await asyncio.create_subprocess_exec(*words, cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)})
    try:
        await servers.until(lambda: asyncio.to_thread(_pids, context.place), OSError)
        handles = [os.pidfd_open(pid) for pid in _pids(context.place)]
    finally:
        measuring.kill()
        await measuring.wait()

    assert all(_ended(handle) for handle in handles)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "no JSON",
        '{"figure": "x"}',
        '{"figure": "x", "value": "1"}',
        '{"value": 1}',
        '{"figure": "x", "value": true}',
    ],
)
def test_other_lines_are_passed_over(line: str, tmp_path: Path) -> None:
    """Lines that are not figures are ignored; a program that prints no figure has failed."""
    log = tmp_path / "log"
    log.write_text("something\n\nis odd\n")
    told = json.dumps({"workload": "W1", "figure": "latency_ms", "value": 2})

    assert product.printed_figures(0, f"{line}\n{told}\n".encode(), log) == {"latency_ms": 2.0}
    with pytest.raises(workload.Absent, match=r"^it failed \(0\): is odd$"):
        product.printed_figures(0, line.encode(), log)


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("", "it said nothing"),
        ("a\nERROR: no such version\nnotice: a new pip\n", "ERROR: no such version"),
        (
            "npm error code E404\nnpm error 404 at https://example.invalid/x - gone\n",
            "npm error 404 at (address) - gone",
        ),
        ("x" * 500, "x" * 200),
    ],
)
def test_a_reason_is_one_line_without_addresses(log: str, told: str) -> None:
    """The reason is the last error of a log, or else its last line, shortened and without addresses."""
    assert environment.reason(log) == told


def test_every_package_of_a_product_is_pinned() -> None:
    """Each package of each product has one exact version."""
    for each in registry.PRODUCTS.values():
        assert isinstance(each, product.Other)
        assert all("==" in requirement for requirement in each.pins.python)
        assert all("@" in package[1:] for package in each.pins.node)


def test_the_measuring_code_needs_only_the_standard_library() -> None:
    """The measuring code can be imported by an interpreter without packages."""
    words = [sys.executable, "-S", "-c", "import bench.others.inside.meter, bench.others.inside.servers"]

    ended = subprocess.run(words, cwd=_ROOT, env={"PYTHONPATH": str(_ROOT)}, capture_output=True, check=False)

    assert ended.returncode == 0, ended.stderr.decode()


def _gone(place: Path) -> bool:
    return not any(programs.members(pid) for pid in _pids(place))


def _pids(place: Path) -> list[int]:
    return [int(word) for word in (place / "pids").read_text().split()]


def _ended(handle: int) -> bool:
    with os.fdopen(handle):
        ends = select.poll()
        ends.register(handle, select.POLLIN)
        return bool(ends.poll(10_000))
