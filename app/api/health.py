"""Routes for whoever watches the service."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from app import telemetry
from app.api import problem_codes, response_models
from app.api.dependencies import ServicesDep
from app.api.json_responses import as_json, declared

router = APIRouter(tags=["service"])


@router.get("/healthz", summary="Liveness", responses=declared(response_models.Alive))
async def alive() -> Response:
    """Return 200 while the process is alive. Needs no token."""
    return as_json({"status": "ok"})


@router.get(
    "/readyz",
    summary="Readiness",
    responses=declared(response_models.Readiness, "disk_failing", "planner_broken", "starting"),
)
async def ready(services: ServicesDep) -> Response:
    """Return 200 with the load if the service accepts runs, else 503 with the reason. Needs no token."""
    return as_json(await services.health.ready())


@router.get(
    "/metrics",
    summary="Metrics",
    response_class=PlainTextResponse,
    responses=problem_codes.documented(()) | {200: {"description": "Metrics."}},
)
async def metrics(services: ServicesDep) -> Response:
    """Return metrics in Prometheus text format."""
    status = services.health.busy()
    services.metrics.pool(slots=status.limit, queued=status.queued)
    services.metrics.runs(await services.health.census())
    return Response(services.metrics.text(), headers={"Content-Type": telemetry.METRICS_TYPE})
