"""The examples that the benchmark times must end, or its figures are of something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.workloads import w11_examples


@pytest.mark.parametrize("name", list(w11_examples.EXAMPLES))
async def test_an_example_of_the_benchmark_ends_done(tmp_path: Path, name: str) -> None:
    """Each example's scripted agents fit what today's drivers ask of them."""
    _, steps = await w11_examples.live(tmp_path / "example", w11_examples.EXAMPLES[name])

    assert steps > 0
