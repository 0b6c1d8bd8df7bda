"""The route of conferences; what is started there is a run, and everything else is asked of that."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from app.api import conference_requests
from app.api.dependencies import ServicesDep
from app.api.json_responses import IdempotencyKey, as_json, declared
from app.api.problem_codes import BODY

router = APIRouter(prefix="/api/conferences", tags=["conferences"])

_STARTED = declared(
    conference_requests.ConferenceStarted,
    *BODY,
    "no_chief",
    "backend_not_ready",
    "working_dir_refused",
    "working_dir_missing",
    "unknown_parent",
    "depth_exceeded",
    "idempotency_conflict",
    "no_room",
    status=201,
    meaning="The conference is accepted and on disk, as a run.",
    headers={"Location": "Address of the run."},
)
_STARTED[200] = _STARTED[201] | {"description": "An earlier request with this Idempotency-Key made the conference."}


@router.post("", summary="Hold a conference", status_code=201, responses=_STARTED)
async def start_conference(
    services: ServicesDep,
    body: conference_requests.ConferenceBody,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Ask several agents for an opinion on the same evidence, gathered by the chief with tools."""
    started = await services.conferences.start(body.conference(idempotency_key))
    headers = {"Location": f"/api/runs/{started.run_id}"}
    return as_json(started.to_json(), status=200 if started.existed else 201, headers=headers)
