"""The map of the document's rows leads to existing tests."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from tests.unit.dialects.amplifier import document_rows

HERE = Path(__file__).parent


@functools.cache
def _tests(module: str) -> frozenset[str]:
    tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


@pytest.mark.parametrize("section", document_rows.ROWS)
def test_each_row_has_its_test(section: str) -> None:
    """Every row of a section names a module and a test in it."""
    rows = document_rows.ROWS[section]

    assert [row for row, (module, name) in rows.items() if name not in _tests(module)] == []
