"""HEAD: the head of what GET answers, at every address that has a GET."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """Answer HEAD with status and headers of GET; a stream is not begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as a GET that ends with its head."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _HeadSent

        try:
            await self._app({**scope, "method": "GET"}, receive, head)
        except _HeadSent:
            return


class _HeadSent(Exception):
    """Nothing more of an answer is wanted."""
