"""The boundary of a program: checks of a command line before the command runs."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import pytest

from app.cli import boundary, options


@click.command()
@click.argument("text")
def echo(text: str) -> int:
    """Succeed."""
    return 0


PROGRAM = boundary.Program(name="echo", command=echo, usage=2, of_error=lambda _: 1)


def test_an_argument_that_is_not_text_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """An argument that is not UTF-8 ends the command as wrong usage before it runs, with the argument."""
    codes = [boundary.execute(PROGRAM, [text]) for text in ("fern\u00e9 \U0001f600", "fern\udcff")]

    assert codes == [0, 2]
    assert "'fern\\udcff' is not UTF-8 text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("server", "started", "told"),
    [
        (None, [], " before the run was known; control-room runs list shows whether it was started"),
        (None, ["r"], "; continue with: control-room runs resume r"),
        ("http://x", ["r"], "; continue with: control-room runs follow r"),
    ],
)
def test_an_interruption_is_said(
    server: str | None,
    started: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A command that Ctrl-C ends says so, and how its run continues if that is known."""

    class Interrupted(options.Place):
        def work(self, work: Any, access: Any = None) -> Any:
            asyncio.run(work(None))
            raise KeyboardInterrupt

    async def note(_: Any, noted: list[str]) -> None:
        noted.extend(started)

    @click.command()
    def start() -> None:
        Interrupted(environ={}, server=server).work_on_run(note)

    program = boundary.Program(name="echo", command=start, usage=2, of_error=lambda _: 1)

    assert boundary.execute(program, []) == 130
    assert capsys.readouterr().err == f"\necho: interrupted{told}\n"
