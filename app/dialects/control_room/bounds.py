"""Bounds: the most calls of agents that a pipeline can make."""

from __future__ import annotations

from app.dialects.control_room import prompts
from app.domain import limits, plain


def calls(document: plain.Object, frozen: plain.Object) -> limits.CallLimit:
    """Return one call for each step of an agent, or three if the step is split into micro-steps."""
    templates = frozen.get("prompts", {})
    tiers = [templates.get(step["step_id"], {}).get("tier") for step in document.get("phase_b", ()) if step is not None]
    return limits.CallLimit(most=sum(len(prompts.MICRO_STEPS) if tier == "t1" else 1 for tier in tiers))
