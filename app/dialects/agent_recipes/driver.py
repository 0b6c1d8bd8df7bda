"""The driver: send prompts in one conversation, and after each reply follow the transition of its outcome."""

from __future__ import annotations

from app import errors
from app.dialects.agent_recipes import composition, outcomes, schema, transitions
from app.domain import frozen_agents, operations, plain, records, runs, slots
from app.engine import ports

BACKEND_ERROR, ORCHESTRATION_ERROR = "backend-error", "orchestration-error"
"""Reasons of failed runs: an agent could not be asked, or reported no outcome even after a reminder."""


async def drive(ctx: ports.Context) -> runs.Ending:
    """Execute the machine frozen in the run."""
    machine = _Machine(ctx)
    machine.begin()
    ending = None
    while ending is None:
        ending = machine.follow(await machine.execute_step())
    return ending


class _Machine:
    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._args = ctx.run.args
        self._backend: str = self._args.get("backend", schema.DEFAULT_BACKEND)
        self._recipe: plain.Object = ctx.run.recipe
        self._guardrails = transitions.Guardrails.of(self._recipe, self._args)
        self._state = self._first_state()
        self._total = None if transitions.loops(self._recipe) else len(self._recipe["steps"])
        self._finished = 0
        self._costs: dict[str, float | None] = {}
        self._last: records.Record | None = None
        self._outcome: dict[str, plain.Json] = {"outcome": None, "otherDescription": None}

    def begin(self) -> None:
        self._show()
        self._emit_event("recipe:started", recipeLabel=self._recipe["label"], backend=self._backend)

    async def execute_step(self) -> str:
        text = outcomes.prompt(composition.filled(self._step["prompt"], self._values()), self._step["outcomes"])
        self._emit_event("step:started", promptLength=len(text), backend=self._backend)
        first, reply = await self._ask(self._state.key, text)
        found, requested = self._extracted(reply), [first]
        if isinstance(found, outcomes.NoOutcome):
            again, reply, found = await self._ask_again(found, first, reply)
            requested.append(again)
        self._outcome = {"outcome": found.outcome, "otherDescription": found.description}
        self._emit_event("step:outcome", **self._outcome, responseLength=len(reply), **_measures(*requested))
        self._finished += 1
        self._show()
        return found.outcome

    def follow(self, outcome: str) -> runs.Ending | None:
        match transitions.decide(self._recipe, self._state, outcome, self._guardrails):
            case transitions.Advance(step=step):
                self._emit_event("step:transition", outcome=outcome, toStep=step)
                self._state = self._state.advanced(step)
                self._show()
            case transitions.Restart(recipe_id=recipe_id):
                self._emit_event("step:transition", outcome=outcome, toRecipe=recipe_id)
                self._restart(recipe_id)
            case transitions.Exit(reason=reason):
                self._emit_exit(reason)
                return runs.Ending(reason=reason)
            case transitions.Halt() as halt:
                detail = {"step": self._state.current_step, "outcome": outcome, "limit": halt.limit}
                raise self._failed(halt.reason, halt.code, halt.message, detail)
        return None

    # -- prompts

    async def _ask(self, key: str, text: str) -> tuple[records.Record, str]:
        record = await self._ctx.perform(key, self._call(text), self._place())
        self._last = record
        self._add_cost(record)
        if record.error is not None:
            error = record.error
            raise self._failed(BACKEND_ERROR, error.code, error.message, error.detail, cause=key)
        self._state = self._state.spoken()
        self._fill(record)
        reply = record.output if record.blob is None else await self._ctx.read(record.blob)
        return record, str(reply or "")

    async def _ask_again(
        self, missed: outcomes.NoOutcome, first: records.Record, reply: str
    ) -> tuple[records.Record, str, outcomes.Reported]:
        text = outcomes.reminder(missed, self._step["outcomes"], self._ctx.run.driver_version)
        reported = {"error": missed.error, "malformedJson": missed.malformed_json, "responseLength": len(reply)}
        self._emit_event("step:retry", promptLength=len(text), **reported, **_measures(first))
        self._state = self._state.retried()
        self._show()
        again, reply = await self._ask(f"{self._state.key}{outcomes.REMINDER}", text)
        found = self._extracted(reply)
        if isinstance(found, outcomes.NoOutcome):
            step = self._state.current_step
            message = f"the agent reported no outcome of the step {step}, even when asked again: {found.error}"
            detail = {"step": step, **found.to_json()}
            raise self._failed(ORCHESTRATION_ERROR, "orchestration_error", message, detail, cause=again.key)
        return again, reply, found

    def _extracted(self, reply: str) -> outcomes.Extraction:
        return outcomes.extract(reply, self._step["outcomes"], self._ctx.run.driver_version)

    def _call(self, text: str) -> operations.AgentCall:
        return operations.AgentCall(
            agent_id=self._backend,
            backend=self._backend,
            model=self._model(),
            prompt=(text,),
            system=self._args.get("system_prompt"),
            tools=True,
            agent_session_id=self._state.session_id,
            session_created=self._state.session_created,
            may_abstain=True,
            may_be_blank=True,
            **frozen_agents.limits(self._step),
        )

    def _place(self) -> records.Place:
        step = self._state.current_step
        index = list(self._recipe["steps"]).index(step)
        return records.Place(
            step_id=step, step_index=index, output_slot=step, visit=self._state.visit, instructions=self._step["prompt"]
        )

    def _fill(self, record: records.Record) -> None:
        self._ctx.fill(self._state.current_step, slots.artifact(record, self._backend))

    # -- begin and end

    def _first_state(self) -> transitions.State:
        run = self._ctx.run
        existing: str | None = self._args.get("agent_session_id")
        session_id = existing or runs.agent_session_id(run.root_id, 0)
        return transitions.State.begun(run.recipe, session_id, run.created_at, session_created=existing is not None)

    def _restart(self, recipe_id: str) -> None:
        run, left = self._ctx.run, self._state
        self._recipe = run.recipe if recipe_id == run.recipe["id"] else run.frozen["recipes"][recipe_id]
        self._guardrails = transitions.Guardrails.of(self._recipe, self._args)
        # A restart gets a new conversation, under an id that a replay computes again.
        session_id = runs.agent_session_id(run.root_id, left.restarts + 1)
        # From a record, not from a clock, so that a replay gets the same time.
        began_at = self._last.completed_at if self._last is not None else run.created_at
        self._state = transitions.State.begun(self._recipe, session_id, began_at, restarts=left.restarts + 1)
        self._emit_event("recipe:restarted", fromSessionId=left.session_id, restarts=left.restarts + 1)
        self.begin()

    def _failed(
        self, reason: str, code: str, message: str, detail: plain.Object, cause: str | None = None
    ) -> errors.RunFailed:
        self._show()
        self._emit_exit(reason, error=message)
        key, causes = cause or self._state.key, (cause,) if cause else ()
        return errors.RunFailed(message, code=code, reason=reason, key=key, detail=detail, causes=causes)

    # -- the current step

    @property
    def _step(self) -> plain.Object:
        step: plain.Object = self._recipe["steps"][self._state.current_step]
        return step

    def _model(self) -> str | None:
        chosen = (self._args.get("model"), self._step.get("model"), self._recipe.get("model"))
        return next((model for model in chosen if model is not None), None)

    def _values(self) -> dict[str, plain.Json]:
        rules = (self._recipe.get("args_schema") or {}).get("properties") or {}
        defaults = {name: rule["default"] for name, rule in rules.items() if "default" in rule}
        return {**defaults, **self._args}

    def _add_cost(self, record: records.Record) -> None:
        step = self._state.current_step
        self._costs[step] = records.total((self._costs.get(step), _cost(record)))

    # -- the visible state of the run

    def _show(self) -> None:
        costs = {"costUsd": records.total(self._costs.values()), "stepCostsUsd": dict(self._costs)}
        machine = self._state.to_json() | costs
        if self._ctx.run.driver_version >= outcomes.VERSION:
            machine |= self._outcome
        self._ctx.show(slots.Progress(finished_steps=self._finished, total_steps=self._total, machine=machine))

    def _emit_exit(self, reason: str, error: str | None = None) -> None:
        costs = {"totalCostUsd": records.total(self._costs.values()), "stepCostsUsd": dict(self._costs)}
        self._emit_event("recipe:exited", reason=reason, error=error, **costs, **self._outcome)

    def _emit_event(self, event: str, **facts: plain.Json) -> None:
        state = self._state
        fields = {
            "event": event,
            "sessionId": state.session_id,
            "recipeId": state.recipe_id,
            "step": state.current_step,
            "stepCount": state.step_count,
            "visitCount": state.visit,
            "outcome": None,
            "error": None,
            "model": self._model(),
            "promptLength": None,
            "responseLength": None,
            "durationMs": None,
            "costUsd": None,
            "maxStepVisits": self._guardrails.max_step_visits,
            "maxTotalSteps": self._guardrails.max_total_steps,
        }
        # If a person has sent the run back to an earlier step, the same report comes after different lines.
        lines = 0 if self._last is None else self._last.position + 1
        self._ctx.emit(f"{state.key} {event} {lines}", fields | facts)


def _cost(record: records.Record) -> float | None:
    return record.usage.cost_usd if record.usage is not None else None


def _measures(*requested: records.Record) -> dict[str, plain.Json]:
    took = sum(record.line.get("duration_ms") or 0 for record in requested)
    return {"durationMs": took, "costUsd": records.total(map(_cost, requested))}
