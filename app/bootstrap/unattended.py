"""Unattended work: builds triggers, notifications and retention, which work without a person."""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from app import clock, settings
from app.bootstrap.definitions import Definitions
from app.bootstrap.engines import Store
from app.bootstrap.plans import PlanPerformers
from app.bootstrap.platform import Platform
from app.domain import plain
from app.engine import run_engine, run_equipment
from app.flows import registry as flows
from app.processes import supervisor
from app.services import arguments, retention, runs
from app.services.notifications import dispatcher, endpoints, eventless, plan_questions, senders
from app.services.notifications import repository as notified
from app.services.triggers import firing, hooks, repository, scheduler, triggers
from app.storage import layout

_NUMBERS = re.compile(r"(0x[0-9a-f]+|[0-9]+)(\.(0x[0-9a-f]+|[0-9]+)){0,3}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattended:
    """The parts that work without a person."""

    triggers: triggers.Triggers  # Use cases of triggers.
    hooks: hooks.Hooks  # Use cases of incoming webhooks.
    endpoints: endpoints.Endpoints  # Use cases of notifications.
    questions: plan_questions.PlanQuestions  # Questions of plans; called with each plan that is written.
    scheduler: scheduler.TriggerScheduler  # Starts due occurrences.
    dispatcher: dispatcher.Dispatcher  # Delivers notifications.
    retention: retention.Retention  # Removes old runs.

    def start(self) -> None:
        """Start the parts."""
        self.scheduler.start()
        self.dispatcher.start()
        self.retention.start()

    def check_triggers(self) -> None:
        """Check the triggers now, since another service may have changed them."""
        self.scheduler.check_now()

    async def stop(self) -> None:
        """Stop the parts, and wait until they have stopped; they can be started again."""
        await self.scheduler.stop()
        await self.dispatcher.stop()
        await self.retention.stop()

    def check(self) -> None:
        """Raise an error if a part has died.

        Raises:
            errors.Unavailable: `triggers_broken`, `notifications_broken`.
        """
        self.scheduler.check()
        self.dispatcher.check()


class ReadUnattended:
    """The parts for commands that only read."""

    def __init__(self, store: Store) -> None:
        trigger_repository = repository.TriggerRepository(store.documents(layout.TRIGGERS), store.audit)
        self.triggers = triggers.TriggerQueries(trigger_repository, clock.SystemClock())
        """Queries of triggers."""
        self.endpoints = endpoints.EndpointQueries(_endpoints(store))
        """Queries of endpoints."""


def unattended_of(
    config: settings.Settings,
    use_cases: runs.Runs,
    store: Store,
    engine: run_engine.RunEngine,
    definitions: Definitions,
    platform: Platform,
    processes: supervisor.Supervisor,
    plan_performers: PlanPerformers,
    equipment: run_equipment.Equipment,
) -> Unattended:
    """Return the parts that work without a person over a store."""
    time, ids = platform.clock, platform.ids
    trigger_repository = repository.TriggerRepository(store.documents(layout.TRIGGERS), store.audit)
    trigger_firing = firing.Firing(repository=trigger_repository, runs=use_cases, store=store, clock=time)
    orders = triggers.Triggers(
        repository=trigger_repository,
        firing=trigger_firing,
        starter=definitions.starter,
        declared=functools.partial(_declared, definitions),
        workspaces=definitions.workspaces,
        clock=time,
        ids=ids,
    )
    questions = plan_questions.PlanQuestions(store.plans, equipment.masker)
    plan_performers.written = questions.note
    notified_endpoints, channels = _endpoints(store), _senders(config, platform, processes, equipment.masker)
    return Unattended(
        questions=questions,
        triggers=orders,
        hooks=hooks.Hooks(repository=trigger_repository, firing=trigger_firing, clock=time, ids=ids),
        endpoints=_changes(config, platform, store, notified_endpoints, channels, definitions),
        scheduler=scheduler.TriggerScheduler(
            repository=trigger_repository,
            firing=trigger_firing,
            triggers=orders,
            engine=engine,
            clock=time,
            probes=platform.probes,
        ),
        dispatcher=dispatcher.Dispatcher(
            repository=notified_endpoints,
            store=store,
            feed=store.feed,
            senders=channels,
            clock=time,
            other_messages=eventless.EventlessMessages(trigger_repository, time, equipment.masker, questions),
            hears_all=config.engine.engine == "embedded",
        ),
        retention=retention.Retention(use_cases, store, store.documents(retention.FOLDER), time),
    )


def _endpoints(store: Store) -> notified.EndpointRepository:
    return notified.EndpointRepository(
        store.documents(layout.OUTBOX), lambda endpoint_id: store.documents(f"{layout.OUTBOX}/{endpoint_id}")
    )


def _changes(
    config: settings.Settings,
    platform: Platform,
    store: Store,
    endpoint_repository: notified.EndpointRepository,
    channels: dict[str, senders.Sender],
    definitions: Definitions,
) -> endpoints.Endpoints:
    def check_recipe(recipe_id: str) -> object:
        # A run with an inline recipe may have any recipe id.
        is_free = config.project.inline_recipes or recipe_id in flows.RECIPE_IDS
        return None if is_free else definitions.catalogue.find(recipe_id)

    return endpoints.Endpoints(
        repository=endpoint_repository,
        senders=channels,
        log=store.audit,
        clock=platform.clock,
        ids=platform.ids,
        refusal=functools.partial(_refusal, config.notifications.notify_allowed),
        check_recipe=check_recipe,
    )


def _refusal(allowed: tuple[str, ...], url: str) -> str | None:
    """Return why a numeric address may not be contacted; a name is only checked once it is resolved."""
    host = urlsplit(url).hostname or ""
    address = host.partition("%")[0]
    try:
        # The resolver reads 0x7f.1 and 2130706433 as addresses, too.
        address = socket.inet_ntoa(socket.inet_aton(address)) if _NUMBERS.fullmatch(address) else address
        ipaddress.ip_address(address)
    except (ValueError, OSError):
        # A name is checked when it is resolved, at each message.
        return None
    from app.services.notifications import webhook_sender

    if webhook_sender.AddressGuard(allowed).allows(host, address):
        return None
    return f"{host} is not a public address; name it in CONTROL_ROOM_NOTIFY_ALLOWED to allow it"


def _senders(
    config: settings.Settings, platform: Platform, processes: supervisor.Supervisor, masker: plain.Masker
) -> dict[str, senders.Sender]:
    given = config.notifications

    def webhook() -> senders.Sender:
        from app.services.notifications import webhook_sender

        return webhook_sender.WebhookSender(webhook_sender.AddressGuard(given.notify_allowed), platform.clock)

    def mail() -> senders.Sender:
        from app.services.notifications import mail_sender

        return mail_sender.MailSender(given.smtp_url, given.mail_from)

    return {
        "webhook": senders.LateSender(webhook),
        "email": senders.LateSender(mail, senders.mail_lacks(given.smtp_url, given.mail_from)),
        "command": senders.CommandSender(processes.run, config.project.project, masker),
    }


def _declared(definitions: Definitions, recipe_id: str) -> frozenset[str] | None:
    # Only a closed schema determines which arguments do not exist.
    schema = definitions.catalogue.get(recipe_id).recipe.args_schema
    return arguments.declared(schema) if schema.get("additionalProperties", False) is False else None
