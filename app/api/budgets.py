"""Routes of budgets: the most that several runs may spend together."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path
from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import Response

from app.api import refusals, request_flaws, request_models, routers
from app.api.dependencies import AuthorDep, ServicesDep
from app.api.responses import as_json, declared
from app.domain import budgets as values
from app.domain import limits
from app.services import budgets, requests

router = routers.router(prefix="/api/budgets", tags=["budgets"])

Name = Annotated[str, Path(description="Name of the budget.", pattern=values.NAME_PATTERN, examples=["drafts"])]
"""A budget's name in a path."""


class SharedLimitsBody(BaseModel):
    """The limits of a budget."""

    model_config = request_models.strict({"cost_usd": 20, "calls": 500})

    cost_usd: float | None = request_models.limit("cost_usd")
    tokens: int | None = request_models.limit("tokens")
    calls: int | None = request_models.limit("calls")


class BudgetBody(BaseModel):
    """A budget: the runs that it covers, and the most that they may spend together."""

    model_config = request_models.strict(
        {"per": "day", "time_zone": "Europe/Berlin", "limits": {"cost_usd": 20}},
        {"recipe_id": "creative_draft_scene", "label": "book:one", "limits": {"tokens": 5_000_000}},
    )

    recipe_id: str | None = Field(None, description="Counts only runs of this recipe, and the runs that they start.")
    label: (
        Annotated[
            str,
            BeforeValidator(request_models.label_text),
            Field(pattern=request_flaws.BUDGET_LABEL_PATTERN, max_length=330),
        ]
        | None
    ) = Field(None, description="Counts only runs with this label, `name:value` or `name=value`.")
    session_id: Annotated[str, Field(pattern=requests.SESSION_ID_PATTERN)] | None = Field(
        None, description="Counts only runs of this work session or of its plans."
    )
    per: Literal["day"] | None = Field(None, description="`day`: the limits apply to each day separately.")
    time_zone: Annotated[str, Field(max_length=100)] = Field(
        "UTC", description="IANA name of the time zone in which a day begins; only with `per`."
    )
    limits: SharedLimitsBody = Field(description="Limits; at least one is required.")

    def budget(self, name: str) -> values.Budget:
        """Return the budget that the body describes."""
        given = dict(self) | {"limits": limits.RunLimits(**dict(self.limits))}
        return values.Budget(name=name, **given)


@router.get(
    "",
    summary="List budgets",
    responses=declared(list[budgets.BudgetShown], "file_damaged", "file_unreadable", meaning="All budgets, by name."),
)
async def list_budgets(services: ServicesDep) -> Response:
    """List budgets, with their spent, reserved and remaining amounts."""
    return as_json([found.to_json() for found in await services.budgets.list()])


@router.put(
    "/{name}",
    summary="Create or replace a budget",
    responses=declared(
        budgets.BudgetShown,
        *refusals.WRITE,
        "too_many_budgets",
        "file_damaged",
        "file_unreadable",
        meaning="The budget is on disk and in force; runs that it paused continue if they now fit.",
    ),
)
async def put_budget(services: ServicesDep, name: Name, body: BudgetBody, author: AuthorDep) -> Response:
    """Create a budget, or replace the one with this name. Earlier spending counts."""
    return as_json((await services.budgets.put(body.budget(name), author)).to_json())


@router.delete(
    "/{name}",
    summary="Remove a budget",
    status_code=204,
    responses=refusals.documented(("budget_not_found", "no_room", "file_damaged", "file_unreadable")),
)
async def remove_budget(services: ServicesDep, name: Name, author: AuthorDep) -> Response:
    """Remove a budget. Runs that waited for room in it continue."""
    await services.budgets.remove(name, author)
    return Response(status_code=204)
