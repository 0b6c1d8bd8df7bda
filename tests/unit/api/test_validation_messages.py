"""Messages that refuse the form of a request: in the project's words, and the same as those of use cases."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from app import errors
from app.api import errors as http_errors
from app.api import plan_requests, queries, request_flaws, request_models

MODELS: list[type[BaseModel]] = [
    found
    for module in (request_models, plan_requests, queries)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, BaseModel) and found.__module__ == module.__name__
]
THEIRS = ("Input", "should", "valid", "String", "permitted", "Field", "Value error", "unable")
"""Words of the library that reads requests."""

_texts = st.sampled_from(["", "x", "1", "yesterday", "a:b", "../x", "x" * 300]) | st.just("x" * 30_000)
_small = st.none() | st.booleans() | st.integers(-200, 10**7) | st.floats(allow_nan=False) | _texts
_values = _small | st.lists(_small, max_size=2) | st.just([1] * 300) | st.dictionaries(_texts, _small, max_size=2)


def refusal(model: type[BaseModel], value: Any) -> errors.RequestInvalid | None:
    """Return how a value is refused that is not a body of a kind."""
    try:
        model.model_validate(value)
    except pydantic.ValidationError as error:
        return http_errors.unfit(error.errors(include_url=False), model)
    return None


def _objects(model: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    names = [field.alias or name for name, field in model.model_fields.items()]
    return st.dictionaries(st.sampled_from([*names, "odd"]), _values, max_size=4)


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[type[BaseModel], Any]:
    model = draw(st.sampled_from(MODELS))
    tasks = st.lists(_objects(plan_requests.TaskBody), max_size=2)
    return model, draw(_objects(model) | st.fixed_dictionaries({"tasks": tasks}) | _values)


@given(_bodies())
def test_every_refusal_is_in_our_words(asked: tuple[type[BaseModel], Any]) -> None:
    """Every flaw of a body or a query is reported in the project's words."""
    told = refusal(*asked)

    for flaw in told.flaws if told is not None else ():
        assert not any(word in flaw.message for word in THEIRS), flaw


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ({"intent": 3}, "$.intent", "must be a text"),
        ({"tasks": {}}, "$.tasks", "must be a list"),
        ({"tasks": [3]}, "$.tasks[0]", "must be an object"),
        ({"tasks": [{}]}, "$.tasks[0].description", "is required"),
        ({"tasks": [{"description": "x", "id": True}]}, "$.tasks[0].id", "must be a whole number"),
        ({"labels": {"a b": "c"}}, '$.labels["a b"]', "must be 1 to 64 letters, digits, '_', '.', '/' and '-'"),
        ({"labels": {str(number): "" for number in range(40)}}, "$.labels", "has more than 32 entries"),
        ({"priority": 101}, "$.priority", "must be at most 100"),
        ({"prioritty": 1}, "$.prioritty", "is not known; did you mean priority?"),
    ],
)
def test_a_plan_is_refused_in_our_words(value: Any, path: str, message: str) -> None:
    """A flaw in the form of a plan is reported at its place, in a few plain words."""
    told = refusal(plan_requests.PlanBody, value)

    assert told is not None
    assert [(flaw.path, flaw.message) for flaw in told.flaws] == [(path, message)]


def test_an_unforeseen_flaw_keeps_the_librarys_message() -> None:
    """A flaw of an unforeseen kind is reported in the library's words."""
    assert request_flaws.message({"type": "new_in_the_library", "msg": "It is odd"}) == "It is odd"


def test_a_word_between_two_fields_names_both():
    """An unknown field is answered with both the nearest name and the one that begins alike."""
    message = request_flaws.unknown_field("workspace", ["share_workspace", "working_dir", "labels"])

    assert message == "is not known; did you mean working_dir or share_workspace?"
