"""Prose: docstrings and comments name actors and things in plain technical English, in the program and in its tests."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture import sources

# What a phrase should be instead is in CONTRIBUTING, "Prose".
PHRASES = {
    "whoever": "the caller, the owner, a process that …",
    "nobody": "no process, no one",
    "somebody": "a person, another process",
    "everybody": "all callers, every user",
    r"(?:is|are|was|were) told": "is reported, receives, is notified",
    "tells": "returns, reports, says",
    "goes on": "continues",
    r"(?<!there )(?:is|are) no (?!longer\b|more\b)[a-z]+": "is not a …",
    "stands in": "is in, replaces",
    "lies": "is in, is stored in",
    "that there is": "existing",
}
FICTION = "app.tools.story"
"""The subject of this package is people and stories."""


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_sentence_hides_who_acts(phrase: str) -> None:
    """No docstring or comment uses a phrase that hides who acts, or where an object is."""
    pattern = re.compile(rf"\b{phrase}\b", re.IGNORECASE)
    found = [f"{place}: {text.strip()[:100]}" for place, text in _texts() if pattern.search(text)]

    assert found == [], PHRASES[phrase]


@cache
def _texts() -> tuple[tuple[str, str], ...]:
    """Return all docstrings and comments, with their places."""
    return tuple(
        (f"{module.name}:{line}", text)
        for folder in (sources.APP, sources.TESTS, sources.BENCH, sources.SCRIPTS)
        for module in sources.modules(folder)
        if not module.name.startswith(FICTION)
        for line, text in (*_docstrings(module), *_comments(module))
    )


def _docstrings(module: sources.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of modules, classes and functions, and those under attributes."""
    for node in sources.statements(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def _comments(module: sources.Module) -> Iterator[tuple[int, str]]:
    if "#" not in module.text:
        return
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
