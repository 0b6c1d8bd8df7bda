"""Transitions: the state of a machine, its guardrails, and the move after an outcome (agent-recipes, 2.5 and 2.6)."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from app import printable
from app.dialects.agent_recipes import schema
from app.domain import plain

_Place: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """The limits that end a runaway run."""

    max_step_visits: int  # Most visits of one step.
    max_total_steps: int  # Most steps in all.
    exit_on_other: bool  # Whether the outcome `other` ends the run, even if its transition has a next step.
    max_restarts: int | None = None  # Most restarts in a new session; None: no limit.

    @classmethod
    def of(cls, recipe: plain.Object, args: plain.Object) -> Guardrails:
        """Return the guardrails of a recipe, overridden by the run's arguments."""
        own = {**schema.GUARDRAILS, **recipe["guardrails"]}
        return cls(
            max_step_visits=args.get("max_visits", own["maxStepVisits"]),
            max_total_steps=args.get("max_steps", own["maxTotalSteps"]),
            exit_on_other=own["exitOnOther"],
            max_restarts=args.get("max_restarts"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of a machine."""

    recipe_id: str  # Recipe that is executed.
    current_step: str  # Step that is executed.
    session_id: str  # Our id of the conversation.
    session_created: bool  # Whether the conversation has begun; if so, the next prompt continues it.
    started_at: str  # Time at which this recipe began.
    step_count: int = 1  # Steps begun since then, this one included.
    step_visit_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)  # Number of visits, by step.
    step_retry_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)  # Number of reminders, by step.
    restarts: int = 0  # Number of restarts of the run in a new conversation.

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
        """Return the number of visits to the current step, including this one."""
        return self.step_visit_counts[self.current_step]

    @property
    def key(self) -> str:
        """Return the key of the current step: `fix`, `fix#2`, `restart1/fix`."""
        name = self.current_step if self.visit == 1 else f"{self.current_step}#{self.visit}"
        return f"{self.prefix}{name}"

    @property
    def prefix(self) -> str:
        """Return the prefix of keys since the last restart."""
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
        """Return the state after a reminder."""
        retries = self.step_retry_counts[self.current_step] + 1
        return dataclasses.replace(self, step_retry_counts={**self.step_retry_counts, self.current_step: retries})

    def to_json(self) -> dict[str, plain.Json]:
        """Return the state in the form of its document, with conversation and restarts."""
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
    """The run ends as done."""

    reason: str  # The reason.


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A recipe is begun in a new conversation."""

    recipe_id: str  # Id of that recipe.


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """A guardrail ends the run."""

    reason: str  # The reason of the run's ending.
    code: str  # The error code.
    message: str  # One sentence for people.
    limit: int  # The limit that was reached.


NextMove: TypeAlias = Advance | Exit | Restart | Halt


def decide(recipe: plain.Object, state: State, outcome: str, guardrails: Guardrails) -> NextMove:
    """Decide the move after an outcome of the current step."""
    transition = recipe["steps"][state.current_step]["onOutcome"][outcome]
    # The guardrail has precedence over the transition, which may still name a next step.
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
            message=f"the run has restarted {printable.counted(state.restarts, 'time')}, which is its limit",
            limit=guardrails.max_restarts,
        )
    return Restart(recipe_id=transition["recipeId"])


def restarts(recipe: plain.Object) -> Iterator[tuple[_Place, str]]:
    """Return the place and the recipe of every transition that restarts in a new conversation."""
    for name, step in recipe["steps"].items():
        for outcome, transition in step["onOutcome"].items():
            if "recipeId" in transition:
                yield ("steps", name, "onOutcome", outcome, "recipeId"), transition["recipeId"]


def loops(recipe: plain.Object) -> bool:
    """Return whether a run can reach a step twice, or restart."""
    follows = {name: _next_steps(step) for name, step in recipe["steps"].items()}
    leading = Counter(itertools.chain.from_iterable(follows.values()))
    # Repeatedly remove steps without predecessors; the steps that remain are in cycles, or after them.
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
            message=f"the step {step} was visited {printable.counted(visits, 'time')}, which is its limit",
            limit=guardrails.max_step_visits,
        )
    if state.step_count >= guardrails.max_total_steps:
        return Halt(
            reason="max-total-steps",
            code="max_total_steps",
            message=f"the recipe has taken {printable.counted(state.step_count, 'step')}, which is its limit",
            limit=guardrails.max_total_steps,
        )
    return Advance(step=step)


def _next_steps(step: plain.Object) -> frozenset[str]:
    return frozenset(found["nextStep"] for found in step["onOutcome"].values() if "nextStep" in found)
