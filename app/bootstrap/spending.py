"""Spending: builds the parts that keep calls of agents within limits and budgets."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from app import clock, errors, settings
from app.agents import pricing
from app.bootstrap.engines import Engine, Store
from app.bootstrap.platform import Platform
from app.domain import policies, prices
from app.services import budgets, project_documents
from app.storage import layout, memory_store, project_file
from app.storage.disk import disk_port, os_disk
from app.worker import ledger

_BUDGETS, _POLICIES, _PAUSES = "budgets.json", "policies.json", "rate_limits.json"
PRICES = "prices.json"  # File of prices; one that cannot be used leaves calls without a price.


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The project's rules for calls and runs, besides those of recipes."""

    prices: project_documents.ProjectDocument[prices.Prices]  # Prices of models.
    price_file: project_file.ProjectFile  # The file of `prices`.
    policies: project_documents.ProjectDocument[policies.Policies]  # Policies of recipes.
    policy_file: project_file.ProjectFile  # The file of `policies`.
    pricing: pricing.Pricing  # Computes the prices of calls.


def terms_of(project: settings.ProjectSettings, agents: pricing.Configs, platform: Platform) -> Terms:
    """Return the terms of a project; no file is read yet."""
    folder = layout.common_folder(project.data_directory, project.store_url)
    disk, reach = os_disk.OsDisk(folder), platform.probes.reach
    price_file = project_file.ProjectFile(disk, PRICES, reach)
    policy_file = project_file.ProjectFile(disk, _POLICIES, reach)
    listed = project_documents.ProjectDocument(price_file, prices.Prices.of, prices.Prices())
    return Terms(
        prices=listed,
        price_file=price_file,
        policies=project_documents.ProjectDocument(policy_file, policies.Policies.of, policies.NONE),
        policy_file=policy_file,
        pricing=pricing.Pricing(listed.value_or_last, agents),
    )


def pauses_of(project: settings.ProjectSettings, store: Store, platform: Platform) -> project_file.ProjectFile:
    """Return the file of the pauses that services request; with a database, this machine's copy."""
    folder = layout.common_folder(project.data_directory, project.store_url)
    file = project_file.ProjectFile(os_disk.OsDisk(folder), _PAUSES, platform.probes.reach)
    file.common = store.common
    return file


def shared_disk(project: settings.ProjectSettings, store: Store) -> tuple[Path, disk_port.Disk]:
    """Return the folder of budgets, keys, policies and prices, and the disk that contains it.

    A process that only looks at a store in a database reads the files there, since it may have no copies.
    """
    folder = layout.common_folder(project.data_directory, project.store_url)
    is_away = isinstance(store, memory_store.MemoryStore)
    looks = project.store_url is not None and store.common is None and not is_away
    return folder, store.checked_disk if looks else os_disk.OsDisk(folder)


def share(terms: Terms, project: settings.ProjectSettings, store: Store) -> None:
    """Make prices and policies common to all processes of a store, now that the store is open."""
    for file in (terms.price_file, terms.policy_file):
        file.disk, file.common = shared_disk(project, store)[1], store.common


def ledger_of(store: Store, prices: pricing.Pricing, time: clock.Clock) -> ledger.Ledger:
    """Return the ledger that reserves and charges calls."""
    if store.turns is not None:
        from app.worker import shared_ledger

        return shared_ledger.SharedLedger(store, prices.quote, time, store.turns(layout.SPENDING))
    return ledger.Ledger(store, prices.quote, time)


def budgets_of(
    project: settings.ProjectSettings, store: Store, engine: Engine, platform: Platform, terms: Terms
) -> budgets.Budgets:
    """Return the use cases of budgets."""
    file = project_file.ProjectFile(shared_disk(project, store)[1], _BUDGETS, platform.probes.reach)
    file.common = store.common
    return budgets.Budgets(
        store=store,
        engine=engine,
        file=file,
        clock=platform.clock,
        prices=project_documents.DocumentOrders(terms.prices, store.audit),
        policies=project_documents.DocumentOrders(terms.policies, store.audit),
    )


async def put_in_force(found: budgets.Budgets, terms: Terms) -> None:
    """Put the budgets and policies of the project in force before any run executes.

    Raises:
        errors.ConfigurationError: a file of budgets, policies or prices cannot be used.
    """
    try:
        await found.load()
        await asyncio.to_thread(terms.policies.check)
        await asyncio.to_thread(terms.prices.value_or_last)
    except errors.Conflict as error:
        raise errors.ConfigurationError(error.message, code=error.code, detail=error.detail) from error


def examine(project: settings.ProjectSettings, terms: Terms) -> list[tuple[str, errors.ControlRoomError]]:
    """Return the files of budgets, policies and prices that cannot be used, each with the reason."""
    file = project_file.ProjectFile(terms.policy_file.disk, _BUDGETS)
    checks = {_BUDGETS: lambda: budgets.read(file.read()), _POLICIES: terms.policies.check, PRICES: terms.prices.check}
    found = []
    for name, check in checks.items():
        try:
            check()
        except errors.ControlRoomError as error:
            found.append((name, error))
    return found


def follow(found: budgets.Budgets, closing: AsyncExitStack, *, sends_on: bool) -> None:
    """Follow changes of budgets and policies while the process runs; a service also continues parked runs."""
    closing.push_async_callback(found.stop)
    found.start(sends_on=sends_on)
