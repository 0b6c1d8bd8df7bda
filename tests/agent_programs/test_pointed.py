"""The real programs, called as their vendors intend, use the fake model as their own."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent_programs import installed, loopback, pointed
from tests.agent_programs.fake_model.replies import Reply, Shell
from tests.agent_programs.fake_model.server import FakeModel

pytestmark = pytest.mark.programs

PROMPT = "Write the file, please."
TURN_SECONDS = 100

CALLS: dict[str, Callable[[str, str], list[str]]] = {
    "claude": lambda model, name: [
        "-p", "--output-format", "json", "--model", model, "--session-id", name, "--dangerously-skip-permissions",
        PROMPT,
    ],
    "codex": lambda _, __: [
        "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", PROMPT,
    ],
    "gemini": lambda model, name: [
        "--output-format", "json", "--skip-trust", "-m", model, "--yolo", "--session-id", name, "-p", PROMPT,
    ],
    "opencode": lambda model, _: ["run", "--format", "json", "--model", model, "--auto", PROMPT],
    "copilot": lambda _, name: [
        "--output-format", "json", "--no-color", "--no-ask-user", "--no-auto-update", "--disable-client-telemetry",
        "--allow-all", "--session-id", name, "-p", PROMPT,
    ],
    "qwen": lambda model, name: [
        "--output-format", "json", "--auth-type", "openai", "-m", model, "--yolo", "--session-id", name, PROMPT,
    ],
}  # fmt: skip


@pytest.fixture(params=sorted(CALLS))
def program(request: pytest.FixtureRequest) -> installed.Installed:
    found = installed.find(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with loopback.alone(), FakeModel() as served:
        yield served


def test_a_program_acts_for_the_fake_model(program: installed.Installed, model: FakeModel, tmp_path: Path) -> None:
    """A program asks the fake model, runs the shell command of its reply, and prints its last text."""
    model.say(Reply(text="I act.", tool=Shell(command="echo made > made.txt")), Reply(text="It is DONE-HERE."))
    one = pointed.point(program, tmp_path / "home", model.address)
    (tmp_path / "workspace").mkdir()
    command = [*one.command, *CALLS[program.name](one.model, str(uuid.uuid4()))]
    done = subprocess.run(
        command,
        env=dict(one.environ),
        cwd=tmp_path / "workspace",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TURN_SECONDS,
        check=False,
    )

    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    assert "DONE-HERE" in done.stdout
    assert (tmp_path / "workspace" / "made.txt").read_text() == "made\n"
    assert len(model.asked) == 2
    assert one.shell in model.asked[0].offered
    assert PROMPT in model.asked[0].said
    assert model.asked[1].after_tool is not None
