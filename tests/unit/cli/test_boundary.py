"""The boundary of a program: checks of a command line before the command runs."""

from __future__ import annotations

import click
import pytest

from app.cli import boundary


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
