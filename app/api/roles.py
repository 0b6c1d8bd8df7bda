"""Roles: the role that each address needs, in one table, and how the address respects the caller's scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from re import Pattern
from typing import Any

from starlette.routing import Route

from app.domain.access import Role


class Reach(Enum):
    """How an address respects a scope; a caller gets 404 for anything that it may not see."""

    NO_RUNS = "no_runs"  # The address neither shows nor changes runs.
    FILTERED = "filtered"  # The route omits or refuses everything outside of the scope.
    RUN = "run"  # The run in the path is checked first.
    GATE = "gate"  # The run of the gate in the path is checked first.
    ISSUE = "issue"  # The run of the issue in the path is checked first.
    RECEIPT = "receipt"  # The run of the receipt in the path is checked first.
    PLAN = "plan"  # All tasks of the plan in the path are checked first.
    PLAN_CHANGE = "plan_change"
    """Like `PLAN`; a caller limited to recipes may not change plans, since tasks may become runs of any recipe."""
    ANY_RECIPE = "any_recipe"  # The address reaches all recipes, so it refuses callers limited to some.
    EVERYTHING = "everything"  # The address reaches all runs, so it refuses every limited caller.


@dataclass(frozen=True, slots=True)
class Need:
    """Requirements of an address."""

    role: Role | None  # Lowest role; None: open to everyone.
    reach: Reach  # How it respects a scope.


_VIEW, _RUN, _APPROVE, _ADMIN = Role.VIEWER, Role.RUNNER, Role.APPROVER, Role.ADMIN
_ROWS: Iterable[tuple[str, Role | None, Reach]] = (
    ("GET /healthz", None, Reach.NO_RUNS),
    ("GET /readyz", None, Reach.NO_RUNS),
    ("GET /api/session", None, Reach.NO_RUNS),
    ("POST /api/session", None, Reach.NO_RUNS),
    ("DELETE /api/session", None, Reach.NO_RUNS),
    ("GET /openapi.json", _VIEW, Reach.NO_RUNS),
    ("GET /ws", _VIEW, Reach.FILTERED),
    ("POST /hooks/{trigger_id}/{secret}", None, Reach.NO_RUNS),
    ("POST /api/tickets", _VIEW, Reach.NO_RUNS),
    ("GET /metrics", _VIEW, Reach.EVERYTHING),
    # -- runs
    ("POST /api/runs", _RUN, Reach.FILTERED),
    ("POST /api/runs/bulk", _RUN, Reach.FILTERED),
    ("POST /api/runs/prune", _ADMIN, Reach.EVERYTHING),
    ("POST /api/runs/collect", _ADMIN, Reach.EVERYTHING),
    ("GET /api/runs", _VIEW, Reach.FILTERED),
    ("GET /api/runs/{run_id}", _VIEW, Reach.RUN),
    ("PATCH /api/runs/{run_id}", _RUN, Reach.RUN),
    ("DELETE /api/runs/{run_id}", _RUN, Reach.RUN),
    ("POST /api/runs/{run_id}/cancel", _RUN, Reach.RUN),
    ("POST /api/runs/{run_id}/pause", _RUN, Reach.RUN),
    ("POST /api/runs/{run_id}/unpause", _RUN, Reach.RUN),
    ("POST /api/runs/{run_id}/resume", _RUN, Reach.RUN),
    ("PATCH /api/runs/{run_id}/limits", _RUN, Reach.RUN),
    ("POST /api/runs/{run_id}/fork", _RUN, Reach.RUN),
    ("POST /api/runs/{run_id}/preview", _VIEW, Reach.RUN),
    ("POST /api/runs/{run_id}/repair", _ADMIN, Reach.RUN),
    ("GET /api/runs/{run_id}/verification", _VIEW, Reach.RUN),
    ("GET /api/runs/{run_id}/why", _VIEW, Reach.RUN),
    ("GET /api/runs/{run_id}/request", _VIEW, Reach.RUN),
    ("GET /api/runs/{run_id}/steps", _VIEW, Reach.RUN),
    ("GET /api/runs/{run_id}/graph", _VIEW, Reach.RUN),
    ("GET /api/runs/{run_id}/cache/{slot}", _VIEW, Reach.RUN),
    ("GET /api/runs/{run_id}/events", _VIEW, Reach.RUN),
    ("GET /api/runs/{run_id}/logs", _VIEW, Reach.RUN),
    ("GET /api/runs/{run_id}/logs/{name}", _VIEW, Reach.RUN),
    ("GET /api/runs/{run_id}/logs/{name}/stream", _VIEW, Reach.RUN),
    ("GET /api/events", _VIEW, Reach.FILTERED),
    ("GET /api/stats", _VIEW, Reach.FILTERED),
    ("GET /api/usage", _VIEW, Reach.FILTERED),
    ("POST /api/preflight", _VIEW, Reach.FILTERED),
    ("POST /api/conferences", _RUN, Reach.EVERYTHING),
    ("GET /api/verification", _VIEW, Reach.EVERYTHING),
    # -- gates, issues and receipts
    ("GET /api/gates", _VIEW, Reach.FILTERED),
    ("GET /api/gates/{gate_id}", _VIEW, Reach.GATE),
    ("POST /api/gates/{gate_id}", _APPROVE, Reach.GATE),
    ("GET /api/issues", _VIEW, Reach.FILTERED),
    ("POST /api/issues", _RUN, Reach.FILTERED),
    ("GET /api/issues/{issue_id}", _VIEW, Reach.ISSUE),
    ("PATCH /api/issues/{issue_id}", _RUN, Reach.ISSUE),
    ("GET /api/audit/receipts", _VIEW, Reach.FILTERED),
    ("GET /api/audit/receipts/{receipt_id}", _VIEW, Reach.RECEIPT),
    # -- plans
    ("GET /api/sessions", _VIEW, Reach.FILTERED),
    ("POST /api/sessions", _RUN, Reach.FILTERED),
    ("GET /api/sessions/{session_id}", _VIEW, Reach.PLAN),
    ("PATCH /api/sessions/{session_id}", _RUN, Reach.PLAN_CHANGE),
    ("DELETE /api/sessions/{session_id}", _RUN, Reach.PLAN_CHANGE),
    ("POST /api/sessions/{session_id}/approve", _RUN, Reach.PLAN_CHANGE),
    ("POST /api/sessions/{session_id}/start", _RUN, Reach.PLAN_CHANGE),
    ("POST /api/sessions/{session_id}/pause", _RUN, Reach.PLAN_CHANGE),
    ("POST /api/sessions/{session_id}/resume", _RUN, Reach.PLAN_CHANGE),
    ("POST /api/sessions/{session_id}/proposals/{proposal_id}/accept", _RUN, Reach.PLAN_CHANGE),
    ("POST /api/sessions/{session_id}/proposals/{proposal_id}/dismiss", _RUN, Reach.PLAN_CHANGE),
    ("POST /api/sessions/{session_id}/tasks", _RUN, Reach.PLAN_CHANGE),
    ("PATCH /api/sessions/{session_id}/tasks/{task_id}", _RUN, Reach.PLAN_CHANGE),
    ("DELETE /api/sessions/{session_id}/tasks/{task_id}", _RUN, Reach.PLAN_CHANGE),
    ("POST /api/sessions/{session_id}/tasks/{task_id}/answer", _RUN, Reach.PLAN_CHANGE),
    ("POST /api/sessions/{session_id}/tasks/{task_id}/force-start", _RUN, Reach.PLAN_CHANGE),
    ("POST /api/sessions/{session_id}/tasks/{task_id}/retry", _RUN, Reach.PLAN_CHANGE),
    # -- recipes, tools and agents
    ("GET /api/recipes", _VIEW, Reach.FILTERED),
    ("POST /api/recipes/validate", _VIEW, Reach.ANY_RECIPE),
    ("GET /api/recipes/{recipe_id}", _VIEW, Reach.FILTERED),
    ("GET /api/recipes/{recipe_id}/graph", _VIEW, Reach.FILTERED),
    ("POST /api/route", _VIEW, Reach.ANY_RECIPE),
    ("GET /api/tools", _VIEW, Reach.NO_RUNS),
    ("GET /api/files", _RUN, Reach.NO_RUNS),
    ("GET /api/agents", _VIEW, Reach.FILTERED),
    # -- configuration
    ("GET /api/triggers", _VIEW, Reach.EVERYTHING),
    ("POST /api/triggers", _ADMIN, Reach.EVERYTHING),
    ("GET /api/triggers/{trigger_id}", _VIEW, Reach.EVERYTHING),
    ("PATCH /api/triggers/{trigger_id}", _ADMIN, Reach.EVERYTHING),
    ("DELETE /api/triggers/{trigger_id}", _ADMIN, Reach.EVERYTHING),
    ("POST /api/triggers/{trigger_id}/fire", _RUN, Reach.EVERYTHING),
    ("GET /api/budgets", _VIEW, Reach.EVERYTHING),
    ("PUT /api/budgets/{name}", _ADMIN, Reach.EVERYTHING),
    ("DELETE /api/budgets/{name}", _ADMIN, Reach.EVERYTHING),
    ("GET /api/prices", _VIEW, Reach.NO_RUNS),
    ("PUT /api/prices", _ADMIN, Reach.EVERYTHING),
    ("GET /api/policies", _VIEW, Reach.EVERYTHING),
    ("PUT /api/policies", _ADMIN, Reach.EVERYTHING),
    ("GET /api/notifications/endpoints", _ADMIN, Reach.EVERYTHING),
    ("POST /api/notifications/endpoints", _ADMIN, Reach.EVERYTHING),
    ("PATCH /api/notifications/endpoints/{endpoint_id}", _ADMIN, Reach.EVERYTHING),
    ("DELETE /api/notifications/endpoints/{endpoint_id}", _ADMIN, Reach.EVERYTHING),
    ("GET /api/notifications/endpoints/{endpoint_id}/dead", _ADMIN, Reach.EVERYTHING),
    ("GET /api/notifications/endpoints/{endpoint_id}/failing", _ADMIN, Reach.EVERYTHING),
    ("POST /api/notifications/endpoints/{endpoint_id}/give-up", _ADMIN, Reach.EVERYTHING),
    ("POST /api/notifications/endpoints/{endpoint_id}/replay", _ADMIN, Reach.EVERYTHING),
    ("POST /api/notifications/endpoints/{endpoint_id}/test", _ADMIN, Reach.EVERYTHING),
    ("GET /api/retention", _VIEW, Reach.EVERYTHING),
    ("PUT /api/retention", _ADMIN, Reach.EVERYTHING),
    ("GET /api/audit", _ADMIN, Reach.EVERYTHING),
    ("GET /api/keys", _ADMIN, Reach.EVERYTHING),
    ("POST /api/keys", _ADMIN, Reach.EVERYTHING),
    ("DELETE /api/keys/{name}", _ADMIN, Reach.EVERYTHING),
    ("POST /api/keys/{name}/rotate", _ADMIN, Reach.EVERYTHING),
)

NEEDS: Mapping[str, Need] = {name: Need(role, reach) for name, role, reach in _ROWS}
"""Requirements of each address, by method and path; a test checks all addresses."""

UNLISTED = Need(Role.ADMIN, Reach.EVERYTHING)  # Requirements of an address that is not in the table.


class Table:
    """Finds the requirements of a request."""

    def __init__(self, routes: Iterable[Any]) -> None:
        found = (route for route in routes if hasattr(route, "path_regex"))
        self._routes: list[tuple[str, Pattern[str], Need]] = [
            (method, route.path_regex, NEEDS.get(f"{method} {route.path}", UNLISTED))
            for route in found
            for method in (route.methods if isinstance(route, Route) and route.methods else ("GET",))
        ]

    def needed(self, method: str, path: str) -> tuple[Need, Mapping[str, str]] | None:
        """Return the requirements of a request and the parameters of its path; None if the address does not exist."""
        method = "GET" if method == "HEAD" else method
        for known, regex, need in self._routes:
            if known == method and (matched := regex.match(path)) is not None:
                return need, matched.groupdict()
        return None
