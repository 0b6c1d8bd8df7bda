"""Planning: builds the use cases of session plans and the planner."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from app.bootstrap.definitions import Definitions
from app.bootstrap.engines import Store
from app.bootstrap.platform import Platform
from app.domain import plain, plan_operations, records
from app.engine import ports, run_engine, run_equipment
from app.flows.session_plan import driver
from app.services import runs
from app.services.plans import (
    adopt_tasks,
    drafts,
    facts,
    making,
    performers,
    plan_commands,
    plan_inputs,
    plan_runs,
    planner,
    plans,
    repository,
    reviews,
    run_outputs,
    scoping,
)

if TYPE_CHECKING:
    from app.services.plans import task_checks

KINDS = tuple(
    operation.kind
    for operation in (
        plan_operations.StartTask,
        plan_operations.AskChief,
        plan_operations.TakeTasks,
        plan_operations.ReadOutputs,
        plan_operations.CheckTask,
        plan_operations.StartReview,
        plan_operations.ReadReview,
    )
)
"""Kinds of the operations of session plans."""


class PlanPerformers:
    """Performs the operations of session plans by use cases that are built after the engine."""

    performer: ports.Performer  # Performs the operations of plans.
    inputs: plan_inputs.PlanInputs  # Supplies the inputs of plans.
    written: Callable[[str], object]  # Called with each written plan.
    performers: Mapping[str, ports.Performer]  # Performers of the steps of runs.

    def equipped(self, equipment: run_equipment.Equipment) -> run_equipment.Equipment:
        """Return the engine's equipment with the performers and inputs of session plans."""
        self.performers = equipment.performers
        performers = {**equipment.performers, **dict.fromkeys(KINDS, self)}
        sources, looks = {driver.NAME: self.wait}, {driver.NAME: self.look}
        return dataclasses.replace(equipment, performers=performers, sources=sources, looks=looks)

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform an operation of a plan."""
        return await self.performer.perform(call)

    async def wait(self, call: ports.Call) -> plain.Json:
        """Return the next input of a plan."""
        return await self.inputs.wait(call)

    async def look(self, call: ports.Call) -> plain.Json:
        """Return the next input of a plan if there is one now."""
        return await self.inputs.input_now(call)


def planning_of(
    use_cases: runs.Runs,
    store: Store,
    engine: run_engine.RunEngine,
    definitions: Definitions,
    platform: Platform,
    masker: plain.Masker,
    plan_performers: PlanPerformers,
) -> tuple[plans.Plans, planner.Planner]:
    """Return the use cases of session plans, and the planner, which is not started yet."""
    plan_repository = repository.PlanRepository(
        store=store.plans, issues=store.issues, audit=store.audit, clock=platform.clock, masker=masker
    )
    scoper = scoping.Scoper(route=definitions.route, starter=definitions.starter, catalogue=definitions.catalogue)
    chief = adopt_tasks.Chief(
        runs=use_cases, library=definitions.definition_cache.library, catalogue=definitions.catalogue, scoper=scoper
    )
    plan_facts = facts.Facts(runs=use_cases, store=store, engine=engine, scoper=scoper, drivers=platform.drivers)
    own_runs = plan_runs.PlanRuns(store=store, engine=engine, clock=platform.clock)
    inputs = plan_inputs.PlanInputs(repository=plan_repository, facts=plan_facts, engine=engine, clock=platform.clock)
    maker = making.Maker(runs=use_cases, scoper=scoper, chief=chief, ids=platform.ids)
    outputs = run_outputs.RunOutputs(runs=use_cases, store=store)
    plan_reviews = reviews.Reviews(
        runs=use_cases,
        outputs=outputs,
        library=definitions.definition_cache.library,
        catalogue=definitions.catalogue,
        repository=plan_repository,
        maker=maker,
    )
    session_planner = _planner(use_cases, store, engine, platform, plan_repository, own_runs, inputs, plan_facts)
    # Set afterwards: the performer needs the engine, which needs the performer.
    plan_performers.performer = _performer(use_cases, store, definitions, chief, outputs, plan_reviews, plan_performers)
    plan_performers.inputs, plan_repository.written = inputs, plan_performers.written
    session_plans = plans.Plans(
        repository=plan_repository,
        maker=maker,
        chief=chief,
        plan_runs=own_runs,
        facts=plan_facts,
        planner=session_planner,
        reviews=plan_reviews,
    )
    return session_plans, session_planner


def _planner(
    use_cases: runs.Runs,
    store: Store,
    engine: run_engine.RunEngine,
    platform: Platform,
    plan_repository: repository.PlanRepository,
    own_runs: plan_runs.PlanRuns,
    inputs: plan_inputs.PlanInputs,
    plan_facts: facts.Facts,
) -> planner.Planner:
    kind = planner.Planner
    commands = plan_commands.PlanCommands(repository=plan_repository, plan_runs=own_runs, inputs=inputs, engine=engine)
    if engine.elsewhere:
        # Only services with workers need it.
        from app.services.plans import shared_planner

        kind = shared_planner.SharedPlanner
        commands = shared_planner.SharedCommands(
            repository=plan_repository,
            plan_runs=own_runs,
            inputs=inputs,
            engine=cast(shared_planner.SharedEngine, engine),
            store=store,
            clock=platform.clock,
        )
    session_planner = kind(
        repository=plan_repository,
        plan_runs=own_runs,
        inputs=inputs,
        commands=commands,
        facts=plan_facts,
        runs=use_cases,
        clock=platform.clock,
    )
    if engine.elsewhere:
        cast("shared_planner.SharedEngine", engine).rest_listeners.append(session_planner.note)
    return session_planner


def _performer(
    use_cases: runs.Runs,
    store: Store,
    definitions: Definitions,
    chief: adopt_tasks.Chief,
    outputs: run_outputs.RunOutputs,
    plan_reviews: reviews.Reviews,
    plan_performers: PlanPerformers,
) -> performers.PlanPerformer:
    def checks() -> task_checks.TaskChecks:
        from app.services.plans import task_checks

        return task_checks.TaskChecks(outputs=outputs, performers=lambda: plan_performers.performers)

    return performers.PlanPerformer(
        runs=use_cases,
        chief=chief,
        outputs=outputs,
        checks=checks,
        drafts=drafts.Drafts(runs=use_cases, store=store, starter=definitions.starter, catalogue=definitions.catalogue),
        reviews=plan_reviews,
    )
