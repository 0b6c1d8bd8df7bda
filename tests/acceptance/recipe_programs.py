"""The program `agent-recipes` as users run it: a project with a small recipe, and a backend with scripted replies."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance import processes, programs
from tests.unit.dialects.agent_recipes import recipe_harness

MODULE = "app.cli.agent_recipes"
COMMAND = (sys.executable, "-m", MODULE)


@dataclass(frozen=True)
class Project:
    """A project whose agent answers from a script."""

    path: Path

    @property
    def data(self) -> Path:
        """Return the data directory."""
        return self.path / ".control-room"

    def write(self, name: str, content: Any) -> None:
        """Write a file below the data directory: text unchanged, any other value as JSON."""
        programs.Project(self.path).write(name, content)

    def recipe(self, document: Mapping[str, Any]) -> None:
        """Write a recipe."""
        self.write(f"recipes/agent_recipes/{document['id']}.json", dict(document))

    def say(self, **replies: Any) -> None:
        """Set the agent's replies by step key; underscores replace hyphens."""
        self.write("replies.json", {name.replace("_", "-"): said for name, said in replies.items()})

    def script(self, replies: Mapping[str, Any]) -> None:
        """Set the agent's replies by step key."""
        self.write("replies.json", dict(replies))

    def run_ids(self) -> list[str]:
        """Return the ids of the runs, oldest first."""
        # Run ids contain the second, and several runs may start in the same one.
        starts = [json.loads(path.read_text()) for path in (self.data / "runs").glob("[0-9]*/start.json")]
        return [start["run_id"] for start in sorted(starts, key=lambda start: (start["created_at"], start["run_id"]))]

    def start(self) -> dict[str, Any]:
        """Return the start of the newest run."""
        started: dict[str, Any] = json.loads((self.data / "runs" / self.run_ids()[-1] / "start.json").read_text())
        return started

    def prompt(self, key: str) -> str:
        """Return the prompt of a step of the newest run."""
        return (self.data / "runs" / self.run_ids()[-1] / "logs" / f"{key}.1.prompt.md").read_text()


def make_project(folder: Path) -> Project:
    """Create a project with the small recipe, and with replies that lead it straight to its end."""
    project = Project(folder)
    project.write("agents.json", {"backends": {"said": {"type": "scripted", "file": "replies.json"}}})
    project.recipe(recipe_harness.RECIPE)
    project.script(recipe_harness.STRAIGHT)
    return project


def environment(project: Project, **given: str) -> dict[str, str]:
    """Return an environment in which the program finds the project only by the working directory."""
    return programs.environment(None, **{"CONTROL_ROOM_HOME": str(project.path / "nobody"), **given})


def agent_recipes(
    *arguments: str | Path, project: Project, code: int = 0, cwd: Path | None = None, **given: str
) -> programs.Ended:
    """Run the program in a process of its own and verify its exit code."""
    words, folder = map(str, arguments), cwd or project.path
    done = processes.run(MODULE, *words, environ=environment(project, **given), folder=folder)
    ended = programs.Ended(*done)
    told = f"{arguments} ended with {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    assert ended.returncode == code, told
    assert "Traceback" not in ended.stderr, told
    return ended


@contextlib.contextmanager
def going(*arguments: str, project: Project, **given: str) -> Iterator[processes.Started]:
    """Run the program for the length of the block."""
    process = processes.start(MODULE, *arguments, environ=environment(project, **given), folder=project.path)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None and not stream.closed:
                stream.close()


def until(stream: Any, beginning: str) -> None:
    """Read lines of a process until one begins with a text."""
    for line in stream:
        if line.startswith(beginning):
            return
    raise AssertionError(f"nothing begins with {beginning!r}")


def control_room(*arguments: str, project: Project, code: int = 0, **given: str) -> programs.Ended:
    """Execute a command line of `control-room` on the project."""
    return programs.control_room(*arguments, project=programs.Project(project.path), code=code, **given)


def shown(run_id: str, project: Project) -> dict[str, Any]:
    """Return a run's detail."""
    detail: dict[str, Any] = json.loads(control_room("runs", "show", run_id, "--json", project=project).stdout)
    return detail
