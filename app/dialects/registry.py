"""The registry of recipe languages, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from app.domain import library
from app.engine import ports, registries


def _control_room() -> ports.Dialect:
    from app.dialects.control_room import ControlRoom

    return ControlRoom()


def _agent_recipes() -> ports.Dialect:
    from app.dialects.agent_recipes import AgentRecipes

    return AgentRecipes()


def _amplifier() -> ports.Dialect:
    from app.dialects.amplifier import Amplifier

    return Amplifier()


def _orchestrate() -> ports.Dialect:
    from app.dialects.orchestrate import Orchestrate

    return Orchestrate()


DIALECTS: Mapping[str, ports.Dialect] = registries.LazyRegistry(
    {
        "control_room": _control_room,
        "agent_recipes": _agent_recipes,
        "amplifier": _amplifier,
        "orchestrate": _orchestrate,
    }
)
"""The dialects by name."""


def likely(path: PurePath, source: str) -> str:
    """Return the likely language of a recipe's file: by its folder, otherwise by the fewest flaws at the top level."""
    if path.parent.name in DIALECTS:
        return path.parent.name
    fitting = [name for name, dialect in DIALECTS.items() if path.name.endswith(dialect.file_suffixes)]
    flaws = {name: DIALECTS[name].flaws(source, path.stem, library.Library()) for name in fitting or DIALECTS}
    own = {name: sum(len(flaw.path.split(".")) < 3 and "[" not in flaw.path for flaw in flaws[name]) for name in flaws}
    return min(flaws, key=lambda name: (own[name], len(flaws[name])))
