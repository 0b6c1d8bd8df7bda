"""A coding agent for the bundled recipes: a real git repository, and a fake model with a part in each step."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance import programs
from tests.agent_programs.fake_model.asked import Asked
from tests.agent_programs.fake_model.replies import Answer, Reply, Shell

STEPS = {"no-tasks": "implement", "no-issues": "code-review", "nothing-to-commit": "commit"}


def git(folder: Path, *arguments: str) -> str:
    """Run git and return its output."""
    settled = ["-c", "user.name=Nobody", "-c", "user.email=nobody@localhost", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *settled, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@dataclass(frozen=True)
class Repository:
    """A project that is a git repository, with another repository that it pushes to."""

    project: programs.Project
    remote: Path

    @property
    def path(self) -> Path:
        """Return its folder."""
        return self.project.path

    def commits(self) -> list[str]:
        """Return the subjects of its commits, oldest first."""
        return git(self.path, "log", "--reverse", "--format=%s").splitlines()

    def pushed(self) -> list[str]:
        """Return the subjects of the pushed commits, oldest first."""
        return git(self.remote, "log", "--reverse", "--format=%s", "main").splitlines()


def make_repository(folder: Path, backends: Mapping[str, Any]) -> Repository:
    """Create a repository with one commit, and configure the backends of its agents."""
    remote, path = folder / "remote.git", folder / "repository"
    path.mkdir(parents=True)
    git(folder, "init", "--bare", "--initial-branch", "main", str(remote))
    git(path, "init", "--initial-branch", "main")
    (path / ".gitignore").write_text(".control-room/\n")
    (path / "greeting.txt").write_text("Hello\n")
    git(path, "add", ".")
    git(path, "commit", "-m", "Begin")
    for name, value in {"user.name": "Agent", "user.email": "agent@localhost"}.items():
        git(path, "config", name, value)
    git(path, "remote", "add", "origin", str(remote))
    git(path, "push", "--set-upstream", "origin", "main")
    project = programs.Project(path)
    project.write("agents.json", {"backends": dict(backends)})
    return Repository(project, remote)


@dataclass
class Act:
    """The agent's act in a step: a shell command, and the outcome that it then reports."""

    command: str
    outcome: str
    shows: str | None = None
    """Words that the command's result must contain; without them, the agent reports `otherwise`, or else `other`."""
    otherwise: str | None = None
    """Outcome if the result lacks those words."""


@dataclass
class CodingAgent:
    """Play a part in each step: the acts of a step in order, the last one repeatedly."""

    acts: Mapping[str, list[Act]]
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    """Step and outcome of each finished turn."""

    def __call__(self, asked: Asked) -> Answer:
        """Call the tool first, and report the outcome once its result has arrived."""
        step = step_of(asked)
        acts = self.acts[step]
        done = sum(one == step for one, _ in self.outcomes)
        act = acts[min(done, len(acts) - 1)]
        result = asked.after_tool
        if result is None:
            return Reply(text=f"I do what {step} asks for.", tool=Shell(command=act.command))
        outcome = self._outcome(act, result)
        self.outcomes.append((step, outcome))
        report = {"outcome": outcome} | ({"otherDescription": result[:500]} if outcome == "other" else {})
        return Reply(text=f"The result of {step} is known.\n\n{json.dumps(report)}")

    def _outcome(self, act: Act, result: str) -> str:
        if act.shows is not None and act.shows not in result:
            return act.otherwise or "other"
        return act.outcome


def step_of(asked: Asked) -> str:
    """Return the step of a request, from the outcomes that its last prompt asks for."""
    return next((step for outcome, step in STEPS.items() if f'"{outcome}"' in asked.prompt), "fix")
