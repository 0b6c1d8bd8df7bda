"""Bundled recipes with a few random changes are either valid or have flaws."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from app import bootstrap, errors
from app import settings as app_settings
from app.bootstrap import definitions, roster
from app.cli import formats
from app.dialects import registry
from app.domain import plain
from app.services import recipe_versions, recipes, routing, run_graphs
from tests.architecture import sources

DIALECTS = tuple(registry.DIALECTS)
STRANGE: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**30, "", "x", "{{", "{{task.args.q}}", "/(/", "/(?P<x>a)/", "\u2028", [], {}, [[]],
    ["a"], {"a": 1}, {"$ref": "task.args.x"}, {"$ref": 5}, {"$ref": "slots.nothing"}, {"$include": "shared/x.json"},
    {"properties": {"x": True}, "required": ["x"]}, {"properties": {"x": {"type": ["string", "null"]}}},
    {"additionalProperties": True}, {"required": ["zz"]}, {"properties": {"x": {"pattern": "("}}},
)  # fmt: skip
"""Values that are put into recipes."""

FIELDS = (
    "args_schema", "outputs", "findings", "dod", "phase_a", "context", "steps", "while", "foreach", "condition",
    "retry", "evidence", "initialStep", "stages", "recipe",
)  # fmt: skip
"""Names for the values, beside the fields of the recipe."""


@functools.cache
def documents(dialect: str) -> list[dict[str, Any]]:
    """Return the bundled recipes of a dialect."""
    files = sorted((sources.ROOT / "recipes" / dialect).iterdir())
    read = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files if file.is_file()]
    return [document for document in read if isinstance(document, dict)]


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each part of a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, item in inner:
        yield (*place, part)
        yield from places(item, (*place, part))


@st.composite
def changed(draw: st.DrawFn, dialect: str) -> dict[str, Any]:
    """Return a bundled recipe with a few changes."""
    document = copy.deepcopy(draw(st.sampled_from(documents(dialect))))
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from([*places(document)] or [("x",)]))
        holder = functools.reduce(lambda value, part: value[part], above, document)
        match draw(st.sampled_from(("replace", "replace", "declare", "add", "remove"))), holder:
            case "declare", _:
                document["args_schema"] = copy.deepcopy(draw(st.sampled_from(STRANGE)))
            case "remove", dict():
                holder.pop(last, None)
            case "add", dict():
                holder[draw(st.sampled_from(FIELDS))] = copy.deepcopy(draw(st.sampled_from(STRANGE)))
            case _:
                holder[last] = copy.deepcopy(draw(st.sampled_from(STRANGE)))
    return document


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> recipes.Catalogue:
    """Return the catalogue of an empty project."""
    project = tmp_path_factory.mktemp("project")
    chosen = app_settings.load({}, project=project, home=project)
    return definitions.definitions_of(chosen, roster.roster_of(chosen), bootstrap.real_platform({})).catalogue


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=settings().max_examples // 4)
@given(data=st.data())
def test_any_recipe_is_valid_or_refused_with_its_flaws(
    catalogue: recipes.Catalogue, dialect: str, data: st.DataObject
) -> None:
    """An examination of any recipe ends, and a valid one can be drawn, listed, frozen and routed to."""
    source = json.dumps(data.draw(changed(dialect)))
    examined = catalogue.examine(source, dialect, "changed")

    assert examined.recipe_version is not None or examined.flaws
    if examined.recipe_version is None or examined.flaws:
        return
    recipe = examined.recipe_version.recipe
    entry = recipe_versions.Entry(recipe_id=recipe.recipe_id, dialect=dialect, layer="project", path="x", recipe=recipe)
    graph = run_graphs.of_recipe(recipe, catalogue.dialect(dialect), examined.recipe_version)
    assert graph is not None
    more = {"args_schema": plain.plain(recipe.args_schema), "graph": graph.to_json()}
    shown = formats.recipe(entry.listed(()).to_json() | more)

    assert json.loads(json.dumps(examined.recipe_version.frozen()))["dialect"] == dialect
    assert recipe.recipe_id in shown
    assert routing.Router([recipe]).route(" ".join(recipe.task_patterns)).recipe_id in (recipe.recipe_id, None)
    with contextlib.suppress(errors.ArgsInvalid):
        assert examined.recipe_version.fit({}) is not None
