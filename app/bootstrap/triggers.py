"""Triggers, put together: the use cases, and what works for them in the service."""

from __future__ import annotations

from dataclasses import dataclass

from app.bootstrap.definitions import Definitions
from app.bootstrap.platform import Platform, Store
from app.clock import SystemClock
from app.engine import run_engine
from app.services import arguments
from app.services.runs import Runs
from app.services.triggers.firing import Firing
from app.services.triggers.hooks import Hooks
from app.services.triggers.repository import TriggerRepository
from app.services.triggers.scheduler import TriggerScheduler
from app.services.triggers.triggers import TriggerQueries, Triggers
from app.storage import layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggering:
    """The parts of triggers."""

    triggers: Triggers
    """Use cases of triggers."""
    hooks: Hooks
    """Deliveries from outside."""
    scheduler: TriggerScheduler
    """Takes what is due."""


class ReadTriggers:
    """The parts of triggers that commands need which only read."""

    def __init__(self, store: Store) -> None:
        self.triggers = TriggerQueries(TriggerRepository(store.documents(layout.TRIGGERS)), SystemClock())
        """Queries of triggers."""


def triggering_of(
    runs: Runs, store: Store, engine: run_engine.RunEngine, definitions: Definitions, platform: Platform
) -> Triggering:
    """Return the parts of triggers over a store."""
    clock, ids = platform.clock, platform.ids
    repository = TriggerRepository(store.documents(layout.TRIGGERS))
    firing = Firing(repository=repository, runs=runs, store=store, clock=clock)

    def declared(recipe_id: str) -> frozenset[str] | None:
        schema = definitions.catalogue.get(recipe_id).recipe.args_schema
        return arguments.declared(schema) if schema.get("additionalProperties", False) is False else None

    use_cases = Triggers(
        repository=repository,
        firing=firing,
        starter=definitions.starter,
        declared=declared,
        workspaces=definitions.workspaces,
        clock=clock,
        ids=ids,
    )
    return Triggering(
        triggers=use_cases,
        hooks=Hooks(repository=repository, firing=firing, clock=clock, ids=ids),
        scheduler=TriggerScheduler(
            repository=repository, firing=firing, triggers=use_cases, engine=engine, clock=clock
        ),
    )
