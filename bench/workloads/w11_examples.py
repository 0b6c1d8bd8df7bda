"""W11: each language's own example, a conference and a plan, with agents that answer at once from a script."""

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
from app.crash_lab import experiment
from app.crash_lab import workload as work
from app.domain import states, task_reviews
from app.engine import stores
from app.services import conferences, requests
from app.services.plans import requests as plan_requests
from bench import children, figures, machine, projects, workload

_SOMEBODY = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
_PROJECT = children.ROOT / ".control-room" / "example"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example to run, and the replies of its agents."""

    asked: work.Asked
    """The run, conference or plan."""
    name: str
    """Name of the example in the report."""
    outcomes: Mapping[str, str] = field(default_factory=dict)
    """Outcome that an agent reports, by step."""
    said: Mapping[str, str] = field(default_factory=dict)
    """Reply of an agent, by step; `*`: for all other steps."""
    needs_repository: bool = False
    """Whether its project must be a Git repository."""

    @property
    def replies(self) -> str:
        """Return the script of its agents."""
        said = {key: json.dumps({"outcome": outcome}) for key, outcome in self.outcomes.items()}
        return json.dumps({**said, **self.said} or {"*": "The agent says the same to everybody."})


def _run(recipe_id: str, **args: Any) -> requests.StartRequest:
    return requests.StartRequest(recipe_id=recipe_id, args=args)


_SCENE = "Story/Scenes/SCN-the-arrival.md"
_INTENT = "review the prose of the arrival, then of the scene after it"
_TASKS = [
    {
        "id": 1,
        "description": "prose review of the arrival",
        "deps": [],
        "dod": "the prose of the arrival is reviewed",
        "args": {"scene_path": _SCENE},
    },
    {
        "id": 2,
        "description": "prose review of the scene after it",
        "deps": [1],
        "dod": "the prose of the scene after it is reviewed",
        "args": {"scene_path": "Story/Scenes/SCN-a-key-for-the-tower.md"},
    },
]
EXAMPLES: Mapping[str, Example] = {
    "control_room": Example(
        name="creative_draft_scene",
        asked=_run("creative_draft_scene", scene_path=_SCENE, canon_paths=["Compendium/Characters"]),
    ),
    "agent_recipes": Example(
        name="review-and-commit",
        asked=_run("review-and-commit"),
        outcomes={
            "code-review": "issues-found", "fix": "complete", "code-review#2": "no-issues", "commit": "committed",
        },
    ),
    "amplifier": Example(
        name="batch-file-analyzer",
        asked=_run("batch-file-analyzer"),
        said={"discover-files": '{"files": ["a.py", "b.py", "c.py", "d.py"]}', "*": "It is well written."},
    ),
    "orchestrate": Example(name="git_census", asked=_run("git_census"), needs_repository=True),
    "conference": Example(
        name="a question to two agents",
        asked=conferences.NewConference(
            message="Does the scene keep its pace?", agents=["editor", "critic"], allowed_tools=["prose_analyzer"]
        ),
        said={
            "chief": json.dumps({"tool": "prose_analyzer", "args": {"scene_path": _SCENE}}),
            "chief#2": '{"done": true}',
            "*": "ABSTAIN: the benchmark has no opinion",
        },
    ),
    "plan": Example(
        name="an intent of two tasks",
        # Its chief is of a small tier, whose reviews a person makes: with reviews, the plan would wait for a person.
        asked=plan_requests.NewPlan(intent=_INTENT, review=task_reviews.OFF),
        said={"chief": json.dumps({"tasks": _TASKS}), "*": "It is well written."},
    ),
}  # fmt: skip


async def _measure(context: workload.Context) -> figures.Raw:
    found: dict[str, float] = {}
    for dialect, example in EXAMPLES.items():
        runs, appends = [], []
        for number in range(context.size(5, 1)):
            place = context.place / f"{dialect}-{number}"
            seconds, lines = await live(place, example)
            runs.append(seconds)
            appends.append(machine.append_seconds(place, 100) * lines)
        found[f"{dialect}_ms"] = statistics.median(runs) * 1000
        found[f"{dialect}_appends_ms"] = statistics.median(appends) * 1000
    return found


async def live(place: Path, example: Example) -> tuple[float, int]:
    """Run an example to its end in a copy of the example project at `place`, which must not exist yet.

    Returns:
        Seconds from the request to the end, and the number of steps of all its runs.

    Raises:
        AssertionError: one of its runs did not end as `done`.
    """
    copy = _copy(place, example)
    use = bootstrap.OpenMode(address=projects.ADDRESS)
    async with bootstrap.build(copy.settings, use, bootstrap.real_platform({})) as application:
        await application.engine.recovered()
        began = time.perf_counter()
        begun = await work.begin(application, copy.asked, _no_space)
        await work.rest(application, copy.asked, begun.name, _no_space)
        seconds = time.perf_counter() - began
        ended = await application.store.list_runs(stores.RunQuery())
        assert {run.status for run in ended} == {states.RunState.DONE}, ended
        return seconds, sum([len(await application.runs.steps(run.run_id)) for run in ended])


async def _no_space() -> None:
    raise AssertionError("there is no room on the disk")


def _copy(place: Path, example: Example) -> experiment.Experiment:
    # One copy for each run, since a recipe may write files that must not exist beforehand.
    place.mkdir()
    replies = place / "replies.json"
    replies.write_text(example.replies, encoding="utf-8")
    chosen = settings.load({}, project=_PROJECT, home=place, log_level="warning")
    copy = experiment.template(place / "copy", chosen, example.asked, replies)
    if example.needs_repository:
        for args in (["init", "--quiet"], ["add", "."], [*_SOMEBODY, "commit", "--quiet", "--message", "Begin"]):
            subprocess.run(["git", *args], cwd=copy.settings.project.project, check=True)
    return copy


def _line(dialect: str, example: Example) -> figures.Line:
    return figures.Line(
        says=f"`{example.name}` ({dialect})"
        if isinstance(example.asked, requests.StartRequest)
        else f"{dialect}: {example.name}",
        value=f"{dialect}_ms",
        unit="ms",
        beside=f"{dialect}_appends_ms",
        beside_unit="ms for an append for each of its steps",
    )


WORKLOAD = workload.Workload(
    name="W11",
    title="One run of each language's example, a conference and a plan, all included, with agents that answer at once.",
    measure=_measure,
    lines=tuple(_line(dialect, example) for dialect, example in EXAMPLES.items()),
)
