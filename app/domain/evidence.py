"""Evidence: which line of a reply proves it, and what a role must bring (execution-modes, conference evidence)."""

# Whether a quote is in a file is a fact of the world at one moment: checked inside the agent's step it would put two
# facts into one record, and a driver cannot check it. So the rules are here, for all dialects, and the operation
# `check_evidence` looks at the world.
#
# A driver records the result under `<prompt>.evidence`. The prompt says which form is wanted and which receipts its
# slots rest on, since an agent cannot name an id that it never saw. A rejection ends the run with `evidence_rejected`;
# the prompt and the check are its causes, so a resume asks again. Price: the check of a micro-step has the key
# `brief.evidence.evidence`.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.domain import abstentions, operations, plain

LINE_CHARACTERS = 4000  # Longest line of evidence.

# Invisible characters may be between letters: a second line must not hide behind them.
_WORD = f"[{abstentions.UNSEEN}]*".join(f"[{letter}{chr(ord(letter) + 0xFEE0)}]" for letter in "evidence")
_LINE = re.compile(
    # Anything but words may precede it, bullets, numbers and tags; a quotation mark behind it makes it a key.
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
    """What a reply names as its evidence."""

    line: int  # Line of the reply, from 1.
    quote: str | None = None  # Words that the file must contain; None if a receipt is named.
    path: str | None = None  # Path of the file in the workspace.
    receipt_id: str | None = None  # Receipt that is named; None where a file is quoted.

    @property
    def form(self) -> str:
        """Return `file` or `receipt`."""
        return "file" if self.receipt_id is None else "receipt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a reply's evidence can be refused without a look at the world."""

    code: str  # `evidence_missing`, `evidence_repeated`, `evidence_malformed` or `evidence_kind`.
    message: str  # One sentence for people.
    facts: Mapping[str, plain.Json]  # Facts for machines.


@dataclass(frozen=True, slots=True, kw_only=True)
class Exempt:
    """Nothing is claimed, and the role must bring nothing."""


Reading: TypeAlias = Claim | Rejection | Exempt  # What a reply says of its evidence.


def read(reply: str, requirement: str) -> Reading:
    """Read a reply's one line of evidence.

    Args:
        requirement: What the role must bring: `none`, `any`, `file` or `receipt`; whatever is claimed must hold.
    """
    lines = [(number, found["claim"]) for number, line in _lines(reply) if (found := _LINE.fullmatch(line))]
    if not lines:
        return Exempt() if requirement == "none" else _missing(requirement)
    # Of several lines one could be made up and another be true, and the check would choose.
    if len(lines) > 1:
        numbers = [number for number, _ in lines]
        told = f"The reply has {len(lines)} lines of evidence; it must have exactly one."
        return Rejection(code="evidence_repeated", message=told, facts={"requirement": requirement, "lines": numbers})
    claim = _claim(*lines[0])
    if claim is None:
        return _malformed(lines[0][0], requirement)
    accepted = _accepted(requirement)
    if claim.form not in accepted:
        told = f"The evidence names a {claim.form}, and the role must bring a {accepted[0]}."
        facts = {"requirement": requirement, "form": claim.form, "line": claim.line}
        return Rejection(code="evidence_kind", message=told, facts=facts)
    return claim


def operation(reading: Reading) -> operations.Operation:
    """Return what puts the reading on record: a look at the world, a refusal, or a step passed over."""
    match reading:
        case Claim():
            return operations.CheckEvidence(quote=reading.quote, path=reading.path, receipt_id=reading.receipt_id)
        case Rejection():
            detail = {"evidence": dict(reading.facts)}
            return operations.Refusal(code=reading.code, message=reading.message, detail=detail)
        case Exempt():
            return operations.Skip(reason="The role needs no evidence, and the reply claims none.")


def request(requirement: str, receipts: Mapping[str, str]) -> str:
    """Return how a prompt asks for evidence; nothing where the role must bring none.

    Args:
        receipts: Receipts that can be named, each under the name of what it proves.
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
    told = f"The reply has no line of evidence; it must have exactly one: {_wanted(requirement)}."
    return Rejection(code="evidence_missing", message=told, facts={"requirement": requirement, "lines": []})


def _malformed(line: int, requirement: str) -> Rejection:
    told = f"The evidence in line {line} has none of the forms that it can have: {_wanted(requirement)}."
    return Rejection(code="evidence_malformed", message=told, facts={"requirement": requirement, "line": line})


def _wanted(requirement: str) -> str:
    return ", or ".join(_FORMS[form] for form in _accepted(requirement))
