"""Records: the results of operations, exactly as their journal lines contain them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypedDict, TypeVar

from app.domain import plain, shapes
from app.domain.states import StepState

ADOPTED = "adopted"
"""Replaces the hash of the operation of an adopted step, whose original request is unknown."""

BLOB_BYTES = 64 * 1024  # Outputs above this size are stored as blobs; drivers get a handle.

_MOST = 2**53
_Amount = TypeVar("_Amount", int, float)

Finish: TypeAlias = Literal["length"]
"""Why a reply ended, if not by itself: it reached the length limit."""

LENGTH: Finish = "length"  # The reply ended because it reached the length limit.


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef(shapes.Shape):
    """Handle of an output that is stored outside the journal."""

    sha256: str  # Bare hash of the content; names the file in `blobs/`.
    size_bytes: int  # Length of the content.
    text: bool  # Whether the content is a text; otherwise it is canonical JSON.

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BlobRef:
        """Read a handle; keys besides the three are ignored."""
        return cls(sha256=value["sha256"], size_bytes=value["size_bytes"], text=value["text"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(shapes.Shape):
    """The cost of steps."""

    input_tokens: int | None = 0  # Tokens read; None if not reported.
    output_tokens: int | None = 0  # Tokens written; None if not reported.
    cost_usd: float | None = None  # Price in US dollars; None if not reported.
    cost_estimated_usd: float | None = shapes.omitted()  # Price by the price file, if none was reported.
    prices_version: str | None = shapes.omitted()
    """Version of the price file from which the estimate was made."""

    def plus(self, other: Usage) -> Usage:
        """Return the sum of two usages."""
        return Usage(
            input_tokens=total((self.input_tokens, other.input_tokens)),
            output_tokens=total((self.output_tokens, other.output_tokens)),
            cost_usd=total((self.cost_usd, other.cost_usd)),
            cost_estimated_usd=total((self.cost_estimated_usd, other.cost_estimated_usd)),
        )

    def credible(self) -> Usage:
        """Return the usage without values that are not amounts: they count as not reported, in steps and in sums."""
        return dataclasses.replace(
            self,
            input_tokens=amount(self.input_tokens, int),
            output_tokens=amount(self.output_tokens, int),
            cost_usd=amount(self.cost_usd, int, float),
            cost_estimated_usd=amount(self.cost_estimated_usd, int, float),
        )


def amount(given: Any, *kinds: type) -> Any:
    """Return a value that is an amount and can be added up; None for any other, e.g. in a file written by hand."""
    is_amount = type(given) in kinds and 0 <= given <= _MOST
    return given if is_amount else None


def total(amounts: Iterable[_Amount | None]) -> _Amount | None:
    """Return the sum of the reported amounts; None if there are none."""
    reported = [amount for amount in amounts if amount is not None]
    return rounded(sum(reported[1:], reported[0])) if reported else None


def rounded(amount: _Amount) -> _Amount:
    """Return an amount with a price in US dollars rounded; other amounts are whole numbers."""
    # Sums of floats: three calls at $0.40 would cost $1.2000000000000002.
    return round(amount, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepError(shapes.Shape):
    """The reason why a step or a run failed."""

    published_as: ClassVar[str] = "StepFault"

    code: str  # Stable name.
    message: str  # One sentence for people.
    key: str | None = None  # Step that the error belongs to.
    detail: Mapping[str, plain.Json] = field(default_factory=dict)  # Facts for programs.


Failure = Annotated[Mapping[str, plain.Json], StepError]  # A `StepError` as plain JSON.


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a step in its recipe, for people; not part of the operation's identity."""

    step_id: str  # Name of the step in the recipe.
    step_index: int | None = None
    """Position in the recipe, from 0; micro-steps share their parent's; None outside the recipe."""
    phase: str | None = None  # `a`, `b` or `dod` in pipelines, None elsewhere.
    output_slot: str | None = None  # Slot that the step fills.
    input_slot_refs: tuple[str, ...] = ()  # Slots that are read to build the input.
    visit: int = 1  # Number of visits of the flow to this step, including this one.
    instructions: str | None = None
    """A prompt's own words, without inserted values, to detect a reply that only repeats them; None: unknown."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """How the operation was built, as texts for the logs of a debugged run, each by the suffix of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result that a performer returns."""

    status: StepState = StepState.DONE  # `done`, `failed` or `skipped`.
    output: plain.Json = None  # Payload or text; encoded and masked by the engine.
    summary: str | None = None  # One-line summary of the output; None: its beginning is shown.
    error: StepError | None = None  # Set if and only if the attempt failed.
    usage: Usage | None = None  # Its cost; None if it is not metered.
    agent_session_id: str | None = None  # Conversation that an agent used.
    finish: Finish | None = None
    """`length` if an agent's reply reached the length limit; None if it ended by itself, or the reason is unknown."""
    covers: int | None = None
    """Earlier attempt of the step, without a line, whose usage is included in this one's; None: no attempt."""


