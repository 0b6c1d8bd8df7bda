"""Operations: a driver's requests, as frozen data that names its performer and contains no code."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from app.domain import plain

fingerprint = plain.labelled_sha256
"""Returns the hash by which replay compares operations, from a body in canonical form."""

INLINE_BODY_BYTES = 4096  # Operations up to this size are stored in the journal line, next to their hash.

COST_CAP_REACHED = "cost_cap_reached"
"""Code of an agent call that its program ended because the cost reached the cap."""

OnCutOff = Literal["fail", "keep"]
"""What happens to a reply that reached the length limit: its attempt fails, or it counts and the ending is partial."""

OnInterrupted = Literal["rerun", "ask", "fail"]
"""What a restart does with a step that was open: perform it again, pause the run for a person, or fail it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed attempt is repeated; the delays survive a restart."""

    max_attempts: int = 1  # Most attempts, including the first; those cut off by a crash or a pause do not count.
    codes: tuple[str, ...] = ()  # Error codes after which another attempt is made; empty: all codes.
    initial_seconds: float = 1.0  # Delay before the second attempt.
    factor: float = 2.0  # Factor of each further delay; 1 keeps the delay constant.
    added_seconds: float = 0.0
    """Seconds added to each further delay instead of the multiplication; 0: it is multiplied."""
    max_seconds: float = 300.0  # Longest delay.
    exit_codes: tuple[int, ...] = ()  # Exit codes of commands after which another attempt is made, besides `codes`.
    final_exit_codes: tuple[int, ...] = ()  # Exit codes of commands after which no other attempt is made.


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Base of all operations."""

    kind: ClassVar[str]  # Name of the operation in journals, under which its performer is registered.
    idle: ClassVar[bool] = False
    """Whether performing it only waits, so that a run without other open steps holds no capacity."""
    outside: ClassVar[bool] = False
    """Whether it leaves traces that a crash does not undo, so that its `started` line is synced."""

    retry: RetryPolicy | None = None  # Further attempts; None: the first attempt is final.
    timeout_seconds: float | None = None  # Wall-clock limit of one attempt; None: the performer's own.
    idle_seconds: float | None = None  # Longest time without output in one attempt; None: the performer's own.
    on_interrupted: OnInterrupted = "rerun"  # What a restart does if the step was open.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(Operation):
    """Execute a model-free tool; the output is the payload, and a receipt is written."""

    kind: ClassVar[str] = "tool_call"

    tool: str  # Id of the tool in the registry.
    args: Mapping[str, plain.Json]  # Arguments, with all references resolved.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall(Operation):
    """Send one prompt to an agent; the output is the reply's text."""

    kind: ClassVar[str] = "agent_call"
    outside: ClassVar[bool] = True

    agent_id: str  # Configured agent that is called; the backend's name if a recipe chooses no agent.
    archetype: str | None = None  # Role for which the agent was chosen, if the recipe names a role.
    backend: str  # Backend of the agent, by its name in `agents.json`.
    model: str | None = None  # Model or tier name; None: the backend's default.
    prompt: tuple[plain.Json, ...]
    """Parts in order: a text, or `{"blob": <blob reference>}` for one outside the journal."""
    system: str | None = None  # Role contract or other system prompt; programs append it to their own.
    tools: bool = False  # Whether the agent may use its own tools.
    agent_session_id: str | None = None
    """Conversation to use, by Control Room's own id; None: a single prompt without history."""
    session_created: bool = False
    """Whether that conversation exists already, so that it is resumed instead of created."""
    reply_schema: Mapping[str, plain.Json] | None = None
    """JSON Schema that the reply must match, for backends that can enforce it."""
    max_tokens: int | None = None  # Longest reply, in tokens; None: the backend's default.
    on_cut_off: OnCutOff = "fail"
    """What happens to a reply that reached the length limit; with a schema it always fails the attempt."""
    may_abstain: bool = False
    """Whether `ABSTAIN` or `ABSTAIN: reason` is accepted as a reply; otherwise it fails the attempt."""
    may_be_blank: bool = False  # Whether a blank reply is accepted; otherwise it fails the attempt.


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Operation):
    """Check one fact of the workspace; the output is `{"holds": bool, ...}`."""

    kind: ClassVar[str] = "check"

    check: str  # Kind of check, e.g. `file_exists`.
    subject: plain.Json  # The subject, e.g. a path inside the workspace.


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEvidence(Operation):
    """Verify the evidence that a reply names: words in a file, or a receipt of the run's session.

    The output: `{"form": "file", "path", "sha256"}` or `{"form": "receipt", "receipt_id", …}`;
    evidence that does not hold fails the step, with the facts in `detail.evidence`.
    """

    kind: ClassVar[str] = "check_evidence"

    quote: str | None = None  # Words that the file must contain; None if a receipt is named.
    path: str | None = None  # File in the workspace from which they are quoted.
    receipt_id: str | None = None  # Receipt that must belong to the session; None if a file is quoted.
    text: str | None = None
    """Text from which the words are quoted, if `path` does not name a file; None: the file is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFile(Operation):
    """Write a text to a file of the workspace, atomically."""

    kind: ClassVar[str] = "commit_file"
    outside: ClassVar[bool] = True

    path: str  # Path inside the workspace.
    text: plain.Json  # The text, or `{"blob": <blob reference>}`.
    overwrite: bool = False  # Whether an existing file is replaced; otherwise it fails the step.
    otherwise: str | None = None
    """Path that is written if the file at `path` exists already; None: that fails the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """How a command's standard output is parsed, and what it must contain."""

    mode: Literal["text", "lines", "json"] = "text"  # A text, a list of its lines, or one JSON document.
    allow_parse_error: bool = False
    """Whether output that is not JSON is kept as text instead of failing the step."""
    schema_file: str | None = None  # Path in the workspace of a JSON Schema that the JSON must match.
    require: tuple[Mapping[str, plain.Json], ...] = ()
    """Places in the JSON by JSON Pointer, with what each must contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Operation):
    """Run a program in the workspace; the output is `{"exit_code", "stdout", "stderr", ...}`."""

    kind: ClassVar[str] = "command"
    outside: ClassVar[bool] = True

    argv: tuple[str, ...]  # The program and its arguments; they are not passed to a shell.
    cwd: str = "."  # Folder in which it runs, relative to the run's working folder and inside it.
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Variables set for it, in addition to the service's own environment and the secrets."""
    secrets: tuple[str, ...] = ()
    """Names of variables of the service's environment that it receives; their values are masked in its output."""
    stdin: plain.Json = None  # Its standard input: a text, `{"blob": <blob reference>}`, or None for an empty one.
    output_file: str | None = None  # Path in the workspace where its standard output is written, byte for byte.
    exit_codes: tuple[int, ...] = (0,)  # Exit codes that mean success.
    output_limit_bytes: int = 1024 * 1024
    """Bytes kept of each of its two outputs: the beginning of standard output, the end of standard error."""
    capture: Capture | None = None
    """How standard output is parsed, into `captured` in place of `stdout`; a failure is `output_invalid`."""
    provider: str | None = None  # Program of a model that it runs, by its name in the recipe: a call of an agent.
    log: str | None = None
    """Name of its logs `{log}.stderr` and, for a cut record, `{log}.stdout`; None: both, named by key and attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIssue(Operation):
    """Create an issue record; the output is `{"issue_id"}`.

    The id is derived from run and key, or from the finding, so that a repetition does not create a second one.
    """

    kind: ClassVar[str] = "open_issue"

    title: str  # One line.
    body: str = ""  # What was found, as text.
    facts: Mapping[str, plain.Json] = dataclasses.field(default_factory=dict)
    """Fields for machines, e.g. the failed check."""
    receipts: tuple[str, ...] = ()  # Receipts that prove it.
    severity: str | None = None  # `error`, `warning` or `hint`; None if not given.
    identity: Mapping[str, plain.Json] | None = None
    """`{kind, file, words}` of a finding, by which the same recipe finds its issue again, and the `files` it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseFindings(Operation):
    """Close the issues of findings that the recipe has not found again; the output is `{"closed": [issue_id]}`."""

    kind: ClassVar[str] = "close_findings"

    found: tuple[str, ...]  # Issues of the present findings.
    looked_at: tuple[str, ...]  # Files and folders of the workspace that were checked; others were not.
    left_out: tuple[str, ...] = ()  # Files and folders below them that could not be read.


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseFailedChecks(Operation):
    """Close the issues that steps of the run opened for checks that pass now; the output is that of `CloseFindings`."""

    kind: ClassVar[str] = "close_failed_checks"

    keys: tuple[str, ...]  # Steps that may have opened them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Operation):
    """Record the failure of a step that cannot be requested, because its input cannot be built; it always fails."""

    kind: ClassVar[str] = "refusal"

    code: str  # Stable code of the reason.
    message: str  # One sentence for people.
    detail: Mapping[str, plain.Json] = dataclasses.field(default_factory=dict)  # Facts for machines.
    tool: str | None = None  # Tool that would have been called.
    agent_id: str | None = None  # Agent that would have been called.
    archetype: str | None = None  # Role for which the agent would have been chosen.


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip(Operation):
    """Record that the recipe's own rule passes over a step; its record is `skipped`, with `detail` as output."""

    kind: ClassVar[str] = "skip"

    reason: str  # The reason, in one sentence.
    detail: Mapping[str, plain.Json] = dataclasses.field(default_factory=dict)  # Facts for machines.


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer(Operation):
    """Wait for a duration; a restart does not begin it anew."""

    kind: ClassVar[str] = "timer"
    idle: ClassVar[bool] = True

    seconds: float  # The duration in seconds.


