"""The route of the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from app.api import queries, responses
from app.api.dependencies import ServicesDep
from app.domain import audit

router = APIRouter(prefix="/api/audit", tags=["audit"])


@router.get(
    "",
    summary="List changes",
    responses=responses.declared(
        list[audit.AuditEntry],
        "request_invalid",
        "bad_cursor",
        meaning="A page of changes, newest first.",
        headers={"Link": 'Address of the next page, as `rel="next"`; absent on the last.'},
    ),
)
async def list_changes(
    services: ServicesDep, request: Request, query: Annotated[queries.AuditQuery, Query()]
) -> Response:
    """List who changed what has no run's journal: issues, keys and configuration, and what was deleted or repaired.

    Orders to a run are in the journal of the run. A page with a `Link` may have fewer entries than its limit.
    """
    found, cursor = await services.audit.page(query.query())
    headers = queries.next_link(request, None if cursor is None else str(cursor))
    return responses.as_json([entry.to_json() for entry in found], headers=headers)
