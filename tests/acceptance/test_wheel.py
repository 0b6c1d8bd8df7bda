"""The wheel alone, without the repository, runs recipes of all four languages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ORCHESTRATE = """\
version: "1.1"
name: "hello"
steps:
  - name: Hello
    command: ["echo", "hello"]
    output_file: hello.txt
"""
AMPLIFIER = """\
schema: "1.7"
name: "greet"
description: "Ask an agent, and write its words down"
version: "1.0.0"
steps:
  - {id: "ask", agent: "writer", prompt: "Greet.", output: "greeting"}
  - {id: "write", type: "bash", command: "printf %s {{greeting}} > greeting.txt"}
"""
REPLIES = {
    "ask": "Good morning.",
    "code-review": 'Read it.\n\n{"outcome": "no-issues"}',
    "commit": 'Done.\n\n{"outcome": "committed"}',
}
PROGRAMS = {"control-room": "app", "agent-recipes": "app.cli.agent_recipes", "orchestrate": "app.cli.orchestrate"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_unpacked_wheel_runs_all_four_languages(wheel: Path, tmp_path: Path) -> None:
    """The files of the wheel run where its required packages are installed."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    paths = {"base": str(tmp_path / "venv"), "platbase": str(tmp_path / "venv")}
    site = Path(sysconfig.get_path("purelib", "venv", paths))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # Only the packages: Python does not read the path file of the editable installation from there.
    (site / "required.pth").write_text(sysconfig.get_path("purelib"))
    commands = {name: [str(python), "-P", "-m", module] for name, module in PROGRAMS.items()}

    assert _drive(python, commands, tmp_path / "project") == _expected(site)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_installed_wheel_runs_all_four_languages(wheel: Path, tmp_path: Path) -> None:
    """The wheel and its locked requirements can be installed into an empty environment, and run."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    _run(programs / "pip", "install", "--require-hashes", "-r", ROOT / "requirements.lock")
    _run(programs / "pip", "install", "--no-deps", wheel)
    _run(programs / "pip", "check")
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    demo = _run(programs / "control-room", "demo", "--exit", "--port", "0", "--project", tmp_path / "demo")

    assert _drive(
        programs / "python", {name: [str(programs / name)] for name in PROGRAMS}, tmp_path / "project"
    ) == _expected(site)
    assert "(attempt 2)" in demo


def _drive(python: Path, commands: Mapping[str, list[str]], project: Path) -> dict[str, object]:
    """Run a recipe of each language in a new project, and return the results."""
    project.mkdir()
    environment = _environment(project)
    package = _run(python, "-P", "-c", "import app; print(app.__file__)", env=environment)
    _run(*commands["control-room"], "init", "--example", "story", env=environment)
    _write(project)
    _run(*commands["control-room"], "run", "find", env=environment)
    reviewed = _run(*commands["agent-recipes"], "review-and-commit", "--backend", "said", env=environment)
    _run(*commands["control-room"], "run", "greet", env=environment)
    _run(*commands["orchestrate"], "run", "hello.yaml", env=environment)
    return {
        "package": Path(package.strip()).parent,
        "issues": len(json.loads(_run(*commands["control-room"], "issues", "list", "--json", env=environment))),
        "is_committed": "changes-committed" in reviewed,
        "greeting": (project / "greeting.txt").read_text(),
        "hello": (project / "hello.txt").read_text(),
    }


def _expected(site: Path) -> dict[str, object]:
    return {"package": site / "app", "issues": 9, "is_committed": True, "greeting": "Good morning.", "hello": "hello\n"}


def _write(project: Path) -> None:
    data = project / ".control-room"
    find = {
        "recipe_id": "find",
        "label": "Find contradictions",
        "phase_a": [
            {
                "step_id": "compare",
                "tool": "consistency_checker",
                "args": {"scene_paths": ["Story/Scenes"], "canon_paths": ["Compendium"]},
                "output_slot": "consistency",
            }
        ],
        "findings": {"$ref": "consistency.conflicts"},
    }
    backends = {"said": {"type": "scripted", "file": "replies.json"}}
    (data / "recipes" / "find.json").write_text(json.dumps(find))
    (data / "recipes" / "amplifier" / "greet.yaml").write_text(AMPLIFIER)
    (data / "agents.json").write_text(json.dumps({"default_backend": "said", "backends": backends}))
    (data / "replies.json").write_text(json.dumps(REPLIES))
    (project / "hello.yaml").write_text(ORCHESTRATE)


def _environment(project: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(project), "PWD": str(project)}


def _run(*command: str | Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=env["PWD"] if env else "/", env=env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
