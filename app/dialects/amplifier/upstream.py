"""Upstream: fields of later recipes of Amplifier that mean nothing here, and what to write instead."""

# Schema 1.7 knows both our names and those of later recipes; the document is kept as written, so that paths and
# lines of errors are those of the file. Names that differ in behaviour keep the behaviour of their source.

from __future__ import annotations

from collections.abc import Mapping

_AGENTS = "agents are configured in agents.json or described in .amplifier/agents; remove it"
_GATE = "write the step into a stage of its own with approval: {required: true, prompt: …}"
_STAGE_GATE = "write approval: {required: true, prompt: …}"

INSTEAD: Mapping[str, str] = {
    "schema_version": 'the version of the language is written as schema: "1.7"; remove it',
    "dependencies": _AGENTS,
    "agents": _AGENTS,
    "capabilities": "what an agent may do is set at its backend in agents.json; remove it",
    "orchestrator": "write rate_limiting: {min_delay_ms: …} for a pause before each prompt",
    "approval_required": _STAGE_GATE,
    "approval_message": _STAGE_GATE,
    "auto_approve_if": "no approval is given by a condition; write condition on the steps of the stage",
    "requires_approval": _GATE,
    "condition": "write it on each step of the stage",
    "recursion": "limits are those of the whole recipe; write it at the top, or in the recipe that is run",
    "model_role": "write model: haiku, sonnet or opus",
    "class": "write provider and model, with haiku, sonnet or opus as the model",
    "required": "preferences are tried in order, and the last one decides; remove it",
    "spawn_mode": "every agent is asked in a conversation of its own; remove it",
    "checkpoint_iterations": "every iteration is a step of the journal, from which a run continues; remove it",
    "reset_after_success": "every prompt begins with the first delay; remove it",
    "instruction": "write prompt",
    "message": "write prompt",
    "as_var": "write as",
    "step_context": "write context",
    "while_steps": "write steps",
}
"""What to write in place of a field, by its name."""

COMPUTED = ("timeout", "max_iterations", "max_while_iterations", "max_tokens")
"""Numbers that later recipes may compute from variables."""
