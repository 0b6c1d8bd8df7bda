"""Decisions: the decisions of people and of the engine in control.jsonl, and the state of the run that results."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import NoneType
from typing import Any

from app.domain import authors, plain
from app.domain.approvals import Vote
from app.domain.events import Event, EventType
from app.domain.limits import RunLimits
from app.domain.states import RunState
from app.domain.usage_sums import Reserved

CRASH_LOOP_TRIES = 3  # Interrupted attempts of one step after which the run is parked.

_NOTHING: frozenset[int] = frozenset()

PAUSED_BY_PERSON = "paused_by_person"  # Reason of a pause that a person ordered.
LINES_MISSING = "journal_lines_missing"  # Reason of a pause because journal lines are known to be gone.
TIME_LIMIT = "time_limit"  # Reason of a pause because a run, or one that waits for it, has reached a time limit.
REPAIRED = "repaired"  # Reason of the pause in which a repair leaves a run.

PAUSING = "pausing"  # Reason shown for a run that will pause when its open steps end.

CANCELLING = "cancelling"
"""Reason shown for a run that will end as cancelled once its open steps are cut off."""

BUDGET_EXHAUSTED = "budget_exhausted"
"""Reason of a pause because a further call of an agent does not fit into a limit or budget."""

LIMIT_REASONS = frozenset({BUDGET_EXHAUSTED, TIME_LIMIT})  # Reasons of pauses that a raised limit ends.


class DecisionKind(StrEnum):
    """Kinds of lines in control.jsonl."""

    TAKEN = "taken"  # A process took the run up, for the first time or again.
    STARTED = "started"
    """An attempt at a step is about to begin; for a limited call of an agent, the line has the reserved amounts."""
    LIMITED = "limited"  # A person changed the limits of the run.
    CANCEL_REQUESTED = "cancel_requested"  # A person requested the run's cancellation.
    PAUSED = "paused"  # A person stopped the run, or the engine parked it.
    UNPAUSED = "unpaused"  # A person continued a paused run.
    RELEASED = "released"  # A stopping service released the run: the attempts that it cut off do not count as crashes.
    RESUMED = "resumed"  # A person resumed an ended run; the line names the lines that are dead from now on.
    ENDED = "ended"  # The run ended; the line has the journal's length and head, and the causes of a failure.
    LABELLED = "labelled"
    """A person changed the run's labels, or whether retention keeps the run; also after its ending."""
    VOTED = "voted"  # A key gave its decision at a gate that needs several.
    PLACED = "placed"  # The run was given to a worker, which performs all its steps; names the worker and its machine.
    WAITING = "waiting"  # An attempt waits for its workspace; that its process dies meanwhile counts as no crash.
    LATE = "late"
    """An attempt ended after a newer one had begun, or after the run's end; the line names the blob with its result."""


# A look-up costs a tenth of a call of the class, and every step makes it.
_KINDS: Mapping[str, DecisionKind] = {kind.value: kind for kind in DecisionKind}

# Lines that do not count as a change of their run: they leave `last_at`.
_ASIDE = frozenset({DecisionKind.VOTED, DecisionKind.LABELLED, DecisionKind.WAITING, DecisionKind.LATE})

_AUTHOR = ("author",)

EVENTS: Mapping[DecisionKind, tuple[EventType, tuple[str, ...]]] = {
    DecisionKind.TAKEN: (EventType.RUN_STARTED, ()),
    DecisionKind.STARTED: (EventType.STEP_STARTED, ("step_id", "phase", "attempt")),
    DecisionKind.CANCEL_REQUESTED: (EventType.RUN_CANCEL_REQUESTED, _AUTHOR),
    DecisionKind.PAUSED: (EventType.RUN_PAUSED, ("reason", "error", *_AUTHOR)),
    DecisionKind.UNPAUSED: (EventType.RUN_UNPAUSED, _AUTHOR),
    DecisionKind.LIMITED: (EventType.RUN_LIMITED, ("limits", *_AUTHOR)),
    DecisionKind.RESUMED: (EventType.RUN_RESUMED, ("dead", *_AUTHOR)),
    DecisionKind.ENDED: (EventType.RUN_ENDED, ("status", "error", "ending")),
    DecisionKind.LABELLED: (EventType.RUN_LABELLED, ("labels", "pinned", *_AUTHOR)),
    DecisionKind.VOTED: (EventType.GATE_VOTED, ("gate_id", "decision", *_AUTHOR)),
}
"""Events of control lines, and the fields of the line that they show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An attempt that has begun."""

    key: str  # Key of the step.
    attempt: int  # Number of the attempt, from 1.
    operation: str  # Hash of its operation.
    at: str  # When it began.
    due_at: str | None = None  # When a timer, a gate or a wait ends.
    branch: str = ""  # Path of the branch that requested it.
    lines: int = 0  # Number of lines in steps.jsonl when it began; its result is in a later line.
    waited: bool = False  # Whether it has waited for its workspace.


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A pause or a stop that released the open attempts of a run."""

    at: str  # When it released them.
    attempts: Mapping[str, Sequence[Started]]  # Attempts begun until then, by key.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The last ending of a run."""

    status: RunState  # `done`, `failed` or `cancelled`.
    at: str  # When the run ended.
    lines: int  # Number of lines in steps.jsonl.
    head: str  # `sha256:<hex>` of its last line, or of start.json if there is none.
    causes: tuple[int, ...] = ()  # Positions of the lines that caused a failure.
    error: Mapping[str, plain.Json] | None = None  # `{code, message, key, detail}` of a failure.
    ending: Mapping[str, plain.Json] | None = None  # `{reason, partial, failed_steps}`.
    event: int = 0  # Number that the line has reserved for its event; 0: none.


