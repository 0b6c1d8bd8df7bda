"""The route of the audit list."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from app.api import queries, responses, routers
from app.api.dependencies import ServicesDep
from app.domain import audit

router = routers.router(prefix="/api/audit", tags=["audit"])


@router.get(
    "",
    summary="List changes",
    responses=responses.declared(
        list[audit.AuditEntry],
        "bad_cursor",
        meaning="A page of changes, newest first.",
        headers={"Link": 'Address of the next page, as `rel="next"`; absent on the last page.'},
    ),
)
async def list_changes(
    services: ServicesDep, request: Request, query: Annotated[queries.AuditQuery, Query()]
) -> Response:
    """List who changed what: orders to runs, answers and votes, issues, keys, configuration, deletions and repairs.

    An entry with `run_id` is in the journal of that run, as line `number` of `file`, and is deleted with the run; any
    other entry is in the audit log. A page with a `Link` may have fewer entries than its limit.
    """
    found, cursor = await services.audit.page(query.query())
    headers = queries.next_link(request, None if cursor is None else queries.audit_cursor(cursor))
    return responses.as_json([entry.to_json() for entry in found], headers=headers)
