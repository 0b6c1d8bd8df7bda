"""Routes that verify stored data and repair runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from app.api import queries, refusals, request_models, routers
from app.api.dependencies import AuthorDep, ServicesDep
from app.api.responses import as_json, declared
from app.api.runs import RunId
from app.engine import maintenance_port

router = routers.router(prefix="/api", tags=["upkeep"])

_LARGEST_PAGE = 200


class CollectBody(BaseModel):
    """An order to remove objects that no run names; by default it only counts them."""

    model_config = request_models.strict({}, {"older_than_seconds": 604800, "dry_run": False})

    older_than_seconds: int = Field(
        604_800,
        ge=3600,
        le=2**53,
        description="Minimum age of objects to remove; a run may be about to reference a newer object.",
    )
    dry_run: bool = Field(True, description="Only count what would be removed.")


class RepairBody(BaseModel):
    """Options of a repair; empty: repair at once."""

    model_config = request_models.strict({}, {"dry_run": True})

    dry_run: bool = Field(False, description="Change nothing; return what a repair would change.")


@router.get(
    "/runs/{run_id}/verification",
    summary="Verify a run",
    responses=declared(maintenance_port.Verification, "run_not_found", meaning="The result for each file."),
)
async def verify_run(services: ServicesDep, run_id: RunId) -> Response:
    """Verify a run's start file, journals and blobs, without changing them."""
    return as_json(await services.maintenance.verify(run_id))


@router.post(
    "/runs/{run_id}/repair",
    summary="Repair a damaged run",
    responses=declared(
        maintenance_port.Repaired,
        *refusals.WRITE,
        "run_not_found",
        "run_busy",
        "journal_corrupt",
        meaning="What was kept, or with `dry_run` what would be kept.",
    ),
)
async def repair_run(
    services: ServicesDep,
    run_id: RunId,
    author: AuthorDep,
    body: Annotated[RepairBody | None, Body()] = None,
) -> Response:
    """Cut a damaged run back to its intact prefix and leave it paused. The damaged files are kept."""
    return as_json(await services.maintenance.repair(run_id, author, dry_run=body is not None and body.dry_run))


@router.post(
    "/runs/collect",
    summary="Remove objects that no run references",
    responses=declared(
        maintenance_port.Collected,
        *refusals.WRITE,
        "blobs_away",
        meaning="What was removed, or with `dry_run` what would be removed.",
    ),
)
async def collect(services: ServicesDep, author: AuthorDep, body: CollectBody) -> Response:
    """Remove blobs and logs in object storage that no run references, at most 1,000 at a time."""
    return as_json(await services.maintenance.collect(body.older_than_seconds, author, dry_run=body.dry_run))


@router.get(
    "/verification",
    summary="Verify all stored data",
    responses=declared(
        list[maintenance_port.Verification],
        "bad_cursor",
        meaning="A page of check results for runs, receipts, plans, issues, conversations and the audit log.",
        headers={"Link": 'Address of the next page, as `rel="next"`; absent on the last page.'},
    ),
)
async def verify_all(
    services: ServicesDep,
    request: Request,
    limit: Annotated[
        int,
        Query(description="Maximum page size; a page is shorter if checking takes long.", ge=1, le=_LARGEST_PAGE),
    ] = 100,
    cursor: Annotated[
        str | None,
        Query(
            description="Start of the page, from the previous `Link` header.",
            max_length=400,
            pattern=r"^[^\x00/]+/[^\x00]+$",
        ),
    ] = None,
) -> Response:
    """Verify all stored data, page by page, without changing it."""
    found = await services.maintenance.verify_page(cursor, limit)
    return as_json(list(found.reports), headers=queries.next_link(request, found.cursor))
