"""Flow: what follows a step, and how often a step is tried (workflow-dsl, control flow defaults and retry policy)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from app.domain import operations, plain

INVALID = 2
"""Exit code of a step that could not be begun, or whose output is not what it must be."""
TIMED_OUT = 124
"""Exit code of a step that took too long."""
PROVIDER_RETRIES = (1, TIMED_OUT)
"""Exit codes after which a provider is worth another try."""

_FAILURES = ("exit_code", "signal", "timeout", "output_too_large")

OnError = Literal["stop", "continue"]
"""What the command line says about failures that a workflow says nothing about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What follows a step."""

    target: str | None = None
    """Step that is jumped to, or `_end`; None: the next one, unless the run stops."""
    stops: bool = False
    """Whether the run fails here."""
    unhandled: bool = False
    """Whether a failure is passed by, so that the run is not whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often a step is tried."""

    further: int
    """Tries after the first."""
    delay_seconds: float
    """Time before each."""
    exit_codes: tuple[int, ...] | None
    """Exit codes after which there is another try; None: all but 0 and that of invalid input."""

    def policy(self) -> operations.RetryPolicy | None:
        """Return the same as the engine takes it; None without further tries."""
        if self.further == 0:
            return None
        if self.exit_codes is None:
            return self._policy(codes=_FAILURES, final_exit_codes=(INVALID,))
        timed_out = ("timeout",) if TIMED_OUT in self.exit_codes else ()
        return self._policy(codes=timed_out, exit_codes=self.exit_codes)

    def _policy(
        self, codes: tuple[str, ...], exit_codes: tuple[int, ...] = (), final_exit_codes: tuple[int, ...] = ()
    ) -> operations.RetryPolicy:
        return operations.RetryPolicy(
            max_attempts=self.further + 1,
            codes=codes,
            exit_codes=exit_codes,
            final_exit_codes=final_exit_codes,
            initial_seconds=self.delay_seconds,
            factor=1,
            max_seconds=self.delay_seconds,
        )


def verdict(
    step: Mapping[str, plain.Json], exit_code: int | None, *, strict_flow: bool, on_error: OnError | None = None
) -> Verdict:
    """Decide what follows a step.

    Args:
        exit_code: How it ended; None if it was skipped.
        on_error: What the command line says; None: what `strict_flow` says.
    """
    if exit_code is None:
        return Verdict()
    branches = step.get("on", {})
    branch = branches.get("success" if exit_code == 0 else "failure") or branches.get("always")
    if branch is not None:
        return Verdict(target=branch["goto"])
    if exit_code == 0:
        return Verdict()
    stops = strict_flow if on_error is None else on_error == "stop"
    return Verdict(stops=stops, unhandled=not stops)


def retries(step: Mapping[str, plain.Json], most: int = 0, delay_ms: float = 0) -> Retries:
    """Return how often a step is tried.

    Args:
        most: Further tries of providers that say nothing, from the command line.
        delay_ms: Time before each of those.
    """
    own = step.get("retries")
    provides = "provider" in step
    codes = PROVIDER_RETRIES if provides else (TIMED_OUT,) if "wait_for" in step else None
    if own is None:
        further = most if provides else 0
        return Retries(further=further, delay_seconds=delay_ms / 1000, exit_codes=codes)
    return Retries(further=own["max"], delay_seconds=own.get("delay_ms", 0) / 1000, exit_codes=codes)
