"""Arguments: fitted to the schema of their recipe."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.domain import library
from app.services import arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "scene_path": {"type": "string", "minLength": 1},
        "canon_paths": {"type": "array", "items": {"type": "string"}},
        "tone": {"enum": ["calm", "tense"], "default": "calm"},
        "limits": {"type": "object", "properties": {"words": {"type": "integer", "default": 500}}},
    },
    "required": ["scene_path", "canon_paths"],
}


def recipe(schema: dict[str, Any]) -> library.Recipe:
    """Return a recipe with this schema of arguments."""
    return library.Recipe(recipe_id="draft", dialect="control_room", label="Draft", document={}, args_schema=schema)


def refused(args: dict[str, Any], schema: dict[str, Any] = SCHEMA) -> errors.ArgsInvalid:
    """Return the error that refuses arguments."""
    with pytest.raises(errors.ArgsInvalid) as caught:
        arguments.fit(args, recipe(schema))
    return caught.value


def test_defaults_are_filled_in() -> None:
    """A missing argument gets its default, also inside a given object."""
    fitted = arguments.fit({"scene_path": "a.md", "canon_paths": [], "limits": {}}, recipe(SCHEMA))

    assert fitted == {"scene_path": "a.md", "canon_paths": [], "limits": {"words": 500}, "tone": "calm"}


def test_defaults_are_not_shared_between_runs() -> None:
    """A default that is a list is copied for each run."""
    schema: dict[str, Any] = {"properties": {"paths": {"default": []}}}
    arguments.fit({}, recipe(schema))["paths"].append("x")

    assert arguments.fit({}, recipe(schema)) == {"paths": []}


def test_every_missing_argument_is_named() -> None:
    """All missing arguments are flaws with their places, each once."""
    error = refused({})

    assert error.detail == {"missing": ["scene_path", "canon_paths"]}
    assert [(flaw.path, flaw.code) for flaw in error.flaws] == [
        ("$.args.scene_path", "missing_arg"),
        ("$.args.canon_paths", "missing_arg"),
    ]


def test_an_undeclared_argument_is_refused_with_the_nearest_name() -> None:
    """A misspelt argument is refused, and the message names the nearest one."""
    error = refused({"scene_path": "a.md", "canon_paths": [], "tonne": "calm"})

    assert [(flaw.path, flaw.code) for flaw in error.flaws] == [("$.args.tonne", "undeclared_arg")]
    assert "did you mean tone?" in error.flaws[0].message


def test_an_open_schema_takes_further_arguments() -> None:
    """A recipe whose schema allows further properties gets them."""
    assert arguments.fit({"x": 1}, recipe({"additionalProperties": True})) == {"x": 1}


def test_a_pattern_takes_time_that_grows_with_the_text_alone() -> None:
    """A pattern is matched in linear time, so that no value keeps the service busy."""
    schema: dict[str, Any] = {"properties": {"x": {"pattern": "^(a+)+$"}, "y": {"uniqueItems": True}}}
    error = refused({"x": "a" * 5000 + "!", "y": [*range(5000), 1]}, schema)

    assert {(flaw.path, flaw.code) for flaw in error.flaws} == {
        ("$.args.x", "args_pattern"),
        ("$.args.y", "args_uniqueItems"),
    }
    assert arguments.fit({"x": "a" * 5000}, recipe(schema))


def test_each_value_of_a_wrong_form_is_reported_at_its_place() -> None:
    """Each value of a wrong form is a flaw with its place."""
    error = refused({"scene_path": "", "canon_paths": ["a", 1], "tone": "loud"})

    assert {flaw.path for flaw in error.flaws} == {"$.args.scene_path", "$.args.canon_paths[1]", "$.args.tone"}


def test_a_schema_that_refers_elsewhere_is_never_fetched() -> None:
    """A reference to another address is a flaw of the recipe."""
    with pytest.raises(errors.RecipeInvalid) as caught:
        arguments.fit({"x": 1}, recipe({"properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}}))

    assert caught.value.flaws[0].path == "$.args_schema"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"type": "text"}}},
        {"properties": {"x": {"pattern": "("}}},
        {"properties": {"x": {"$ref": "#"}}, "$ref": "#"},
        {"properties": {"x": {"minLength": "2"}}},
    ],
)
def test_a_broken_schema_is_the_recipes_fault(schema: dict[str, Any]) -> None:
    """A schema that cannot be used is a flaw of the recipe."""
    with pytest.raises(errors.RecipeInvalid):
        arguments.fit({"x": "text"}, recipe(schema))


def test_at_most_200_flaws_of_arguments_are_reported() -> None:
    """Fifty thousand wrong arguments give two hundred flaws and a short message."""
    error = refused({f"tone{number}": number for number in range(50_000)} | {"scene_path": "a", "canon_paths": []})

    assert len(error.flaws) == 200
    assert error.message.endswith("tone19 and 49980 more")


def test_long_messages_are_cut() -> None:
    """The message about a refused value of a megabyte is cut."""
    error = refused({"scene_path": "a", "canon_paths": "x" * 1_000_000})

    assert len(error.flaws[0].message) < 400


@given(
    st.dictionaries(
        st.sampled_from(["scene_path", "canon_paths", "tone", "limits", "else"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=8,
        ),
    )
)
def test_fitted_arguments_fit_again_unchanged(args: dict[str, Any]) -> None:
    """Arguments are either refused with flaws, or fitted so that fitting them again changes no value."""
    fitted, flaws = outcome(args)

    assert (fitted is None) == bool(flaws)
    assert fitted is None or outcome(fitted) == (fitted, ())


def outcome(args: dict[str, Any]) -> tuple[dict[str, Any] | None, tuple[errors.Flaw, ...]]:
    """Return the fitted arguments, or the flaws."""
    try:
        return arguments.fit(args, recipe(SCHEMA)), ()
    except errors.ArgsInvalid as error:
        return None, error.flaws
