"""Odd requests of every operation: each refusal is one that the OpenAPI document declares for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api import problems, request_models
from tests.integration import served

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[2] / "openapi" / "openapi.json").read_text())
JSON = {"Content-Type": "application/json"}
BODIES: dict[str, dict[str, Any]] = {
    "no JSON": {"content": b"{", "headers": JSON},
    "null": {"content": b"null", "headers": JSON},
    "a list": {"content": b"[]", "headers": JSON},
    "an unknown field": {"content": b'{"zz": 1}', "headers": JSON},
    "too many values": {"json": {"zz": [0] * (request_models.MOST_TYPED + 1)}},
    "text": {"content": b"{}", "headers": {"Content-Type": "text/plain"}},
    "nothing": {},
}
"""Bodies that hardly any operation takes."""

OPERATIONS = [
    (method.upper(), path, operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
]
"""All operations."""


def address(path: str) -> str:
    """Return an address of the form of a path, at which nothing is."""
    return re.sub(r"\{\w+\}", "nothing", re.sub(r"\{(task|proposal)_id\}", "7", path))


def declared(operation: dict[str, Any], answer: httpx.Response) -> bool:
    """Return whether an operation declares an answer."""
    if answer.status_code < 400:
        return True
    content = operation["responses"].get(str(answer.status_code), {}).get("content", {})
    return answer.json()["code"] in content.get(problems.MEDIA_TYPE, {}).get("examples", {})


def oddities(method: str, path: str, operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return odd requests, by their kind."""
    if path != "/api/events":
        # This stream would not end.
        yield "plain", {}
    yield "an unknown parameter", {"params": {"zz": "1"}}
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query":
            yield f"an empty {parameter['name']}", {"params": {parameter["name"]: ""}}
    if method in ("POST", "PUT", "PATCH"):
        yield from BODIES.items()


async def test_every_refusal_is_declared(service: served.Served) -> None:
    """A client that reads the document knows the status and code of every refusal of an odd request."""
    undeclared = []
    for method, path, operation in OPERATIONS:
        for kind, request in oddities(method, path, operation):
            answer = await service.http.request(method, address(path), **request)
            if not declared(operation, answer):
                undeclared.append((method, path, kind, answer.status_code, answer.json()["code"]))

    assert undeclared == []


async def test_one_value_is_given_once(service: served.Served) -> None:
    """A parameter that takes one value is refused where it has several; one that takes a list is not."""
    taken = set()
    for method, path, operation in OPERATIONS:
        for parameter in (found for found in operation.get("parameters", ()) if found["in"] == "query"):
            name = parameter["name"]
            answer = await service.http.request(method, address(path), params=[(name, "1"), (name, "2")])
            flaws = answer.json()["flaws"] if answer.status_code == 400 else []
            if ("repeated", f"query.{name}") not in [(flaw["code"], flaw["path"]) for flaw in flaws]:
                taken.add((path, name))

    assert taken == {("/api/runs", "status"), ("/api/usage", "status"), ("/api/events", "type")}


async def test_two_labels(service: served.Served) -> None:
    """A list of runs refuses two labels and two pages, each with its place."""
    answer = await service.http.get("/api/runs?label=a:b&limit=1&label=c:d&limit=2&status=done&status=failed")

    assert answer.status_code == 400
    assert [flaw["path"] for flaw in answer.json()["flaws"]] == ["query.label", "query.limit"]
    assert "give it once" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Control-Room-Author"])
@pytest.mark.parametrize("path", ["/api/runs", "/api/issues"])
async def test_two_headers(service: served.Served, path: str, name: str) -> None:
    """A request with two keys, or two names of its author, is refused with the place, and makes nothing."""
    body = {"recipe_id": "quick"} if path == "/api/runs" else {"title": "x"}
    answer = await service.http.post(path, json=body, headers=[(name, "a"), (name, "b")])
    made = await service.http.get(path)

    assert (answer.status_code, answer.json()["flaws"][0]["path"]) == (400, f"header.{name}")
    assert made.json() == []


@pytest.mark.parametrize("slash", ["", "/"])
async def test_another_method_names_those_of_the_address(service: served.Served, slash: str) -> None:
    """A 405 of any address lists the methods that it has, and a slash behind it leads nowhere."""
    wrong: list[tuple[str, str, object]] = []
    for path, item in DOCUMENT["paths"].items():
        for method in {"OPTIONS", "GET", "POST", "PUT", "PATCH", "DELETE"} - {name.upper() for name in item}:
            answer = await service.http.request(method, address(path) + slash)
            is_problem = answer.headers["content-type"] == problems.MEDIA_TYPE
            expected = {404} if slash else {400, 404, 405}
            if not is_problem or answer.status_code not in expected:
                wrong.append((method, path, answer.status_code))
            elif answer.status_code == 405 and not {name.upper() for name in item} <= set(
                answer.headers["allow"].split(", ")
            ):
                wrong.append((method, path, answer.headers["allow"]))

    assert wrong == []
