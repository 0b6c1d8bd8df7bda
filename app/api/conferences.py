"""The route that starts conferences; a conference is a run, and is shown and controlled as one."""

from __future__ import annotations

from starlette.responses import Response

from app.api import refusals, request_models, responses, routers
from app.api.authors import AuthorDep
from app.api.dependencies import ServicesDep
from app.services import conferences

router = routers.router(prefix="/api/conferences", tags=["conferences"])

_STARTED = responses.created(
    conferences.Started,
    *refusals.START,
    "no_chief",
    meaning="The conference is accepted and on disk, as a run.",
    repeated="An earlier request with this Idempotency-Key made the conference.",
    headers={"Location": "Address of the run."},
)


@router.post("", summary="Hold a conference", status_code=201, responses=_STARTED)
async def start_conference(
    services: ServicesDep,
    body: request_models.ConferenceBody,
    author: AuthorDep,
    idempotency_key: responses.IdempotencyKey = None,
) -> Response:
    """Ask several agents for an opinion on the same evidence, gathered by the chief with tools."""
    started = await services.conferences.start(body.conference(idempotency_key), author)
    headers = {"Location": f"/api/runs/{started.run_id}"}
    return responses.as_json(started, status=200 if started.existed else 201, headers=headers)
