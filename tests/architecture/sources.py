"""The project's own source, read as text and as syntax trees."""

from __future__ import annotations

import ast
import gc
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "app"
BENCH = ROOT / "bench"
TESTS = ROOT / "tests"
SCRIPTS = ROOT / "scripts"

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Documentable = ast.Module | ast.ClassDef | FunctionNode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Module:
    """One Python file, parsed."""

    path: Path
    """Path of the file."""
    text: str
    """Its content."""
    tree: ast.Module
    """Its syntax tree."""

    @property
    def name(self) -> str:
        """Return its dotted name, e.g. `app.domain.states`."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def lines(self) -> int:
        """Return the number of its lines."""
        return self.text.count("\n")

    @property
    def code_lines(self) -> int:
        """Return the number of its lines without docstrings and comments, which no budget should discourage."""
        documented = (node for node in (self.tree, *statements(self)) if isinstance(node, Documentable))
        comments = sum(line.lstrip().startswith("#") for line in self.text.splitlines())
        return self.lines - comments - sum(docstring_lines(node) for node in documented)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function or method with its full name."""

    name: str
    """Dotted name, e.g. `app.engine.runner.Runner.run`."""
    node: FunctionNode
    """Its syntax."""

    @property
    def lines(self) -> int:
        """Return its length without its docstring and the functions nested in it."""
        inner = [child for child in _directly_nested(self.node) if not isinstance(child, ast.ClassDef)]
        return _span(self.node) - docstring_lines(self.node) - sum(_span(child) for child in inner)

    @property
    def parameters(self) -> int:
        """Return the number of its parameters, `self` excluded."""
        arguments = self.node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return len([argument for argument in named if argument.arg not in ("self", "cls")])


@cache
def modules(folder: Path) -> tuple[Module, ...]:
    """Return every Python file below a folder, parsed."""
    found = sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)
    # Two million nodes contain no garbage; collecting garbage took four times as long as parsing.
    gc.disable()
    try:
        return tuple(_parse(path) for path in found)
    finally:
        gc.freeze()
        gc.enable()


@cache
def statements(module: Module) -> tuple[ast.stmt, ...]:
    """Return every statement of a module, nested ones too, in source order."""
    return tuple(_statements(module.tree))


def definitions(module: Module) -> Iterator[ast.ClassDef | FunctionNode]:
    """Yield every class and function of a module, nested ones too."""
    return (node for node in statements(module) if isinstance(node, ast.ClassDef | FunctionNode))


@cache
def functions(module: Module) -> tuple[Function, ...]:
    """Return every function of a module, nested ones too."""
    return tuple(_functions(module.name, module.tree))


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node of a tree except contexts and operators, in any order, in half the time of `ast.walk`."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for value in vars(node).values():
            if type(value) is list:
                waiting += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields:
                waiting.append(value)


def public(module: Module) -> Iterator[tuple[str, Documentable]]:
    """Yield what code outside may use: the module, its public classes, functions and methods."""
    yield module.name, module.tree
    yield from _public(module.name, module.tree)


def docstring_lines(node: Documentable) -> int:
    """Return how many lines the docstring takes."""
    if ast.get_docstring(node, clean=False) is None:
        return 0
    return _span(node.body[0])


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return the files that belong to the repository, with those not yet added."""
    told = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return tuple(
        path for name in sorted(set(told.stdout.decode().split("\0"))) if name and (path := ROOT / name).is_file()
    )


def _parse(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(path=path, text=text, tree=ast.parse(text, filename=str(path)))


def _blocks(node: ast.AST) -> Iterator[ast.AST]:
    # Expressions contain no statements, and nine nodes in ten belong to expressions.
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        yield from getattr(node, name, ())


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    for child in _blocks(node):
        if isinstance(child, ast.stmt):
            yield child
        yield from _statements(child)


def _functions(prefix: str, node: ast.AST) -> Iterator[Function]:
    for child in _blocks(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(f"{prefix}.{child.name}", child)
        elif isinstance(child, FunctionNode):
            yield Function(name=f"{prefix}.{child.name}", node=child)
            yield from _functions(f"{prefix}.{child.name}", child)
        else:
            yield from _functions(prefix, child)


def _public(prefix: str, node: Documentable) -> Iterator[tuple[str, Documentable]]:
    for child in node.body:
        if isinstance(child, ast.ClassDef | FunctionNode) and not child.name.startswith("_"):
            yield f"{prefix}.{child.name}", child
            if isinstance(child, ast.ClassDef):
                yield from _public(f"{prefix}.{child.name}", child)


def _directly_nested(node: ast.AST) -> Iterator[FunctionNode | ast.ClassDef]:
    for child in _blocks(node):
        if isinstance(child, FunctionNode | ast.ClassDef):
            yield child
        else:
            yield from _directly_nested(child)


def _span(node: ast.stmt | Documentable) -> int:
    if isinstance(node, ast.Module):
        return 0
    return (node.end_lineno or node.lineno) - node.lineno + 1
