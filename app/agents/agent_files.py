"""Agent files: agents that a project describes for Amplifier, one file each, in `.amplifier/agents/`."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app import errors
from app.agents import json_files
from app.agents.configuration import BrokenFile

FOLDER = Path(".amplifier") / "agents"  # Folder of agent files, relative to the project.
DEFAULT_BACKEND = "claude-code"  # Backend of an agent whose file names none: these agents are written to use tools.
ARCHETYPE = "amplifier"  # Archetype of these agents; no pipeline asks for it.
MAX_BYTES = 64 * 1024  # Largest size of a file.

_MOST_FILES = 500
_SUFFIXES = (".md", ".yaml", ".yml")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FRONT = re.compile(
    r"\A---[ \t]*\r?\n(?P<front>.*?)(?:\r?\n)?^---[ \t]*(?:\r?\n|\Z)(?P<body>.*)\Z", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The agents of a folder."""

    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # Agents by id, as in `agents.json`.
    files: Mapping[str, Path] = field(default_factory=dict)  # File of each agent, by the agent's id.
    broken: tuple[BrokenFile, ...] = ()  # Files that describe no agent.


def read(folder: Path) -> Described:
    """Return the agents of a folder.

    The head of a text names the agent (`name`, or `meta.name`), and may give `backend` and `model`; the text below
    the head is the agent's role. A YAML file has the role as `instruction`.
    """
    agents: dict[str, dict[str, Any]] = {}
    files: dict[str, Path] = {}
    broken: list[BrokenFile] = []
    # Sorted, so that every machine takes the same one of two files that describe one agent.
    for path in sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)[:_MOST_FILES]:
        # People put a README beside their agents; it describes no agent.
        if path.stem.lower() == "readme":
            continue
        try:
            agent = _agent(path)
            if agent["id"] in agents:
                raise _refused("duplicate", f"describes {agent['id']}, which another file describes too")
            agents[agent["id"]], files[agent["id"]] = agent, path
        except errors.InputRefused as invalid:
            # A broken foreign file disables neither the other agents nor the service.
            broken.append(BrokenFile(path=path, flaws=invalid.flaws, foreign=True, errno=invalid.detail.get("errno")))
    return Described(agents=agents, files=files, broken=tuple(broken))


def without_backend(
    described: Described, agents: Mapping[str, Mapping[str, Any]], backends: Container[str]
) -> list[BrokenFile]:
    """Return the files whose agent uses an unknown backend, after all layers are merged."""
    lacking = [name for name in described.files if agents[name]["backend"] not in backends]
    return [
        BrokenFile(
            path=described.files[name],
            flaws=(
                errors.Flaw(
                    path="$.backend",
                    code="unknown_backend",
                    message=f"{agents[name]['backend']!r:.80} is not a backend",
                ),
            ),
            foreign=True,
        )
        for name in lacking
    ]


def _agent(path: Path) -> dict[str, Any]:
    text = _text(json_files.read(path, MAX_BYTES))
    front, body = _parts(text) if path.suffix == ".md" else (text, "")
    params = _mapping(front)
    meta = params.get("meta") if isinstance(params.get("meta"), Mapping) else params
    name = _word(meta, "name") or _word(params, "name") or path.stem
    if not _ID.fullmatch(name):
        raise _refused("form", f"names the agent {name!r:.80}; names are of letters, digits and _ . - (at most 64)")
    # The text below the head is the role; a file without text has the role in a field.
    role = body.strip() or _word(params, "instruction") or _word(meta, "description") or ""
    return {
        "id": name,
        "archetype": ARCHETYPE,
        "tier": "t5",
        **({"backend": backend} if (backend := _word(params, "backend")) else {}),
        "model": _word(params, "model"),
        "role": role,
        "modes": ["pipeline"],
    }


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused("not_utf8", f"is not UTF-8 at its byte {error.start}") from error


def _parts(text: str) -> tuple[str, str]:
    found = _FRONT.match(text)
    return (found["front"], found["body"]) if found else ("", text)


def _mapping(text: str) -> Mapping[str, Any]:
    import yaml

    try:
        # The C parser overflows the stack on deeply nested documents; this parser raises an error.
        value = yaml.load(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise _refused("syntax", f"has a head that is not YAML: {str(error).splitlines()[0]:.200}") from error
    if value is not None and not isinstance(value, Mapping):
        raise _refused("type", "has a head that is not a mapping")
    return value or {}


def _word(params: Any, name: str) -> str | None:
    value = params.get(name) if isinstance(params, Mapping) else None
    return value.strip() or None if isinstance(value, str) else None


def _refused(code: str, message: str) -> errors.InputRefused:
    return errors.InputRefused(flaws=[errors.Flaw(path="$", code=code, message=message)])
