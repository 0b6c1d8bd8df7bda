"""The bundled recipes with real agent programs, which use a fake model, on real git repositories."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.acceptance import coding_agent, drafting, programs
from tests.acceptance.coding_agent import Act, CodingAgent, Repository, git
from tests.agent_programs import installed, loopback, pointed
from tests.agent_programs.fake_model.asked import Asked
from tests.agent_programs.fake_model.replies import Answer, Reply, Shell
from tests.agent_programs.fake_model.server import FakeModel

pytestmark = [pytest.mark.programs, pytest.mark.timeout(400)]

TYPES = {
    "claude": "claude-code",
    "codex": "codex",
    "gemini": "gemini",
    "opencode": "opencode",
    "copilot": "github-copilot",
    "qwen": "qwen",
}
# Gemini sets the program for diffs to an empty name, which git tries to execute.
REVIEWED = "git diff --no-ext-diff; git status --short"
MENDED = "sed -i 's/Helo/Hello/' greeting.txt && cat greeting.txt"
COMMITTED = "git add -A && git commit --quiet -m '{subject}' && git push --quiet origin main && git status -sb"
NEXT_TASK = "head -n 1 tasks.txt && head -n 1 tasks.txt >> done.txt && sed -i 1d tasks.txt"
WORKING = (
    "python3 -c 'import os, pathlib, threading\n"
    'place = pathlib.Path("writers") / str(os.getpid())\n'
    "place.parent.mkdir(exist_ok=True)\n"
    'while not threading.Event().wait(0.02):\n    place.open("a").write("x")\''
)


@dataclass
class Stage:
    """A program, the model behind it, and the repository that it works on."""

    name: str
    model: FakeModel
    repository: Repository

    @contextlib.contextmanager
    def service(self, containment: str = "auto") -> Iterator[programs.Service]:
        """Serve the repository with the given containment of its agents."""
        with programs.service(self.repository.project, CONTROL_ROOM_CONTAINMENT=containment) as served:
            yield served

    def start(self, service: programs.Service, recipe_id: str) -> str:
        """Start a run."""
        # Without a named model Gemini asks a model which model to use.
        named = {"model": "sonnet"} if self.name == "gemini" else {}
        return service.start_run(recipe_id=recipe_id, args={"backend": TYPES[self.name], **named})

    def claude_sessions(self) -> list[str]:
        """Return the conversations of Claude Code's requests, in order and each once."""
        return list(dict.fromkeys(asked.headers["x-claude-code-session-id"] for asked in self.model.asked))


@pytest.fixture
def name() -> str:
    return "claude"


@pytest.fixture
def stage(name: str, tmp_path: Path) -> Iterator[Stage]:
    found = installed.find(name)
    if isinstance(found, str):
        pytest.skip(found)
    with loopback.alone(), FakeModel() as model:
        one = pointed.point(found, tmp_path / "home", model.address)
        models = dict.fromkeys(("haiku", "sonnet", "opus"), one.model)
        backend = {"type": TYPES[name], "command": list(one.command), "models": models}
        repository = coding_agent.make_repository(tmp_path, {TYPES[name]: backend})
        with mock.patch.dict(os.environ, one.environ, clear=True):
            yield Stage(name, model, repository)


