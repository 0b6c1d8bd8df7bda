"""
W11: each language's own example, with agents that answer at once from a script.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app import bootstrap, settings
from app.control import requests
from app.laboratory import experiment
from bench import children, figures, machine, rooms, workload

_SOMEBODY = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
_PROJECT = children.ROOT / ".control-room" / "example"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Example:
    recipe_id: str
    args: Mapping[str, Any] = field(default_factory=dict)
    outcomes: Mapping[str, str] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)
    needs_repository: bool = False

    @property
    def replies(self) -> str:
        """
        Return the script of its agents.
        """
        said = {key: json.dumps({"outcome": outcome}) for key, outcome in self.outcomes.items()}
        return json.dumps({**said, **self.said} or {"*": "The agent says the same to everybody."})


_EXAMPLES: Mapping[str, _Example] = {
    "control_room": _Example(
        recipe_id="creative_draft_scene",
        args={"scene_path": "Story/Scenes/SCN-the-arrival.md", "canon_paths": ["Compendium/Characters"]},
    ),
    "agent_recipes": _Example(
        recipe_id="review-and-commit",
        outcomes={
            "code-review": "issues-found", "fix": "complete", "code-review#2": "no-issues", "commit": "committed",
        },
    ),
    "amplifier": _Example(
        recipe_id="batch-file-analyzer",
        said={"discover-files": '{"files": ["a.py", "b.py", "c.py", "d.py"]}', "*": "It is well written."},
    ),
    "orchestrate": _Example(recipe_id="git_census", needs_repository=True),
}  # fmt: skip


async def _measure(context: workload.Context) -> figures.Raw:
    found: dict[str, float] = {}
    for dialect, example in _EXAMPLES.items():
        runs, appends = [], []
        for number in range(context.size(5, 1)):
            place = context.place / f"{dialect}-{number}"
            seconds, lines = await _lived(place, example)
            runs.append(seconds)
            appends.append(machine.append_seconds(place, 100) * lines)
        found[f"{dialect}_ms"] = statistics.median(runs) * 1000
        found[f"{dialect}_appends_ms"] = statistics.median(appends) * 1000
    return found


async def _lived(place: Path, example: _Example) -> tuple[float, int]:
    copy = _copy(place, example)
    use = bootstrap.Use(address=rooms.ADDRESS)
    async with bootstrap.build(copy.settings, use, bootstrap.real_world({})) as room:
        await room.engine.recovered()
        began = time.perf_counter()
        run_id = await rooms.ended(room, copy.request)
        seconds = time.perf_counter() - began
        return seconds, len(await room.runs.steps(run_id))


def _copy(place: Path, example: _Example) -> experiment.Experiment:
    # One for each run, since a recipe may write files that must not be there yet.
    place.mkdir()
    replies = place / "replies.json"
    replies.write_text(example.replies, encoding="utf-8")
    chosen = settings.load({}, project=_PROJECT, home=place, log_level="warning")
    request = requests.StartRequest(recipe_id=example.recipe_id, args=dict(example.args))
    copy = experiment.template(place / "copy", chosen, request, replies)
    if example.needs_repository:
        for args in (["init", "--quiet"], ["add", "."], [*_SOMEBODY, "commit", "--quiet", "--message", "Begin"]):
            subprocess.run(["git", *args], cwd=copy.settings.project.project, check=True)
    return copy


def _line(dialect: str, example: _Example) -> figures.Line:
    return figures.Line(
        says=f"`{example.recipe_id}` ({dialect})",
        value=f"{dialect}_ms",
        unit="ms",
        beside=f"{dialect}_appends_ms",
        beside_unit="ms for an append for each of its steps",
    )


WORKLOAD = workload.Workload(
    name="W11",
    title="One run of each language's example, prompts, tools and files included, with agents that answer at once.",
    measure=_measure,
    lines=tuple(_line(dialect, example) for dialect, example in _EXAMPLES.items()),
)
