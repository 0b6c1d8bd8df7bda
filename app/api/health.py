"""Routes for whoever watches the service."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from app import telemetry
from app.api import problem_codes, response_models
from app.api.dependencies import ServicesDep
from app.api.json_responses import as_json, declared

router = APIRouter(tags=["service"])


@router.get("/healthz", summary="Tell whether the process answers", responses=declared(response_models.Alive))
async def alive() -> Response:
    """Answer; nothing more is looked at. Needs no token."""
    return as_json({"status": "ok"})


@router.get(
    "/readyz",
    summary="Tell whether new runs can be taken",
    responses=declared(response_models.Readiness, "disk_failing", "planner_broken", "starting"),
)
async def ready(services: ServicesDep) -> Response:
    """Tell how busy the service is, or why it takes no runs. Needs no token."""
    return as_json(await services.health.ready())


@router.get(
    "/metrics",
    summary="Show metrics",
    response_class=PlainTextResponse,
    responses=problem_codes.documented(()) | {200: {"description": "Metrics."}},
)
async def metrics(services: ServicesDep) -> Response:
    """Show counts and measures in Prometheus' text format."""
    status = services.health.busy()
    services.metrics.pool(slots=status.limit, queued=status.queued)
    services.metrics.runs(await services.health.census())
    return Response(services.metrics.text(), headers={"Content-Type": telemetry.METRICS_TYPE})
