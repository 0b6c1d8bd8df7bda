"""Set up the project and run every check and every test.

    python3 scripts/check.py [--only NAME ...] [--long] [pytest arguments ...]

Where all cases would take many minutes, a sample of them runs. All of them run with --long, whose tests write to a real
disk and start every process cold; `--part 1/2` and `--part 2/2` spread them over two jobs.
The exit code is 0 only if all checks pass; the later ones run even if one fails.
The output of the type check comes last, because it runs beside the last of the others.
"""

# A kill loses nothing from the page cache, so tests that kill processes see the same in memory as on a disk; two
# thirds of their time was waiting for syncs. Hence TMPDIR below /dev/shm. Power cuts are tried on the disk of
# `app/crash_lab/fragile_disk.py`.

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import environment

WORKERS = "3"
"""Processes that run tests on two cores: many tests wait for other processes while they run."""

BESIDE = "types"
"""Check that runs beside the last of the others: it takes one core for a minute, and the tests take both."""

SOURCES = ["app", "migrations", "scripts", "tests", "bench"]


def main() -> None:
    """Prepare `.venv`, run the checks in order, and print which of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="format, lint, types, pages, rooms, docstrings, advisories, tests, ordinary or (with --long) versions",
    )
    parser.add_argument(
        "--long", action="store_true", help="run the tests marked slow, and let property tests look for new cases"
    )
    chosen, rest = parser.parse_known_args()
    if chosen.long:
        os.environ.setdefault("HYPOTHESIS_PROFILE", "searching")
        os.environ.setdefault("COLD_PROGRAMS", "1")
    # Hypothesis gives its property tests this marker.
    chosen_tests = "slow or programs or hypothesis" if chosen.long else "not slow and not programs"
    rest = ["-m", chosen_tests, *rest]
    python = environment.prepare(environment.DEV, environment.MODEL)
    running = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"== {running}; scripts/versions.py tries {', '.join(environment.TRIED)}", flush=True)
    if environment.browser() is None:
        print("== no Chromium here: the tests in tests/browser are skipped; `apt-get install chromium` installs one")
    if not environment.has_postgres():
        print("== no Postgres here: tests of the store on it are skipped; `apt-get install postgresql` installs one")
    checks = _checks(python, rest, long=chosen.long)
    unknown = sorted(set(chosen.only or []) - set(checks))
    if unknown:
        parser.error(f"no such check: {', '.join(unknown)}; there are {', '.join(checks)}")
    with contextlib.nullcontext() if chosen.long else _in_memory():
        if not chosen.only:
            _compile_tests(python)
        failed = _failed({name: command for name, command in checks.items() if name in (chosen.only or checks)})
    if failed:
        sys.exit(f"== failed: {', '.join(failed)}")


def _checks(python: Path, tests: list[str], *, long: bool) -> dict[str, list[str]]:
    tool = python.parent
    sources = [name for name in SOURCES if (environment.ROOT / name).is_dir()]
    return {
        "format": [f"{tool}/ruff", "format", "--check", "--quiet", *sources],
        "lint": [f"{tool}/ruff", "check", "--quiet", *sources],
        "types": [f"{tool}/mypy"],
        "pages": [str(python), "scripts/page_types.py"],
        "rooms": [f"{tool}/lint-imports", "--no-logo"],
        "docstrings": [f"{tool}/interrogate", "--quiet", "app", "bench", "scripts"],
        "advisories": [str(python), "scripts/advisories.py"],
        "tests": [str(python), "-m", "pytest", "-q", "-n", WORKERS, "--dist", "worksteal", *tests],
        "ordinary": [str(python), "scripts/ordinary_user.py"],
    } | ({"versions": [str(python), "scripts/versions.py"]} if long else {})


def _compile_tests(python: Path) -> None:
    # On a fresh checkout each worker would compile all tests for itself. What cannot be collected fails again there.
    if (environment.ROOT / "tests" / "__pycache__").exists():
        return
    command = [str(python), "-m", "pytest", "--collect-only", "--quiet"]
    print("== compiling the tests", flush=True)
    halves = [["tests/unit"], ["tests", "--ignore=tests/unit"]]
    for running in [_begun([*command, *half], subprocess.DEVNULL) for half in halves]:
        running.wait()


@contextlib.contextmanager
def _in_memory() -> Iterator[None]:
    if "TMPDIR" in os.environ or environment.memory() is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tests-", dir=environment.memory()) as folder:
        # Some tests let a user without rights write below it.
        Path(folder).chmod(0o711)
        os.environ["TMPDIR"] = folder
        yield


def _failed(checks: Mapping[str, list[str]]) -> list[str]:
    with tempfile.TemporaryFile() as said:
        others = {name: command for name, command in checks.items() if name != BESIDE}
        last = [others.popitem()] if others else []
        failed = [name for name, command in others.items() if not _passes(name, command)]
        started = time.monotonic()
        beside = _begun(checks[BESIDE], said) if BESIDE in checks else None
        failed += [name for name, command in last if not _passes(name, command)]
        if beside is not None:
            beside.wait()
            _announce(BESIDE, checks[BESIDE])
            said.seek(0)
            print(said.read().decode(errors="replace"), end="")
            failed += [BESIDE] if not _judged(BESIDE, beside.returncode, started) else []
    return failed


def _passes(name: str, command: list[str]) -> bool:
    _announce(name, command)
    started = time.monotonic()
    return _judged(name, _begun(command).wait(), started)


def _begun(command: list[str], said: IO[bytes] | int | None = None) -> subprocess.Popen[bytes]:
    # A venv's tools must find its other tools for any caller; files compiled by one process serve the others.
    path = f"{environment.PYTHON.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(
        command,
        cwd=environment.ROOT,
        env={**surroundings, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT if said else None,
    )


def _announce(name: str, command: list[str]) -> None:
    words = (Path(word).name if index == 0 else word for index, word in enumerate(command))
    print(f"== {name}: {' '.join(words)}", flush=True)


def _judged(name: str, code: int, started: float) -> bool:
    verdict = "passed" if code == 0 else f"failed (exit {code})"
    print(f"== {name}: {verdict} in {time.monotonic() - started:.0f} s", flush=True)
    return code == 0


if __name__ == "__main__":
    main()