@shapes.open_ended
class StepLine(TypedDict):
    """A complete line of the journal (steps.jsonl); further fields may follow."""

    step_index: int | None  # Position in the recipe, from 0.
    step_id: str  # Name of the step in the recipe.
    phase: str | None  # `a`, `b` or `dod` in pipelines.
    tool: str | None  # Tool that the step called.
    agent_archetype: str | None  # Role that the step asked.
    agent_id: str | None  # Agent that the step asked.
    status: StepState  # State of the step.
    output_slot: str | None  # Slot that the step fills.
    receipt_id: str | None  # Receipt of the tool execution.
    input_slot_refs: list[str]  # Slots that are read to build the step's input.
    output_hash: str | None  # `sha256:` and the hash of the full output.
    output_preview: str | None  # Beginning of the output.
    started_at: shapes.Instant  # When the attempt began.
    completed_at: shapes.Instant  # When the attempt ended.
    error: Failure | None  # Why the step failed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One parsed line of the journal."""

    position: int  # Number of the line in the journal, from 0.
    key: str  # Name of the step.
    attempt: int  # Number of the attempt, from 1.
    status: StepState  # Result of the attempt.
    operation: str  # Hash of the operation performed.
    branch: str  # Path of the branch that made the request; empty for the main one.
    output: plain.Json  # The output; None if `blob` is set or there is no output.
    blob: BlobRef | None  # Handle of an output over 64 kB.
    output_sha256: str | None  # Bare hash of the whole output; None without one.
    summary: str  # One-line summary of the output, at most 200 characters.
    error: StepError | None  # Why the attempt failed.
    usage: Usage | None  # Cost of the attempt.
    receipt_id: str | None  # Receipt of a tool execution.
    agent_session_id: str | None  # Conversation that an agent used.
    finish: Finish | None  # `length` if an agent's reply reached the length limit.
    covers: int | None = None  # Earlier attempt, without a line, whose usage is included in this one's.
    final: bool  # Whether the driver receives it; an attempt that will be repeated is not final.
    retry_at: str | None  # When the next attempt is due, for an attempt that is not final.
    started_at: str  # When the attempt began.
    completed_at: str  # When the attempt ended.
    line: Mapping[str, plain.Json]  # The complete line, as written.

    @property
    def done(self) -> bool:
        """Return whether the step succeeded."""
        return self.status is StepState.DONE

    @property
    def holds(self) -> bool | None:
        """Return the result of a check; None for any other step."""
        body = self.line["operation"].get("body")
        is_check = isinstance(body, dict) and body.get("kind") == "check" and isinstance(self.output, dict)
        return self.output.get("holds") if is_check else None

    @property
    def output_file(self) -> str | None:
        """Return the file of the workspace to which a command's output was written; None for any other step."""
        body = self.line["operation"].get("body")
        is_command = isinstance(body, dict) and body.get("kind") == "command"
        return body.get("output_file") if is_command and self.done else None

    @property
    def committed(self) -> dict[str, str]:
        """Return the SHA-256 of the file that a commit of this run wrote, by its path; empty for any other step."""
        body = self.line["operation"].get("body")
        is_commit = isinstance(body, dict) and body.get("kind") == "commit_file" and not self.line.get("taken_over")
        match self.output:
            case {"path": str(path), "sha256": str(sha256)} if is_commit and self.done:
                return {path: sha256}
        return {}

    def blobs(self) -> Iterator[BlobRef]:
        """Return the blobs that the line refers to."""
        if self.blob is not None:
            yield self.blob
        operation = self.line["operation"]
        if isinstance(operation, dict) and isinstance(operation.get("blob"), dict):
            yield BlobRef.from_json(operation["blob"])


def read(position: int, line: Mapping[str, Any]) -> Record:
    """Read a parsed journal line.

    Raises:
        KeyError, ValueError, TypeError: the line lacks a field or has a wrong one.
    """
    error, usage, blob = line.get("error"), line.get("usage"), line.get("blob")
    digest, operation = line.get("output_hash"), line["operation"]["hash"]
    started_at, completed_at = line["started_at"], line["completed_at"]
    if not (isinstance(operation, str) and isinstance(started_at, str) and isinstance(completed_at, str)):
        raise TypeError("a line's hash and times are texts")
    return Record(
        position=position,
        key=line["key"],
        attempt=line["attempt"],
        status=StepState(line["status"]),
        operation=operation,
        branch=line.get("branch") or "",
        output=line.get("output"),
        blob=BlobRef.from_json(blob) if blob else None,
        output_sha256=digest.removeprefix("sha256:") if digest else None,
        summary=line.get("output_preview") or "",
        error=StepError(**error) if error else None,
        usage=Usage(**usage).credible() if usage else None,
        receipt_id=line.get("receipt_id"),
        agent_session_id=line.get("agent_session_id"),
        finish=line.get("finish"),
        covers=line.get("covers"),
        final=line.get("final", True),
        retry_at=line.get("retry_at"),
        started_at=started_at,
        completed_at=completed_at,
        line=line,
    )


def retried(found: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the attempts of each step that were not its last."""
    earlier: dict[str, list[Record]] = {}
    for record in found:
        if not record.final:
            earlier.setdefault(record.key, []).append(record)
    return earlier
