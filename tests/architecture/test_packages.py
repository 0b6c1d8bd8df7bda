"""Packages: which may import which."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import smoke
from tests.architecture import sources

LINTER = Path(sys.executable).parent / "lint-imports"


@pytest.mark.parametrize(
    ("module", "line"),
    smoke.only(
        ("engine/states.py", "import subprocess"),
        [
            ("settings.py", "from app.engine import states"),
            ("errors.py", "from app import clock"),
            ("engine/states.py", "import subprocess"),
            ("clock.py", "import temporalio"),
            ("settings.py", "import sqlalchemy"),
            ("attic.py", ""),
        ],
    ),
)
def test_a_wrong_import_is_seen(module: str, line: str, tmp_path: Path) -> None:
    """The contracts refuse a leftward, sideways or forbidden import, and a package without a place."""
    shutil.copy(sources.ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(sources.APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "app" / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    checked = _lint(tmp_path)

    assert checked.returncode != 0
    assert "BROKEN" in checked.stdout or "attic" in checked.stdout + checked.stderr


def test_every_dialect_is_in_the_contract() -> None:
    """The contract that keeps dialects apart contains every dialect's folder."""
    dialects = sources.APP / "dialects"
    folders = {path.parent.name for path in dialects.glob("*/__init__.py")}
    layers = _contract("dialects")["layers"]
    named = {name.strip(" ()").removeprefix("dialects.") for layer in layers for name in layer.split("|")}

    assert folders - named == set()


def test_other_packages_are_imported_as_modules() -> None:
    """Code imports modules of other packages whole, except those of `domain`, whose names every package uses."""
    names = [
        f"{module.name}: from {statement.module} import {alias.name}"
        for module in sources.modules(sources.APP)
        for statement in _imports(module)
        if statement.module and statement.module.split(".")[0] == "app"
        for alias in statement.names
        if _package(f"{statement.module}.{alias.name}") != _package(module.name)
        and not _is_module(f"{statement.module}.{alias.name}")
        and not statement.module.startswith("app.domain.")
        and alias.name != "__version__"
    ]

    assert names == []


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(LINTER), "--no-logo", "--no-cache", "--config", "pyproject.toml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _contract(name: str) -> dict[str, Any]:
    settings = tomllib.loads((sources.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return next(contract for contract in contracts if contract["id"] == name)


def _imports(module: sources.Module) -> Iterator[ast.ImportFrom]:
    return (node for node in sources.statements(module) if isinstance(node, ast.ImportFrom))


def _package(name: str) -> str:
    return ".".join(name.split(".")[:2])


@cache
def _is_module(name: str) -> bool:
    path = sources.ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()
