"""
Set up the project and run every check and every test.

    python3 scripts/check.py [--only NAME ...] [--long] [pytest arguments ...]

Where trying every case takes many minutes a sample is tried; with --long every case is.
The exit code is 0 only if all of them pass; a failing check does not keep the later ones from running.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import environment

WORKERS = "3"
"""Processes that run tests on two cores: many tests wait for others while they run."""

SOURCES = ["app", "migrations", "scripts", "tests", "bench"]


def main() -> None:
    """
    Prepare `.venv`, run the checks in order, and tell which of them failed.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="format, lint, types, rooms, docstrings or tests"
    )
    parser.add_argument(
        "--long", action="store_true", help="run the tests marked slow, too, and let property tests look for new cases"
    )
    chosen, rest = parser.parse_known_args()
    if chosen.long:
        os.environ.setdefault("HYPOTHESIS_PROFILE", "searching")
        os.environ.setdefault("COLD_PROGRAMS", "1")
    else:
        rest = ["-m", "not slow and not programs", *rest]
    python = environment.prepare(environment.DEV, environment.MODEL)
    checks = _checks(python, rest)
    unknown = sorted(set(chosen.only or []) - set(checks))
    if unknown:
        parser.error(f"no such check: {', '.join(unknown)}; there are {', '.join(checks)}")
    failed = [
        name for name, command in checks.items() if name in (chosen.only or checks) and not _passes(name, command)
    ]
    if failed:
        sys.exit(f"== failed: {', '.join(failed)}")


def _checks(python: Path, tests: list[str]) -> dict[str, list[str]]:
    tool = python.parent
    sources = [name for name in SOURCES if (environment.ROOT / name).is_dir()]
    return {
        "format": [f"{tool}/ruff", "format", "--check", "--quiet", *sources],
        "lint": [f"{tool}/ruff", "check", "--quiet", *sources],
        "types": [f"{tool}/mypy"],
        "rooms": [f"{tool}/lint-imports", "--no-logo"],
        "docstrings": [f"{tool}/interrogate", "--quiet", "app", "bench", "scripts"],
        "tests": [str(python), "-m", "pytest", "-q", "-n", WORKERS, "--dist", "worksteal", *tests],
    }


def _passes(name: str, command: list[str]) -> bool:
    print(
        f"== {name}: {' '.join(Path(word).name if index == 0 else word for index, word in enumerate(command))}",
        flush=True,
    )
    started = time.monotonic()
    # A venv's tools must find its other tools, whoever calls this.
    path = f"{environment.PYTHON.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    surroundings = {**os.environ, "PATH": path}
    code = subprocess.run(
        command, cwd=environment.ROOT, env=surroundings, stdin=subprocess.DEVNULL, check=False
    ).returncode
    print(
        f"== {name}: {'passed' if code == 0 else f'failed (exit {code})'} in {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return code == 0


if __name__ == "__main__":
    main()
