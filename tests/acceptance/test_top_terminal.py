"""`control-room top` as a process on a pseudo-terminal, and its messages where it cannot draw."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import programs

HOSTILE = "Ship it?\x1b]0;pwned\x07"
RECIPE = {
    "schema": "1.7",
    "name": "ship",
    "description": "Ask, then ship.",
    "version": "1.0.0",
    "stages": [
        {
            "name": "look",
            "steps": [{"id": "note", "type": "bash", "command": "true"}],
            "approval": {"required": True, "prompt": HOSTILE},
        },
        {"name": "ship", "steps": [{"id": "ship", "type": "bash", "command": "true"}]},
    ],
}
LEFT = b"\x1b[?1049l"
"""The sequence that restores the terminal's own screen."""


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project whose recipe `ship` opens a gate."""
    made = programs.make_project(tmp_path / "project")
    made.write("recipes/amplifier/ship.yaml", json.dumps(RECIPE))
    return made


def test_a_gate_is_answered_on_a_terminal(project: programs.Project) -> None:
    """Without options `top` finds the project's service; `a` and Enter approve a gate; `q` restores the terminal."""
    with programs.service(project) as service:
        run_id = service.start_run(recipe_id="ship", args={})
        service.wait(run_id, "waiting")
        with _terminal(project) as (top, terminal):
            seen = _read_until(terminal, b"Ship it?")
            os.write(terminal, b"a")
            seen += _read_until(terminal, b"for good")
            os.write(terminal, b"\r")
            # Before the dialog has closed, a `q` would be a letter of its message.
            seen += _read_until(terminal, b"look: approve")
            assert service.wait(run_id)["status"] == "done"
            os.write(terminal, b"q")
            seen += _read_until(terminal, LEFT)
            assert top.wait(programs.STOP_SECONDS) == 0

    assert b"\x1b]0;pwned" not in seen


def test_a_signal_gives_the_terminal_back(project: programs.Project) -> None:
    """SIGTERM ends the program and restores the terminal as `q` does."""
    with programs.service(project), _terminal(project) as (top, terminal):
        _read_until(terminal, b"control-room top")
        top.send_signal(signal.SIGTERM)
        _read_until(terminal, LEFT)
        assert top.wait(programs.STOP_SECONDS) == 0


def test_without_a_service_top_names_the_start_command(project: programs.Project) -> None:
    """Without a service, one line names the command that starts one; an unreachable service has its own code."""
    with _terminal(project) as (top, terminal):
        seen = _read_until(terminal, b"[no_service]")
        assert top.wait(programs.STOP_SECONDS) == 5
    with _terminal(project, "--server", "http://127.0.0.1:1") as (top, terminal):
        _read_until(terminal, b"[server_unreachable]")
        assert top.wait(programs.STOP_SECONDS) == 5

    assert b"start one with `control-room serve`" in seen
    assert LEFT not in seen


def test_without_a_terminal_top_names_the_printing_commands(project: programs.Project) -> None:
    """Without a terminal the command is refused, and names the commands that print."""
    ended = programs.control_room("top", project=project, code=2)

    assert "`runs list` and `gates`" in ended.stderr


def test_without_textual_it_names_the_command_that_installs_it(project: programs.Project) -> None:
    """Without its extra the command is refused, and names the command that installs it."""
    without = "import sys; sys.modules['textual'] = None; from app.cli import root; sys.exit(root.execute(['top']))"
    ended = subprocess.run(
        [sys.executable, "-c", without],
        env=programs.environment(project),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 5
    assert 'pip install "control-room[top]"' in ended.stderr
    assert "Traceback" not in ended.stderr


@contextlib.contextmanager
def _terminal(project: programs.Project, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run `control-room top` on a terminal of 100 by 24 characters."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environ = programs.environment(project, TERM="xterm-256color", PYTHONIOENCODING="utf-8")
    command = [sys.executable, "-P", "-m", "app", "top", *options]
    try:
        with subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, env=environ, start_new_session=True
        ) as top:
            os.close(inner)
            try:
                yield top, outer
            finally:
                top.kill()
    finally:
        os.close(outer)


def _read_until(terminal: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        try:
            seen += os.read(terminal, 65_536)
        except OSError as error:
            raise AssertionError(f"{text!r} does not come: {seen!r}") from error
    return seen
