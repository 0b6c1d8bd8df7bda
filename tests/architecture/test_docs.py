"""
Documents for users: what they list is what the program has.
"""

from __future__ import annotations

import re

import pytest

from app import settings
from tests.architecture import sources

README = (sources.ROOT / "README.md").read_text(encoding="utf-8")


def test_every_setting_is_documented() -> None:
    """The table in README.md is the list of settings: name, default and meaning."""
    table = README.split("<!-- settings -->")[1].split("<!-- /settings -->")[0].strip()
    rows = [f"| `{item.env}` | {item.default} | {item.meaning} |" for item in settings.documented()]

    assert table.splitlines() == ["| variable | default | meaning |", "| --- | --- | --- |", *rows]


def test_readme_has_two_commands() -> None:
    """README.md offers exactly one command for the main job and one for all checks."""
    commands = re.findall(r"^python3 scripts/\w+\.py$", README, flags=re.MULTILINE)

    assert commands == ["python3 scripts/demo.py", "python3 scripts/check.py"]


def test_documents_link_to_what_exists() -> None:
    """No relative link in a document is broken."""
    documents = [path for path in sources.tracked_files() if path.suffix == ".md" and ".control-room" not in path.parts]
    broken = [
        f"{path.relative_to(sources.ROOT)}: {target}"
        for path in documents
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]

    assert broken == []


@pytest.mark.parametrize(
    "path", sorted((sources.ROOT / "docs" / "decisions").glob("[0-9]*.md")), ids=lambda path: path.stem
)
def test_decisions_have_one_form(path) -> None:
    """A decision's title carries its number, and it says why, what and at which price."""
    text = path.read_text(encoding="utf-8")

    assert text.startswith(f"# {path.name[:4]} ")
    assert re.findall(r"^\*\*(\w+)\*\*:", text, flags=re.MULTILINE) == ["Status", "Why", "Decision", "Price"]


def test_decisions_have_numbers_of_their_own() -> None:
    """No two decisions share a number."""
    numbers = [path.name[:4] for path in (sources.ROOT / "docs" / "decisions").glob("[0-9]*.md")]

    assert len(numbers) == len(set(numbers))
