"""Frames: the steps of one scope while they are taken, those of a loop once for each item
(workflow-dsl, loop scoping).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from app.dialects.orchestrate import variables
from app.domain import plain

Step: TypeAlias = Mapping[str, plain.Json]


@dataclass(slots=True, kw_only=True, eq=False)
class Frame:
    """One passage through the steps that stand side by side."""

    steps: Sequence[Step]
    """The steps, in order."""
    prefix: str = ""
    """What stands before their names in keys."""
    loops: tuple[variables.Loop, ...] = ()
    """Loops around it, the innermost first."""
    outer: Frame | None = None
    """Frame of the loop around it."""
    results: dict[str, plain.Json] = field(init=False)
    """By name, what steps have come to: fields of the state, a list of iterations for loops, None before they were."""
    lifecycle: Mapping[str, plain.Json] | None = None
    """What became of the item's file; None where nothing was to become of it."""
    inside: dict[str, Iterations] = field(init=False, default_factory=dict)
    """Loops of it that were entered, by name."""
    running: str | None = None
    """Step that is being taken."""
    running_facts: dict[str, plain.Json] = field(init=False, default_factory=dict)
    """What the state shows of it."""
    exit_code: int | None = None
    """Exit code of the step taken last; None if it was skipped."""
    failed: bool = False
    """Whether a step failed that no handler was there for."""
    left_early: bool = False
    """Whether the flow jumped out of it before its end."""
    positions: dict[str, int] = field(init=False)
    """Where each step stands, by name."""
    _visits: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.results = {step["name"]: None for step in self.steps}
        self.positions = {step["name"]: index for index, step in enumerate(self.steps)}

    def visit(self, name: str) -> int:
        """Count one more passage through a step, and return how many there were."""
        self._visits[name] = self._visits.get(name, 0) + 1
        return self._visits[name]

    def key(self, name: str, visit: int) -> str:
        """Return the key of a step at one of its visits."""
        return f"{self.prefix}{name}" if visit == 1 else f"{self.prefix}{name}#{visit}"

    def seen(self) -> tuple[variables.Results, ...]:
        """Return the results that can be named here, those of the innermost scope first."""
        return tuple(frame.results for frame in self._outwards())

    def shown(self) -> dict[str, plain.Json]:
        """Return what the state shows of its steps."""
        told: dict[str, plain.Json] = {}
        for name, result in self.results.items():
            if name in self.inside:
                told[name] = self.inside[name].shown()
            elif name == self.running:
                told[name] = {"status": "running", **self.running_facts}
            elif result is not None:
                told[name] = result
            elif self.outer is None:
                told[name] = {"status": "pending"}
        return told if self.lifecycle is None else {**told, "lifecycle": self.lifecycle}

    def _outwards(self) -> Iterator[Frame]:
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.outer


@dataclass(slots=True, kw_only=True, eq=False)
class Iterations:
    """How far a loop is."""

    key: str
    """Key of the loop."""
    items: Sequence[plain.Json]
    """What it goes over."""
    passed: list[plain.Json] = field(default_factory=list)
    """What the state shows of the iterations that are over; the loop's result."""
    current: Frame | None = None
    """The iteration that is being taken."""

    def begin(self, loop: Step, outer: Frame) -> Frame:
        """Return the frame of the next iteration.

        Args:
            loop: What the step says of its loop.
            outer: Frame that the loop stands in.
        """
        index = len(self.passed)
        here = variables.Loop(alias=loop["as"], item=self.items[index], index=index, total=len(self.items))
        self.current = Frame(
            steps=loop["steps"], prefix=f"{self.key}[{index}].", loops=(here, *outer.loops), outer=outer
        )
        return self.current

    def end(self) -> None:
        """Take the present iteration to be over."""
        if self.current is not None:
            self.passed.append(self.current.shown())
            self.current = None

    def shown(self) -> list[plain.Json]:
        """Return what the state shows of the iterations so far."""
        return [*self.passed, *([] if self.current is None else [self.current.shown()])]

    def to_json(self) -> dict[str, plain.Json]:
        """Return `{items, completed_indices, current_index}`, as the state shows it."""
        return {
            "items": self.items,
            "completed_indices": list(range(len(self.passed))),
            "current_index": None if self.current is None else len(self.passed),
        }
