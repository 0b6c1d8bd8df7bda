"""The use cases of the running service, as the gateway and the routes call them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from app import telemetry
from app.domain import audit, policies, prices
from app.services import (
    budgets,
    bulk,
    conferences,
    conversations,
    event_feeds,
    explanations,
    gates,
    health,
    inventory,
    issues,
    keys,
    maintenance,
    preflight,
    project_documents,
    recipes,
    retention,
    routing,
    runs,
    statistics,
)
from app.services.notifications import endpoints
from app.services.plans import plans
from app.services.triggers import hooks, triggers


class Commands(Protocol):
    """Programs that work for runs in this process."""

    under_way: dict[int, Any]
    """Programs that have not ended."""

    async def run_behind(self, own: tuple[str, int], other: tuple[str, int]) -> str | None:
        """Return the run whose program has the other end of a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The use cases of one running service."""

    runs: runs.Runs  # Runs.
    bulk: bulk.BulkOrders  # Orders to many runs.
    gates: gates.Gates  # Questions to people.
    commands: Commands  # Programs that work for runs in this process.
    explanations: explanations.Explanations  # Why runs do not move.
    statistics: statistics.Statistics  # Counts and sums over all runs.
    feed: event_feeds.FeedFollower  # Events of all runs.
    issues: issues.Issues  # Findings of runs and notes of people.
    conversation_service: conversations.ConversationService  # Recipes and prompts in conversations.
    plans: plans.Plans  # Session plans.
    conferences: conferences.Conferences  # Conferences of agents.
    retention: retention.Retention  # Removal of old runs.
    triggers: triggers.Triggers  # Triggers, which start runs without a person.
    hooks: hooks.Hooks  # Incoming webhooks.
    endpoints: endpoints.Endpoints  # Endpoints that receive messages about runs.
    max_message_bytes: int  # Largest message that a client of the WebSocket may send.
    catalogue: recipes.Catalogue  # Recipes.
    preflight: preflight.Preflight  # Examination of requests without starting them.
    route: Callable[[str], routing.RoutingResult]  # Router.
    inventory: inventory.Inventory  # Tools and agents.
    health: health.Health  # Readiness.
    metrics: telemetry.Metrics  # Metrics.
    maintenance: maintenance.Maintenance  # Verification and repair.
    keys: keys.Keys  # API keys.
    budgets: budgets.Budgets  # Budgets of several runs together.
    prices: project_documents.DocumentOrders[prices.Prices]  # Prices of models.
    policies: project_documents.DocumentOrders[policies.Policies]  # Policies of recipes.
    audit: audit.AuditLog  # Changes that belong to no run's journal.
