"""Triggers, put together: the use cases, and what works for them in the service."""

from __future__ import annotations

from dataclasses import dataclass

from app import clock
from app.bootstrap.definitions import Definitions
from app.bootstrap.engines import Store
from app.bootstrap.platform import Platform
from app.engine import run_engine
from app.services import arguments, runs
from app.services.triggers import firing, hooks, repository, scheduler, triggers
from app.storage import layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggering:
    """The parts of triggers."""

    triggers: triggers.Triggers
    """Use cases of triggers."""
    hooks: hooks.Hooks
    """Deliveries from outside."""
    scheduler: scheduler.TriggerScheduler
    """Takes what is due."""


class ReadTriggers:
    """The parts of triggers that commands need which only read."""

    def __init__(self, store: Store) -> None:
        kept = repository.TriggerRepository(store.documents(layout.TRIGGERS))
        self.triggers = triggers.TriggerQueries(kept, clock.SystemClock())
        """Queries of triggers."""


def triggering_of(
    use_cases: runs.Runs, store: Store, engine: run_engine.RunEngine, definitions: Definitions, platform: Platform
) -> Triggering:
    """Return the parts of triggers over a store."""
    time, ids = platform.clock, platform.ids
    kept = repository.TriggerRepository(store.documents(layout.TRIGGERS))
    starts = firing.Firing(repository=kept, runs=use_cases, store=store, clock=time)

    def declared(recipe_id: str) -> frozenset[str] | None:
        schema = definitions.catalogue.get(recipe_id).recipe.args_schema
        return arguments.declared(schema) if schema.get("additionalProperties", False) is False else None

    orders = triggers.Triggers(
        repository=kept,
        firing=starts,
        starter=definitions.starter,
        declared=declared,
        workspaces=definitions.workspaces,
        clock=time,
        ids=ids,
    )
    return Triggering(
        triggers=orders,
        hooks=hooks.Hooks(repository=kept, firing=starts, clock=time, ids=ids),
        scheduler=scheduler.TriggerScheduler(
            repository=kept, firing=starts, triggers=orders, engine=engine, clock=time
        ),
    )
