"""The repository as a whole: its files refer only to each other, and its locks match its requirements."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import conftest
from tests.architecture import sources

LOCKS = ("requirements.lock", "requirements-scale.lock", "requirements-dev.lock", "requirements-local.lock")
TOP_LEVEL = {
    "app", "bench", "docs", "migrations", "openapi", "recipes", "scripts", "tests", ".ci", ".control-room",
    "CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "README.md", "SECURITY.md", "docker-compose.yml",
    "pyproject.toml", ".dockerignore", ".gitattributes", ".gitignore", *LOCKS,
}  # fmt: skip
"""All entries allowed at the top level; a new entry is a decision."""

MACHINE_PATHS = re.compile(r"(?:^|[^A-Za-z0-9_.])/(?:work|farm|root|home/[a-z]+|Users/[A-Za-z]+)/(?!\.\.\.)")
FOREIGN_WORDS = re.compile(
    r"DESIGN\.md|CONTRACTS\.md|STYLE\.md|FACTS\.md|(?<!@)STANDARDS\.md|\.\./shared|/\.library"
    r"|(?<!control-room )issues show"
)
LEFT_OVER = re.compile(r"\b(?:TODO|FIXME|XXX)\b|^app/.*NotImplementedError|except Exception: *pass|time\.sleep\(")
CLIENTS = {f"httpx.{name}" for name in ("Client", "AsyncClient", "get", "post", "put", "patch", "delete", "request")}
THIS = Path(__file__)


def test_no_path_of_a_machine() -> None:
    """No file names a path that exists on one machine only."""
    assert _matches(MACHINE_PATHS) == []


def test_no_foreign_words() -> None:
    """No file cites documents or places that a reader of the repository does not have."""
    assert _matches(FOREIGN_WORDS) == []


def test_the_code_has_no_unfinished_work_or_swallowed_errors() -> None:
    """Neither program nor tests contain notes of unfinished work, swallowed errors or `time.sleep`."""
    found = [line for line in _matches(LEFT_OVER) if line.startswith(("app/", "tests/"))]

    assert [line for line in found if not line.startswith("tests/browser/vendor/")] == []


def test_clients_of_tests_wait_long_enough() -> None:
    """No client in the tests keeps the five-second timeout of httpx, which would fail on a busy machine."""
    hasty = [
        f"{module.name}:{node.lineno}"
        for module in sources.modules(sources.ROOT / "tests")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CLIENTS
        if not {keyword.arg for keyword in node.keywords} & {"timeout", "transport"}
    ]

    assert hasty == []


@pytest.mark.parametrize("text", ["see /root/main", "cd /Users/Me/x", "'/home/me/'"])
def test_a_path_of_a_machine_is_seen(text: str) -> None:
    """The pattern above finds paths of a machine."""
    assert MACHINE_PATHS.search(text.replace("main", "main/"))


def test_top_level_is_fixed() -> None:
    """The top level of the repository contains only allowed entries."""
    present = {path.relative_to(sources.ROOT).parts[0] for path in sources.tracked_files()}

    assert present - TOP_LEVEL == set()


@pytest.mark.parametrize("name", LOCKS)
def test_locks_name_no_address(name: str) -> None:
    """A lock pins every package with hashes and names no registry."""
    text = (sources.ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-z])", text.strip())

    assert "://" not in text
    assert all(re.match(r"[a-z0-9._-]+==\S+", entry) for entry in entries)
    assert all("--hash=sha256:" in entry for entry in entries)


def test_locks_fit_the_requirements() -> None:
    """Each requirement of pyproject.toml is locked, in a version that it allows."""
    project = tomllib.loads((sources.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]

    serving = [wanted for name in ("build", "openai", "anthropic", "acp") for wanted in extras[name]]
    assert _unmet([*project["dependencies"], *serving], _locked("requirements.lock")) == []
    assert _unmet([*project["dependencies"], *extras["build"], *extras["dev"]], _locked("requirements-dev.lock")) == []
    assert _unmet(extras["local"], _locked("requirements-local.lock")) == []


def test_both_commands_install_the_same_versions() -> None:
    """The development lock pins every package of the service's lock in the same version."""
    service, development = _locked("requirements.lock"), _locked("requirements-dev.lock")

    assert service.items() <= development.items()


def test_ci_runs_the_readme_command() -> None:
    """CI runs only the second command of the README."""
    ci = sources.ROOT / ".ci" / "run"
    commands = [
        line for line in ci.read_text(encoding="utf-8").splitlines() if line and not line.startswith(("#", "set "))
    ]

    assert len(commands) == 1
    assert "scripts/check.py" in commands[0]
    assert "python3 scripts/check.py" in (sources.ROOT / "README.md").read_text(encoding="utf-8")
    assert ci.stat().st_mode & 0o111


def test_scripts_need_nothing_installed() -> None:
    """The two commands import only the standard library and each other."""
    for script in ("demo.py", "check.py"):
        command = [
            "python3",
            "-I",
            "-S",
            "-c",
            f"import runpy, sys; sys.path.insert(0, '.'); runpy.run_path('{script}')",
        ]
        started = subprocess.run(command, cwd=sources.ROOT / "scripts", capture_output=True, text=True, check=False)

        assert started.returncode == 0, started.stderr


def _matches(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in sources.tracked_files():
        if path == THIS or path.suffix == ".lock":
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        name = path.relative_to(sources.ROOT)
        found += [
            f"{name}:{number}: {line}" for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)
        ]
    return found


def _locked(name: str) -> dict[str, Version]:
    text = (sources.ROOT / name).read_text(encoding="utf-8")
    return {
        canonicalize_name(package): Version(version)
        for package, version in re.findall(r"^([a-z0-9._-]+)==(\S+)", text, flags=re.MULTILINE)
    }


def _unmet(requirements: list[str], locked: dict[str, Version]) -> list[str]:
    return [text for text in requirements if not _met(Requirement(text), locked)]


def _met(requirement: Requirement, locked: dict[str, Version]) -> bool:
    version = locked.get(canonicalize_name(requirement.name))
    return version is not None and version in requirement.specifier


def test_the_files_that_begin_first_exist() -> None:
    """Each file on the list of long tests exists; a moved file must stay on it, or a worker runs it last and alone."""
    assert [name for name in conftest.LONG if not (sources.ROOT / "tests" / name).is_file()] == []
