"""Requests for runs: the form of their values, and when two of them are the same."""

from __future__ import annotations

from typing import Any

import pytest

from app import errors
from app.services import requests


@pytest.mark.parametrize(
    ("facts", "path"),
    [
        ({}, "$.recipe_id"),
        ({"description": "  "}, "$.recipe_id"),
        ({"recipe_id": "draft", "recipe": {}}, "$.recipe"),
        ({"recipe_id": "draft", "session_id": "../audit"}, "$.session_id"),
        ({"recipe_id": "draft", "session_id": ".."}, "$.session_id"),
        ({"recipe_id": "draft", "session_id": "s\n"}, "$.session_id"),
        ({"recipe_id": "draft", "idempotency_key": ""}, "header.Idempotency-Key"),
        ({"recipe_id": "draft", "idempotency_key": "k" * 256}, "header.Idempotency-Key"),
        ({"recipe_id": "draft", "description": "d" * 20_001}, "$.description"),
        ({"recipe_id": "draft", "priority": 101}, "$.priority"),
        ({"recipe_id": "draft", "priority": -101}, "$.priority"),
        ({"recipe_id": "draft", "labels": {"a:b": "c"}}, '$.labels["a:b"]'),
        ({"recipe_id": "draft", "labels": {"a": "c" * 257}}, "$.labels.a"),
        ({"description": "a\ud800"}, "$.description"),
        ({"recipe_id": "draft", "args": {"a": "\udcff"}}, "$.args.a"),
        ({"recipe_id": "draft", "args": {"a": [{"\udfff": 1}]}}, '$.args.a[0]["?"]'),
        ({"recipe_id": "draft", "labels": {"a": "\udc00\ud83d"}}, "$.labels.a"),
        ({"recipe_id": "draft", "labels": {f"l{n}": "" for n in range(33)}}, "$.labels"),
    ],
)
def test_a_value_of_the_wrong_form_is_refused(facts: dict[str, Any], path: str) -> None:
    """Each value of a wrong form is refused with its place."""
    with pytest.raises(errors.RequestInvalid) as caught:
        requests.check(requests.StartRequest(**facts))

    assert [flaw.path for flaw in caught.value.flaws] == [path]


def test_values_at_their_bounds_are_taken() -> None:
    """Values at their limits are accepted."""
    requests.check(
        requests.StartRequest(
            description="d" * 20_000,
            session_id="sp_1.2",
            idempotency_key="k" * 255,
            priority=-100,
            labels={f"a/b.{n}": "v" * 256 for n in range(32)},
        )
    )


def test_a_request_is_refused_with_all_its_flaws() -> None:
    """A request with several flaws is refused with all of them."""
    with pytest.raises(errors.RequestInvalid) as caught:
        requests.check(requests.StartRequest(priority=1000, session_id="/"))

    assert len(caught.value.flaws) == 3


def test_a_repetition_has_the_same_hash() -> None:
    """The hash ignores key, owner and order of arguments, and depends on their values."""
    one = requests.StartRequest(recipe_id="draft", args={"a": 1, "b": 2}, idempotency_key="k1")
    same = requests.StartRequest(recipe_id="draft", args={"b": 2, "a": 1}, idempotency_key="k2", owner="process")
    other = requests.StartRequest(recipe_id="draft", args={"a": 1, "b": 3}, idempotency_key="k1")

    assert one.sha256() == same.sha256() != other.sha256()
