"""The roster: agents and backends, read in layers from files named `agents.json`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app import errors, resources
from app.agents import agent_files, json_files, roster_rules
from app.agents.configuration import BackendConfig, BrokenFile, Recording, Roster
from app.domain import library

MAX_BYTES = 1024 * 1024  # Largest file.
LOCAL = "local"  # Backend of agents of `agents.json` if neither they nor the project name one.

_BUNDLED = resources.bundled("recipes", "agents.json")

ON_LOCAL: Mapping[str, str] = {"evidence": "none", "on_cut_off": "keep"}
"""Fields of the bundled agents while they use the local model, which quotes no evidence and stops early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layered:
    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    backends: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    default_backend: str | None = None
    yielding: Mapping[str, frozenset[str]] = field(default_factory=dict)  # First-layer fields that no layer overrides.


def load(layers: Sequence[Path]) -> Roster:
    """Merge the files in order: an entry of a later one gives only the fields in which it differs.

    Agents of later files come first, so that a project's planner is chosen before the bundled one. A file with a flaw
    is left out as a whole and reported; a file that does not exist is an empty layer. A folder is a layer of agent
    files; of these, each broken one is left out by itself.
    """
    layered, broken, described = _Layered(), list[BrokenFile](), agent_files.Described()
    for path in layers:
        # With `pathlib`, a path that cannot be examined raises or is absent, depending on the version of Python.
        if os.path.isdir(path):
            described = agent_files.read(path)
            broken += described.broken
            layered = _with_agents(layered, described.agents)
            continue
        try:
            layered = _laid_over(layered, _read(path), path.parent)
        except errors.InputRefused as invalid:
            code = invalid.detail.get("errno")
            if code not in ("ENOENT", "ENOTDIR"):
                broken.append(BrokenFile(path=path, flaws=invalid.flaws, errno=code))
    # A later layer may name the backend of an agent, or the default.
    layered = _with_default(layered, described)
    silent = agent_files.without_backend(described, layered.agents, layered.backends)
    left_out = {name for name, path in described.files.items() if path in [file.path for file in silent]}
    broken += silent
    return Roster(
        agents=tuple(_agent(entry) for name, entry in layered.agents.items() if name not in left_out),
        backends={name: _backend(name, entry) for name, entry in layered.backends.items()},
        broken=tuple(broken),
        default_backend=layered.default_backend,
    )


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json_files.parse(json_files.read(path, MAX_BYTES))
    # The bundled file was checked before it was packed; loading the checker takes longer than the rest.
    flaws = roster_rules.shape_flaws(document) if path != _BUNDLED else []
    if flaws:
        raise errors.InputRefused(flaws=flaws)
    return document


def _with_agents(below: _Layered, agents: Mapping[str, Mapping[str, Any]]) -> _Layered:
    own = {name: {**below.agents.get(name, {}), **agent} for name, agent in agents.items()}
    return dataclasses.replace(
        below,
        agents={**own, **{name: entry for name, entry in below.agents.items() if name not in own}},
        # On the local model, `ON_LOCAL` overrides these fields of first-layer agents, unless a later layer sets them.
        yielding={name: below.yielding[name] - agents.get(name, {}).keys() for name in below.yielding}
        or dict.fromkeys(agents, frozenset(ON_LOCAL)),
    )


def _with_default(layered: _Layered, described: agent_files.Described) -> _Layered:
    usual = dict.fromkeys(described.files, agent_files.DEFAULT_BACKEND)
    agents = {}
    for name, agent in layered.agents.items():
        backend = agent.get("backend") or layered.default_backend or usual.get(name, LOCAL)
        is_local = layered.backends.get(backend, {}).get("type") == LOCAL
        yielding = layered.yielding.get(name, frozenset()) if is_local else frozenset()
        agents[name] = {**agent, "backend": backend, **{field: ON_LOCAL[field] for field in yielding}}
    return dataclasses.replace(layered, agents=agents)


def _laid_over(below: _Layered, document: Mapping[str, Any], folder: Path) -> _Layered:
    layered = dataclasses.replace(
        _with_agents(below, {agent["id"]: agent for agent in document.get("agents", ())}),
        backends={**below.backends, **_backends(below.backends, document.get("backends", {}), folder)},
        default_backend=document.get("default_backend", below.default_backend),
    )
    flaws = roster_rules.sense_flaws(document, layered.agents, layered.backends)
    if flaws:
        raise errors.InputRefused(flaws=flaws)
    return layered


def _backends(
    below: Mapping[str, Mapping[str, Any]], params: Mapping[str, Mapping[str, Any]], folder: Path
) -> dict[str, Mapping[str, Any]]:
    return {name: {**_stored(below.get(name, {}), entry), **_placed(entry, folder)} for name, entry in params.items()}


def _stored(below: Mapping[str, Any], entry: Mapping[str, Any]) -> Mapping[str, Any]:
    # Settings of another backend type do not apply to this one.
    return below if entry.get("type", below.get("type")) == below.get("type") else {}


def _placed(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    placed = dict(entry)
    if "file" in entry:
        placed["file"] = folder.absolute() / entry["file"]
    if "record" in entry:
        placed["record"] = entry["record"] | {"file": folder.absolute() / entry["record"]["file"]}
    return placed


def _agent(entry: Mapping[str, Any]) -> library.Agent:
    return library.Agent(**{**entry, "modes": tuple(entry.get("modes", ()))})


def _backend(name: str, entry: Mapping[str, Any]) -> BackendConfig:
    fields = {field: _frozen(value) for field, value in entry.items() if field != "record"}
    recording = Recording(**entry["record"]) if "record" in entry else None
    return BackendConfig(name=name, **fields, record=recording)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
