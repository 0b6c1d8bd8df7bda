"""Routes of recipes, the router, tools, agents and receipts."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import Depends, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from app import errors
from app.api import callers, queries, refusals, request_models, responses, routers, scoping
from app.api.dependencies import LimitsDep, ServicesDep
from app.api.responses import as_json, declared
from app.api.use_cases import Services
from app.domain import access, graphs, library, plain, receipts
from app.services import inventory, preflight, recipe_versions, routing, workspaces

router = routers.router(prefix="/api")


async def _shown(
    services: ServicesDep,
    limits: LimitsDep,
    recipe_id: Annotated[str, Path(description="Id of the recipe.", examples=["creative_draft_scene"])],
) -> str:
    if not _is_within(limits, recipe_id):
        raise errors.NotFound(f"there is no recipe {recipe_id!r:.120}", code="recipe_not_found")
    await services.catalogue.refresh()
    return recipe_id


_RecipeId = Annotated[str, Depends(_shown)]


class ValidateBody(BaseModel):
    """A recipe to validate, as an object or as the text of its file."""

    model_config = request_models.strict(
        {
            "recipe": {
                "recipe_id": "mine",
                "label": "Mine",
                "phase_a": [
                    {
                        "step_id": "find",
                        "tool": "file_locator",
                        "args": {"search_criteria": "harbour"},
                        "output_slot": "found",
                    }
                ],
                "dod": [{"check": "slot_not_null", "slot": "found"}],
            }
        }
    )

    recipe: dict[str, Any] | str = Field(
        description="The recipe, as an object or as text; only flaws in text have line numbers."
    )
    dialect: str = Field("control_room", description="Language of the recipe.")


class RouteBody(BaseModel):
    """A task to find a recipe for."""

    model_config = request_models.strict({"description": "draft scene 21"})

    description: request_models.Description = Field(description="The task, as text.")


@router.get(
    "/recipes", tags=["recipes"], summary="List recipes", responses=responses.whole(list[recipe_versions.RecipeListed])
)
async def list_recipes(
    services: ServicesDep,
    limit: Annotated[int | None, Query(description="Maximum number of recipes; all by default.", ge=1, le=1000)] = None,
    wait: responses.Wait = None,
    if_none_match: responses.IfNoneMatch = None,
    limits: LimitsDep = None,
) -> Response:
    """List all recipes; invalid ones include their errors."""

    async def read() -> list[Any]:
        await services.catalogue.refresh()
        found = await asyncio.to_thread(services.catalogue.listed)
        return [recipe for recipe in found if _is_within(limits, recipe["recipe_id"])][:limit]

    return await responses.listed(services, if_none_match, wait, read)


@router.post(
    "/recipes/validate",
    tags=["recipes"],
    summary="Validate a recipe",
    responses=declared(
        recipe_versions.Examined, *refusals.BODY, "unknown_dialect", meaning="The flaws of the recipe, if any."
    ),
)
async def validate_recipe(services: ServicesDep, body: ValidateBody) -> Response:
    """Validate a recipe without storing it."""
    source = body.recipe if isinstance(body.recipe, str) else json.dumps(body.recipe, ensure_ascii=False)
    examined = await asyncio.to_thread(services.catalogue.examine, source, body.dialect)
    return as_json(examined)


@router.get(
    "/recipes/{recipe_id}",
    tags=["recipes"],
    summary="Show a recipe",
    responses=declared(recipe_versions.RecipeDetail, "recipe_not_found"),
)
async def show_recipe(services: ServicesDep, recipe_id: _RecipeId) -> Response:
    """Return a recipe with the JSON Schema of its arguments and its graph."""
    return as_json(await asyncio.to_thread(services.catalogue.describe, recipe_id))


@router.get(
    "/recipes/{recipe_id}/graph",
    tags=["recipes"],
    summary="Show a recipe's graph",
    responses=declared(graphs.Graph, "recipe_not_found", "recipe_invalid"),
)
async def show_recipe_graph(services: ServicesDep, recipe_id: _RecipeId) -> Response:
    """Return the flow of a recipe as nodes and edges, from its present file."""
    return as_json(await asyncio.to_thread(services.catalogue.graph, recipe_id))


@router.post(
    "/preflight",
    tags=["runs"],
    summary="Check a request for a run",
    responses=declared(
        preflight.PreflightReport,
        *refusals.BODY,
        "unknown_parent",
        "unknown_agent_session",
        meaning="What the request would run; nothing is stored.",
    ),
)
async def examine_request(services: ServicesDep, request: Request, body: request_models.StartBody) -> Response:
    """Return steps, agents with their readiness, the worst case of agent calls, and problems. Nothing is started."""
    wanted = await scoping.scope_start(services, callers.caller_of(request), body.request(None))
    return as_json(await services.preflight.report(wanted, scoping.limits_of(request)))


@router.post(
    "/route",
    tags=["recipes"],
    summary="Find a recipe for a task",
    responses=declared(routing.RoutingResult, *refusals.BODY),
)
async def route_task(services: ServicesDep, body: RouteBody) -> Response:
    """Choose a recipe from a description, without a model, and find its arguments in the project."""
    await services.catalogue.refresh()
    return as_json(await asyncio.to_thread(services.route, body.description))


@router.get("/tools", tags=["library"], summary="List tools", responses=responses.whole(list[library.ToolSpec]))
async def list_tools(services: ServicesDep, if_none_match: responses.IfNoneMatch = None) -> Response:
    """List the tools available to recipes, with the JSON Schema of their arguments."""

    async def read() -> list[Any]:
        return services.inventory.tools()

    return await responses.listed(services, if_none_match, None, read)


@router.get(
    "/files",
    tags=["library"],
    summary="List files of a working folder",
    responses=declared(workspaces.FilesListed, "working_dir_refused", "working_dir_missing"),
)
async def list_files(
    services: ServicesDep,
    working_dir: Annotated[str | None, Query(description="Working folder; the project by default.")] = None,
    q: Annotated[str, Query(max_length=200, description="Text that the path must contain, ignoring case.")] = "",
) -> Response:
    """List the files that an argument of a run could name, by path; none of them is read."""
    return as_json(await services.inventory.files(working_dir, q))


@router.get("/agents", tags=["library"], summary="List agents", responses=responses.whole(list[inventory.AgentListed]))
async def list_agents(
    services: ServicesDep,
    limits: LimitsDep,
    wait: responses.Wait = None,
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """List the agents with their state and the run that each is working for."""

    async def read() -> list[Any]:
        return [await _seen(services, limits, agent) for agent in await services.inventory.agents()]

    return await responses.listed(services, if_none_match, wait, read)


@router.get(
    "/audit/receipts",
    tags=["audit"],
    summary="List receipts",
    responses=responses.page(
        list[receipts.ListedReceipt],
        meaning="A page of receipts, session by session, in the order in which they were written.",
    ),
)
async def list_receipts(
    services: ServicesDep,
    request: Request,
    query: Annotated[queries.ReceiptsQuery, Query()],
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """List receipts of tool executions, including those of deleted runs. Filters are combined with AND."""
    return await responses.paged(
        services, request, query, if_none_match, services.runs.receipts, lambda receipt: receipt.position
    )


@router.get(
    "/audit/receipts/{receipt_id}",
    tags=["audit"],
    summary="Read a receipt",
    responses=declared(receipts.Receipt, "receipt_not_found"),
)
async def show_receipt(
    services: ServicesDep, receipt_id: Annotated[str, Path(description="Id of the receipt.", examples=["rcpt_a1b2c3"])]
) -> Response:
    """Return a receipt with its arguments, full payload and whether it is unchanged."""
    return as_json(await services.runs.receipt(receipt_id))


def _is_within(limits: access.Scope | None, recipe_id: str) -> bool:
    return limits is None or not limits.recipes or recipe_id in limits.recipes


async def _seen(services: Services, limits: access.Scope | None, agent: dict[str, plain.Json]) -> dict[str, plain.Json]:
    """Return an agent, without the run that it works for if that run is out of scope."""
    if limits is None or agent["run"] is None or await services.runs.is_within(str(agent["run"]), limits):
        return agent
    return agent | {"run": None, "key": None}