@pytest.mark.parametrize("name", TYPES)
def test_changes_are_reviewed_mended_and_committed(stage: Stage) -> None:
    """A review finds a mistake, the agent fixes it, a second review finds none, and the commit is pushed."""
    (stage.repository.path / "greeting.txt").write_text("Helo, world\n")
    agent = CodingAgent(
        {
            "code-review": [Act(REVIEWED, "issues-found", "Helo, world"), Act(REVIEWED, "no-issues", "Hello, world")],
            "fix": [Act(MENDED, "complete", "Hello, world")],
            "commit": [Act(COMMITTED.format(subject="Greet the world"), "committed", "main...origin/main")],
        }
    )
    stage.model.script = agent
    with stage.service() as service:
        run = service.wait(stage.start(service, "review-and-commit"))

    assert (run["status"], run["ending"]["reason"]) == ("done", "changes-committed"), (run, agent.outcomes)
    assert [step for step, _ in agent.outcomes] == ["code-review", "fix", "code-review", "commit"]
    assert stage.repository.commits() == ["Begin", "Greet the world"]
    assert stage.repository.pushed() == ["Begin", "Greet the world"]
    assert (stage.repository.path / "greeting.txt").read_text() == "Hello, world\n"
    assert git(stage.repository.path, "status", "--short") == ""
    assert len(_sessions(stage, run)) == 1
    assert run["usage"]["output_tokens"] > 0
    last = stage.model.asked[-1].everything
    assert all(outcome in last for outcome in ("issues-found", "complete", "no-issues"))


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_all_tasks_are_implemented_each_in_a_conversation_of_its_own(stage: Stage) -> None:
    """Each task is implemented, reviewed and committed in a new conversation, until none is left."""
    path = stage.repository.path
    (path / "tasks.txt").write_text("first task\nsecond task\n")
    git(path, "add", ".")
    git(path, "commit", "-m", "Plan")
    agent = CodingAgent(
        {
            "implement": [Act(NEXT_TASK, "complete", "task", otherwise="no-tasks")],
            "code-review": [Act(REVIEWED, "no-issues", "done.txt")],
            "commit": [Act(COMMITTED.format(subject=f"Do {n}"), "committed", "main...origin/main") for n in (1, 2)],
        }
    )
    stage.model.script = agent
    with stage.service() as service:
        run = service.wait(stage.start(service, "implement-and-review-all"))

    assert (run["status"], run["ending"]["reason"]) == ("done", "no-tasks"), (run, agent.outcomes)
    assert [outcome for _, outcome in agent.outcomes] == [*["complete", "no-issues", "committed"] * 2, "no-tasks"]
    assert stage.repository.pushed() == ["Begin", "Plan", "Do 1", "Do 2"]
    assert (path / "done.txt").read_text() == "first task\nsecond task\n"
    assert len(_sessions(stage, run)) == 3
    assert run["machine"]["restarts"] == 2
    assert _forgets(stage.model.asked)
    if stage.name == "claude":
        assert len(stage.claude_sessions()) == 3
        assert run["usage"]["cost_usd"] > 0


@pytest.mark.parametrize("containment", ["auto", "guard"])
@pytest.mark.parametrize("interrupted", ["code-review", "fix"])
def test_a_killed_service_continues_in_the_same_conversation(stage: Stage, interrupted: str, containment: str) -> None:
    """After kill -9 during a tool, no old agent writes to the workspace, and the conversation continues."""
    path = stage.repository.path
    (path / "greeting.txt").write_text("Helo, world\n")
    agent = CodingAgent(
        {
            "code-review": [Act(REVIEWED, "issues-found", "Helo, world"), Act(REVIEWED, "no-issues", "Hello, world")],
            "fix": [Act(MENDED, "complete", "Hello, world")],
            "commit": [Act(COMMITTED.format(subject="Greet the world"), "committed", "main...origin/main")],
        }
    )
    stage.model.script = _interrupted(agent, interrupted)
    with stage.service(containment) as service:
        run_id = stage.start(service, "review-and-commit")
        (writer,) = _appearing(path / "writers")
        service.signal(signal.SIGKILL)
        service.ended()
    asked = len(stage.model.asked)
    stage.model.script = agent
    with stage.service(containment) as service:
        assert stage.model.wait(lambda seen: len(seen) > asked)
        written = writer.stat().st_size
        run = service.wait(run_id)

    assert (run["status"], run["ending"]["reason"]) == ("done", "changes-committed"), (run, agent.outcomes)
    assert writer.stat().st_size == written
    assert len(list(writer.parent.iterdir())) == 1
    assert stage.repository.commits() == ["Begin", "Greet the world"]
    assert len(stage.claude_sessions()) == 1
    assert _sessions(stage, run) == set(stage.claude_sessions())
    if interrupted == "fix":
        assert "issues-found" in stage.model.asked[asked].everything


def _sessions(stage: Stage, run: dict[str, Any]) -> set[str]:
    journal = drafting.lines(drafting.folder_of(stage.repository.path, run["run_id"]) / "steps.jsonl")
    return {line["agent_session_id"] for line in journal if line.get("agent_session_id")}


def _forgets(seen: list[Asked]) -> bool:
    """Return whether no conversation contains the words of another one."""
    begins = [asked for asked in seen if coding_agent.step_of(asked) == "implement" and asked.after_tool is None]
    return len(begins) == 3 and all('{"outcome": "committed"}' not in asked.said for asked in begins)


def _interrupted(agent: CodingAgent, step: str) -> Callable[[Asked], Answer]:
    def answer(asked: Asked) -> Answer:
        if coding_agent.step_of(asked) == step:
            return Reply(text="I work.", tool=Shell(command=WORKING))
        return agent(asked)

    return answer


def _appearing(folder: Path) -> list[Path]:
    """Wait until a writer is at work, and return its file."""
    begun = threading.Event()
    for _ in range(3000):
        if folder.is_dir() and any(place.stat().st_size > 3 for place in folder.iterdir()):
            break
        begun.wait(0.02)
    return list(folder.iterdir())
