"""Late routes: routes and forms that are loaded on a thread, with the first request that needs them or earlier."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from starlette.datastructures import State
from starlette.types import Receive, Scope, Send

from app.engine import aio

if TYPE_CHECKING:
    from fastapi import FastAPI

_FORMS = "app.api.request_models"


class LateRoutes:
    """Answers requests by their routes; until these are loaded, requests wait.

    Args:
        state: State that the routes share with the gateway.
        loaded: Called when the routes are loaded.
    """

    def __init__(self, state: State, loaded: Callable[[], None]) -> None:
        self._state = state
        self._loaded = loaded
        self._app: FastAPI | None = None
        self._forms: asyncio.Task[Any] | None = None
        self._routes: asyncio.Task[FastAPI] | None = None

    async def load_forms(self) -> None:
        """Load the forms of bodies once."""
        if self._forms is None or aio.failure(self._forms) is not None:
            self._forms = asyncio.create_task(asyncio.to_thread(importlib.import_module, _FORMS), name="load the forms")
        # A client that disconnects must not stop the load that others wait for.
        await asyncio.shield(self._forms)

    async def load(self) -> FastAPI:
        """Load the routes once, and return their application."""
        if self._routes is None or aio.failure(self._routes) is not None:
            self._routes = asyncio.create_task(self._load_behind_forms(), name="load the routes")
        return await asyncio.shield(self._routes)

    async def listed(self) -> Sequence[Any]:
        """Return the routes."""
        return (await self.load()).routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await (self._app or await self.load())(scope, receive, send)

    async def _load_behind_forms(self) -> FastAPI:
        # One after the other: two threads that import the same libraries can see them half loaded.
        await self.load_forms()
        self._app = await asyncio.to_thread(self._load)
        self._loaded()
        return self._app

    def _load(self) -> FastAPI:
        from app.api import routes

        return routes.create(self._state)
