"""Bounds: how often a pipeline asks agents at most."""

from __future__ import annotations

from app.dialects.control_room import prompts
from app.domain import limits, plain


def calls(document: plain.Object, frozen: plain.Object) -> limits.CallLimit:
    """Return one call for each agent's step, three where it is split into micro-steps."""
    templates = frozen.get("prompts", {})
    tiers = [templates.get(step["step_id"], {}).get("tier") for step in document.get("phase_b", ()) if step is not None]
    return limits.CallLimit(most=sum(len(prompts.MICRO_STEPS) if tier == "t1" else 1 for tier in tiers))
