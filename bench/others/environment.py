"""Environments: where one product is installed, apart from all other software on this machine.

An environment is a folder below the cache, named after the product and its pinned versions. It is ready when its last
file, `ready`, exists; the remains of an incomplete installation are removed before a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.others import programs
from bench.workload import Absent

INSTALL_SECONDS = 600.0
"""Time limit for the installation of one product."""

_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+")
_FAULTS = ("error", "npm err")
_REASON_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Packages to install, each with its exact version."""

    python: tuple[str, ...] = ()
    """Requirements for pip, `name==version`."""
    node: tuple[str, ...] = ()
    """Packages for npm, `name@version`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A folder with a virtual environment, and with packages of npm beside it."""

    folder: Path
    """The folder."""

    @property
    def python(self) -> Path:
        """Return the path of the interpreter."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def ready(self) -> bool:
        """Return whether the installation was completed."""
        return (self.folder / "ready").is_file() and self.python.is_file()

    def variables(self) -> Mapping[str, str]:
        """Return the environment variables for its programs; its own programs come first in the search path."""
        inherited = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
        path = os.pathsep.join((str(self.python.parent), inherited.get("PATH", os.defpath)))
        return {**inherited, "PATH": path, "BENCH_ENVIRONMENT": str(self.folder)}


def find(name: str, pins: Pins, cache: Path) -> Environment:
    """Return the environment of a product, ready or not."""
    pinned = json.dumps([pins.python, pins.node, platform.python_version(), platform.machine()])
    return Environment(folder=cache / f"{name}-{hashlib.sha256(pinned.encode()).hexdigest()[:12]}")


async def prepare(name: str, pins: Pins, cache: Path, seconds: float = INSTALL_SECONDS) -> Environment:
    """Return the environment of a product, and install the product first if necessary.

    Args:
        seconds: Time limit for the whole installation.

    Raises:
        Absent: it cannot be installed, or not in time.
    """
    environment = find(name, pins, cache)
    try:
        with _held(environment.folder):
            if not environment.ready:
                await _install(environment, pins, seconds)
    except OSError as fault:
        raise Absent(f"no environment can be made: {fault.strerror or fault}") from fault
    return environment


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            raise Absent("another benchmark is installing it") from fault
        yield
    finally:
        os.close(descriptor)


async def _install(environment: Environment, pins: Pins, seconds: float) -> None:
    shutil.rmtree(environment.folder, ignore_errors=True)
    environment.folder.mkdir()
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    for label, words in _commands(environment, pins):
        log = environment.folder / f"{label}.log"
        try:
            code = await programs.execute(words, folder=environment.folder, log=log, seconds=until - loop.time())
        except TimeoutError as fault:
            raise Absent(f"{label} took longer than {seconds:g} s") from fault
        if code != 0:
            raise Absent(f"{label} failed: {reason(log.read_text(errors='replace'))}")
    (environment.folder / "ready").touch()


def _commands(environment: Environment, pins: Pins) -> Iterator[tuple[str, Sequence[str]]]:
    bare = () if pins.python else ("--without-pip",)
    yield "venv", (sys.executable, "-m", "venv", *bare, str(environment.python.parent.parent))
    if pins.python:
        yield "pip", (str(environment.python), "-m", "pip", "install", "--quiet", "--no-input", *pins.python)
    if pins.node:
        npm = shutil.which("npm")
        if npm is None:
            raise Absent("npm is not on this machine")
        # Scripts of packages are not run: the products need none, and some scripts send reports to their makers.
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        yield "npm", (npm, "install", *quiet, "--prefix", str(environment.folder), *pins.node)


def reason(log: str) -> str:
    """Return the complaint of a log in one line without addresses: its last line with "error", else its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    complaints = [line for line in lines if line.lower().startswith(_FAULTS)]
    told = (complaints or lines or ["it said nothing"])[-1]
    return _ADDRESS.sub("(address)", told)[:_REASON_CHARACTERS]
