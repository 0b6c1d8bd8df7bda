"""Documents for users: what they list is what the program has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import click
import pytest

from app import settings
from app.cli import root
from app.domain import events
from tests.architecture import sources

PARTS = ["Status", "Why", "Decision", "Price"]
README = (sources.ROOT / "README.md").read_text(encoding="utf-8")


def test_every_setting_is_documented() -> None:
    """The table in README.md is the list of settings: name, default and meaning."""
    table = README.split("<!-- settings -->")[1].split("<!-- /settings -->")[0].strip()
    rows = [f"| `{item.env}` | {item.default} | {item.meaning} |" for item in settings.documented()]

    assert table.splitlines() == ["| variable | default | meaning |", "| --- | --- | --- |", *rows]


def test_every_command_is_documented() -> None:
    """The table in README.md names exactly the commands of the program."""
    documented = re.findall(r"^\| `(control-room [a-z -]+)` \|", README, flags=re.MULTILINE)

    assert sorted(documented) == sorted(_commands(root.control_room, "control-room"))


def test_every_address_is_documented() -> None:
    """The table in README.md names exactly the addresses of the OpenAPI document."""
    documented = set(re.findall(r"^\| `([A-Z]+ /\S+)` \|", README, flags=re.MULTILINE))
    document = json.loads(next((sources.ROOT / "openapi").glob("*.json")).read_text(encoding="utf-8"))
    published = {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item}

    assert documented == published


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
    assert re.findall(r"^\*\*(Status|Why|Decision|Price)\*\*:", text, flags=re.MULTILINE) == PARTS


def test_decisions_have_numbers_of_their_own() -> None:
    """No two decisions share a number."""
    numbers = [path.name[:4] for path in (sources.ROOT / "docs" / "decisions").glob("[0-9]*.md")]

    assert len(numbers) == len(set(numbers))


def _commands(command: click.Command, name: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield name
        return
    if command.invoke_without_command:
        yield name
    for part, inner in command.commands.items():
        yield from _commands(inner, f"{name} {part}")


def test_every_event_is_documented() -> None:
    """The table in docs/events.md names exactly the types of events, each with its fields."""
    page = (sources.ROOT / "docs" / "events.md").read_text(encoding="utf-8").split("## Types")[1]
    rows = re.findall(r"^\| `([a-z._]+)` \| ([^|]*)\| \S", page, flags=re.MULTILINE)
    documented = {name: tuple(re.findall(r"`([a-z0-9_]+)`", fields)) for name, fields in rows}

    assert documented == {kind.value: fields or () for kind, fields in events.FIELDS.items()}
    assert set(events.FIELDS) == set(events.EventType)
