"""Routers whose addresses refuse unknown parameters and are named after their functions."""

# Set here, not when the routers are included in the service: FastAPI would then build every route a second time, which
# takes a quarter of a second of processor time at each start.

from __future__ import annotations

from enum import Enum

from fastapi import APIRouter, Depends

from app.api import request_flaws


def router(prefix: str = "", tags: list[str | Enum] | None = None) -> APIRouter:
    """Return a router for addresses below a prefix, listed under these tags."""
    return APIRouter(
        prefix=prefix,
        tags=tags,
        dependencies=[Depends(request_flaws.check_parameters)],
        generate_unique_id_function=lambda route: route.name,
    )
