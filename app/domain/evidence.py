"""Evidence: finds the line of a reply that supports it, and checks its form (execution-modes, conference evidence)."""

# Whether a file contains a quote is a fact of the world at one moment. Checked inside the agent's step, it would put
# two facts into one record, and a driver cannot check it. So the rules are here, for all dialects, and the operation
# `check_evidence` examines the world.
#
# A driver records the result under `<prompt>.evidence`. The prompt states which form is wanted and which receipts
# support its slots: an agent cannot name an id that it never saw. A rejection ends the run with `evidence_rejected`;
# the prompt and the check are its causes, so a resume asks again. Price: the check of a micro-step has the key
# `brief.evidence.evidence`.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.domain import abstentions, operations, plain

LINE_CHARACTERS = 4000  # Longest line of evidence.

# Invisible characters may be between letters: a second line must not be hidden by them.
_WORD = f"[{abstentions.UNSEEN}]*".join(f"[{letter}{chr(ord(letter) + 0xFEE0)}]" for letter in "evidence")
_LINE = re.compile(
    # Any characters but words may precede it: bullets, numbers, tags. With a quotation mark after it, it is a JSON key.
    rf"(?:{abstentions.TAG}|\[[ x]\]|[a-z][.)]|[\W\d_])*+{_WORD}"
    rf"(?:{abstentions.TAG}|[^\w:\ufe13\ufe55\uff1a\"']|[\d_])*+{abstentions.COLON}(?P<claim>.*)",
    re.IGNORECASE | re.DOTALL,
)
# A path begins and ends with a non-blank: consecutive blanks can then match in only one way.
_PATH = r"""[^\s"“”„`](?:[^"“”„`]*[^\s"“”„`])?"""
_QUOTE = re.compile(rf'["“„](?P<quote>.+)["”“][*_`]*\s*\(\s*`?\s*(?P<path>{_PATH})\s*`?\s*\)\.?')
_RECEIPT = re.compile(r"receipt_id[*_`]*\s*:[\s*_`]*(?P<receipt_id>rcpt_[A-Za-z0-9_-]{1,120})`?\.?")

_FORMS = {
    "file": 'Evidence: "words of the file, exactly as they stand there" (path/of/the/file)',
    "receipt": "Evidence: receipt_id: rcpt_…",
}
_ACCEPTED: Mapping[str, Sequence[str]] = {"file": ("file",), "receipt": ("receipt",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The evidence that a reply names."""

    line: int  # Line of the reply, from 1.
    quote: str | None = None  # Words that the file must contain; None if the reply names a receipt.
    path: str | None = None  # Path of the file in the workspace.
    receipt_id: str | None = None  # Receipt that the reply names; None if it quotes a file.

    @property
    def form(self) -> str:
        """Return `file` or `receipt`."""
        return "file" if self.receipt_id is None else "receipt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The reason why a reply's evidence is refused without examining the world."""

    code: str  # `evidence_missing`, `evidence_repeated`, `evidence_malformed` or `evidence_kind`.
    message: str  # One sentence for people.
    facts: Mapping[str, plain.Json]  # Facts for machines.


@dataclass(frozen=True, slots=True, kw_only=True)
class Exempt:
    """The reply claims no evidence, and its role need not provide any."""


Reading: TypeAlias = Claim | Rejection | Exempt  # How a reply's evidence is read.


def read(reply: str, requirement: str) -> Reading:
    """Read the one line of evidence in a reply.

    Args:
        requirement: Evidence that the role must provide: `none`, `any`, `file` or `receipt`; any claim must hold.
    """
    lines = [(number, found["claim"]) for number, line in _lines(reply) if (found := _LINE.fullmatch(line))]
    if not lines:
        return Exempt() if requirement == "none" else _missing(requirement)
    # With several lines, one could be made up and another true, and the check would have to choose.
    if len(lines) > 1:
        numbers = [number for number, _ in lines]
        message = f"The reply has {len(lines)} lines of evidence; it must have exactly one."
        facts: dict[str, plain.Json] = {"requirement": requirement, "lines": [*numbers]}
        return Rejection(code="evidence_repeated", message=message, facts=facts)
    claim = _claim(*lines[0])
    if claim is None:
        return _malformed(lines[0][0], requirement)
    accepted = _accepted(requirement)
    if claim.form not in accepted:
        message = f"The evidence names a {claim.form}, and the role must bring a {accepted[0]}."
        facts = {"requirement": requirement, "form": claim.form, "line": claim.line}
        return Rejection(code="evidence_kind", message=message, facts=facts)
    return claim


def operation(reading: Reading) -> operations.Operation:
    """Return the operation that records the reading: a check of the world, a refusal, or a skip."""
    match reading:
        case Claim():
            return operations.CheckEvidence(quote=reading.quote, path=reading.path, receipt_id=reading.receipt_id)
        case Rejection():
            detail = {"evidence": dict(reading.facts)}
            return operations.Refusal(code=reading.code, message=reading.message, detail=detail)
        case Exempt():
            return operations.Skip(reason="The role needs no evidence, and the reply claims none.")


def request(requirement: str, receipts: Mapping[str, str]) -> str:
    """Return the text by which a prompt requests evidence; empty if the role need not provide any.

    Args:
        receipts: Receipts that the agent can name, each under the name of what it proves.
    """
    if requirement == "none":
        return ""
    accepted = _accepted(requirement)
    forms = "\nor\n".join(_FORMS[form] for form in accepted)
    listed = "".join(f"\n- {receipt_id}: {name}" for name, receipt_id in receipts.items())
    known = f"\nReceipts that can be named:{listed}" if listed and "receipt" in accepted else ""
    return f"\n\nEnd with exactly one line of evidence, in this form:\n{forms}{known}\n"


def _lines(reply: str) -> list[tuple[int, str]]:
    return list(enumerate(reply.splitlines(), start=1))


def _accepted(requirement: str) -> Sequence[str]:
    return _ACCEPTED.get(requirement, tuple(_FORMS))


def _claim(line: int, text: str) -> Claim | None:
    text = abstentions.bare(text)
    if len(text) > LINE_CHARACTERS:
        return None
    if named := _RECEIPT.fullmatch(text):
        return Claim(line=line, receipt_id=named["receipt_id"])
    quoted = _QUOTE.fullmatch(text)
    if quoted is None or not any(character.isalnum() for character in quoted["quote"]):
        return None
    return Claim(line=line, quote=quoted["quote"].strip(), path=quoted["path"].strip())


def _missing(requirement: str) -> Rejection:
    message = f"The reply has no line of evidence; it must have exactly one: {_wanted(requirement)}."
    return Rejection(code="evidence_missing", message=message, facts={"requirement": requirement, "lines": []})


def _malformed(line: int, requirement: str) -> Rejection:
    message = f"The evidence in line {line} has none of the forms that it can have: {_wanted(requirement)}."
    return Rejection(code="evidence_malformed", message=message, facts={"requirement": requirement, "line": line})


def _wanted(requirement: str) -> str:
    return ", or ".join(_FORMS[form] for form in _accepted(requirement))
