"""
The roster: agents and backends, read in layers from files named `agents.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app import errors
from app.agents import documents, roster_rules
from app.agents.configuration import BackendConfig, BrokenFile, Recording, Roster
from app.engine import library

MAX_BYTES = 1024 * 1024
"""Largest file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layered:
    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    backends: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load(layers: Sequence[Path]) -> Roster:
    """
    Lay the files over one another: an entry of a later one gives only the fields in which it differs.

    Agents of later files come first, so that a project's planner is chosen before the bundled one. A file with a flaw
    is left out as a whole and told; a file that does not exist is an empty layer.
    """
    layered, broken = _Layered(), []
    for path in layers:
        if not path.exists():
            continue
        try:
            layered = _laid_over(layered, _read(path), path.parent)
        except errors.InputRefused as invalid:
            broken.append(BrokenFile(path=path, flaws=invalid.flaws))
    return Roster(
        agents=tuple(_agent(entry) for entry in layered.agents.values()),
        backends={name: _backend(name, entry) for name, entry in layered.backends.items()},
        broken=tuple(broken),
    )


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = documents.parse(documents.read(path, MAX_BYTES))
    flaws = roster_rules.shape_flaws(document)
    if flaws:
        raise errors.InputRefused(flaws=flaws)
    return document


def _laid_over(below: _Layered, document: Mapping[str, Any], folder: Path) -> _Layered:
    own = {agent["id"]: {**below.agents.get(agent["id"], {}), **agent} for agent in document.get("agents", ())}
    layered = _Layered(
        agents={**own, **{name: entry for name, entry in below.agents.items() if name not in own}},
        backends={**below.backends, **_backends(below.backends, document.get("backends", {}), folder)},
    )
    flaws = roster_rules.sense_flaws(document, layered.agents, layered.backends)
    if flaws:
        raise errors.InputRefused(flaws=flaws)
    return layered


def _backends(
    below: Mapping[str, Mapping[str, Any]], given: Mapping[str, Mapping[str, Any]], folder: Path
) -> dict[str, Mapping[str, Any]]:
    return {name: {**_kept(below.get(name, {}), entry), **_placed(entry, folder)} for name, entry in given.items()}


def _kept(below: Mapping[str, Any], entry: Mapping[str, Any]) -> Mapping[str, Any]:
    # What another type was told means nothing to this one.
    return below if entry.get("type", below.get("type")) == below.get("type") else {}


def _placed(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """
    Return the entry with its file names made absolute, as they are meant from the folder of the file that holds it.
    """
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
