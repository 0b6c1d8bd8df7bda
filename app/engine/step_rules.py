"""Step rules: rescue and retry, decided without a journal."""

# A graceful stop writes `released`, so attempts that were open then do not count as interrupted: three upgrades in
# a day are not a crash loop. A person's `unpaused` clears earlier attempts in the same way.

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

from app import errors
from app.domain import plain
from app.domain.decisions import CRASH_LOOP_TRIES, Started
from app.domain.operations import ChildRun, Gate, Operation, RetryPolicy, Timer
from app.domain.records import Result, StepError
from app.domain.states import StepState


class Rescue(Enum):
    """What happens to a step whose earlier attempt was cut off."""

    PERFORM = "perform"  # It is performed, as the next attempt.
    CRASH_LOOP = "crash_loop"  # Its run is parked: it was cut off too often.
    ASK = "ask"  # Its run is parked until a person unpauses it.
    FAIL = "fail"  # It fails.


def rescue(operation: Operation, attempts: Sequence[Started], recorded: Collection[int]) -> Rescue:
    """Decide about a step by its begun attempts and those that left a line."""
    interrupted = sum(attempt.attempt not in recorded for attempt in attempts)
    if interrupted == 0 or operation.idle:
        return Rescue.PERFORM
    if operation.on_interrupted == "fail":
        return Rescue.FAIL
    if operation.on_interrupted == "ask":
        return Rescue.ASK
    # A wait for the workspace, e.g. on a full disk, does not bring the process down.
    crashed = sum(not attempt.waited for attempt in attempts if attempt.attempt not in recorded)
    return Rescue.CRASH_LOOP if crashed >= CRASH_LOOP_TRIES else Rescue.PERFORM


def cut_off(key: str, code: str, what: str, attempts: int) -> errors.StepError:
    """Return the error that parks a run at a step that was cut off."""
    message = f"the step {key!r} {what}; let the run continue to try again"
    # Clients of 0.1.0 read `tries`.
    detail = {"attempts": attempts, "tries": attempts}
    return errors.StepError(message, code=code, key=key, detail=detail)


def retry_delay_seconds(policy: RetryPolicy | None, result: Result, attempts: int) -> float | None:
    """Return the seconds after which a failed attempt is retried; None if the attempt is final.

    Args:
        attempts: Number of attempts recorded so far, including this one.
    """
    if result.status is not StepState.FAILED or policy is None or attempts >= policy.max_attempts:
        return None
    if not _worth_another(policy, result.error):
        return None
    return _delay_seconds(policy, attempts)


def _delay_seconds(policy: RetryPolicy, attempts: int) -> float:
    import tenacity

    first, most = policy.initial_seconds, policy.max_seconds
    strategy = (
        tenacity.wait_incrementing(start=first, increment=policy.added_seconds, max=most)
        if policy.added_seconds
        else tenacity.wait_exponential(multiplier=first, exp_base=policy.factor, max=most)
    )
    state: Any = SimpleNamespace(attempt_number=attempts)
    return float(strategy(state))


def _worth_another(policy: RetryPolicy, error: StepError | None) -> bool:
    exit_code = error.detail.get("exit_code") if error is not None else None
    if exit_code in policy.final_exit_codes:
        return False
    if not policy.codes and not policy.exit_codes:
        return True
    return error is not None and (error.code in policy.codes or exit_code in policy.exit_codes)


def unsound(result: Result) -> Result:
    """Return the failure for a performer that broke its contract: a result has an error exactly if it failed."""
    return failed("bad_result", f"the performer returned {result.status.value} with error {result.error}")


def failed(code: str, message: str, detail: Mapping[str, plain.Json] | None = None) -> Result:
    """Return the result of a failed attempt."""
    error = StepError(code=code, message=message, detail=detail or {})
    return Result(status=StepState.FAILED, error=error)


def due_seconds(operation: Operation) -> float | None:
    """Return how long an operation waits at most; None if it has no deadline."""
    match operation:
        case Timer(seconds=seconds):
            return seconds
        case Gate(expires_seconds=seconds) | ChildRun(timeout_seconds=seconds):
            return seconds
    return None
