"""All recipe languages by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from app.dialects.agent_recipes import AgentRecipes
from app.dialects.amplifier import Amplifier
from app.dialects.control_room import ControlRoom
from app.dialects.orchestrate import Orchestrate
from app.domain import library
from app.engine import ports

DIALECTS: Mapping[str, ports.Dialect] = {
    "control_room": ControlRoom(),
    "agent_recipes": AgentRecipes(),
    "amplifier": Amplifier(),
    "orchestrate": Orchestrate(),
}
"""One line for each."""


def likely(path: PurePath, source: str) -> str:
    """Return the language that a recipe's file is most likely written in: the one that its folder is named for, else of
    those with its ending the one that finds the least wrong with it.
    """
    if path.parent.name in DIALECTS:
        return path.parent.name
    fitting = [name for name, dialect in DIALECTS.items() if path.name.endswith(dialect.file_suffixes)]
    nothing = library.Library()
    return min(fitting or DIALECTS, key=lambda name: len(DIALECTS[name].flaws(source, path.stem, nothing)))
