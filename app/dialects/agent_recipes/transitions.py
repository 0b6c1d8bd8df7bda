"""Transitions: the state of a machine, its guardrails, and what follows an outcome (agent-recipes, 2.5 and 2.6)."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from app.dialects.agent_recipes import schema
from app.domain import plain

_Place: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """What ends a runaway run."""

    max_step_visits: int  # Most visits of one step.
    max_total_steps: int  # Most steps in all.
    exit_on_other: bool  # Whether the outcome `other` ends the run, whatever its transition says.
    max_restarts: int | None = None  # Most restarts in a new session; None: no limit.

    @classmethod
    def of(cls, recipe: plain.Object, args: plain.Object) -> Guardrails:
        """Return those of a recipe, with what the run's arguments put in their place."""
        own = {**schema.GUARDRAILS, **recipe["guardrails"]}
        return cls(
            max_step_visits=args.get("max_visits", own["maxStepVisits"]),
            max_total_steps=args.get("max_steps", own["maxTotalSteps"]),
            exit_on_other=own["exitOnOther"],
            max_restarts=args.get("max_restarts"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a machine stands."""

    recipe_id: str  # Recipe that is executed now.
    current_step: str  # Step that is at work.
    session_id: str  # Conversation, by the id that we gave it.
    session_created: bool  # Whether the conversation has begun, so that it is resumed.
    started_at: str  # When this recipe was begun.
    step_count: int = 1  # Steps begun since then, this one included.
    step_visit_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)  # How often each step was visited.
    step_retry_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)  # Repeated requests, by step.
    restarts: int = 0  # How often the run has begun anew in another conversation.

    @classmethod
    def begun(
        cls, recipe: plain.Object, session_id: str, started_at: str, *, restarts: int = 0, session_created: bool = False
    ) -> State:
        """Return the state at a recipe's initial step."""
        step = recipe["initialStep"]
        return cls(
            recipe_id=recipe["id"],
            current_step=step,
            session_id=session_id,
            session_created=session_created,
            started_at=started_at,
            step_visit_counts={step: 1},
            step_retry_counts={step: 0},
            restarts=restarts,
        )

    @property
    def visit(self) -> int:
        """Return how often the present step was visited, this time included."""
        return self.step_visit_counts[self.current_step]

    @property
    def key(self) -> str:
        """Return the key of the present step: `fix`, `fix#2`, `restart1/fix`."""
        name = self.current_step if self.visit == 1 else f"{self.current_step}#{self.visit}"
        return f"{self.prefix}{name}"

    @property
    def prefix(self) -> str:
        """Return what keys begin with since the last restart."""
        return f"restart{self.restarts}/" if self.restarts else ""

    def advanced(self, step: str) -> State:
        """Return the state at another step."""
        visits = self.step_visit_counts.get(step, 0) + 1
        return dataclasses.replace(
            self,
            current_step=step,
            step_count=self.step_count + 1,
            step_visit_counts={**self.step_visit_counts, step: visits},
            step_retry_counts={**self.step_retry_counts, step: 0},
        )

    def spoken(self) -> State:
        """Return the state after a reply: the conversation has begun."""
        return dataclasses.replace(self, session_created=True)

    def retried(self) -> State:
        """Return the state after the outcome was asked for again."""
        retries = self.step_retry_counts[self.current_step] + 1
        return dataclasses.replace(self, step_retry_counts={**self.step_retry_counts, self.current_step: retries})

    def to_json(self) -> dict[str, plain.Json]:
        """Return the state by the names of its document, with conversation and restarts."""
        return {
            "recipeId": self.recipe_id,
            "currentStep": self.current_step,
            "stepCount": self.step_count,
            "stepVisitCounts": dict(self.step_visit_counts),
            "stepRetryCounts": dict(self.step_retry_counts),
            "startTime": round(datetime.fromisoformat(self.started_at).timestamp() * 1000),
            "sessionCreated": self.session_created,
            "sessionId": self.session_id,
            "restarts": self.restarts,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Another step follows."""

    step: str  # Its name.


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The run is done."""

    reason: str  # Why.


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A recipe is begun in a new conversation."""

    recipe_id: str  # Which.


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """A guardrail ends the run."""

    reason: str  # Which, as the run's ending reports it.
    code: str  # The same as an error's code.
    message: str  # One sentence for people.
    limit: int  # What was reached.


NextMove: TypeAlias = Advance | Exit | Restart | Halt


def decide(recipe: plain.Object, state: State, outcome: str, guardrails: Guardrails) -> NextMove:
    """Decide what follows an outcome of the present step."""
    transition = recipe["steps"][state.current_step]["onOutcome"][outcome]
    # The guardrail goes before the transition, which may name a next step all the same.
    if outcome == schema.OTHER and guardrails.exit_on_other:
        return Exit(reason=transition["reason"])
    if "nextStep" in transition:
        return _guarded(transition["nextStep"], state, guardrails)
    if transition["action"] == schema.EXIT:
        return Exit(reason=transition["reason"])
    if guardrails.max_restarts is not None and state.restarts >= guardrails.max_restarts:
        return Halt(
            reason="max-restarts",
            code="max_restarts",
            message=f"the run has restarted {state.restarts} times, which is its limit",
            limit=guardrails.max_restarts,
        )
    return Restart(recipe_id=transition["recipeId"])


def restarts(recipe: plain.Object) -> Iterator[tuple[_Place, str]]:
    """Return the place and the recipe of every transition that begins one in a new conversation."""
    for name, step in recipe["steps"].items():
        for outcome, transition in step["onOutcome"].items():
            if "recipeId" in transition:
                yield ("steps", name, "onOutcome", outcome, "recipeId"), transition["recipeId"]


def loops(recipe: plain.Object) -> bool:
    """Return whether a run can come to the same step twice, or begin anew."""
    follows = {name: _next_steps(step) for name, step in recipe["steps"].items()}
    leading = Counter(itertools.chain.from_iterable(follows.values()))
    # Steps that nothing is left to lead to are taken away until none is; what remains goes round in circles.
    free = [name for name in follows if not leading[name]]
    while free:
        for name in follows.pop(free.pop()):
            leading[name] -= 1
            if not leading[name]:
                free.append(name)
    return bool(follows) or any(True for _ in restarts(recipe))


def _guarded(step: str, state: State, guardrails: Guardrails) -> NextMove:
    visits = state.step_visit_counts.get(step, 0)
    if visits >= guardrails.max_step_visits:
        return Halt(
            reason=f"max-step-visits-exceeded:{step}",
            code="max_step_visits_exceeded",
            message=f"the step {step} was visited {visits} times, which is its limit",
            limit=guardrails.max_step_visits,
        )
    if state.step_count >= guardrails.max_total_steps:
        return Halt(
            reason="max-total-steps",
            code="max_total_steps",
            message=f"the recipe has taken {state.step_count} steps, which is its limit",
            limit=guardrails.max_total_steps,
        )
    return Advance(step=step)


def _next_steps(step: plain.Object) -> frozenset[str]:
    return frozenset(found["nextStep"] for found in step["onOutcome"].values() if "nextStep" in found)
