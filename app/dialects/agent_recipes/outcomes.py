"""Outcomes: ask an agent for one, and read it from the reply (agent-recipes, 2.2 to 2.4).

The texts are a protocol that agents know: every word and every line break is fixed.
"""

# The wording of reminders is hashed with their prompts, so runs of driver version 1 keep the old opener, which
# reports every fault as a missing block.

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app import errors
from app.dialects.agent_recipes import schema
from app.domain import json_text, plain

TAIL_LINES = 5  # Number of lines at the end of a reply that are examined.
NO_JSON = "No JSON block found in response"  # Error if no line at the end of the reply could be an object.
REMINDER = ".reminder"  # End of the key of a reminder.
VERSION = 2  # Version of the wording; runs that began with the first one keep it.

Fault: TypeAlias = Literal["no_block", "no_json", "no_outcome", "unknown_outcome", "no_description"]
"""Kinds of faults of a reply."""

_OPENERS: Mapping[Fault, str] = {
    "no_block": "Your previous response did not include the required JSON outcome block.",
    "no_json": "Your previous response ended with an outcome block that is not valid JSON.",
    "no_outcome": 'Your previous response ended with a JSON block without a valid "outcome" field.',
    "unknown_outcome": "Your previous response reported an outcome that this step does not have.",
    "no_description": 'Your previous response reported the outcome "other" without saying in "otherDescription" why.',
}

_KEPT_CHARACTERS = 2_000
_SHOWN_CHARACTERS = 300
_FENCE = re.compile(r"```(?:json)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """An outcome that was read."""

    outcome: str  # One of the step's outcomes.
    description: str | None = None  # Explanation of the outcome `other`; None for every other one.

    def to_json(self) -> dict[str, plain.Json]:
        """Return `{success, outcome, description}`."""
        return {"success": True, "outcome": self.outcome, "description": self.description}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOutcome:
    """A reply without a valid outcome."""

    error: str  # The fault, in the words sent to the agent.
    malformed_json: str | None = None  # The beginning of the line read as the outcome; None if there is none.
    fault: Fault = "no_block"  # The kind of fault.

    def to_json(self) -> dict[str, plain.Json]:
        """Return `{success, error, malformedJson}`."""
        return {"success": False, "error": self.error, "malformedJson": self.malformed_json}


Extraction: TypeAlias = Reported | NoOutcome


def prompt(instruction: str, outcomes: Collection[str]) -> str:
    """Return the prompt of a step: its instruction, and the text that requests an outcome."""
    return (
        f"{instruction}\n\nEnd your response with one of these JSON blocks on the last line:\n\n{_examples(outcomes)}"
    )


def reminder(missed: NoOutcome, outcomes: Collection[str], version: int = VERSION) -> str:
    """Return the reminder after a reply without an outcome; it begins with the fault."""
    return (
        f"{_OPENERS['no_block' if version < VERSION else missed.fault]}\n"
        "Please respond now with ONLY the JSON outcome on a single line.\n"
        "\n"
        f"Error: {missed.error}\n"
        "\n"
        "Valid responses:\n"
        "\n"
        f"{_examples(outcomes)}\n"
        "\n"
        "Respond with ONLY the JSON block, nothing else."
    )


def extract(reply: str, outcomes: Collection[str], version: int = VERSION) -> Extraction:
    """Read the outcome from the last lines of a reply; the newest line in braces decides, valid or not."""
    candidate = _candidate(reply)
    if candidate is None:
        return NoOutcome(error=NO_JSON)
    try:
        found = _parsed(candidate, exact=version >= VERSION)
    except errors.InputRefused as error:
        return _unreadable("no_json", f"Invalid JSON: {_description(error.flaws[0])}", candidate)
    return _validated(found, candidate, outcomes, version)


def _examples(outcomes: Collection[str]) -> str:
    named = [f'{{"outcome": {json.dumps(name)}}}' for name in sorted(outcomes) if name != schema.OTHER]
    other = ['{"outcome": "other", "otherDescription": "<brief description>"}'] if schema.OTHER in outcomes else []
    return "\n".join(named + other)


def _candidate(reply: str) -> str | None:
    # Trailing blank lines are ignored. Only a line feed ends a line, since JSON may contain other separators.
    tail = reply.rstrip().rsplit("\n", TAIL_LINES)[-TAIL_LINES:]
    trimmed = (line.strip() for line in reversed(tail))
    return next((line for line in trimmed if line.startswith("{") and line.endswith("}")), None)


def _parsed(candidate: str, *, exact: bool) -> plain.Json:
    try:
        return json_text.read(candidate, exact=exact)
    except errors.InputRefused:
        if not _FENCE.search(candidate):
            raise
    # A fence inside a valid object belongs to its text; it is removed only if it breaks the object.
    return json_text.read(_FENCE.sub("", candidate), exact=exact)


def _description(flaw: errors.Flaw) -> str:
    place = "" if flaw.path == "$" else f"{flaw.path} "
    return place + flaw.message.removeprefix("is not JSON: ")


def _validated(found: plain.Json, candidate: str, outcomes: Collection[str], version: int) -> Extraction:
    if "outcome" not in found:
        return _unreadable("no_outcome", 'Missing "outcome" field in JSON block', candidate)
    outcome = found["outcome"]
    if not isinstance(outcome, str):
        return _unreadable("no_outcome", 'The "outcome" field must be a string', candidate)
    if outcome not in outcomes:
        # Version 1 quoted texts as Python does, and the prompts in its journals contain that text.
        shown = repr(outcome) if version < VERSION else json.dumps(outcome, ensure_ascii=False)
        expected = ", ".join(sorted(outcomes))
        return _unreadable("unknown_outcome", f"Invalid outcome {shown:.80}. Expected one of: {expected}", candidate)
    if outcome != schema.OTHER:
        return Reported(outcome=outcome)
    description = found.get("otherDescription")
    if not isinstance(description, str) or not description.strip():
        return _unreadable("no_description", 'The outcome "other" requires an "otherDescription" field', candidate)
    return Reported(outcome=outcome, description=description)


def _unreadable(fault: Fault, error: str, candidate: str) -> NoOutcome:
    shown = " ".join(error.split())[:_SHOWN_CHARACTERS]
    return NoOutcome(error=shown, malformed_json=candidate[:_KEPT_CHARACTERS], fault=fault)
