"""The how-to pages about keeping and forking runs: every command works as written, on runs of the project."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from app.cli import root
from tests.integration.project import SCENE, Project

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
ARRIVAL = ["--arg", "scene_path=Story/Scenes/SCN-the-arrival.md"]


def commands(page: str) -> list[list[str]]:
    """Return the commands in the blocks and tables of a page, without the program's name."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    lines = [line for line in blocks.splitlines() if line.startswith("control-room ")]
    lines += re.findall(r"^\|.*`(control-room [^`]+)` \|$", text, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines]


def run_id(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """Execute a command that prints a run, and return the run's id."""
    root.execute([*command, "--json"])
    return str(json.loads(capsys.readouterr().out)["run_id"])


@pytest.fixture(autouse=True)
def folder(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to the project's folder."""
    monkeypatch.chdir(project.root)


def test_the_page_on_keeping(project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's commands label, pin and prune a run, set rules, copy the project, and make another of the copy."""
    names = {"RUN_ID": run_id(capsys, "run", "draft", *ARRIVAL), "/path/to/new/project": str(tmp_path / "new")}
    found = [[names.get(word, word) for word in command] for command in commands("keep-and-clean.md")]
    codes = {" ".join(command[:2]): root.execute(command) for command in found}
    capsys.readouterr()
    root.execute(["runs", "list", "--json", "--project", str(tmp_path / "new")])
    (restored,) = json.loads(capsys.readouterr().out)

    assert codes == dict.fromkeys(
        ("runs label", "runs pin", "runs prune", "backup control-room.tar.gz", "restore control-room.tar.gz"), 0
    )
    assert (restored["run_id"], restored["labels"], restored["pinned"]) == (names["RUN_ID"], {"book": "one"}, True)


def test_the_page_on_forks(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's commands resume a failed run, and fork one with another prompt, another agent, another argument."""
    failed = run_id(capsys, "run", "draft", "--arg", "scene_path=Story/Scenes/SCN-the-cellar.md")
    project.write("Story/Scenes/SCN-the-cellar.md", SCENE)
    ended = run_id(capsys, "run", "draft", *ARRIVAL)
    names = {"KEY": "draft", "ID": "editor-1", "NAME=TEXT": "scene_path=Story/Scenes/SCN-the-bridge.md"}
    shown, codes = commands("run-again-from-a-step.md"), list[int]()
    for command in shown:
        own = names | {"RUN_ID": failed if "resume" in command else ended}
        codes.append(root.execute([own.get(word, word) for word in command]))
    forks = [command for command in shown if "fork" in command]
    capsys.readouterr()
    root.execute(["runs", "list", "--json"])
    listed = json.loads(capsys.readouterr().out)

    assert (len(shown), codes) == (4, [0] * 4)
    assert [run["status"] for run in listed] == ["done"] * (2 + len(forks))
