"""Routes of prices and policies: prices of models, and limits and approvals of recipes' runs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.responses import Response

from app.api import refusals, request_models, routers
from app.api.dependencies import AuthorDep, ServicesDep
from app.api.responses import as_json, declared
from app.domain import policies, prices

router = routers.router(prefix="/api", tags=["budgets"])

_SHOWN, _SET = ("file_damaged", "file_unreadable"), (*refusals.WRITE, "file_damaged", "file_unreadable")


class PricesBody(BaseModel):
    """Prices that replace the present ones."""

    model_config = request_models.strict(
        {
            "version": "2026-11",
            "models": {
                "claude-sonnet-*": {
                    "input_per_million_usd": 3,
                    "output_per_million_usd": 15,
                    "context_tokens": 200_000,
                    "max_output_tokens": 8192,
                }
            },
        }
    )

    version: Annotated[str, Field(max_length=100)] = Field(
        "", description="Version recorded with each estimate; by default derived from the content."
    )
    models: dict[str, Any] = Field(
        max_length=prices.MOST_MODELS,
        description="Prices by model or by `backend/model`; `*` matches any characters.",
    )


class PoliciesBody(BaseModel):
    """Policies that replace the present ones."""

    model_config = request_models.strict(
        {
            "policies": [
                {"recipe_id": "*", "limits": {"cost_usd": 5}},
                {"recipe_id": "release", "approvals": {"count": 2, "not_starter": True}},
            ]
        }
    )

    policies: list[Any] = Field(
        max_length=policies.MOST_POLICIES, description="Policies, at most one per recipe; `*` matches every recipe."
    )


@router.get("/prices", summary="Show prices", responses=declared(prices.Prices, *_SHOWN))
async def show_prices(services: ServicesDep) -> Response:
    """Return the prices of models, for calls whose backend reports none."""
    return as_json(await services.prices.show())


@router.put("/prices", summary="Set prices", responses=declared(prices.Prices, *_SET))
async def set_prices(services: ServicesDep, body: PricesBody, author: AuthorDep) -> Response:
    """Replace all prices. They are used for calls from now on, and for the worst case of runs."""
    return as_json(await services.prices.replace(body.model_dump(exclude_defaults=True), author))


@router.get("/policies", summary="Show policies", responses=declared(policies.Policies, *_SHOWN))
async def show_policies(services: ServicesDep) -> Response:
    """Return the limits and approvals for runs of recipes, no matter who starts them."""
    return as_json(await services.policies.show())


@router.put("/policies", summary="Set policies", responses=declared(policies.Policies, *_SET))
async def set_policies(services: ServicesDep, body: PoliciesBody, author: AuthorDep) -> Response:
    """Replace all policies. They apply to runs that start from now on."""
    return as_json(await services.policies.replace(body.model_dump(), author))
