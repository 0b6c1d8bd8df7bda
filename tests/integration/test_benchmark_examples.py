"""The benchmark's examples end as `done`, since the figures would measure other work otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.workloads import w11_examples
from tests.integration import served
from tests.integration.project import Project


@pytest.mark.parametrize("name", list(w11_examples.EXAMPLES))
async def test_an_example_of_the_benchmark_ends_done(tmp_path: Path, name: str) -> None:
    """Each example's scripted replies satisfy its driver."""
    _, steps = await w11_examples.live(tmp_path / "example", w11_examples.EXAMPLES[name])

    assert steps > 0


async def test_recipes_of_the_cluster_can_be_started(tmp_path: Path) -> None:
    """The service accepts all recipes of the cluster benchmark, including the one of 10,000 steps."""
    cluster = pytest.importorskip("bench.cluster", reason="needs the extra: cluster", exc_type=ImportError)
    project = Project(tmp_path / "project")
    recipes = cluster.recipes_of(10_000)
    cluster.write(project.root, recipes)
    async with served.in_process(project) as service:
        for name in recipes:
            asked = {"recipe_id": name.rpartition("/")[2]}
            answer = await service.http.post("/api/preflight", json=asked)
            assert (answer.status_code, answer.json().get("problems")) == (200, []), answer.text[:300]
