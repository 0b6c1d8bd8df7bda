"""The lists of commands in the help: each command has a whole clause, on a terminal of any width."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from app.cli import root


def groups(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    """Return the words of each group of commands, the program's own first."""
    if isinstance(command, click.Group):
        yield names
        for name in command.commands:
            yield from groups(command.commands[name], *names, name)


@pytest.mark.parametrize("words", list(groups(root.control_room)), ids=" ".join)
def test_no_meaning_is_cut_off(words: tuple[str, ...]) -> None:
    """Where a meaning is long, it goes on in the next line."""
    told = CliRunner().invoke(root.control_room, [*words, "--help"], terminal_width=80).output
    listed = told.partition("\nCommands:\n")[2]

    assert listed
    assert "..." not in listed
