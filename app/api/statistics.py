"""Routes of sums over all runs: their number, waits and costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from app.api import queries, responses, routers
from app.api.dependencies import LimitsDep, ServicesDep
from app.domain import plain
from app.services import statistics

router = routers.router(prefix="/api", tags=["runs"])


@router.get(
    "/stats",
    summary="Count runs, waits and spend",
    responses=responses.whole(statistics.RunStats, meaning="Counts over all runs."),
)
async def show_stats(
    services: ServicesDep,
    query: Annotated[queries.StatsQuery, Query()],
    limits: LimitsDep,
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """Return counts over all runs. They are counted for all clients together, so that many may wait for changes."""

    async def render() -> responses.Rendered:
        found = await services.statistics.stats(query.failed_since(), query.midnight(), limits)
        return found.body, {}, found.etag

    return await responses.conditional(services, if_none_match, query.wait, render)


@router.get(
    "/usage",
    summary="Add up tokens and cost",
    responses=responses.whole(statistics.UsageShown, meaning="Sums of usage."),
)
async def show_usage(
    services: ServicesDep,
    query: Annotated[queries.UsageQuery, Query()],
    limits: LimitsDep,
    if_none_match: responses.IfNoneMatch = None,
) -> Response:
    """Add up the usage of agents' calls. Filters select runs, as in the list of runs.

    Runs that execute now and session plans count. The usage of a deleted run is not included.
    """

    wanted = query.query()
    wanted = dataclasses.replace(wanted, runs=dataclasses.replace(wanted.runs, scope=limits))

    async def render() -> responses.Rendered:
        body = plain.encode((await services.statistics.usage(wanted)).to_json())
        headers: Mapping[str, str] = {}
        return body, headers, plain.entity_tag(body)

    return await responses.conditional(services, if_none_match, None, render)
