"""Signals to programs, as real processes: before, in and after their work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINE = "\nprogram: interrupted\n"
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

BEGUN = """
import asyncio, atexit, os, signal, sys
from app import interruption

def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)

interruption.begin("program")
"""

IN_EXEC = """
try:
    with interruption.raised():
        exec("send(signal.SIGINT)")
except KeyboardInterrupt:
    print("handled")
interruption.end(130)
"""

AGAIN = """
with interruption.raised():
    try:
        send(signal.SIGINT)
    finally:
        send(signal.SIGTERM)
"""

AT_EXIT = """
atexit.register(send, signal.SIGINT)
interruption.end(3)
"""

LAST = """
class Last:
    def __del__(self, send=send, number=signal.SIGINT):
        send(number)
last = Last()
interruption.end(3)
"""

CLEANING = """
async def clean():
    send(signal.SIGTERM)
    await asyncio.sleep(0)
    print("cleaned")

async def work():
    try:
        send(signal.SIGINT)
        await asyncio.Event().wait()
    finally:
        await clean()

try:
    with interruption.raised():
        interruption.run(work())
except KeyboardInterrupt:
    print("handled")
interruption.end(130)
"""

SETTLED = """
async def work():
    interruption.settle()
    send(signal.SIGINT)
    await asyncio.sleep(0)
    return 3

code = interruption.run(work())
try:
    interruption.run(asyncio.sleep(600))
except KeyboardInterrupt:
    print("handled")
interruption.end(code)
"""

THIRD = """
async def work():
    try:
        await asyncio.Event().wait()
    finally:
        send(signal.SIGINT, signal.SIGINT)

async def begin():
    asyncio.get_running_loop().call_soon(send, signal.SIGINT)
    await work()

interruption.run(begin())
"""

STOPPING = """
from app.cli import boundary

def stop():
    send(signal.SIGINT)
    print("stopped")

try:
    with boundary.stopping(stop):
        send(signal.SIGHUP)
except KeyboardInterrupt:
    interruption.end(130)
"""

UNREAD = """
import click
from app.cli import boundary

@click.command()
def wait():
    send(signal.SIGINT)

reader, writer = os.pipe()
os.dup2(writer, 2)
os.close(reader)
interruption.end(boundary.execute(boundary.Program(name="program", command=wait, usage=2, of_error=lambda _: 1)))
"""


@pytest.fixture(autouse=True)
def _signals_are_not_ignored() -> Iterator[None]:
    # A shell starts background commands with SIGINT ignored, and their programs inherit that.
    ignored = [number for number in NUMBERS if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def run(folder: Path, script: str) -> tuple[int, str, str]:
    """Run a program as `python -m`, and return its exit code and output."""
    (folder / "program.py").write_text(BEGUN + script)
    done = subprocess.run(
        [sys.executable, "-m", "program"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        (IN_EXEC, (130, "handled\n", "")),
        (AGAIN, (130, "", LINE)),
        (AT_EXIT, (3, "", "")),
        (LAST, (3, "", "")),
        (CLEANING, (130, "cleaned\nhandled\n", "")),
        (SETTLED, (3, "handled\n", "")),
        (THIRD, (130, "", LINE)),
        (STOPPING, (130, "stopped\n", "stopping\n")),
        (UNREAD, (130, "", "")),
    ],
    ids=["in exec", "again", "at exit", "last", "cleaning", "settled", "third", "stopping", "unread"],
)
def test_a_signal_changes_no_exit_code_and_prints_no_traceback(
    tmp_path: Path, script: str, ended: tuple[int, str, str]
) -> None:
    """Wherever a signal arrives, the program ends with its own exit code and at most one line.

    Python would end by the signal after an interrupted `exec`, and when the signal comes as the last thing at the exit.
    """
    assert run(tmp_path, script) == ended


@pytest.mark.parametrize("number", NUMBERS)
def test_an_ignored_signal_stays_ignored(tmp_path: Path, number: signal.Signals) -> None:
    """A signal that the caller of the program ignores does not end it."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        ended = run(tmp_path, f"send(signal.Signals({number:d}))\ninterruption.end(0)")
    finally:
        signal.signal(number, before)

    assert ended == (0, "", "")


@pytest.mark.parametrize(
    ("module", "name", "number"),
    [
        ("app", "control-room", signal.SIGINT),
        ("app.cli.agent_recipes", "agent-recipes", signal.SIGTERM),
        ("app.cli.orchestrate", "orchestrate", signal.SIGHUP),
    ],
)
def test_a_program_that_is_still_loading_ends_with_a_line(
    tmp_path: Path, module: str, name: str, number: signal.Signals
) -> None:
    """A signal while a program imports its modules ends it with one line and 130."""
    (tmp_path / "click.py").write_text("import signal\nprint('loading', flush=True)\nsignal.pause()\n")
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--help"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    process.send_signal(number)
    _, told = process.communicate(timeout=60)

    assert (process.returncode, told) == (130, f"\n{name}: interrupted\n")
