"""Verdicts: small decisions about steps, testable without a journal."""

# A graceful stop writes `released`, and attempts that were open then do not count as interrupted: three upgrades in
# a day are not a crash loop. A person's `unpaused` forgives attempts in the same way.

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

from app.domain import plain
from app.domain.decisions import CRASH_LOOP_TRIES, Started
from app.domain.operations import ChildRun, Gate, Operation, RetryPolicy, Timer
from app.domain.records import Result, StepError
from app.domain.states import StepState


class Rescue(Enum):
    """What happens to a step whose earlier try was cut off."""

    PERFORM = "perform"
    """It is performed, as the next attempt."""
    CRASH_LOOP = "crash_loop"
    """Its run is parked: it was cut off too often."""
    ASK = "ask"
    """Its run is parked until a person lets it go on."""
    FAIL = "fail"
    """It fails."""


def rescue(operation: Operation, tries: Sequence[Started], recorded: Collection[int]) -> Rescue:
    """Decide about a step from the tries begun and the attempts that left a line."""
    interrupted = sum(begun.attempt not in recorded for begun in tries)
    if interrupted == 0 or operation.idle:
        return Rescue.PERFORM
    if operation.on_interrupted == "fail":
        return Rescue.FAIL
    if operation.on_interrupted == "ask":
        return Rescue.ASK
    return Rescue.CRASH_LOOP if interrupted >= CRASH_LOOP_TRIES else Rescue.PERFORM


def retry_delay_seconds(policy: RetryPolicy | None, result: Result, tries: int) -> float | None:
    """Decide whether a failed try is made again, and after how long; None: it is final.

    Args:
        tries: Tries recorded so far, this one included.
    """
    if result.status is not StepState.FAILED or policy is None or tries >= policy.max_attempts:
        return None
    if not _worth_another(policy, result.error):
        return None
    return _delay_seconds(policy, tries)


def _delay_seconds(policy: RetryPolicy, tries: int) -> float:
    import tenacity

    first, most = policy.initial_seconds, policy.max_seconds
    strategy = (
        tenacity.wait_incrementing(start=first, increment=policy.added_seconds, max=most)
        if policy.added_seconds
        else tenacity.wait_exponential(multiplier=first, exp_base=policy.factor, max=most)
    )
    state: Any = SimpleNamespace(attempt_number=tries)
    return float(strategy(state))


def _worth_another(policy: RetryPolicy, error: StepError | None) -> bool:
    exit_code = error.detail.get("exit_code") if error is not None else None
    if exit_code in policy.final_exit_codes:
        return False
    if not policy.codes and not policy.exit_codes:
        return True
    return error is not None and (error.code in policy.codes or exit_code in policy.exit_codes)


def unsound(result: Result) -> Result:
    """Return the failure of a performer that broke its promise: an error if and only if the try failed."""
    return failed("bad_result", f"the performer returned {result.status.value} with error {result.error}")


def failed(code: str, message: str, detail: Mapping[str, plain.Json] | None = None) -> Result:
    """Make the result of a failed try."""
    error = StepError(code=code, message=message, detail=detail or {})
    return Result(status=StepState.FAILED, error=error)


def due_seconds(operation: Operation) -> float | None:
    """Return how long an operation waits at most; None if it waits for no time."""
    match operation:
        case Timer(seconds=seconds):
            return seconds
        case Gate(expires_seconds=seconds) | ChildRun(timeout_seconds=seconds):
            return seconds
    return None
