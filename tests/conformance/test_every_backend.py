"""The conformance suite runs on every type of backend, and the documents describe each type."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.agents import backends
from app.agents.programs import catalogue
from tests.agent_programs import installed
from tests.conformance import agent_harness

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "agents.md").read_text(encoding="utf-8")
STUBBED = {"cursor"}
"""Programs that answer only through their vendor's service, so that the suite uses a stub with their format."""


def test_every_type_of_backends_is_driven() -> None:
    """The suite has plans for exactly the types of backends."""
    assert {name.split()[0] for name in agent_harness.PLANS} == set(backends.TYPES)


@pytest.mark.parametrize("name", sorted(catalogue.PROGRAMS))
def test_every_program_is_driven_for_real(name: str) -> None:
    """For each program of the catalogue the suite runs the installed program itself, in a pinned version."""
    driven = agent_harness.PLANS[name].program

    if name in STUBBED:
        assert driven is None
    else:
        assert driven in catalogue.PROGRAMS[name].commands
        assert driven in installed.PINNED


@pytest.mark.parametrize("head", ["Type | Program", "Type | Keys of its own", "Type | Allowed"])
def test_tables_of_programs_are_complete(head: str) -> None:
    """Each table of agent programs in docs/reference/agents.md has a row for every program of the catalogue."""
    assert _rows(head) >= set(catalogue.PROGRAMS)


def test_table_of_backends_is_complete() -> None:
    """The table of limits in docs/reference/agents.md has a row for every type of backends."""
    assert _rows("Backend | Limit is passed on as") == set(backends.TYPES)


def _rows(head: str) -> set[str]:
    table = PAGE[PAGE.index(f"| {head} ") :].split("\n\n")[0]
    return set(re.findall(r"^\| `([\w-]+)` \|", table, flags=re.MULTILINE))
