"""W13: commands in fresh processes, and a service that starts, as a person waits for them."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import children, client, figures, projects, workload

_RUNS = 20
_RECIPE: dict[str, Any] = {
    "recipe_id": "look",
    "label": "Look around",
    "phase_a": [
        {
            "step_id": "discover",
            "tool": "file_locator",
            "args": {"search_criteria": "anything", "scan_mode": "FAST_SCAN", "max_results": 5},
            "output_slot": "discovery",
        }
    ],
}
_COMMANDS = {
    "runs_list": ("runs", "list"),
    "runs_show": ("runs", "show"),
    "recipes_list": ("recipes", "list"),
    "issues_list": ("issues", "list"),
    "plan_list": ("plan", "list"),
    "gates": ("gates",),
}
_BAR_SECONDS = {"runs_list": 0.35, "runs_show": 0.35, "recipes_list": 0.35}
_BETWEEN_SECONDS = 0.005


async def _measure(context: workload.Context) -> figures.Raw:
    project = await _project(context)
    environ = _environ(context.kept, project)
    times, found = context.size(10, 1), {}
    for name, words in _COMMANDS.items():
        given = (*words, await _newest(project)) if name == "runs_show" else words
        # The first execution compiles missing bytecode, as an installation does.
        _seconds(given, environ)
        found[f"{name}_seconds"] = statistics.median(_seconds(given, environ) for _ in range(times))
    await _ready_seconds(environ)
    found["ready_seconds"] = statistics.median([await _ready_seconds(environ) for _ in range(context.size(5, 1))])
    found["python_seconds"] = statistics.median(_spawned(("-c", "pass"), environ) for _ in range(times))
    return found


async def _project(context: workload.Context) -> Path:
    project = context.kept / "project"
    if not project.exists():
        recipes = project / ".control-room" / "recipes"
        recipes.mkdir(parents=True)
        (recipes / "look.json").write_text(json.dumps(_RECIPE), encoding="utf-8")
        async with projects.opened(project) as application:
            await projects.execute_many(application, _RECIPE["recipe_id"], count=context.size(_RUNS, 2), at_a_time=5)
    return project


async def _newest(project: Path) -> str:
    return max(path.name for path in (project / ".control-room" / "runs").glob("[0-9]*"))


def _environ(kept: Path, project: Path) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CONTROL_ROOM_")}
    # Write bytecode even if this checkout is set not to, because an installed package has its bytecode.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ | {
        "CONTROL_ROOM_PROJECT": str(project),
        "PYTHONPYCACHEPREFIX": str(kept / "bytecode"),
        "XDG_CACHE_HOME": str(kept / "caches"),
    }


def _seconds(words: tuple[str, ...], environ: Mapping[str, str]) -> float:
    return _spawned(("-m", "app", *words), environ)


def _spawned(words: tuple[str, ...], environ: Mapping[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words], cwd=children.ROOT, env=environ, stdout=subprocess.DEVNULL, check=False
    )
    took = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with exit code {done.returncode}")
    return took


async def _ready_seconds(environ: Mapping[str, str]) -> float:
    """Start the service; return the time from the start of its process until the first 200 of `/readyz`."""
    began = time.perf_counter()
    async with children.listening(("app", "serve", "--port", "0"), environ) as served:
        connection = await client.connect(served.host, served.port)
        while (await connection.get("/readyz")).status != 200:  # noqa: ASYNC110 - the service is another process
            await asyncio.sleep(_BETWEEN_SECONDS)
        took = time.perf_counter() - began
        connection.close()
    return took


def _line(name: str, says: str, most: float | None) -> figures.Line:
    return figures.Line(
        says=says,
        value=f"{name}_seconds",
        unit="s",
        beside="python_seconds",
        beside_unit="s for Python alone",
        bar=None if most is None else figures.Bar(kind="at most", limit=most, of="figure"),
    )


WORKLOAD = workload.Workload(
    name="W13",
    title="Commands of the command line in fresh processes, and `control-room serve` until it is ready.",
    measure=_measure,
    lines=(
        *(_line(name, f"`control-room {' '.join(_COMMANDS[name])}`", _BAR_SECONDS.get(name)) for name in _COMMANDS),
        _line("ready", "`control-room serve` until `/readyz` answers 200", 0.8),
    ),
)
