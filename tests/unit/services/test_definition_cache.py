"""The definition cache: the library for recipes, with prompts as their files are now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import clock
from app.services import definition_cache, prompts
from tests.unit.services import small_recipes


class Shelved:
    """A definition cache over three layers of prompts in a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.folders = prompts.layers(root / "bundled", root / "home", root / "project")
        self.clock = clock.FakeClock()
        self.definition_cache = definition_cache.DefinitionCache(
            tools=lambda: small_recipes.TOOLS, agents=(), prompt_folders=self.folders, clock=self.clock
        )

    def write(self, layer: int, text: str) -> Path:
        """Write the template of `plan` into a layer."""
        (self.folders[layer] / "templates").mkdir(parents=True, exist_ok=True)
        entry = {"variants": {"t3": "templates/plan.md"}}
        registry = json.dumps({"pipeline_templates": {"plan": entry}})
        (self.folders[layer] / "prompts.json").write_text(registry, encoding="utf-8")
        template = self.folders[layer] / "templates" / "plan.md"
        template.write_text(text, encoding="utf-8")
        return template

    def text(self) -> str:
        """Return the template of `plan`."""
        return self.definition_cache.library().prompts["plan"].variants["t3"]


@pytest.fixture
def shelved(tmp_path: Path) -> Shelved:
    """Return a definition cache whose bundled layer has one template."""
    made = Shelved(tmp_path)
    made.write(0, "bundled")
    return made


def test_the_library_stays_the_same_while_nothing_changes(shelved: Shelved) -> None:
    """The library is the same object as long as no prompt changes."""
    library = shelved.definition_cache.library()
    shelved.clock.advance(60)

    assert shelved.definition_cache.library() is library
    assert library.tools == small_recipes.TOOLS


def test_a_changed_prompt_is_seen(shelved: Shelved) -> None:
    """A template that a person adds, changes or removes counts from the next read."""
    found = [shelved.text()]
    for _ in range(3):
        shelved.clock.advance(0.6)
        shelved.text()
    template = shelved.write(2, "project")
    found.append(shelved.text())
    template.write_text("project, changed", encoding="utf-8")
    found.append(shelved.text())
    template.unlink()
    found.append(shelved.text())

    assert found == ["bundled", "project", "project, changed", "bundled"]
