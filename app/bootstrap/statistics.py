"""Statistics: put together from the store, the engine and the disk."""

from __future__ import annotations

from app import clock, settings
from app.bootstrap import checks
from app.bootstrap.engines import Store
from app.domain import access, plans
from app.engine import run_engine
from app.services import statistics
from app.storage.disk import disk_health

_MOST_PLANS = 1000


def statistics_of(
    store: Store, engine: run_engine.RunEngine, time: clock.Clock, chosen: settings.Settings
) -> statistics.Statistics:
    """Return what counts and adds up over all runs of a project."""

    async def asking_plans(scope: access.Scope | None) -> tuple[int, int]:
        found = await store.plans.list(plans.PlanQuery(limit=_MOST_PLANS, partial=True))
        open_questions = plans.TaskState.NEEDS_SCOPING.value
        asking = [p for p in found if p.status == plans.PlanState.DRAFT or p.tasks.get(open_questions, 0)]
        if scope is not None:
            whole = {plan.session_id: await store.plans.get(plan.session_id) for plan in asking}
            asking = [plan for plan in asking if (full := whole[plan.session_id]) and full.is_within(scope)]
        return sum(plan.tasks.get(open_questions, 0) for plan in asking), len(asking)

    return statistics.Statistics(
        store=store,
        engine=engine,
        asking=asking_plans,
        space=lambda: disk_health.space(chosen.project.data_directory),
        service=statistics.ServiceState(
            engine=chosen.engine.engine,
            project=str(chosen.project.project.absolute()),
            local_model=checks.speak_locally(chosen),
        ),
        clock=time,
    )
