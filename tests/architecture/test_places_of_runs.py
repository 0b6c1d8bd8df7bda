"""The places of a run inside the process, as `app/worker/__init__.py` lists them, equal those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture import sources

WORKER = sources.modules(sources.APP / "worker")
LISTED = set(re.findall(r"`([A-Za-z]+\.\w+)`", ast.get_docstring(WORKER[0].tree) or ""))
FIELDS = {"task", "log", "runner", "evicted", "loading"}  # Fields of an active run.
HOLDERS = {"active_runs", "unread", "parked"}  # Collections of runs.
CHANGES = {"add", "discard", "pop", "clear", "update", "remove"}
MOVES = {
    ("capacity", "join"),
    ("capacity", "rejoin"),
    ("capacity", "withdraw"),
    ("reloads", "begin"),
    ("reloads", "make_sure"),
}


def test_every_move_of_a_run_is_listed() -> None:
    """The docstring of `app.worker` names each function that changes where a run is."""
    functions = [function for module in WORKER for function in sources.functions(module)]
    moving = {_short(function.name) for function in functions if any(map(_moves, sources.walk(function.node)))}

    assert len(moving) > 15
    assert moving - LISTED == set()


def test_listed_names_exist() -> None:
    """Each function and attribute of `app.worker` that its docstring names is defined there."""
    defined = {_short(function.name) for module in WORKER for function in sources.functions(module)}
    for module in WORKER:
        for node in sources.definitions(module):
            defined |= {f"{node.name}.{name}" for name in _attributes(node)}

    assert LISTED - defined == {"Runner.run"}


def _short(name: str) -> str:
    return ".".join(name.split(".")[-2:])


def _attributes(node: ast.AST) -> Iterator[str]:
    for found in sources.walk(node):
        if isinstance(found, ast.AnnAssign):
            yield found.target.attr if isinstance(found.target, ast.Attribute) else _name(found.target)


def _moves(node: ast.AST) -> bool:
    """Return whether a node changes a field of an active run, a collection of runs, the queue, or the reloads."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner, name = _name(node.func.value), node.func.attr
        return (owner, name) in MOVES or (owner in HOLDERS and name in CHANGES)
    if isinstance(node, ast.Subscript):
        return not isinstance(node.ctx, ast.Load) and _name(node.value) in HOLDERS
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr in FIELDS and _name(node.value) == "active_run"
    return False


def _name(node: ast.AST) -> str:
    """Return the last part of a dotted name, without a leading underscore."""
    last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return last.removeprefix("_")
