"""Routes for monitoring the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from starlette.responses import PlainTextResponse, Response

from app import telemetry
from app.api import gateway, refusals, routers
from app.api.dependencies import ServicesDep
from app.api.responses import declared
from app.domain import shapes
from app.services import health

router = routers.router(tags=["service"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive(shapes.Shape):
    """The process answers."""

    status: Literal["ok"] = "ok"  # `ok`.


@router.get("/healthz", summary="Liveness", responses=declared(Alive))
async def alive() -> Response:
    """Return 200 while the process is alive. Needs no token."""
    return gateway.alive()


@router.get(
    "/readyz",
    summary="Readiness",
    responses=declared(health.Readiness, "disk_failing", "planner_broken", "triggers_broken", "notifications_broken"),
)
async def ready(services: ServicesDep) -> Response:
    """Return 200 with the load if the service accepts runs, otherwise 503 with the reason. Needs no token."""
    return await gateway.ready(services)


@router.get(
    "/metrics",
    summary="Metrics",
    response_class=PlainTextResponse,
    responses=refusals.documented(()) | {200: {"description": "Metrics."}},
)
async def metrics(services: ServicesDep) -> Response:
    """Return metrics in Prometheus text format."""
    status = services.health.busy()
    services.metrics.pool(slots=status.limit, queued=status.queued, stalled=status.stalled)
    services.metrics.up(await services.health.up())
    services.metrics.runs(await services.health.census())
    return Response(services.metrics.text(), headers={"Content-Type": telemetry.METRICS_TYPE})