@dataclass(slots=True, kw_only=True)
class Decisions:
    """The state that results from all decisions so far; apply lines with `apply`, in file order."""

    taken: int = 0  # How often a process has taken the run up.
    first_taken_at: str | None = None  # When a process first took it up.
    taken_since_resume: bool = False  # Whether a process took it up since it was created or last resumed.
    cancel_requested_at: str | None = None  # When its cancel was requested, if since the last resume.
    cancelled_by: Mapping[str, plain.Json] | None = None  # Author of that request, if it is known.
    superseded_by: Mapping[str, plain.Json] | None = None
    """Newer run of its concurrency key that cancelled it, `{run_id, key}`."""
    paused: str | None = None  # Reason of the present pause; None while not paused.
    paused_at: str | None = None  # When the present pause began; later orders with the same reason do not change it.
    pause_error: Mapping[str, plain.Json] | None = None  # Error that parked the run.
    paused_by: Mapping[str, plain.Json] | None = None  # Author of the present pause, if it is known.
    cut_seconds: float = 0.0
    """Time of attempts at work that a limit, a stop or a kill cut off and that no journal line records."""
    taken_at: str | None = None  # When a process last took it up.
    released: Released | None = None
    """The pause or stop that released its open attempts; None once it is taken up again."""
    ended: Ended | None = None  # Its ending, unless it has been resumed since.
    resumed_at: str | None = None  # When a person last resumed it after it had ended.
    overruled_at: str | None = None  # When it had ended before that.
    dead: frozenset[int] = _NOTHING  # Positions of journal lines that replay skips.
    attempts: dict[str, list[Started]] = field(default_factory=dict)
    """Attempts begun since the last unpause, release or resume, by key."""
    due: dict[str, str] = field(default_factory=dict)
    """When timers, gates and waits end, by key; kept through restarts and pauses."""
    asked: dict[str, str] = field(default_factory=dict)
    """When the run first asked its gates and other inputs, by key; kept for the same time."""
    highest_attempt: dict[str, int] = field(default_factory=dict)  # Highest attempt begun by key, ever.
    reserved: dict[tuple[str, int], Reserved] = field(default_factory=dict)
    """Amounts reserved for calls of agents, by key and attempt; `usage_sums.uncharged` returns those without a line."""
    limits: RunLimits | None = None  # The run's present limits, if a person has changed them.
    votes: dict[str, list[Vote]] = field(default_factory=dict)
    """Votes at gates that need several keys, by gate."""
    last_at: str | None = None  # When the newest decision was made, those in `_ASIDE` excepted.
    known_lines: int = 0  # Number of lines that steps.jsonl must have, since it had them when a decision was written.
    given_up: bool = False
    """Whether lost lines were reported to a person; from then on, only later decisions show how many there must be."""
    placed: str | None = None  # Worker that performs the run's steps; None: any worker.
    placed_host: str | None = None  # Name of that worker's machine; None if the line lacks it.
    overrides: dict[str, plain.Json] = field(default_factory=dict)
    """Fields by which the last resume replaced frozen ones (`args`, `recipe`, `frozen`, …), and the marks."""

    def copy(self) -> Decisions:
        """Return a copy to which further lines can be applied without changing the original."""
        copied = {name: dict(getattr(self, name)) for name in _GROWING}
        return replace(self, **copied)  # type: ignore[arg-type]

    def apply(self, line: Mapping[str, Any]) -> None:
        """Apply one line.

        Raises:
            KeyError, ValueError, TypeError: the line lacks a field or has a wrong one.
        """
        # Each control line records how many journal lines there were. If there are fewer now, synced lines are lost:
        # the run is parked instead of paying for its steps a second time (`engine/missing_lines.py`).
        lines = line.get("lines")
        if isinstance(lines, int):
            self.known_lines = max(self.known_lines, lines)
        match kind := _KINDS[line["kind"]]:
            case DecisionKind.TAKEN:
                self.taken = self.taken + 1
                self.first_taken_at = self.first_taken_at or line["at"]
                self.taken_since_resume = True
                self.taken_at, self.released = line["at"], None
                self.cut_seconds += float(line.get("cut_seconds") or 0)
            case DecisionKind.STARTED:
                self._start(line)
            case DecisionKind.LIMITED:
                self.limits = RunLimits.from_json(line["limits"])
            case DecisionKind.CANCEL_REQUESTED:
                if self.cancel_requested_at is None:
                    self.cancel_requested_at, self.superseded_by = line["at"], line.get("superseded_by")
                    self.cancelled_by = authors.in_line(line)
            case DecisionKind.PAUSED:
                self._pause(line)
            case DecisionKind.UNPAUSED:
                self.paused = None
                self.pause_error = None
                self.attempts.clear()
            case DecisionKind.RELEASED:
                self._release(line)
            case DecisionKind.RESUMED:
                self._resume(line)
            case DecisionKind.ENDED:
                self.ended = _ended(line)
            case DecisionKind.VOTED:
                self.votes[line["gate_id"]] = [*self.votes.get(line["gate_id"], ()), Vote.in_line(line)]
            case DecisionKind.LABELLED:
                self._label(line)
            case DecisionKind.PLACED:
                self.placed, self.placed_host = str(line["worker"]), line.get("host")
            case DecisionKind.WAITING:
                self._wait(line["key"], line["attempt"])
            case DecisionKind.LATE:
                if not (isinstance(line["key"], str) and isinstance(line["blob"], Mapping)):
                    raise TypeError("a late line names its step and its blob")
        if kind not in _ASIDE:
            self.last_at = line["at"]

    @property
    def marks(self) -> dict[str, plain.Json]:
        """Return the changes of the run's labels and pin that people made since it was created."""
        return {name: self.overrides[name] for name in ("labels", "pinned") if name in self.overrides}

    @property
    def status(self) -> RunState:
        """Return the state according to the authority alone; only a living runner can determine `waiting`."""
        if self.ended is not None:
            return self.ended.status
        if self.paused is not None:
            return RunState.PAUSED
        return RunState.RUNNING if self.taken_since_resume else RunState.PENDING

    @property
    def is_halted(self) -> bool:
        """Return whether the run has ended, is paused or is being cancelled, so that it begins no step."""
        return self.ended is not None or self.paused is not None or self.cancel_requested_at is not None

    def awaits(self, key: str, recorded: Container[tuple[str, int]]) -> bool:
        """Return whether the run has asked for an input whose newest attempt has no line yet.

        Args:
            recorded: Keys and attempts of the lines in steps.jsonl.
        """
        return key in self.asked and (key, self.highest_attempt.get(key, 0)) not in recorded

    def _start(self, line: Mapping[str, Any]) -> None:
        begun = Started(
            key=line["key"],
            attempt=line["attempt"],
            operation=line["operation"],
            at=line["at"],
            due_at=line.get("due_at"),
            branch=line.get("branch") or "",
            lines=lines if isinstance(lines := line.get("lines"), int) else 0,
        )
        self.attempts[begun.key] = [*self.attempts.get(begun.key, ()), begun]
        if self.paused is None:
            self.released = None
        if begun.due_at is not None:
            self.due[begun.key] = begun.due_at
        if "gate_id" in line or "asked_at" in line:
            self.asked[begun.key] = line.get("asked_at") or begun.at
        if "reserved" in line:
            self.reserved[begun.key, begun.attempt] = Reserved.from_json(line["reserved"], begun.at)
        self.highest_attempt[begun.key] = max(begun.attempt, self.highest_attempt.get(begun.key, 0))

    def _wait(self, key: str, number: int) -> None:
        begun = self.attempts.get(key, ())
        if begun:
            self.attempts[key] = [replace(each, waited=True) if each.attempt == number else each for each in begun]

    def _pause(self, line: Mapping[str, Any]) -> None:
        if self.paused != line["reason"]:
            self.paused_at = line["at"]
        self.paused = line["reason"]
        self.pause_error = line.get("error")
        self.paused_by = authors.in_line(line)
        self.cut_seconds += float(line.get("cut_seconds") or 0)
        # A limit that parks the run has already counted the time that it cuts off.
        self.released = Released(at=line["at"], attempts={} if "cut_seconds" in line else dict(self.attempts))
        if gives_up(line):
            lines = line.get("lines")
            self.given_up = True
            self.known_lines = lines if isinstance(lines, int) else 0

    def _release(self, line: Mapping[str, Any]) -> None:
        # While the run is paused, no step is at work, so open attempts count until the pause.
        if self.released is None or (self.paused is None and self.attempts):
            self.released = Released(at=line["at"], attempts=self.attempts)
        self.attempts = {}

    def _resume(self, line: Mapping[str, Any]) -> None:
        # A run that another process merely left behind continues unchanged, with its questions and deadlines.
        if self.ended is not None:
            self.overrides["resumed"] = True
            self.resumed_at, self.overruled_at = line["at"], self.ended.at
        if self.ended is not None or line["dead"]:
            self.due.clear()
            self.asked.clear()
        self.ended = self.cancel_requested_at = self.superseded_by = self.paused = self.pause_error = None
        self.taken_since_resume, self.released = False, None
        self.attempts.clear()
        self.dead |= expand(line["dead"])
        self.overrides.update(line.get("overrides") or {})

    def _label(self, line: Mapping[str, Any]) -> None:
        changed, pinned = line.get("labels", {}), line.get("pinned", False)
        texts = isinstance(changed, Mapping) and all(isinstance(text, str | NoneType) for text in changed.values())
        if not (texts and isinstance(pinned, bool) and isinstance(line["at"], str)):
            raise TypeError("labels are texts or null, a pin is set or not, and the time is known")
        known = self.overrides.get("labels")
        self.overrides["labels"] = {**(known if isinstance(known, dict) else {}), **changed}
        # An absent pin means unchanged, so a change of labels keeps it.
        if "pinned" in line:
            self.overrides["pinned"] = pinned


