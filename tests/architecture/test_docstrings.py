"""Docstrings: the errors and parameters that they name exist."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from functools import cache
from typing import Any

import pytest

from app import errors
from tests.architecture import sources

ENTRY = re.compile(r"^ {4}((?:[\w.*]+, )*[\w.*]+): \S", flags=re.MULTILINE)
"""The first line of an entry: a name, a colon, and its description."""


@pytest.mark.parametrize(
    "package",
    sorted(
        {path.relative_to(sources.APP).parts[0].removesuffix(".py") for path in sources.APP.rglob("*.py")}
        - {"__init__"}
    ),
)
def test_named_errors_exist(package: str) -> None:
    """Each name under `Raises:` is an exception that the module knows, or one of app.errors or of a module of app."""
    wrong = [
        f"{module.path.relative_to(sources.ROOT)}:{node.lineno} {node.name}: {name}"
        for module in sources.modules(sources.APP)
        if module.name.split(".")[1:2] == [package]
        for node in sources.definitions(module)
        for name in _entries(node, "Raises")
        if not _is_error(module.name, name)
    ]

    assert wrong == []


def test_the_tree_of_errors_shows_every_error() -> None:
    """The tree at the top of app.errors shows each of its classes below its base class."""
    drawn: dict[str, str | None] = {}
    above: dict[int, str] = {}
    for indent, name in re.findall(
        r"^([│├└─ ]*)(\w+)(?: \(BaseException\))?$", errors.__doc__ or "", flags=re.MULTILINE
    ):
        above[len(indent)] = name
        drawn[name] = above.get(len(indent) - 4)
    defined = {name: kind for name, kind in vars(errors).items() if _is_exception(kind) and not name.startswith("_")}

    assert drawn == {name: kind.__base__.__name__ if kind.__base__.__name__ in defined else None
                     for name, kind in defined.items()}  # fmt: skip


def test_named_parameters_exist() -> None:
    """Each name under `Args:` is a parameter of the function, or of the class that the docstring describes."""
    wrong = [
        f"{module.path.relative_to(sources.ROOT)}:{node.lineno} {node.name}: {name}"
        for module in sources.modules(sources.APP)
        for node in sources.definitions(module)
        for name in _entries(node, "Args")
        if name.lstrip("*") not in _parameters(node)
    ]

    assert wrong == []


def test_every_section_is_read() -> None:
    """Each section `Args` or `Raises` of a docstring has an entry that the tests above can read."""
    unread = [
        f"{module.path.relative_to(sources.ROOT)}:{node.lineno} {node.name}: {section}"
        for module in sources.modules(sources.APP)
        for node in sources.definitions(module)
        for section in ("Args", "Raises")
        if f"\n{section}:\n" in (ast.get_docstring(node) or "") and not _entries(node, section)
    ]

    assert unread == []
    assert (
        sum(
            len(_entries(node, "Raises"))
            for module in sources.modules(sources.APP)
            for node in sources.definitions(module)
        )
        > 400
    )


@cache
def _entries(node: ast.ClassDef | sources.FunctionNode, section: str) -> list[str]:
    found = re.search(rf"^{section}:\n((?: +.*\n?|\n)+)", ast.get_docstring(node) or "", flags=re.MULTILINE)
    return [name for names in ENTRY.findall(found[1]) for name in names.split(", ")] if found else []


def _parameters(node: ast.ClassDef | sources.FunctionNode) -> set[str]:
    if isinstance(node, ast.ClassDef):
        fields = {
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        return fields.union(
            *(
                _parameters(item)
                for item in node.body
                if getattr(item, "name", None) == "__init__" and isinstance(item, sources.FunctionNode)
            )
        )
    return {item.arg for item in ast.walk(node.args) if isinstance(item, ast.arg)}


def _is_error(module: str, name: str) -> bool:
    head, _, rest = name.partition(".")
    if head == "errors" and hasattr(errors, rest):
        return _is_exception(getattr(errors, rest))
    known = vars(importlib.import_module(module)) | vars(builtins)
    if head in known:
        return _is_exception(_member(known[head], rest))
    return any(
        _is_exception(_member(importlib.import_module(other.name), rest))
        for other in sources.modules(sources.APP)
        if rest and other.name.endswith(f".{head}")
    )


def _member(value: Any, path: str) -> Any:
    for part in path.split(".") if path else []:
        value = getattr(value, part, None)
    return value


def _is_exception(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
