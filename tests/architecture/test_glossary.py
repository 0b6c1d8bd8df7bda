"""Words: the code and the documents use the same ones."""

from __future__ import annotations

import enum
import importlib
import re
from collections.abc import Iterator, Mapping

import pytest

from app.domain import operations, plans, states, task_reviews
from tests.architecture import sources

GLOSSARY = sources.ROOT / "docs" / "reference" / "glossary.md"
STATES = sources.ROOT / "docs" / "reference" / "states.md"


def test_every_enum_member_is_explained() -> None:
    """Each member of each enumeration of the domain and the engine is in the glossary, word for word."""
    known = _words(GLOSSARY.read_text(encoding="utf-8"))
    members = {f"{kind.__name__}.{member.value}": str(member.value) for kind in _enums() for member in kind}
    missing = {name for name, value in members.items() if value not in known}

    assert len(members) > 10
    assert missing == set()


def test_every_operation_is_explained() -> None:
    """Each kind of operation is in the glossary."""
    for module in sources.modules(sources.APP / "domain"):
        importlib.import_module(module.name)
    known = _words(GLOSSARY.read_text(encoding="utf-8"))
    kinds = {kind.kind for kind in _descendants(operations.Operation) if kind.__module__.startswith("app.")}

    assert len(kinds) > 20
    assert kinds - known == set()


def test_every_table_is_explained() -> None:
    """Each table of the index is in the glossary."""
    if not any((sources.APP / "storage").rglob("*.py")):
        pytest.skip("there is no storage yet")
    sqlmodel = importlib.import_module("sqlmodel")
    for module in sources.modules(sources.APP / "storage"):
        importlib.import_module(module.name)
    tables = set(sqlmodel.SQLModel.metadata.tables)

    assert tables
    assert tables - _words(GLOSSARY.read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    ("what", "moves"),
    [
        ("run", states.MOVES),
        ("session plan", plans.PLAN_MOVES),
        ("task", plans.TASK_MOVES),
        ("review", task_reviews.REVIEW_MOVES),
    ],
)
def test_the_drawing_of_states_is_the_table(what: str, moves: Mapping[str, frozenset[str]]) -> None:
    """docs/reference/states.md draws exactly the moves that the engine allows."""
    drawn = re.findall(r"^ +(\w+) --> (\w+)", _section(what), flags=re.MULTILINE)
    allowed = {(str(source), str(target)) for source, targets in moves.items() for target in targets}

    assert set(drawn) == allowed
    assert len(drawn) == len(allowed)


@pytest.mark.parametrize(
    ("what", "kind"), [("run", states.RunState), ("session plan", plans.PlanState), ("task", plans.TaskState)]
)
def test_each_state_has_a_row(what: str, kind: type[enum.Enum]) -> None:
    """docs/reference/states.md has a row for each state: what enters it, what leaves it, what a crash there means."""
    rows = re.findall(r"^\| `(\w+)` \|(.+)\|(.+)\|(.+)\|$", _section(what), flags=re.MULTILINE)

    assert [row[0] for row in rows] == [state.value for state in kind]
    assert all(cell.strip() for row in rows for cell in row)


def test_glossary_has_one_line_for_a_word() -> None:
    """The glossary explains each word, and contains each list, only once."""
    words = re.findall(r"^(?:\||-) \*\*(.+?)\*\*", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert len(words) >= 30
    assert len(words) == len(set(words))


def test_every_word_of_the_glossary_is_used() -> None:
    """The code and the documents besides the glossary use each of its words."""
    words = re.findall(r"^\| \*\*(.+?)\*\*", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    pages = [path for path in (sources.ROOT / "docs").rglob("*.md") if path != GLOSSARY]
    code = "\n".join(module.text for module in sources.modules(sources.APP))
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    forms = {word: re.compile(word.replace(" ", "[ _]?"), re.IGNORECASE) for word in words}
    unused = [word for word, form in forms.items() if not (form.search(code) and form.search(text))]

    assert unused == []


def _descendants(kind: type[operations.Operation]) -> Iterator[type[operations.Operation]]:
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)


def _section(what: str) -> str:
    sections = re.split(r"^## States of a (.+)$", STATES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))[what]


def _words(text: str) -> set[str]:
    quoted = set(re.findall(r"`([^`\s]+)`", text))
    bold = set(re.findall(r"\*\*(.+?)\*\*", text))
    return quoted | bold


def _enums() -> Iterator[type[enum.Enum]]:
    for module in (*sources.modules(sources.APP / "domain"), *sources.modules(sources.APP / "engine")):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, enum.Enum) and value.__module__ == module.name:
                yield value
