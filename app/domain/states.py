"""States: the states of a run and of a step, and what moves a run out of each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RunState(StrEnum):
    """State of a run."""

    PENDING = "pending"
    """Accepted and queued, at its creation or by a resume.

    The pool moves it out when it has capacity (to running); a person may cancel it. A crash here loses nothing: the
    next start queues it again.
    """
    RUNNING = "running"
    """Holds capacity of the pool and performs steps.

    Its runner moves it out: at its end (to done, failed, cancelled), to waiting, or to paused. A crash here leaves it
    running on disk: recovery queues it, and replay continues after its last line.
    """
    WAITING = "waiting"
    """Every open step only waits, at least one for an answer; the run holds no capacity.

    An answer or a gate's expiry moves it out (to running), a cancel ends it. A crash here changes nothing: replay
    asks for the same gates.
    """
    PAUSED = "paused"
    """Stopped at a step boundary by a person, or parked by a fault that its `error` names.

    A person moves it out (an unpause to running, through the queue, or a cancel); a storage fault also ends by itself
    once there is space. A crash here changes nothing if the pause is a control line: by a person, a limit or missing
    lines. A run parked by any other fault has no such line, and the next start tries it again.
    """
    DONE = "done"  # Ended well; `ending.partial` reports failures that the recipe tolerated. Final.
    FAILED = "failed"
    """Ended badly, or its journal is damaged; `error` has the reason.

    Only a person moves it out, by a resume (to pending). A crash here changes nothing.
    """
    CANCELLED = "cancelled"
    """Ended by a person's order, or by its recipe's own exit.

    Only a person moves it out, by a resume (to pending). A crash here changes nothing.
    """

    finished: bool
    """Whether the run has ended."""


_FINISHED = frozenset({RunState.DONE, RunState.FAILED, RunState.CANCELLED})
for _state in RunState:
    _state.finished = _state in _FINISHED

MOVES: Mapping[RunState, frozenset[RunState]] = {
    RunState.PENDING: frozenset({RunState.RUNNING, RunState.PAUSED, RunState.CANCELLED, RunState.FAILED}),
    RunState.RUNNING: frozenset({RunState.WAITING, RunState.PAUSED, *_FINISHED}),
    RunState.WAITING: frozenset({RunState.RUNNING, RunState.PAUSED, *_FINISHED}),
    RunState.PAUSED: frozenset({RunState.PENDING, RunState.RUNNING, RunState.CANCELLED, RunState.FAILED}),
    RunState.DONE: frozenset(),
    RunState.FAILED: frozenset({RunState.PENDING}),
    RunState.CANCELLED: frozenset({RunState.PENDING}),
}
"""Every move of a run; `docs/reference/states.md` draws them. Only `repair`, which rewrites the folder, goes beyond
them: it leaves a failed run paused.
"""


class StepState(StrEnum):
    """State of one attempt of a step."""

    RUNNING = "running"
    """Being performed; never written to the journal. A crash here runs the step again as its next attempt."""
    QUEUED = "queued"
    """Begun, but waiting for its backend, which answers one prompt at a time; never written to the journal."""
    DONE = "done"  # Performed and recorded.
    FAILED = "failed"  # Performed without success and recorded; final unless `retry_at` is set.
    SKIPPED = "skipped"  # Skipped by the recipe's own rule and recorded.
