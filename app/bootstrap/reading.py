"""Reading: the use cases that only look at a project, each built when it is first used.

This module imports no code that executes, serves or writes, so that a command that shows something answers at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from app import clock, errors, settings
from app.domain import plain
from app.storage import data_directory, read_only_store, store_mark

if TYPE_CHECKING:
    from app.bootstrap import unattended
    from app.bootstrap.catalogue import Catalogued
    from app.domain import runs as run_values
    from app.domain import views
    from app.domain.budgets import BudgetState
    from app.domain.limits import RunLimits
    from app.engine import ports, run_engine
    from app.services import explanations, gates, issues, keys, maintenance, recipes, routing, run_queries
    from app.services.plans import plan_queries
    from app.storage.runs import disk_store


class _Idle:
    """The engine of a process that executes no runs.

    Args:
        elsewhere: Whether a service, or workers on Temporal, execute them.
    """

    def __init__(
        self, store: Callable[[], disk_store.DiskStore], elsewhere: Callable[[], bool] = lambda: False
    ) -> None:
        self._store = store
        self._elsewhere = elsewhere

    remote = None

    @cached_property
    def elsewhere(self) -> bool:
        return self._elsewhere()

    @property
    def spending(self) -> _Idle:
        return self

    def shown(self, run_id: str) -> None:
        return None

    view = standing = waits = queue_place = obstacle = shown

    async def counted(self, run_id: str, limits: RunLimits) -> BudgetState:
        from app.engine import spending
        from app.worker import ledger

        counting = ledger.Ledger(self._store(), lambda _: spending.Quote(), clock.SystemClock())
        return await counting.counted(run_id, limits)

    def change_number(self, run_id: str) -> int:
        return 0

    def open_gates(self, run_id: str | None = None) -> list[Any]:
        return []

    async def changed(self, run_id: str, since: int) -> int:
        await asyncio.Event().wait()
        return since

    async def left(self, run_id: str) -> views.RunView | None:
        return None

    async def reload(self, run_id: str) -> None:
        return


class _Drivers(Mapping[str, "ports.Driver"]):
    """All drivers; the built-in ones are only imported for runs of theirs."""

    def __getitem__(self, name: str) -> ports.Driver:
        # Loaded with the first run of its language: commands that only read start in a fraction of a second.
        from app.dialects import registry as dialects

        if name in dialects.DIALECTS:
            return dialects.DIALECTS[name]

        from app.flows import registry

        return registry.DRIVERS[name]

    def __iter__(self) -> Iterator[str]:
        from app.dialects import registry as dialects

        return iter(dialects.DIALECTS)

    def __len__(self) -> int:
        return sum(1 for _ in self)


_DRIVERS = _Drivers()


class Reading:
    """A project, as commands that only read use it; a part of `Application`."""

    def __init__(self, config: settings.Settings, directory: data_directory.DataDirectory) -> None:
        self._config = config
        self._directory = directory
        self._engine = cast("run_engine.RunEngine", _Idle(lambda: self.store))
        # Of runs that another process executes, the open steps are shown, too.
        self._others = cast("run_engine.RunEngine", _Idle(lambda: self.store, self._is_executing))

    @cached_property
    def store(self) -> disk_store.DiskStore:
        """Return the store of run folders; an empty store in memory if there is no data directory.

        Raises:
            errors.ConfigurationError: `store_differs`, the runs are in a database.
        """
        return self._make_store(self._directory)

    @cached_property
    def runs(self) -> run_queries.RunQueries:
        """Return the queries of runs."""
        from app.services import run_queries

        return run_queries.RunQueries(
            store=self.store, engine=self._others, drivers=_DRIVERS, clock=clock.SystemClock()
        )

    def _is_executing(self) -> bool:
        try:
            return self._directory.has_workers() or self._directory.service() is not None
        except errors.ConfigurationError:
            # The lock of a service cannot be examined: the journals are shown as they are.
            return False

    @cached_property
    def gates(self) -> gates.Gates:
        """Return the use cases of gates."""
        from app.bootstrap import roster
        from app.services import gates

        masker = roster.masker_of(self._config, roster.roster_of(self._config), os.environ)
        return gates.Gates(
            store=self.store,
            engine=self._engine,
            drivers=_DRIVERS,
            view=self.runs.reader.view,
            plan=lambda session_id: self.store.plans.get(session_id),
            masker=masker,
            clock=clock.SystemClock(),
        )

    @cached_property
    def explanations(self) -> explanations.Explanations:
        """Return the use cases that explain why runs do not move."""
        from app.bootstrap import roster
        from app.services import explanations

        return explanations.Explanations(
            store=self.store,
            engine=self._engine,
            drivers=_DRIVERS,
            view=self.runs.reader.view,
            clock=clock.SystemClock(),
            masker=roster.masker_of(self._config, roster.roster_of(self._config), os.environ),
            surroundings=explanations.Surroundings(
                service=self._directory.service,
                is_executed=self._directory.is_executed,
                has_workers=self._directory.has_workers,
            ),
        )

    @cached_property
    def issues(self) -> issues.Issues:
        """Return the use cases of issues."""
        from app.services import issues

        return issues.Issues(
            issue_store=self.store.issues,
            store=self.store,
            clock=clock.SystemClock(),
            ids=clock.RandomIds(),
            masker=plain.Masker(()),
        )

    @cached_property
    def unattended(self) -> unattended.ReadUnattended:
        """Return the queries of triggers and notifications."""
        from app.bootstrap import unattended

        return unattended.ReadUnattended(self.store)

    @cached_property
    def plans(self) -> plan_queries.PlanQueries:
        """Return the queries of session plans."""
        from app.services.plans import plan_queries, repository

        stored = repository.PlanRepository(
            store=self.store.plans,
            issues=self.store.issues,
            audit=self.store.audit,
            clock=clock.SystemClock(),
            masker=plain.Masker(()),
        )
        return plan_queries.PlanQueries(stored)

    @cached_property
    def keys(self) -> keys.Keys:
        """Return the use cases of keys."""
        from app.services import keys
        from app.storage import keys as key_files

        time = clock.SystemClock()
        ring = key_files.KeyRing(self._config.project.data_directory, time)
        has_token = self._config.server.token is not None
        return keys.Keys(ring, self.store.audit, time, clock.RandomIds(), has_token=has_token)

    @cached_property
    def maintenance(self) -> maintenance.Maintenance:
        """Return the use cases of verification."""
        from app.services import maintenance

        return maintenance.Maintenance(store=self.store, engine=self._engine, forget=self.runs.forget)

    @property
    def catalogue(self) -> recipes.Catalogue:
        """Return the catalogue of recipes."""
        return self._catalogued.catalogue

    def route(self, text: str) -> routing.RoutingResult:
        """Choose the recipe for a description."""
        return self._catalogued.route(text)

    @cached_property
    def _catalogued(self) -> Catalogued:
        from app.bootstrap import catalogue, roster
        from app.dialects import registry as dialects

        people, time = roster.roster_of(self._config), clock.SystemClock()
        return catalogue.catalogue_of(self._config, people, time, dialects.DIALECTS)

    def _make_store(self, directory: data_directory.DataDirectory) -> disk_store.DiskStore:
        store_mark.refuse_database(directory)
        if not directory.is_used:
            from app.storage import memory_store

            return memory_store.MemoryStore(clock=clock.SystemClock())
        reads = read_only_store.ReadOnlyStore(
            directory,
            directory.index_file,
            clock=clock.SystemClock(),
            adopt=self._adopt,
            blobs_url=self._config.project.blobs_url,
        )
        # Commands that only read use no other methods of a store.
        return cast("disk_store.DiskStore", reads)

    async def _adopt(self, manifest: Mapping[str, plain.Json]) -> run_values.RunStart:
        from app.services import adoption, workspaces

        project = self._config.project
        allowed = workspaces.Workspaces(
            project=project.project, allowed_roots=project.allowed_roots, data_directory=project.data_directory
        )
        adopter = adoption.Adopter(catalogue=self.catalogue, workspaces=allowed, clock=clock.SystemClock())
        return await adopter.adopt(manifest)


@asynccontextmanager
async def opened(config: settings.Settings, *, recipes_only: bool = False) -> AsyncIterator[Reading]:
    """Open a project for a command that only reads; a missing data directory is not created.

    Args:
        recipes_only: Whether the command needs no runs, so that their store remains closed.

    Raises:
        errors.ConfigurationError: the data directory cannot be read, or is of a later version.
    """
    time, ids = clock.SystemClock(), clock.RandomIds()
    directory = data_directory.DataDirectory(config.project.data_directory, clock=time, ids=ids)
    project = Reading(config, directory)
    # Where the runs are in a database, `Reading.store` refuses commands that need them.
    if recipes_only or store_mark.read(directory) is not None:
        yield project
        return
    async with project.store:
        yield project
