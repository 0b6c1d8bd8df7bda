"""The lists of commands in the help: each command has a complete description."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from app.cli import root


def groups(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each group of commands, the program's own first."""
    if isinstance(command, click.Group):
        yield names
        for name in command.commands:
            yield from groups(command.commands[name], *names, name)


@pytest.mark.parametrize("words", list(groups(root.control_room)), ids=" ".join)
def test_no_meaning_is_cut_off(words: tuple[str, ...]) -> None:
    """A long description continues on the next line and is not cut."""
    told = CliRunner().invoke(root.control_room, [*words, "--help"], terminal_width=80).output
    listed = told.partition("\nCommands:\n")[2]

    assert listed
    assert "..." not in listed
