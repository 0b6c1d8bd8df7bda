"""
All dialects by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.dialects.agent_recipes import AgentRecipes
from app.dialects.control_room import ControlRoom
from app.dialects.orchestrate import Orchestrate
from app.dialects.prompt import Prompt
from app.engine import ports

DIALECTS: Mapping[str, ports.Dialect] = {
    "control_room": ControlRoom(),
    "agent_recipes": AgentRecipes(),
    "orchestrate": Orchestrate(),
}
"""One line for each."""

DRIVERS: Mapping[str, ports.Dialect] = {"prompt": Prompt()}
"""What executes runs of which no recipe file tells."""
