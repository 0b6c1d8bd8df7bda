"""The transcript: the result of a conference, as a text for people and as facts for programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app import printable
from app.domain import operations, plain
from app.flows.conference import prompts, schema

BODY_CHARACTERS = 20_000  # Longest transcript; the complete replies are in the slots of their agents.

_TITLE_CHARACTERS = 200
_MESSAGE_CHARACTERS = 2_000
_ARGS_CHARACTERS = 120
_OWN_HEADINGS = 3
_HEADING = re.compile(r"^([ >]*)(?=#)")

OpinionStatus = Literal["accepted", "abstained", "rejected", "failed"]
"""Status of an answer: an opinion with valid evidence, an abstention, an opinion without its evidence, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """The result of asking one agent."""

    agent_id: str  # The agent.
    archetype: str  # Its role.
    verdict: OpinionStatus  # Status of its answer.
    text: str = ""  # Its reply; empty if it could not be asked.
    why: str = ""  # Reason why it abstained, was rejected or did not answer.
    code: str | None = None  # Stable name of that reason, for a failure.
    evidence: plain.Json = None  # Result of the check of its evidence.
    causes: tuple[str, ...] = ()  # Steps that a resume repeats.

    @property
    def stands(self) -> bool:
        """Return whether it is a valid answer."""
        return self.verdict in ("accepted", "abstained")

    def outcome(self) -> str:
        """Return the verdict, with its reason if there is one."""
        what = {"failed": "no answer", "rejected": "rejected for its evidence"}.get(self.verdict, self.verdict)
        code = f" [{self.code}]" if self.code else ""
        return f"{what}: {plain.preview(self.why)}{code}" if self.why else what


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A conference that has ended."""

    message: str  # The question.
    called: Sequence[prompts.Called]  # Tool calls of the chief, in order.
    opinions: Sequence[Opinion]  # The result for each participant, in their order.
    driver_version: int  # The run's driver version; before the third, opinions could contain headings.

    def text(self) -> str:
        """Return the transcript as a text, within the limit of an issue's body."""
        fixed = [self._beginning(), *(_heading(opinion) for opinion in self.opinions)]
        reply_text = self._said(BODY_CHARACTERS - sum(len(part) + 4 for part in fixed))
        reply_text = [self._as_paragraphs(text) for text in reply_text]
        parts = [f"{heading}\n\n{text}".rstrip() for heading, text in zip(fixed[1:], reply_text, strict=True)]
        return prompts.clipped("\n\n".join([fixed[0], *parts]) + "\n", BODY_CHARACTERS)

    def issue(self) -> operations.OpenIssue:
        """Return the operation that stores it as an issue."""
        receipts = dict.fromkeys(call.receipt_id for call in self.called if call.receipt_id is not None)
        return operations.OpenIssue(
            title=_title(self.message), body=self.text(), facts=self._facts(), receipts=tuple(receipts)
        )

    def _beginning(self) -> str:
        quoted = "\n".join(f"> {line}" for line in self._lines(_clipped_message(self.message)))
        calls = [_line(number, call) for number, call in enumerate(self.called, start=1)]
        return "\n".join([quoted, "", "## Evidence", "", *(calls or ["No tool was called."]), "", "## Opinions"])

    def _said(self, room: int) -> list[str]:
        lengths = [len(opinion.text) for opinion in self.opinions]
        divided = zip(self.opinions, prompts.shares(lengths, room), strict=True)
        return [prompts.clipped(opinion.text.strip(), share) for opinion, share in divided]

    def _as_paragraphs(self, text: str) -> str:
        if self.driver_version < _OWN_HEADINGS:
            return text
        # After a backslash, Markdown shows the mark literally, so that all headings are those of this document.
        return "\n".join(_HEADING.sub(r"\1\\", line) for line in self._lines(text))

    def _lines(self, text: str) -> list[str]:
        return text.split("\n") if self.driver_version < _OWN_HEADINGS else printable.lines(text)

    def _facts(self) -> dict[str, plain.Json]:
        reply_text = self._said(BODY_CHARACTERS // 2)
        return {
            "kind": schema.NAME,
            "message": _clipped_message(self.message),
            "evidence": [call.facts() for call in self.called],
            "opinions": [_opinion_facts(each, text) for each, text in zip(self.opinions, reply_text, strict=True)],
        }


def counted(opinions: Sequence[Opinion]) -> str:
    """Return the number of answers of each status, in words."""
    verdicts = [opinion.verdict for opinion in opinions]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))


def _title(message: str) -> str:
    words = "".join(each if each.isprintable() else " " for each in message[:_MESSAGE_CHARACTERS]).split()
    return prompts.clipped(f"Conference: {' '.join(words)}".rstrip(), _TITLE_CHARACTERS)


def _clipped_message(message: str) -> str:
    return prompts.clipped(message, _MESSAGE_CHARACTERS)


def _line(number: int, call: prompts.Called) -> str:
    shown = call.shown(_ARGS_CHARACTERS)
    if call.error is not None:
        return f"{number}. {shown}: {plain.preview(call.failure())}"
    return f"{number}. {shown}: {call.summary} ({call.receipt_id})"


def _heading(opinion: Opinion) -> str:
    return f"### {opinion.agent_id} ({opinion.archetype}): {opinion.outcome()}"


def _opinion_facts(opinion: Opinion, text: str) -> plain.Object:
    return {
        "agent_id": opinion.agent_id,
        "archetype": opinion.archetype,
        "verdict": opinion.verdict,
        "code": opinion.code,
        "why": plain.preview(opinion.why) or None,
        "evidence": opinion.evidence,
        "text": text,
    }
