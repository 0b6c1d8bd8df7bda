"""Frames: the steps of one scope in execution, or of one iteration of a loop (workflow-dsl)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from app.dialects.orchestrate import variables
from app.domain import operations, plain

Step: TypeAlias = plain.Object


CUT_OFF: plain.Object = {"status": "failed", "error": {"message": "the run ended while the step was running"}}
"""Result, in the state, of a step that the end of its run has cut off."""


@dataclass(slots=True, kw_only=True, eq=False)
class Frame:
    """One passage through the steps of a scope."""

    steps: Sequence[Step]  # The steps, in order.
    prefix: str = ""  # Prefix of their names in keys.
    loops: tuple[variables.Loop, ...] = ()  # Loops around it, the innermost first.
    outer: Frame | None = None  # Frame of the loop around it.
    results: dict[str, plain.Json] = field(init=False)  # Results by step; a list for loops.
    lifecycle: plain.Object | None = None  # Result of the move of the item's file; None without a move.
    inside: dict[str, Iterations] = field(init=False, default_factory=dict)  # Its loops that were entered, by name.
    running: str | None = None  # Step that is executed.
    running_facts: dict[str, plain.Json] = field(init=False, default_factory=dict)  # Fields of the state for this step.
    exit_code: int | None = None  # Exit code of the last step; None if it was skipped.
    failed: bool = False  # Whether a step failed without a handler.
    left_early: bool = False  # Whether the flow jumped out of it before its end.
    positions: dict[str, int] = field(init=False)  # Position of each step, by name.
    _visits: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.results = {step["name"]: None for step in self.steps}
        self.positions = {step["name"]: index for index, step in enumerate(self.steps)}

    def visit(self, name: str) -> int:
        """Count another visit to a step, and return the number of visits."""
        self._visits[name] = self._visits.get(name, 0) + 1
        return self._visits[name]

    def key(self, name: str, visit: int) -> str:
        """Return the key of a step at one of its visits."""
        return f"{self.prefix}{name}" if visit == 1 else f"{self.prefix}{name}#{visit}"

    def seen(self) -> tuple[variables.Results, ...]:
        """Return the results that can be named here, those of the innermost scope first."""
        return tuple(frame.results for frame in self._outwards())

    def shown(self, *, ended: bool = False) -> dict[str, plain.Json]:
        """Return its steps in the form of the state.

        Args:
            ended: Whether the run has ended, so that none of them is running any more.
        """
        reported: dict[str, plain.Json] = {}
        for name, result in self.results.items():
            if name in self.inside:
                reported[name] = self.inside[name].shown(ended=ended)
            elif name == self.running:
                reported[name] = dict(CUT_OFF) if ended else {"status": "running", **self.running_facts}
            elif result is not None:
                reported[name] = result
            elif self.outer is None:
                reported[name] = {"status": "pending"}
        return reported if self.lifecycle is None else {**reported, "lifecycle": self.lifecycle}

    def _outwards(self) -> Iterator[Frame]:
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.outer


@dataclass(slots=True, kw_only=True, eq=False)
class Iterations:
    """The progress of a loop."""

    key: str  # Key of the loop.
    items: Sequence[plain.Json]  # Its items.
    passed: list[plain.Json] = field(default_factory=list)  # Ended iterations; the loop's result.
    current: Frame | None = None  # The current iteration.

    def begin(self, loop: Step, outer: Frame) -> Frame:
        """Return the frame of the next iteration."""
        index = len(self.passed)
        here = variables.Loop(alias=loop["as"], item=self.items[index], index=index, total=len(self.items))
        self.current = Frame(
            steps=loop["steps"], prefix=f"{self.key}[{index}].", loops=(here, *outer.loops), outer=outer
        )
        return self.current

    def end(self) -> None:
        """End the current iteration."""
        if self.current is not None:
            self.passed.append(self.current.shown())
            self.current = None

    def shown(self, *, ended: bool = False) -> list[plain.Json]:
        """Return the iterations so far in the form of the state."""
        return [*self.passed, *([] if self.current is None else [self.current.shown(ended=ended)])]

    def to_json(self) -> dict[str, plain.Json]:
        """Return `{items, completed_indices, current_index}` for the state."""
        return {
            "items": self.items,
            "completed_indices": list(range(len(self.passed))),
            "current_index": None if self.current is None else len(self.passed),
        }


INVALID = 2  # Exit code of a step that could not begin, or whose output is invalid.
TIMED_OUT = 124  # Exit code of a step that took too long.
PROVIDER_RETRIES = (1, TIMED_OUT)  # Exit codes after which a provider is retried.

_FAILURES = ("exit_code", "signal", "timeout", "idle", "output_too_large")

OnError = Literal["stop", "continue"]  # The command line's setting for failures that a workflow does not handle.


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What follows a step."""

    target: str | None = None  # Target of a jump, a step or `_end`; None: the next step, unless the run stops.
    stops: bool = False  # Whether the run fails here.
    unhandled: bool = False  # Whether a failure is ignored, so that the run is only partly done.


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The retries of a step."""

    further: int  # Tries after the first.
    delay_seconds: float  # Time before each.
    exit_codes: tuple[int, ...] | None  # Exit codes that are retried; None: all but 0 and invalid input.

    def policy(self) -> operations.RetryPolicy | None:
        """Return the engine's retry policy; None without further tries."""
        if self.further == 0:
            return None
        if self.exit_codes is None:
            return self._policy(codes=_FAILURES, final_exit_codes=(INVALID,))
        timed_out = ("timeout", "idle") if TIMED_OUT in self.exit_codes else ()
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


def continuation(
    step: plain.Object, exit_code: int | None, *, strict_flow: bool, on_error: OnError | None = None
) -> Continuation:
    """Decide what follows a step.

    Args:
        on_error: Setting of the command line; None: that of `strict_flow`.
    """
    if exit_code is None:
        return Continuation()
    branches = step.get("on", {})
    # A branch for the outcome has precedence over the one for all outcomes.
    branch = branches.get("success" if exit_code == 0 else "failure") or branches.get("always")
    if branch is not None:
        return Continuation(target=branch["goto"])
    if exit_code == 0:
        return Continuation()
    stops = strict_flow if on_error is None else on_error == "stop"
    return Continuation(stops=stops, unhandled=not stops)


def retries(step: plain.Object, most: int = 0, delay_ms: float = 0) -> Retries:
    """Return the retries of a step."""
    own = step.get("retries")
    provides = "provider" in step
    codes = PROVIDER_RETRIES if provides else (TIMED_OUT,) if "wait_for" in step else None
    if own is None:
        further = most if provides else 0
        return Retries(further=further, delay_seconds=delay_ms / 1000, exit_codes=codes)
    return Retries(further=own["max"], delay_seconds=own.get("delay_ms", 0) / 1000, exit_codes=codes)
