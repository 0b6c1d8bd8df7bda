"""Retired words: the code uses the words of the field, and no private word returns."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture import sources

RULES = tomllib.loads((Path(__file__).parent / "retired_words.toml").read_text(encoding="utf-8"))
RETIRED = {
    form: instead for instead, words in RULES["retired"].items() for word in words for form in (word, f"{word}s")
}
"""Each retired word and its plural, with the word to use instead."""
VERBS = {"stay", "stays"}
"""Forms of a retired noun that are verbs in the name of a test, which is a sentence."""
FIELDS = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.keyword: "arg"} | dict.fromkeys(
    (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), "name"
)
"""The attribute with the identifier of each kind of node."""
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def test_no_retired_word_is_an_identifier() -> None:
    """No identifier, module or probe of app and tests uses a retired word, except those listed with a reason."""
    found = {
        name: f"{module}: {name}; use {RETIRED[word]}"
        for module, name in _identifiers()
        for word in _parts(name)
        if word in RETIRED and not _is_fitting(word, name, module)
    }

    assert sorted(message for name, message in found.items() if name not in RULES["exceptions"]) == []
    assert sorted(set(RULES["exceptions"]) - set(found)) == [], "these exceptions are not needed any more"
    assert all(reason.strip() for reason in RULES["exceptions"].values())


def test_words_that_are_being_retired_do_not_grow() -> None:
    """The number of identifiers of app that use these words does not exceed its recorded maximum."""
    ceilings = RULES["no_more_than"]
    names = [name for module, name in _identifiers() if module.startswith("app.")]
    counts = {word: sum(word in _parts(name) for name in names) for word in ceilings}

    assert {word: count for word, count in counts.items() if count > ceilings[word]} == {}


def _is_fitting(word: str, name: str, module: str) -> bool:
    if name.startswith("test_") and word in VERBS:
        return True
    return any(module.startswith(package) and word in words for package, words in RULES["subjects"].items())


@cache
def _identifiers() -> frozenset[tuple[str, str]]:
    return frozenset(_found())


def _found() -> Iterator[tuple[str, str]]:
    for module in (*sources.modules(sources.APP), *sources.modules(sources.TESTS)):
        where = module.name
        yield where, module.path.stem
        for node in sources.walk(module.tree):
            # A million nodes: a table lookup takes a third of the time of a `match`.
            if (field := FIELDS.get(type(node))) is not None and (name := getattr(node, field)) is not None:
                yield where, name
            elif isinstance(node, ast.alias):
                yield where, node.asname or node.name.rpartition(".")[2]
            elif isinstance(node, ast.Call):
                yield from ((where, probe) for probe in _probes(node))


def _probes(call: ast.Call) -> Iterator[str]:
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
    if name in ("reach", "_reach"):
        yield from (each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str))


@cache
def _parts(name: str) -> set[str]:
    return {part.lower() for part in PART.findall(name)}
