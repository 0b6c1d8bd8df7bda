"""The transport over HTTP: a running service answers use cases."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import quote

import httpx

from app import errors, settings
from app.cli.client import JsonObject, P, T, UseCase
from app.domain import shapes
from app.services import requests

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_QUIET_STREAM_SECONDS = 120.0  # Silence, without even a sign of life, after which a stream counts as broken.

_OF_STATUS: Mapping[int, type[errors.ControlRoomError]] = {
    401: errors.ConfigurationError,
    403: errors.ConfigurationError,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    422: errors.Unroutable,
    507: errors.WriteFailed,
}


class HttpClient:
    """Send each use case to its route, and raise the error that a refusal reports.

    Args:
        server: Address of the service.
        token: Bearer token, if the service requires one.

    Raises:
        errors.ConfigurationError: the address or the token is malformed.
    """

    executes = False
    stopping = False

    def __init__(self, server: str, token: str | None) -> None:
        if token and not re.fullmatch(settings.SENDABLE, token):
            # Refused before it is sent: the HTTP library would print the token in its error.
            raise errors.ConfigurationError(
                "CONTROL_ROOM_API_TOKEN has characters that no token has", code="token_invalid"
            )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        self._server = server
        try:
            # Loading the certificates takes longer than most answers, and plain HTTP does not need them.
            verify = httpx.URL(server).scheme != "http"
            self._http = httpx.AsyncClient(
                base_url=server, headers=headers, timeout=timeout, trust_env=False, verify=verify
            )
        except httpx.InvalidURL as error:
            raise self._unreachable(error) from error

    async def __aenter__(self) -> HttpClient:
        """Return the client; the first request connects."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def stop(self) -> bool:
        return False

    async def call(self, wanted: UseCase[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the answer of the service; None if the service reports no change."""
        answer = await self._send(**_request(wanted, *args, **kwargs))
        if answer.status_code == httpx.codes.NOT_MODIFIED or wanted.answers is None:
            return cast(T, None)
        return cast(T, answer.text if wanted.answers is str else self._json(answer, wanted.answers))

    async def changed(self, path: str, expected: type, etag: str | None, wait: float) -> tuple[Any, str | None] | None:
        """Return the content of an address and its entity tag, once the tag differs from `etag`; None if it still does
        not after `wait` seconds.
        """
        headers = {"If-None-Match": etag} if etag else {}
        url = httpx.URL(path).copy_merge_params({"wait": str(wait)} if wait else {})
        answer = await self._send("GET", str(url), headers=headers)
        if answer.status_code == httpx.codes.NOT_MODIFIED:
            return None
        return self._json(answer, expected), answer.headers.get("ETag")

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[JsonObject, None]:
        """Read the run's Server-Sent Events."""
        path = f"/api/runs/{_quoted(run_id)}/events"
        async with aclosing(self._events(path, {"Last-Event-ID": str(after)})) as found:
            async for event in found:
                yield event

    def followed(self, run_id: str) -> str:
        return run_id

    async def follow_log(self, run_id: str, name: str) -> AsyncGenerator[str | None, None]:
        """Read the texts of a log while it grows."""
        path = f"/api/runs/{_quoted(run_id)}/logs/{_quoted(name)}/stream"
        async with aclosing(self._events(path, {}, end=b"end")) as found:
            async for piece in found:
                yield piece.get("text")

    async def _events(
        self, path: str, headers: Mapping[str, str], end: bytes = b""
    ) -> AsyncGenerator[JsonObject, None]:
        name, headers = b"", {**headers, "Accept": "text/event-stream"}
        timeout = httpx.Timeout(_QUIET_STREAM_SECONDS, connect=_CONNECT_SECONDS)
        try:
            async with self._http.stream("GET", path, headers=headers, timeout=timeout) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise problem_of(answer)
                async for line in _lines(answer):
                    name = line.removeprefix(b"event:").strip() if line.startswith(b"event:") else name
                    if line.startswith(b"data:"):
                        yield json.loads(line.removeprefix(b"data:"))
            # A service that stops ends its streams in order.
            if end not in (b"", name):
                raise httpx.RemoteProtocolError("the stream ended before its last event")
        except (httpx.RemoteProtocolError, httpx.ReadError) as error:
            # Only reading requests may be repeated blindly: an order that broke off may have been carried out.
            raise errors.ConfigurationError(
                f"{self._server} closed the connection: its service stopped, or was killed. Its runs continue when it "
                "starts again; then repeat the command.",
                code="server_unreachable",
            ) from error
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        except ValueError as error:
            raise self._strange(answer) from error

    async def verify_all(self) -> AsyncGenerator[list[JsonObject], None]:
        """Yield the verification of all stored data, page by page."""
        path: str | None = "/api/verification?limit=100"
        while path is not None:
            answer = await self._send("GET", path)
            yield self._json(answer, list)
            path = answer.links.get("next", {}).get("url")

    async def _send(self, method: str, url: str, **parts: Any) -> httpx.Response:
        try:
            # Never repeated: after a broken connection it is unknown whether the service took the order, which could be
            # carried out twice. The caller decides about repeating, with an idempotency key.
            answer = await self._http.request(method, url, **parts)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if not (answer.is_success or answer.status_code == httpx.codes.NOT_MODIFIED):
            raise problem_of(answer)
        return answer

    def _json(self, answer: httpx.Response, expected: type) -> Any:
        try:
            value = answer.json()
        except ValueError as error:
            raise self._strange(answer) from error
        if not isinstance(value, expected):
            raise self._strange(answer)
        return value

    def _unreachable(self, error: Exception) -> errors.ConfigurationError:
        reason = str(error) or type(error).__name__
        if isinstance(error, httpx.ConnectError):
            reason += "; is it running? control-room serve starts it"
        return errors.ConfigurationError(f"{self._server} cannot be reached: {reason}", code="server_unreachable")

    def _strange(self, answer: httpx.Response) -> errors.ConfigurationError:
        kind = answer.headers.get("content-type", "nothing")
        return errors.ConfigurationError(
            f"{self._server} answered with {kind} instead of JSON; is it Control Room?", code="server_error"
        )


def problem_of(answer: httpx.Response) -> errors.ControlRoomError:
    """Return the error that a refusal reports, which the same command raises in process."""
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "code" not in problem:
        message = f"the server answered {answer.status_code} {answer.reason_phrase}"
        return errors.ConfigurationError(message, code="server_error")
    message, code = str(problem.get("detail") or problem.get("title") or answer.reason_phrase), str(problem["code"])
    kind = _kind(answer.status_code, code)
    if kind is errors.UnknownRecipe:
        return errors.UnknownRecipe(message)
    if not issubclass(kind, errors.InputRefused):
        return kind(message, code=code)
    flaws = [
        errors.Flaw(path=flaw["path"], message=flaw["message"], code=flaw["code"], line=flaw.get("line"))
        for flaw in problem.get("flaws") or ()
    ]
    return kind(message, code=code, flaws=flaws)


def _kind(status: int, code: str) -> type[errors.ControlRoomError]:
    if status == 400 and code == errors.UnknownRecipe.default_code:
        return errors.UnknownRecipe
    if code == errors.NotReady.default_code:
        return errors.NotReady
    return _OF_STATUS.get(status, errors.RequestInvalid if status < 500 else errors.ConfigurationError)


def _request(wanted: UseCase[P, T], *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
    """Return the parts of a use case's request: path, `Idempotency-Key`, and the other arguments as query or body."""
    method, template = wanted.route.split(" ")
    bound = inspect.signature(wanted.perform).bind(None, *args, **kwargs)
    bound.apply_defaults()
    _, *pairs = bound.arguments.items()
    named = dict(pairs)
    path = re.sub(r"{(\w+)}", lambda found: _quoted(named.pop(found[1])), template)
    fields: dict[str, Any] = {}
    for name, value in named.items():
        fields |= _fields(value) if dataclasses.is_dataclass(value) else {name: value}
    headers = _headers(method, fields)
    if method in ("GET", "DELETE"):
        return {"method": method, "url": path, "headers": headers, "params": _query(fields)}
    known = {name: value for name, value in fields.items() if value is not None}
    body = wanted.body(*args, **kwargs) if wanted.body else known
    return {"method": method, "url": path, "headers": headers, "json": body}


def _headers(method: str, fields: dict[str, Any]) -> dict[str, str]:
    key, headers = fields.pop("idempotency_key", None), {}
    if flaws := requests.key_flaws(key):
        raise errors.RequestInvalid(flaws[0].message, flaws=flaws)
    if key is not None:
        headers["Idempotency-Key"] = key
    if (known := fields.pop("unless_revision", None)) is not None:
        headers["If-None-Match"] = f'"{known}"'
    if method == "DELETE" and (seen := fields.pop("revision", None)) is not None:
        headers["If-Match"] = f'"{seen}"'
    return headers


def _query(fields: Mapping[str, Any]) -> dict[str, str | list[str]]:
    shown = (
        (name, ":".join(value) if name == "label" else value) for name, value in fields.items() if value is not None
    )
    return {name: list(map(str, value)) if isinstance(value, list) else str(value) for name, value in shown}


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a request that differ from their defaults; the service decides who owns a run."""
    given = ((item, getattr(value, item.name)) for item in dataclasses.fields(value) if item.name != "owner")
    return {item.name: _plain(field) for item, field in given if field != _default(item)}


def _plain(field: Any) -> Any:
    if isinstance(field, tuple):
        return [_fields(each) if dataclasses.is_dataclass(each) else each for each in field]
    return field.to_json() if isinstance(field, shapes.Shape) else field


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def _quoted(part: object) -> str:
    return quote(str(part), safe="")


async def _lines(answer: httpx.Response) -> AsyncGenerator[bytes, None]:
    # Split only at line feeds: JSON may contain other line separators of Unicode.
    rest = b""
    async for part in answer.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
