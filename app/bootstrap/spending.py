"""Spending: what keeps calls of agents within limits and budgets, put together."""

from __future__ import annotations

from contextlib import AsyncExitStack

from app import clock, errors, settings
from app.agents import pricing
from app.bootstrap.engines import Engine, Store
from app.services import budgets
from app.storage import project_file
from app.storage.disk import os_disk
from app.worker import ledger

_BUDGETS, _PRICES = "budgets.json", "prices.json"


def pricing_of(project: settings.ProjectSettings, agents: pricing.Configs) -> pricing.Pricing:
    """Return what prices calls."""
    return pricing.Pricing(project.data_directory / _PRICES, agents)


def ledger_of(store: Store, prices: pricing.Pricing, time: clock.Clock) -> ledger.Ledger:
    """Return what reserves and settles calls."""
    return ledger.Ledger(store, prices.quote, time)


def budgets_of(project: settings.ProjectSettings, store: Store, engine: Engine, time: clock.Clock) -> budgets.Budgets:
    """Return the use cases of budgets."""
    file = project_file.ProjectFile(os_disk.OsDisk(project.data_directory), _BUDGETS)
    return budgets.Budgets(store=store, engine=engine, file=file, clock=time)


async def put_in_force(found: budgets.Budgets) -> None:
    """Put the budgets of the project in force before anything executes.

    Raises:
        errors.ConfigurationError: the file of budgets cannot be used.
    """
    try:
        await found.load()
    except errors.Conflict as error:
        raise errors.ConfigurationError(error.message, code=error.code, detail=error.detail) from error


def serve(found: budgets.Budgets, closing: AsyncExitStack) -> None:
    """Send runs on while the service runs."""
    closing.push_async_callback(found.stop)
    found.start()
