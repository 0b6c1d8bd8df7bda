"""Rounds: which repetitions are made, in which order, and how failures are kept."""

from __future__ import annotations

import sys

import pytest

from bench import __main__ as command
from bench import figures, rounds, trial, workload
from bench.workloads import registry


class _Product:
    """A product that answers at once, or is absent."""

    def __init__(self, name: str, absent: str = "") -> None:
        self.name = self.label = name
        self.remark = self.promise = ""
        self._absent = absent

    async def prepare(self, cache) -> str:
        """Return a version."""
        if self._absent:
            raise workload.Absent(self._absent)
        return "1.0"

    async def measure(self, key: str, context: workload.Context) -> figures.Raw:
        """Fail: products are not measured in this process."""
        raise AssertionError(key)


class _Repetitions:
    """Repetitions without processes: each returns the number of repetitions so far, or fails as the test needs."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def attempt(self, key: str, context: workload.Context, product: str) -> figures.Raw:
        """Make one repetition."""
        assert not context.place.exists()
        self.asked.append((product, key))
        if product == "limited" and key == "W2":
            raise workload.Absent("too much")
        if key == "W9":
            raise trial.TrialFailed("ended with exit code 1")
        return {"latency_ms": float(len(self.asked))}


def _extent(tmp_path, *keys: str, **given) -> rounds.Extent:
    return rounds.Extent(workloads=[registry.WORKLOADS[key] for key in keys], place=tmp_path, **given)


async def test_rounds_follow_one_another(tmp_path) -> None:
    """Each round makes one repetition of each workload, followed by the products that are compared with it."""
    products, lived = [_Product("limited"), _Product("gone", absent="nowhere")], _Repetitions()
    extent = _extent(tmp_path, "W1", "W3", repetitions=2, products=products)
    found = await rounds.measure(extent, print, lived.attempt)

    assert lived.asked == [("", "W1"), ("limited", "W1"), ("", "W3")] * 2
    assert found.workloads["W1"].series("latency_ms") == figures.Series(values=(1.0, 4.0))
    assert [product.absent for product in found.products] == ["", "nowhere"]
    assert found.whole


async def test_failures_are_kept_once(tmp_path) -> None:
    """A repetition that fails does not end the rounds, and its reason is kept once, however often it occurs."""
    extent = _extent(tmp_path, "W2", "W9", repetitions=3, products=[_Product("limited")])
    found = await rounds.measure(extent, print, _Repetitions().attempt)

    assert found.products[0].workloads["W2"] == figures.Repetitions(failures=("too much",))
    assert found.workloads["W9"] == figures.Repetitions(failures=("ended with exit code 1",))
    assert not found.whole


async def test_the_folders_of_all_repetitions_are_removed(tmp_path) -> None:
    """The folders of all repetitions are removed afterwards."""
    await rounds.measure(_extent(tmp_path, "W1", repetitions=1), print, _Repetitions().attempt)

    assert list(tmp_path.iterdir()) == []


async def test_figures_are_returned_before_the_folders_are_removed(tmp_path) -> None:
    """The caller receives the figures before the folders of the repetition are removed."""
    kept: list[tuple[rounds.Found, int]] = []
    found = await rounds.measure(
        _extent(tmp_path, "W1", repetitions=1),
        print,
        _Repetitions().attempt,
        lambda given: kept.append((given, len(list(tmp_path.iterdir())))),
    )

    assert kept == [(found, 1)]


def test_workloads_are_chosen_by_name_or_part() -> None:
    """`--only` selects a workload with all its parts, or one part."""
    parse = command._parser().parse_args
    whole = parse(["--only", "W5"]).only
    part = parse(["--only", "W5.gate,W1"]).only

    assert [each.key for each in whole] == ["W5.gate", "W5.agent"]
    assert [each.key for each in part] == ["W1", "W5.gate"]


@pytest.mark.parametrize("words", [["--only", "W99"], ["--others", "nobody"], ["--repetitions", "0"]])
def test_a_wrong_argument_is_refused(words, capsys) -> None:
    """An unknown workload or product, or zero repetitions, is a usage error that names the valid values."""
    with pytest.raises(SystemExit) as refused:
        command._parser().parse_args(words)

    assert refused.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_every_comparison_is_of_a_workload() -> None:
    """Every comparison of products refers to a workload of Control Room."""
    assert {comparison.key for comparison in workload.COMPARISONS} <= set(registry.WORKLOADS)


def test_every_workload_has_a_key_of_its_own() -> None:
    """The keys of all workloads differ and are in the order of their numbers."""
    numbers = [int(each.name.removeprefix("W")) for each in registry.WORKLOADS.values()]

    assert numbers == sorted(numbers)
    assert len(registry.WORKLOADS) == len(registry._ALL)


@pytest.mark.slow
def test_a_quick_run_of_w1_writes_a_report(tmp_path, capsys) -> None:
    """`python -m bench --quick --only W1` measures a real run in a process of its own and writes the report."""
    output = tmp_path / "report.md"
    words = ["--quick", "--only", "W1", "--others", "none", "--place", str(tmp_path), "--output", str(output)]
    code = command.main(words)
    told = output.read_text(encoding="utf-8")

    assert code == 0
    assert told == capsys.readouterr().out
    assert "| W1 | latency, p50 | " in told
    assert "figures mean nothing" in told
    assert str(tmp_path) not in told
    assert sys.executable not in told
