"""Spending: what keeps calls of agents within limits and budgets, put together."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

from app import clock, errors, settings
from app.agents import pricing
from app.bootstrap.engines import Engine, Store
from app.bootstrap.platform import Platform
from app.domain import policies, prices
from app.services import budgets, project_documents
from app.storage import project_file
from app.storage.disk import os_disk
from app.worker import ledger

_BUDGETS, _PRICES, _POLICIES, _PAUSES = "budgets.json", "prices.json", "policies.json", "rate_limits.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for the calls and runs of a project beside their recipes."""

    prices: project_documents.ProjectDocument[prices.Prices]  # What models cost.
    policies: project_documents.ProjectDocument[policies.Policies]  # What runs of recipes get.
    pricing: pricing.Pricing  # Prices calls.


def terms_of(project: settings.ProjectSettings, agents: pricing.Configs, platform: Platform) -> Terms:
    """Return the terms of a project, before anything was read."""
    disk, reach = os_disk.OsDisk(project.data_directory), platform.probes.reach
    listed = project_documents.ProjectDocument(
        project_file.ProjectFile(disk, _PRICES, reach), prices.Prices.of, prices.Prices()
    )
    found = project_documents.ProjectDocument(
        project_file.ProjectFile(disk, _POLICIES, reach), policies.Policies.of, policies.NONE
    )
    return Terms(prices=listed, policies=found, pricing=pricing.Pricing(listed.look, agents))


def pauses_of(project: settings.ProjectSettings, platform: Platform) -> project_file.ProjectFile:
    """Return the file that keeps the pauses which services ask for."""
    return project_file.ProjectFile(os_disk.OsDisk(project.data_directory), _PAUSES, platform.probes.reach)


def ledger_of(store: Store, prices: pricing.Pricing, time: clock.Clock) -> ledger.Ledger:
    """Return what reserves and settles calls."""
    return ledger.Ledger(store, prices.quote, time)


def budgets_of(
    project: settings.ProjectSettings, store: Store, engine: Engine, platform: Platform, terms: Terms
) -> budgets.Budgets:
    """Return the use cases of budgets."""
    file = project_file.ProjectFile(os_disk.OsDisk(project.data_directory), _BUDGETS, platform.probes.reach)
    return budgets.Budgets(
        store=store,
        engine=engine,
        file=file,
        clock=platform.clock,
        prices=project_documents.DocumentOrders(terms.prices, store.audit),
        policies=project_documents.DocumentOrders(terms.policies, store.audit),
    )


async def put_in_force(found: budgets.Budgets, terms: Terms) -> None:
    """Put the budgets and policies of the project in force before anything executes.

    Raises:
        errors.ConfigurationError: a file of theirs cannot be used.
    """
    try:
        await found.load()
        await asyncio.to_thread(terms.policies.check)
    except errors.Conflict as error:
        raise errors.ConfigurationError(error.message, code=error.code, detail=error.detail) from error


def serve(found: budgets.Budgets, closing: AsyncExitStack) -> None:
    """Send runs on while the service runs."""
    closing.push_async_callback(found.stop)
    found.start()
