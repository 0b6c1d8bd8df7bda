"""The boundary of a program: what can be said about a command line before any command is asked."""

from __future__ import annotations

import click
import pytest

from app.cli import boundary


@click.command()
@click.argument("text")
def echo(text: str) -> int:
    """Do well."""
    return 0


PROGRAM = boundary.Program(name="echo", command=echo, usage=2, of_error=lambda _: 1)


def test_arguments_that_are_no_text_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes that are no UTF-8 end a command before it begins, with the argument that holds them."""
    codes = [boundary.execute(PROGRAM, [text]) for text in ("fern\u00e9 \U0001f600", "fern\udcff")]

    assert codes == [0, 2]
    assert "'fern\\udcff' is not UTF-8 text" in capsys.readouterr().err
