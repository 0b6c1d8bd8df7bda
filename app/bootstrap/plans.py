"""Planning: the use cases of session plans and whoever works on them, put together."""

from __future__ import annotations

from app.bootstrap.definitions import Definitions
from app.bootstrap.platform import Platform, Store
from app.domain import plain
from app.engine import run_engine
from app.services import runs
from app.services.plans import adopt_tasks, advancing, facts, making, planner, plans, repository, scoping, waiting


def planning_of(
    use_cases: runs.Runs,
    kept: Store,
    engine: run_engine.RunEngine,
    reference: Definitions,
    begun: runs.RunStartedListeners,
    platform: Platform,
    masker: plain.Masker,
) -> tuple[plans.Plans, planner.Planner]:
    """Return the use cases of session plans, and the planner, which is not started yet."""
    plan_repository = repository.PlanRepository(
        kept=kept.plans, issues=kept.issues, clock=platform.clock, masker=masker
    )
    scoper = scoping.Scoper(route=reference.route, starter=reference.starter, catalogue=reference.catalogue)
    chief = adopt_tasks.Chief(
        runs=use_cases, library=reference.definition_cache.library, catalogue=reference.catalogue, scoper=scoper
    )
    known = facts.Facts(runs=use_cases, store=kept, engine=engine)
    advance = advancing.Advance(
        repository=plan_repository, facts=known, scoper=scoper, chief=chief, runs=use_cases, engine=engine
    )
    working = planner.Planner(
        repository=plan_repository, advance=advance, facts=known, started_listeners=begun, clock=platform.clock
    )
    answered = plans.Plans(
        repository=plan_repository,
        maker=making.Maker(runs=use_cases, scoper=scoper, chief=chief, ids=platform.ids),
        chief=chief,
        advance=advance,
        planner=working,
        waiter=waiting.Waiter(
            repository=plan_repository, planner=working, facts=known, runs=use_cases, clock=platform.clock
        ),
    )
    return answered, working