_GROWING = tuple(each.name for each in fields(Decisions) if each.default_factory is dict)


def event(run_id: str, line: Mapping[str, Any], taken: int, number: int) -> Event:
    """Return the event of a control line whose kind has one.

    Args:
        taken: How often the run was taken up, including by this line.
        number: The number that the line has reserved; 0: none.
    """
    type, names = EVENTS[line["kind"]]
    data = dict(zip(names, map(line.get, names), strict=True)) if names else {"taken": taken}
    return Event(seq=number, at=line["at"], type=type._value_, run_id=run_id, key=line.get("key"), data=data)


def gives_up(line: Mapping[str, Any]) -> bool:
    """Return whether a control line records that lines known before are lost."""
    return line["kind"] == DecisionKind.PAUSED and line["reason"] in (LINES_MISSING, REPAIRED)


def check(line: Mapping[str, Any]) -> None:
    """Check that a line can be applied.

    Raises:
        KeyError, ValueError, TypeError: the line lacks a field or has a wrong one.
    """
    if line["kind"] != DecisionKind.STARTED:
        Decisions().apply(line)
    elif None in (line["key"], line["operation"], line["at"]) or not isinstance(line["attempt"], int):
        raise TypeError("an attempt has a key, an operation, a time and a number")


def fold(lines: Iterable[Mapping[str, Any]]) -> Decisions:
    """Return the state that results from all lines of a control journal."""
    decisions = Decisions()
    for line in lines:
        decisions.apply(line)
    return decisions


def ranges(positions: Iterable[int]) -> list[list[int]]:
    """Return positions as inclusive ranges, ascending."""
    spans: list[list[int]] = []
    for position in sorted(set(positions)):
        if spans and spans[-1][1] == position - 1:
            spans[-1][1] = position
        else:
            spans.append([position, position])
    return spans


def expand(spans: Iterable[Sequence[int]]) -> set[int]:
    """Return the positions in ranges that `ranges` made."""
    return {position for first, last in spans for position in range(first, last + 1)}


def _ended(line: Mapping[str, Any]) -> Ended:
    return Ended(
        status=RunState(line["status"]),
        at=line["at"],
        lines=line["lines"],
        head=line["head"],
        causes=tuple(line.get("causes") or ()),
        error=line.get("error"),
        ending=line.get("ending"),
        event=number if type(number := line.get("event")) is int else 0,
    )
