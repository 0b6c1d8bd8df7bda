"""Replies: convert the chief's reply into a verdict with evidence, and into proposals, accepted or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app import errors
from app.domain import evidence, json_schemas, json_text, operations, plain, task_reviews
from app.flows.decomposition import replies
from app.flows.review import prompts

_CHECKED: plain.Object = {
    "type": "object",
    "required": ["verdict", "why"],
    "properties": {
        "verdict": {"type": "string", "enum": [each.value for each in task_reviews.Verdict]},
        "why": {"type": "string", "minLength": 1, "pattern": r"\S"},
        "evidence": {"type": ["string", "null"]},
        "proposals": {"type": ["array", "null"]},
    },
}
_FIELDS: Mapping[str, plain.Json] = {
    "description": {"type": "string", "minLength": 1, "maxLength": 4_000, "pattern": r"\S"},
    "args": {"type": "object", "maxProperties": 50},
    "deps": {"type": "array", "maxItems": 200, "items": {"type": "integer", "minimum": 1}},
    "dod": {"type": "string", "maxLength": 4_000},
    "scoping_question": {"type": "string", "maxLength": 4_000},
}
_KINDS: Mapping[str, plain.Object] = {
    "add_task": {"required": ["description"], "allowed": [*_FIELDS]},
    "edit_task": {"required": ["task"], "allowed": ["task", *_FIELDS]},
    "remove_task": {"required": ["task"], "allowed": ["task"]},
}
_PROPOSAL_BYTES = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The chief's reply."""

    verdict: task_reviews.Verdict  # The verdict on the task.
    why: str  # Its reason.
    evidence: str  # Its line of evidence; empty if it gives none.
    proposals: tuple[plain.Object, ...] = ()
    """Proposals, each `{kind, task, fields, why, problem}`; `problem` is None, or the reason why it is refused."""


def read(text: str) -> Reply:
    """Return the content of a reply that is JSON, or has it in a fenced block.

    Raises:
        errors.InputRefused: with every flaw and its path.
    """
    value: Any = json_text.read(replies.inside(text))
    flaws = json_schemas.flaws(_CHECKED, value)
    if flaws:
        raise errors.InputRefused(f"{flaws[0].path} {flaws[0].message}", flaws=flaws)
    proposals = list(value.get("proposals") or ())
    return Reply(
        verdict=task_reviews.Verdict(value["verdict"]),
        why=_cut(value["why"].strip()),
        evidence=_evidence_line(value.get("evidence") or ""),
        proposals=tuple(_proposal(each) for each in proposals[: prompts.MOST_PROPOSALS]),
    )


def check(reply: Reply, outputs: Sequence[prompts.Shown]) -> operations.Operation:
    """Return the operation that checks the evidence of a reply."""
    reading = evidence.read(reply.evidence, "any")
    texts = {each.source: each.text for each in outputs if each.path is None}
    if isinstance(reading, evidence.Claim) and reading.path in texts:
        return operations.CheckEvidence(quote=reading.quote, path=reading.path, text=texts[reading.path])
    return evidence.operation(reading)


def _evidence_line(text: str) -> str:
    line = " ".join(text.split())
    if not line or not isinstance(evidence.read(line, "any"), evidence.Rejection):
        return line
    named = f"Evidence: {line}"
    return line if isinstance(evidence.read(named, "any"), evidence.Rejection) else named


def _proposal(value: Any) -> dict[str, plain.Json]:
    given: dict[str, Any] = dict(value) if isinstance(value, dict) else {}
    # Backends that enforce a schema fill unused fields with null.
    given = {name: each for name, each in given.items() if each is not None}
    kind, task = given.get("kind"), given.get("task")
    problem = next(_problems(value, given), None)
    fields = {name: given[name] for name in _FIELDS if name in given} if problem is None else {}
    return {
        "kind": kind if kind in [*_KINDS] else None,
        "task": task if isinstance(task, int) and not isinstance(task, bool) and task > 0 else None,
        "fields": fields,
        "why": _cut(str(given.get("why", "")).strip()),
        "problem": problem,
    }


def _problems(value: Any, given: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(value, dict):
        yield "it is no object"
        return
    kind: Any = given.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        yield f"its kind {plain.encode(kind).decode():.80} is none of {', '.join(_KINDS)}"
        return
    if len(plain.encode(given)) > _PROPOSAL_BYTES:
        yield f"it has more than {_PROPOSAL_BYTES} bytes"
        return
    known = {name: _FIELDS.get(name, {"type": "integer", "minimum": 1}) for name in _KINDS[kind]["allowed"]}
    fields = {name: each for name, each in given.items() if name not in ("kind", "why")}
    # The proposal has the fields of its kind, and no others.
    if kind == "add_task":
        # The new task has no number yet.
        fields.pop("task", None)
    elif kind == "edit_task" and not fields.keys() - {"task"}:
        yield "it changes nothing"
    schema = json_schemas.closed(required=list(_KINDS[kind]["required"]), **known)
    yield from (f"{flaw.path}: {flaw.message}" for flaw in json_schemas.flaws(schema, plain.plain(fields)))


def _cut(text: str) -> str:
    most = prompts.WHY_CHARACTERS
    return text if len(text) <= most else f"{text[: most - 1]}…"
