"""Planning: builds the use cases of session plans and the planner."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

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
    plan_inputs,
    plan_runs,
    planner,
    plans,
    repository,
    reviews,
    run_outputs,
    scoping,
    shared_planner,
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
    kept: Store,
    engine: run_engine.RunEngine,
    reference: Definitions,
    platform: Platform,
    masker: plain.Masker,
    performing: PlanPerformers,
) -> tuple[plans.Plans, planner.Planner]:
    """Return the use cases of session plans, and the planner, which is not started yet."""
    plan_repository = repository.PlanRepository(
        kept=kept.plans, issues=kept.issues, audit=kept.audit, clock=platform.clock, masker=masker
    )
    scoper = scoping.Scoper(route=reference.route, starter=reference.starter, catalogue=reference.catalogue)
    chief = adopt_tasks.Chief(
        runs=use_cases, library=reference.definition_cache.library, catalogue=reference.catalogue, scoper=scoper
    )
    known = facts.Facts(runs=use_cases, store=kept, engine=engine, scoper=scoper, drivers=platform.drivers)
    own_runs = plan_runs.PlanRuns(store=kept, engine=engine, clock=platform.clock)
    given = plan_inputs.PlanInputs(repository=plan_repository, facts=known, engine=engine, clock=platform.clock)
    maker = making.Maker(runs=use_cases, scoper=scoper, chief=chief, ids=platform.ids)
    outputs = run_outputs.RunOutputs(runs=use_cases, store=kept)
    reviewing = reviews.Reviews(
        runs=use_cases,
        outputs=outputs,
        library=reference.definition_cache.library,
        catalogue=reference.catalogue,
        repository=plan_repository,
        maker=maker,
    )
    parts = dict[str, Any](repository=plan_repository, plan_runs=own_runs, inputs=given, engine=engine)
    parts |= {"facts": known, "runs": use_cases, "clock": platform.clock}
    working = _planner(engine, kept, parts)
    # Set afterwards: the performer needs the engine, which needs the performer.
    performing.performer = _performer(use_cases, kept, reference, chief, outputs, reviewing, performing)
    performing.inputs, plan_repository.written = given, performing.written
    answered = plans.Plans(
        repository=plan_repository,
        maker=maker,
        chief=chief,
        plan_runs=own_runs,
        facts=known,
        planner=working,
        reviews=reviewing,
    )
    return answered, working


def _planner(engine: run_engine.RunEngine, kept: Store, parts: dict[str, Any]) -> planner.Planner:
    return shared_planner.SharedPlanner(store=kept, **parts) if engine.elsewhere else planner.Planner(**parts)


def _performer(
    use_cases: runs.Runs,
    kept: Store,
    reference: Definitions,
    chief: adopt_tasks.Chief,
    outputs: run_outputs.RunOutputs,
    reviewing: reviews.Reviews,
    performing: PlanPerformers,
) -> performers.PlanPerformer:
    def checks() -> task_checks.TaskChecks:
        from app.services.plans import task_checks

        return task_checks.TaskChecks(outputs=outputs, performers=lambda: performing.performers)

    return performers.PlanPerformer(
        runs=use_cases,
        chief=chief,
        outputs=outputs,
        checks=checks,
        drafts=drafts.Drafts(runs=use_cases, store=kept, starter=reference.starter, catalogue=reference.catalogue),
        reviews=reviewing,
    )
