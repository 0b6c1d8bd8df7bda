"""Documents for users: they list exactly what the program has."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain import events
from tests.architecture import sources

DOCS = sources.ROOT / "docs"
DECISIONS = DOCS / "decisions"
PARTS = ["Status", "Why", "Decision", "Price"]
NAMED = re.compile(r"`((?:app|tests|scripts|bench)/[\w/]+(?:\.\w+)?)`(?:\s`([A-Za-z_.]+)`)?")
"""A path of the repository, and perhaps a name that is defined there."""
BREAKABLE = re.compile(r"\s*(?:[-*] |\d+\. )?(?:`[^`]*`|[^ `])+ ")
"""The beginning of a line that can be broken at a space."""
README = (sources.ROOT / "README.md").read_text(encoding="utf-8")


def test_reference_pages_are_the_codes() -> None:
    """Settings, routes, errors and commands in docs/reference equal the output of `scripts/publish_reference.py`."""
    script = sources.ROOT / "scripts" / "publish_reference.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_index_leads_to_every_page() -> None:
    """docs/README.md links to each page, decisions by their own index."""
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.parent.name != "decisions"}

    assert pages - {"README.md"} == set(re.findall(r"\]\(([^)#]+)\)", index)) - {"decisions/README.md"}


def test_prose_is_wrapped() -> None:
    """Lines of prose have at most 100 characters; tables, code and unbreakable text may be longer."""
    pages = [*DOCS.rglob("*.md"), *sources.ROOT.glob("*.md")]
    wide = [f"{page.relative_to(sources.ROOT)}:{number}" for page in pages for number in _wide_lines(page)]

    assert wide == []


def test_documents_name_what_exists() -> None:
    """Each file, and each class or function of it, that a document or app/__init__.py names exists."""
    pages = [sources.APP / "__init__.py", *(path for path in sources.tracked_files() if path.suffix == ".md")]
    named = [
        (page, path, name)
        for page in pages
        if DECISIONS not in page.parents
        for path, name in NAMED.findall(page.read_text("utf-8"))
        if "NAME" not in path
    ]
    absent = [
        f"{page.relative_to(sources.ROOT)}: {path} {name}" for page, path, name in named if not _exists(path, name)
    ]

    assert len(named) > 150
    assert absent == []


def test_the_files_for_newcomers_are_short() -> None:
    """The dozen files that app/__init__.py names have at most 2,000 lines together."""
    first = re.findall(r"^- `(app/\S+\.py)`", (sources.APP / "__init__.py").read_text("utf-8"), flags=re.MULTILINE)
    lines = sum(len((sources.ROOT / path).read_text("utf-8").splitlines()) for path in first)

    assert len(first) == 12
    assert lines <= 2000


def test_readme_has_two_commands() -> None:
    """README.md offers exactly one command for the main job and one for all checks."""
    commands = re.findall(r"^python3 scripts/\w+\.py$", README, flags=re.MULTILINE)

    assert commands == ["python3 scripts/demo.py", "python3 scripts/check.py"]


def test_screenshots_are_shown_and_small() -> None:
    """README.md shows each picture of docs/screenshots, the script makes it, and none is larger than 200 kB."""
    script = (sources.ROOT / "scripts" / "screenshots.py").read_text(encoding="utf-8")
    pictures = sorted((DOCS / "screenshots").iterdir())

    assert [f"docs/screenshots/{path.name}" for path in pictures] == sorted(
        re.findall(r"docs/screenshots/\S+(?=\))", README)
    )
    assert [path.name for path in pictures if path.name not in script] == []
    assert [path.name for path in pictures if path.stat().st_size > 200_000] == []


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


def _exists(relative: str, name: str) -> bool:
    path = sources.ROOT / relative
    if not name or path.suffix != ".py" or not path.is_file():
        return path.exists()
    body = ast.parse(path.read_text("utf-8")).body
    for part in name.split("."):
        found = [node for node in body if getattr(node, "name", None) == part]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


@pytest.mark.parametrize("path", sorted(DECISIONS.glob("[0-9]*.md")), ids=lambda path: path.stem)
def test_decisions_have_one_form(path) -> None:
    """A decision's title begins with its number; the record has the parts status, why, decision and price."""
    text = path.read_text(encoding="utf-8")

    assert text.startswith(f"# {path.name[:4]} ")
    assert re.search(r"^\*\*Status\*\*: (accepted|replaced by \d{4}), \d{4}-\d\d-\d\d$", text, flags=re.MULTILINE)
    assert re.findall(r"^\*\*(Status|Why|Decision|Price)\*\*:", text, flags=re.MULTILINE) == PARTS


def test_the_index_of_decisions_is_complete() -> None:
    """docs/decisions/README.md links to each record once."""
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")

    assert sorted(re.findall(r"\]\(([^)]+)\)", index)) == sorted(path.name for path in DECISIONS.glob("[0-9]*.md"))


def test_decisions_and_code_name_one_another() -> None:
    """The code names each decision record, and names only records that exist."""
    code = [
        path for path in sources.tracked_files() if path.suffix in (".py", ".toml") and "decisions" not in path.name
    ]
    named = {number for path in code for number in re.findall(r"docs/decisions/(\d{4})", path.read_text("utf-8"))}
    numbers = [path.name[:4] for path in DECISIONS.glob("[0-9]*.md")]

    assert sorted(named) == sorted(numbers)


def test_every_event_is_documented() -> None:
    """The table in docs/reference/events.md names exactly the types of events, each with its fields."""
    page = (sources.ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8").split("## Types")[1]
    rows = re.findall(r"^\| `([a-z._]+)` \| ([^|]*)\| \S", page, flags=re.MULTILINE)
    documented = {name: tuple(re.findall(r"`([a-z0-9_]+)`", fields)) for name, fields in rows}

    assert documented == {kind.value: fields or () for kind, fields in events.FIELDS.items()}
    assert set(events.FIELDS) == set(events.EventType)


def _wide_lines(page: Path) -> Iterator[int]:
    is_code = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        is_code ^= line.lstrip().startswith("```")
        is_exempt = is_code or line.lstrip().startswith(("|", "![")) or not BREAKABLE.match(line)
        if len(line) > 100 and not is_exempt:
            yield number
