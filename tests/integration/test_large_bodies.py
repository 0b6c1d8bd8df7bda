"""The largest and worst bodies for every address: refused or accepted with bounded work and a free loop."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator

import pytest

from app import errors
from app.api import request_models
from app.domain import json_text, plain
from tests.integration import served
from tests.integration.project import Project


@pytest.fixture
async def service(project: Project) -> AsyncIterator[served.Served]:
    """Return the service of the project."""
    async with served.in_process(project, inline_recipes=True) as service:
        yield service


MANY = [
    (b'{"tasks":[' + b",".join([b"{}"] * 150_000) + b"]}", "$"),
    (b"{" + b",".join(b'"f%d":0' % number for number in range(6_000)) + b"}", "$"),
    (b'{"tasks":[' + b",".join([b'{"x":0}'] * 5_000) + b"]}", "$.tasks"),
    (b'{"labels":{' + b",".join(b'"n%d":"v"' % number for number in range(20_000)) + b"}}", "$.labels"),
    (b'{"tasks":[{"deps":[' + b",".join([b"1"] * 5_001) + b"]}]}", "$.tasks"),
    (b'{"a":' + b'{"a":' * 50 + b"[" + b",".join([b"1"] * 6_000) + b"]" + b"}" * 51, "$.a"),
]
"""Bodies with too many values, and the place in the refusal."""


@pytest.mark.parametrize(("content", "place"), MANY)
async def test_values_are_counted_before_they_are_validated(
    service: served.Served, content: bytes, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body with too many values is a 413 with its place, and is not validated by any model."""
    monkeypatch.setattr("fastapi.dependencies.utils.request_body_to_args", None)
    answer = await service.http.post("/api/sessions", content=content, headers={"Content-Type": "application/json"})
    problem = answer.json()

    assert (answer.status_code, problem["code"]) == (413, "too_many_values")
    assert [flaw["path"] for flaw in problem["flaws"]] == [place]


def test_only_values_count_toward_the_limit_of_a_body() -> None:
    """Commas and brackets within texts do not count, and the limit is exact."""
    values = request_models.MOST_VALUES
    request_models.check(json.dumps({"args": {"a": "[,{" * 100_000}}).encode())
    request_models.check(json.dumps({"args": {"a": [1] * (values - 4)}}).encode())
    request_models.check(json.dumps({"tasks": [{"args": {"a": [1] * 20_000}}]}).encode())
    with pytest.raises(errors.TooLarge):
        request_models.check(json.dumps({"args": {"a": [1] * (values + 1)}}).encode())


async def test_large_bodies_are_checked_beside_the_loop(
    service: served.Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread reads large bodies, one at a time; the loop reads small ones itself."""
    loop_thread, threads, at_once, most = threading.get_ident(), [], 0, 0
    check = request_models.check

    def noted(body: bytes) -> plain.Json:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        threads.append((len(body) <= request_models.CHECKED_AT_ONCE, threading.get_ident() == loop_thread))
        value = check(body)
        at_once -= 1
        return value

    monkeypatch.setattr(request_models, "check", noted)
    large = {"description": "a b," * 4_000, "more": "c" * request_models.CHECKED_AT_ONCE}
    await asyncio.gather(*(service.http.post("/api/route", json=large) for _ in range(6)))
    await service.http.post("/api/route", json={"description": "x"})

    assert threads == [(False, False)] * 6 + [(True, True)]
    assert most == 1


def test_a_sound_text_is_not_walked_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """No value of a valid text is examined a second time."""
    monkeypatch.setattr(json_text, "_found", None)
    value = {"a": [{"b": 1.5, "c": "é"}, [], {}], "d": [[["deep"]]]}

    assert json_text.read(json.dumps(value), exact=True) == value
