"""The page on formats: each of its examples is read as the page describes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app import errors
from app.services import routing
from app.tools import registry
from app.tools.story import outline_fields, scene_numbers
from tests.unit.tools import stories

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```markdown file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(r"^```json (\w+) (\{[^\n]*\})\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NAMES = re.findall(r"^\| (`[^|]+) \| ((?:chapter|act|scene) [^|]+) \|$", PAGE, re.MULTILINE)


def holds(found: object, told: object) -> bool:
    """Return whether an answer contains everything that the page shows of it."""
    match told:
        case dict():
            return isinstance(found, dict) and all(name in found and holds(found[name], told[name]) for name in told)
        case list():
            return isinstance(found, list) and len(found) == len(told) and all(map(holds, found, told))
    return found == told


@pytest.mark.parametrize(("tool", "args", "told"), EXAMPLES)
def test_an_example_is_true(tmp_path, tool, args, told):
    """The tool returns the payload that the page shows below its call, or fails with the code shown there."""
    workspace, tools = stories.write(tmp_path, FILES), registry.bundled_tools(routing.Router([]).route)
    try:
        found = tools.execute(tool, json.loads(args), workspace).payload
    except errors.ToolFailed as failure:
        found = failure.to_json()

    assert holds(found, json.loads(told)), json.dumps(found, indent=1, ensure_ascii=False)


@pytest.mark.parametrize(
    ("name", "scene"), [(name, scene) for row, scene in NAMES for name in re.findall("`(.*?)`", row)]
)
def test_a_name_of_a_file_has_the_number_that_the_page_gives_it(name, scene):
    """The table of file names on the page agrees with the scene numbers that the code reads."""
    assert str(scene_numbers.of_path(name).number) == scene.split(", where")[0]


def test_every_field_and_every_tool_of_stories_is_on_the_page():
    """The page documents every tool of stories and every field of outlines."""
    tools = set(registry.bundled_tools(routing.Router([]).route).names()) - {"task_router"}

    assert {tool for tool in tools if f"`{tool}`" in PAGE or f" {tool}" in PAGE} == tools
    assert [name for name in outline_fields.FIELDS if f"| `{name}` |" not in PAGE] == []
    assert len(NAMES) >= 6
    assert {tool for tool, _, _ in EXAMPLES} >= tools - {"canon_checker", "consistency_checker"}
