"""Sizes and docstrings: limits that every module observes."""

from __future__ import annotations

import ast
import functools
import statistics
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.architecture import sources

MODULE_LINES = 400
FUNCTION_LINES = 50
CONSTRUCTOR_PARAMETERS = 7

EXCEPTIONS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    (Path(__file__).parent / "budget_exceptions.toml").read_text(encoding="utf-8")
)

SUMMARY_ENDS = (".", ":", "!", "?", "`")


def test_modules_stay_within_the_budget() -> None:
    """A module has at most 400 lines, unless it is an exception with a reason."""
    lengths = {module.name: module.lines for module in _modules()}

    assert _over(lengths, MODULE_LINES, EXCEPTIONS["modules"]) == {}


def test_functions_stay_within_the_budget() -> None:
    """A function has at most 50 lines, unless it is an exception with a reason."""
    lengths = {function.name: function.lines for function in _functions()}

    assert _over(lengths, FUNCTION_LINES, EXCEPTIONS["functions"]) == {}


def test_constructors_stay_within_the_budget() -> None:
    """A constructor takes at most 7 parameters, unless it is an exception with a reason."""
    counts = {function.name: function.parameters for function in _functions() if function.node.name == "__init__"}

    assert _over(counts, CONSTRUCTOR_PARAMETERS, EXCEPTIONS["constructors"]) == {}


@pytest.mark.parametrize("kind", sorted(EXCEPTIONS))
def test_exceptions_are_needed(kind: str) -> None:
    """An exception names existing code that is over the budget, and gives a reason."""
    budgets = {"modules": MODULE_LINES, "functions": FUNCTION_LINES, "constructors": CONSTRUCTOR_PARAMETERS}
    sizes = {
        "modules": {module.name: module.lines for module in _modules()},
        "functions": {function.name: function.lines for function in _functions()},
        "constructors": {function.name: function.parameters for function in _functions()},
    }[kind]
    useless = {name for name, reason in EXCEPTIONS[kind].items() if sizes.get(name, 0) <= budgets[kind] or not reason}

    assert useless == set()


def test_the_usual_size_is_small() -> None:
    """Half of the functions have at most 7 lines of code, nine in ten 22; nine modules in ten have at most 250."""
    module_lengths = sorted(module.code_lines for module in _modules() if module.lines > 5)
    function_lengths = sorted(function.lines for function in _functions())
    if len(module_lengths) < 60:
        pytest.skip("a median says little about so few modules")

    assert statistics.median(function_lengths) <= 7
    assert statistics.quantiles(module_lengths, n=10)[-1] <= 250
    assert statistics.quantiles(function_lengths, n=10)[-1] <= 22


def test_public_things_have_docstrings_of_one_shape() -> None:
    """The text begins right after the opening quotes; the closing quotes are after its only line or below its last."""
    misshapen = [
        name
        for module in _modules()
        for name, node in sources.public(module)
        if not _well_shaped(node) and module.text.strip() and not _is_explained_by_its_port(name, node)
    ]

    assert misshapen == []


def _is_explained_by_its_port(name: str, node: sources.Documentable) -> bool:
    # The port documents the method; a class that implements the port need not repeat that.
    return ast.get_docstring(node) is None and name.rpartition(".")[2] in _port_methods()


@functools.cache
def _port_methods() -> frozenset[str]:
    return frozenset(
        name.rpartition(".")[2]
        for module in _modules()
        for name, node in sources.public(module)
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)
        for name, method in sources.public(sources.Module(path=module.path, text="", tree=ast.Module([node], [])))
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_attributes_of_values_are_explained() -> None:
    """Each attribute of a public frozen dataclass has an explanation beside or under it."""
    unexplained = [
        f"{name}.{attribute}"
        for module in _modules()
        for name, node in sources.public(module)
        if isinstance(node, ast.ClassDef) and _is_frozen_dataclass(node)
        for attribute in _unexplained(node, module.text.splitlines())
    ]

    assert unexplained == []


def test_every_test_has_a_docstring_that_is_a_sentence() -> None:
    """Each test function has a docstring that is a sentence."""
    silent = [
        function.name
        for module in sources.modules(sources.TESTS)
        if module.path.name.startswith("test_")
        for function in sources.functions(module)
        if function.node.name.startswith("test_") and not _is_sentence(ast.get_docstring(function.node))
    ]

    assert silent == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f():\n    return 1\n", 2),
        ('def f():\n    """\n    Say.\n    """\n    return 1\n', 2),
        ("def f():\n    def g():\n        return 1\n    return g\n", 2),
        ("async def f(\n    a,\n    b,\n):\n    return 1\n", 5),
    ],
)
def test_length_counts_code_only(source: str, lines: int, tmp_path: Path) -> None:
    """Neither a docstring nor a nested function counts as a line of a function."""
    module = sources.Module(path=sources.ROOT / "made_up.py", text=source, tree=ast.parse(source))

    assert sources.functions(module)[0].lines == lines


@pytest.mark.parametrize(
    ("docstring", "fits"),
    [
        ('"""Return the sum."""', True),
        ('"""Return the sum.\n\n    Args:\n        a: A number.\n    """', True),
        ('"""\n    Return the sum.\n    """', False),
        ('"""Return the sum.\n\n    Args:\n        a: A number."""', False),
        ('"""Return the sum"""', False),
        ("pass", False),
    ],
)
def test_the_check_accepts_only_one_docstring_shape(docstring: str, fits: bool) -> None:
    """The check accepts only docstrings of the one shape."""
    function = ast.parse(f"def f():\n    {docstring}\n").body[0]

    assert isinstance(function, ast.FunctionDef)
    assert _well_shaped(function) is fits


def _modules() -> Iterable[sources.Module]:
    return (*sources.modules(sources.APP), *sources.modules(sources.BENCH))


def _functions() -> Iterable[sources.Function]:
    return (function for module in _modules() for function in sources.functions(module))


def _over(sizes: Mapping[str, int], budget: int, exceptions: Mapping[str, str]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if size > budget and name not in exceptions}


def _well_shaped(node: sources.Documentable) -> bool:
    text = ast.get_docstring(node, clean=False)
    if text is None or text != text.lstrip():
        return False
    closed_below = text.rstrip(" ").endswith("\n")
    return closed_below is ("\n" in text) and _is_sentence(ast.get_docstring(node))


def _is_sentence(text: str | None) -> bool:
    return bool(text) and text.split("\n\n")[0].rstrip().endswith(SUMMARY_ENDS)  # type: ignore[union-attr]


def _is_frozen_dataclass(node: ast.ClassDef) -> bool:
    return any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)


def _unexplained(node: ast.ClassDef, lines: list[str]) -> Iterable[str]:
    for position, statement in enumerate(node.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if statement.target.id.startswith("_") or _explains_itself(statement):
            continue
        if "  # " in lines[(statement.end_lineno or statement.lineno) - 1]:
            continue
        after = node.body[position + 1] if position + 1 < len(node.body) else None
        if not (
            isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
        ):
            yield statement.target.id


def _explains_itself(statement: ast.AnnAssign) -> bool:
    # A setting has its meaning as a value, for `config` and README.
    called = statement.value.func if isinstance(statement.value, ast.Call) else None
    return "ClassVar" in ast.unparse(statement.annotation) or (isinstance(called, ast.Name) and called.id == "_setting")
