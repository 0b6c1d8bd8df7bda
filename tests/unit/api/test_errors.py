"""Errors as HTTP: every error of the tree has its status, and an unforeseen one is reported by an id."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from app import errors
from app.api import errors as http_errors
from app.api import refusals
from tests.unit.api import gateways

STATUSES = {
    "RequestInvalid": 400,
    "InputRefused": 400,
    "UnknownRecipe": 400,
    "ArgsInvalid": 400,
    "RecipeInvalid": 400,
    "TooLarge": 413,
    "NotReady": 409,
    "Unroutable": 422,
    "Unauthenticated": 401,
    "Denied": 403,
    "NotFound": 404,
    "Conflict": 409,
    "RunExists": 409,
    "WrongState": 409,
    "JournalCorrupt": 409,
    "WriteFailed": 507,
    "StorageFault": 507,
    "DatabaseAway": 503,
    "LeaseLost": 507,
    "WorkspaceFault": 507,
    "Unavailable": 503,
    "Unreadable": 503,
    "InterruptionFault": 503,
}


def tree(root: type[BaseException]) -> Iterator[type[BaseException]]:
    """Yield an error class and all classes derived from it."""
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


@pytest.mark.parametrize("kind", [*tree(errors.ControlRoomError), *tree(errors.Fault)], ids=lambda kind: kind.__name__)
def test_every_error_has_its_status(kind: type[errors.ControlRoomError]) -> None:
    """An error that a client can cause has the status of the contract; any other error is the service's own fault."""
    problem = refusals.problem(kind())

    assert (problem.status if problem else None) == STATUSES.get(kind.__name__)


def test_a_problem_document_contains_the_errors_facts() -> None:
    """The problem document contains message, code, flaws and facts of the error."""
    flaw = errors.Flaw(path="$.args.x", code="missing_arg", message="is required", line=3)
    problem = refusals.problem(errors.ArgsInvalid("it needs x", flaws=[flaw], key="draft", detail={"missing": ["x"]}))

    assert problem is not None
    assert problem.to_json() == {
        "type": "urn:control-room:problem:args_invalid",
        "title": "The arguments do not match the recipe.",
        "status": 400,
        "detail": "it needs x",
        "code": "args_invalid",
        "flaws": [flaw.to_json()],
        "facts": {"missing": ["x"], "key": "draft"},
    }


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [
        (ZeroDivisionError("secret"), 500, "internal_error"),
        (errors.RunFailed("secret"), 500, "internal_error"),
        (errors.StorageFault("no space is left"), 507, "storage_error"),
        (errors.InterruptionFault(), 503, "interrupted"),
        (errors.NondeterminismFault("secret"), 500, "nondeterminism"),
    ],
)
async def test_any_raised_error_becomes_a_problem_document(raised: BaseException, status: int, code: str) -> None:
    """An error or fault without a handler becomes a problem document, and a 500 reveals only an id."""

    async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise raised

    transport = httpx.ASGITransport(gateways.behind(broken))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        answer = await http.get("/")

    assert answer.status_code == status
    assert answer.json()["code"] == ("internal_error" if status == 500 else code)
    assert "secret" not in answer.text


def test_at_most_200_flaws_of_a_body_are_reported() -> None:
    """A body with thousands of flaws is answered with the first 200, and the rest are not examined."""
    found = ({"type": "extra_forbidden", "loc": (f"recipe_{number}",), "msg": ""} for number in range(50_000))
    refused = http_errors.unfit(found)

    assert [(flaw.path, flaw.code) for flaw in refused.flaws[::199]] == [
        ("$.recipe_0", "unknown_field"),
        ("$.recipe_199", "unknown_field"),
    ]
    assert next(found)["loc"] == ("recipe_200",)


async def test_an_answer_that_has_begun_is_broken_off(caplog: pytest.LogCaptureFixture) -> None:
    """A failure in the middle of an answer is logged and breaks the answer off, since its status is already sent."""
    sent: list[str] = []

    async def half(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    async def receive() -> dict[str, object]:
        return {"type": "http.request"}

    async def send(message: dict[str, object]) -> None:
        sent.append(str(message["type"]))

    scope = {"type": "http", "method": "GET", "path": "/x", "query_string": b"", "headers": [(b"host", b"localhost")]}
    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):
        await gateways.behind(half)(scope, receive, send)  # type: ignore[arg-type]

    assert sent == ["http.response.start"]
    assert caplog.records[0].__dict__["path"] == "/x"