@dataclass(frozen=True, slots=True, kw_only=True)
class Input(Operation):
    """Wait for the first delivery from outside; the output is `{"value", "author", "idempotency_key"}`."""

    kind: ClassVar[str] = "input"
    idle: ClassVar[bool] = True

    name: str = ""  # Name of the awaited input.
    shown: plain.Json = None  # Content shown to the sender, so that the delivery is known to refer to it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Input):
    """Ask a person; the output is `{"decision", "message", "by_default", "denied", "shown_sha256", ...}`."""

    kind: ClassVar[str] = "gate"

    prompt: str  # The question.
    options: tuple[str, ...] = ("approve", "deny")  # Decisions that can be given.
    denials: tuple[str, ...] = ("deny",)  # Those of them that are final: no resume continues past one.
    default: str | None = None
    """Decision taken when time runs out; a denial is then as final as a person's. None: the gate waits forever."""
    expires_seconds: float | None = None  # Time until the default is taken.
    shown_sha256: str | None = None
    """Bare hash of what the person is shown and decides on; None: that of prompt and options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRun(Operation):
    """Start another run by the same entry as every run and wait for its end; the output is its ending and slots."""

    kind: ClassVar[str] = "child_run"
    idle: ClassVar[bool] = True

    recipe_id: str  # Recipe of the child.
    args: Mapping[str, plain.Json] = dataclasses.field(default_factory=dict)  # Its arguments.
    description: str | None = None  # Its task, as text.
    timeout_seconds: float | None = None
    """Longest time that it may take, including waits for people; then it is cancelled. None: no limit."""


def body(operation: Operation) -> dict[str, plain.Json]:
    """Return an operation as plain JSON with its kind, without default fields and without its retries.

    Retries do not change what is requested. Without defaults, an old hash stays valid when a version adds a field.
    """
    present = _present(operation)
    present.pop("retry", None)
    return {"kind": operation.kind, **plain.plain(present)} if present else {"kind": operation.kind}


def _present(value: object) -> dict[str, object]:
    kind: Any = type(value)
    present: dict[str, object] = {}
    for name, default in _defaults(kind).items():
        field = getattr(value, name)
        if field != default:
            present[name] = _present(field) if isinstance(field, Capture) else field
    return present


@functools.cache
def _defaults(kind: Any) -> dict[str, object]:
    return {field.name: _default(field) for field in dataclasses.fields(kind)}


def _default(field: dataclasses.Field[object]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
