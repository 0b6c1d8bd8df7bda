"""All built-in drivers by name."""

from __future__ import annotations

from collections.abc import Mapping

from app.engine import ports
from app.flows.conference import Conference
from app.flows.decomposition import Decomposition
from app.flows.prompt import Prompt
from app.flows.review import Review
from app.flows.session_plan.driver import SessionPlan

DRIVERS: Mapping[str, ports.Driver] = {
    "conference": Conference(),
    "decomposition": Decomposition(),
    "prompt": Prompt(),
    "review": Review(),
    "session_plan": SessionPlan(),
}
"""Drivers of runs that no recipe file describes."""
