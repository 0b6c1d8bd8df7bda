"""Planning: the use cases of session plans and whoever works on them, put together."""

from __future__ import annotations

from app.bootstrap.references import Reference
from app.bootstrap.worlds import Store, World
from app.control import beginnings, runs
from app.control.plans import advancing, facts, keeping, making, planner, plans, scoping, taking, waiting
from app.engine import plain, pool_port


def planning_of(
    use_cases: runs.Runs,
    kept: Store,
    engine: pool_port.RunEngine,
    reference: Reference,
    begun: beginnings.Beginnings,
    world: World,
    masker: plain.Masker,
) -> tuple[plans.Plans, planner.Planner]:
    """Return the use cases of session plans, and the planner, which is not started yet."""
    keeper = keeping.Keeper(kept=kept.plans, issues=kept.issues, clock=world.clock, masker=masker)
    scoper = scoping.Scoper(route=reference.route, starter=reference.starter, catalogue=reference.catalogue)
    chief = taking.Chief(runs=use_cases, library=reference.shelf.library, catalogue=reference.catalogue, scoper=scoper)
    known = facts.Facts(runs=use_cases, store=kept, engine=engine)
    advance = advancing.Advance(keeper=keeper, facts=known, scoper=scoper, chief=chief, runs=use_cases, engine=engine)
    working = planner.Planner(keeper=keeper, advance=advance, facts=known, beginnings=begun, clock=world.clock)
    answered = plans.Plans(
        keeper=keeper,
        maker=making.Maker(runs=use_cases, scoper=scoper, chief=chief, ids=world.ids),
        chief=chief,
        advance=advance,
        planner=working,
        waiter=waiting.Waiter(keeper=keeper, planner=working, facts=known, runs=use_cases, clock=world.clock),
    )
    return answered, working
