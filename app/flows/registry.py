"""All built-in drivers by name."""

from __future__ import annotations

from collections.abc import Mapping

from app.engine import ports
from app.flows.conference import Conference
from app.flows.decomposition import Decomposition
from app.flows.prompt import Prompt

DRIVERS: Mapping[str, ports.Driver] = {
    "conference": Conference(),
    "decomposition": Decomposition(),
    "prompt": Prompt(),
}
"""Drivers of runs that no recipe file describes."""
