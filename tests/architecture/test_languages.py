"""Recipe languages: each has all parts of the checklist in docs/how-to/add-a-recipe-language.md."""

from __future__ import annotations

import re
import tomllib

import pytest

from app.dialects import registry
from app.engine import ports
from tests.architecture import sources

LANGUAGES = sorted(registry.DIALECTS)
DOCS = sources.ROOT / "docs"


@pytest.mark.parametrize("name", LANGUAGES)
def test_language_has_its_modules(name: str) -> None:
    """A language is registered under its own name, and its folder has a schema, a parser, a driver and a README."""
    folder = sources.APP / "dialects" / name

    assert registry.DIALECTS[name].name == name
    assert {"README.md", "__init__.py", "schema.py", "parse.py", "driver.py"} <= {
        path.name for path in folder.iterdir()
    }


@pytest.mark.parametrize("name", LANGUAGES)
def test_language_is_published_and_documented(name: str) -> None:
    """A language has bundled recipes, a JSON Schema, golden journals, unit tests, and a page that the index names."""
    assert any((sources.ROOT / "recipes" / name).iterdir())
    assert list((sources.ROOT / "recipes" / "schema").glob(f"{name}*.json"))
    assert list((sources.TESTS / "replay" / name).glob("*.json"))
    assert f"{name}.md" in (sources.TESTS / "integration" / "test_language_pages.py").read_text(encoding="utf-8")
    for page in (DOCS / "README.md", sources.ROOT / "README.md"):
        assert f"reference/{name}.md)" in page.read_text(encoding="utf-8"), page


def test_every_language_is_kept_apart() -> None:
    """The contract `dialects` of pyproject.toml names exactly the languages of the registry."""
    contracts = tomllib.loads((sources.ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "dialects")

    assert sorted(re.findall(r"dialects\.(\w+)", layers[-1])) == LANGUAGES


def test_the_optional_protocols_are_documented() -> None:
    """The checklist names exactly the protocols that a language can implement beside `Dialect`."""
    optional = {name for name, each in vars(ports).items() if getattr(each, "_is_runtime_protocol", False)}
    page = (DOCS / "how-to" / "add-a-recipe-language.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == optional
