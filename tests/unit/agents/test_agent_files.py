"""Tests of agent files: agents that a project describes for Amplifier."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import resources
from app.agents import agent_files, roster
from app.agents.configuration import Roster

ANALYZER = """---
meta:
  name: custom-analyzer
  description: "Looks at things."
model: sonnet
---
You analyze. Say what you see.
"""


def load(tmp_path: Path, own: str | None = None, **files: str) -> Roster:
    """Return the roster of the bundled agents, a folder of agent files, and a project's own file."""
    folder = tmp_path / agent_files.FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    (tmp_path / "agents.json").write_text(own or "{}")
    return roster.load([resources.bundled("recipes", "agents.json"), folder, tmp_path / "agents.json"])


def test_a_text_with_a_head(tmp_path: Path) -> None:
    """The head of an agent file names the agent and its model, the rest is its role; its backend is Claude Code."""
    (agent, *_) = load(tmp_path, analyzer__md=ANALYZER).agents

    assert (agent.id, agent.archetype, agent.backend, agent.model) == (
        "custom-analyzer",
        "amplifier",
        "claude-code",
        "sonnet",
    )
    assert agent.role == "You analyze. Say what you see."


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("plain__md", "You are plain.", ("plain", "claude-code", "You are plain.")),
        ("a__md", "---\nname: b\nbackend: local\n---\nRole.", ("b", "local", "Role.")),
        ("c__yaml", "name: d\nbackend: local\ninstruction: Do it.", ("d", "local", "Do it.")),
        ("e__yml", "meta: {name: f, description: Told.}", ("f", "claude-code", "Told.")),
        ("g__md", "---\n---\nRole.", ("g", "claude-code", "Role.")),
        ("h__md", "", ("h", "claude-code", "")),
    ],
)
def test_forms(tmp_path: Path, name: str, text: str, expected: tuple[str, str, str]) -> None:
    """A head may be short or missing, and a YAML file contains the role too."""
    found = load(tmp_path, **{name: text})

    assert found.broken == ()
    assert (found.agents[0].id, found.agents[0].backend, found.agents[0].role) == expected


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a__md", "---\nname: [\n---\nRole.", "syntax"),
        ("a__md", "---\n- name\n---\nRole.", "type"),
        ("a__yaml", "just words", "type"),
        ("a__md", "---\nname: a b\n---\n", "form"),
        ("a b__md", "Role.", "form"),
        ("a__md", "x" * 70_000, "too_large"),
        ("a__yaml", "[" * 60_000, "syntax"),
    ],
)
def test_files_that_describe_no_agent(tmp_path: Path, name: str, text: str, code: str) -> None:
    """A broken agent file is reported and left out, and all other agents are loaded."""
    found = load(tmp_path, analyzer__md=ANALYZER, **{name: text})

    assert [flaw.code for broken in found.broken for flaw in broken.flaws] == [code]
    assert all(broken.foreign for broken in found.broken)
    assert found.agents[0].id == "custom-analyzer"


def test_a_project_has_the_last_word(tmp_path: Path) -> None:
    """An entry of agents.json with the id of an agent file overrides its backend and model."""
    own = '{"agents": [{"id": "custom-analyzer", "backend": "local", "model": null}]}'
    (agent, *_) = load(tmp_path, own, analyzer__md=ANALYZER).agents

    assert (agent.id, agent.backend, agent.model, agent.role) == (
        "custom-analyzer",
        "local",
        None,
        "You analyze. Say what you see.",
    )


def test_an_unknown_backend_is_reported_as_broken(tmp_path: Path) -> None:
    """An agent file with an unknown backend is reported as broken."""
    found = load(tmp_path, a__md="---\nbackend: nothing\n---\nRole.")

    assert [(broken.foreign, flaw.code) for broken in found.broken for flaw in broken.flaws] == [
        (True, "unknown_backend")
    ]


def test_other_files_are_passed_by(tmp_path: Path) -> None:
    """A README and files that are not Markdown or YAML are ignored."""
    bundled = load(tmp_path)

    assert load(tmp_path, README__md="Read me.", notes__txt="Notes.").agents == bundled.agents
