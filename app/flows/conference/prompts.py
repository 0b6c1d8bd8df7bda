"""Prompts: those of the chief, turn by turn, and that of the participants, which is the same for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain import evidence, plain, records

ARGS_CHARACTERS = 1_000  # Longest part of a call's arguments in a prompt.
ERROR_CHARACTERS = 400  # Longest part of the reason of a failure.

_GATHER = (
    "You gather the evidence for a conference: afterwards every agent of the team is shown what your tool calls have "
    "brought, and says what it thinks. Do not answer the question yourself."
)
INTERPRET = (
    "You have no tools, and nobody sees what the others answer. Say in plain words what you think of it in your role, "
    "by the evidence that is shown. If your role has nothing to say to it, answer with nothing but ABSTAIN: and the "
    "reason."
)
_ANSWER = "Answer with one JSON object and nothing else."
_FIRST, _END = "Call a tool first.", '{"done": true} ends the gathering.'
_AGAIN = "No call has brought anything yet. Call another tool, or call it with other arguments."
_UNLESS = "An answer that is an abstention needs no such line.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A tool's payload, as far as a prompt may show it."""

    text: str  # Its beginning, as JSON.
    characters: int  # Length of the whole payload.


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A tool call of the chief, and its result."""

    key: str  # Its step.
    tool: str  # Tool that was called, or that the chief wanted to call.
    args: plain.Object  # Arguments.
    receipt_id: str | None  # Proof of its execution; None if the server refused it.
    summary: str = ""  # One line about the result.
    payload: Payload | None = None  # The result; None if the call failed.
    error: records.StepError | None = None  # Reason why it failed or was refused.

    @property
    def refused(self) -> bool:
        """Return whether the server refused to execute it."""
        return self.receipt_id is None

    def facts(self) -> plain.Object:
        """Return its end, for programs."""
        return {
            "key": self.key,
            "tool": self.tool,
            "status": "refused" if self.refused else "done" if self.error is None else "failed",
            "receipt_id": self.receipt_id,
            "code": self.error.code if self.error is not None else None,
        }

    def shown(self, characters: int = ARGS_CHARACTERS) -> str:
        """Return tool and arguments on one line."""
        return f"{self.tool} {clipped(plain.encode(plain.plain(self.args)).decode(), characters)}"

    def failure(self) -> str:
        """Return why it has no result."""
        assert self.error is not None
        what, why = "refused" if self.refused else "failed", clipped(self.error.message, ERROR_CHARACTERS)
        return f"{what}: {why} [{self.error.code}]"


def payload(value: plain.Json, most: int) -> Payload:
    """Return a payload in the form for prompts."""
    text = value if isinstance(value, str) else plain.encode(value).decode()
    return Payload(text=text[:most], characters=len(text))


def chief(
    message: str,
    tools: Mapping[str, Mapping[str, Any]],
    called: Sequence[Called],
    *,
    calls_left: int,
    must_call: bool,
    problem: str | None,
    characters: int,
) -> tuple[str, ...]:
    """Return the prompt of one turn of the chief."""
    listed = "".join(f"\n{_tool(name, tool)}" for name, tool in tools.items())
    brought = _brought(called, characters) if called else "\n\nNothing yet."
    ending = _END if not must_call else _AGAIN if called else _FIRST
    wrong = f"Your last reply could not be used: it {problem}. " if problem else ""
    calling = f'{{"tool": "NAME", "args": {{…}}}} calls a tool; you can do that {_times(calls_left)}.'
    parts = (
        _question(message),
        _GATHER,
        f"Tools that you may call:{listed}",
        f"What your calls have brought:{brought}",
        f"{wrong}{_ANSWER}\n{calling}\n{ending}",
    )
    return ("\n\n".join(parts),)


def opinion(message: str, called: Sequence[Called], characters: int) -> tuple[str, ...]:
    """Return the prompt that every participant gets."""
    good = [each for each in called if each.payload is not None]
    shown = f"Evidence, the same for everybody:{_brought(good, characters)}" if good else "No evidence was gathered."
    return (f"{_question(message)}\n\n{shown}\n\n{INTERPRET}",)


def standing(role: str, requirement: str, called: Sequence[Called]) -> str | None:
    """Return the part of a prompt for one participant: its role, and the evidence that the role requires."""
    receipts = {f"{each.key} ({each.tool})": each.receipt_id for each in called if each.payload and each.receipt_id}
    wanted = evidence.request(requirement, receipts)
    return f"{role}{wanted}{_UNLESS if wanted else ''}".strip() or None


def shares(lengths: Sequence[int], room: int) -> list[int]:
    """Divide a length among texts: short ones get their whole length, the others share the rest equally."""
    params = [0] * len(lengths)
    for before, number in enumerate(sorted(range(len(lengths)), key=lambda each: lengths[each])):
        params[number] = min(lengths[number], max(room, 0) // (len(lengths) - before))
        room -= params[number]
    return params


def clipped(text: str, characters: int) -> str:
    """Return a text that is cut to a length, with a sign at the cut."""
    return text if len(text) <= characters else f"{text[: max(characters - 1, 0)]}…"


def _question(message: str) -> str:
    return f"The question to the team:\n{message}"


def _tool(name: str, tool: Mapping[str, Any]) -> str:
    schema = tool["args_schema"]
    required = schema.get("required", ())
    args = [_argument(arg, rule, arg in required) for arg, rule in schema.get("properties", {}).items()]
    return "\n".join([f"- {name}: {tool['description']}", *args])


def _argument(name: str, rule: Any, required: bool) -> str:
    rule = rule if isinstance(rule, Mapping) else {}
    # A tool's schema comes from its author: any part of it may be malformed.
    kind = " or ".join(map(str, rule["enum"])) if "enum" in rule else str(rule.get("type", "any"))
    needed = (
        "required" if required else f"default {plain.encode(rule['default']).decode()}" if "default" in rule else ""
    )
    facts = ", ".join(fact for fact in (kind, needed) if fact)
    return f"    {name} ({facts}): {rule.get('description', '')}".rstrip(": ")


def _brought(called: Sequence[Called], characters: int) -> str:
    lengths = [each.payload.characters if each.payload else 0 for each in called]
    shown = zip(called, shares(lengths, characters), strict=True)
    return "".join(f"\n\n[{number}] {_result(each, share)}" for number, (each, share) in enumerate(shown, start=1))


def _result(each: Called, share: int) -> str:
    if each.payload is None:
        return f"{each.shown()}\n{each.failure()}"
    whole = each.payload.characters
    cut = "" if share >= whole else f"\n[cut: {share} of {whole} characters are shown; the receipt holds all of it]"
    return f"{each.shown()}\nreceipt_id: {each.receipt_id}\n{each.payload.text[:share]}{cut}"


def _times(count: int) -> str:
    return "once more" if count == 1 else f"{count} more times"
