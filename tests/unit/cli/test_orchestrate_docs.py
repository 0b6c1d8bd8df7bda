"""The page docs/reference/orchestrate-cli.md agrees with the command."""

from __future__ import annotations

import re
from pathlib import Path

import click

from app.cli import exit_codes as common
from app.cli.orchestrate import command, options, places

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "orchestrate-cli.md").read_text(
    encoding="utf-8"
)


def test_every_command_is_documented():
    """The table of commands names exactly the subcommands."""
    documented = {found for row in _rows("Commands") for found in re.findall(r"^\| `orchestrate ([a-z-]+)", row)}

    assert documented == set(command.orchestrate.commands)


def test_every_option_is_documented():
    """The table of options names exactly the options of the subcommands."""
    documented = {found for row in _rows("Options") for found in re.findall(r"^\| `(--[a-z-]+)", row)}

    assert documented | {"--version"} == _options() | {"--help", "--version"}


def test_every_variable_is_documented():
    """The table of variables names exactly the variables that are read."""
    read = {str(option.envvar) for one in command.orchestrate.commands.values() for option in one.params}
    documented = {found for row in _rows("Options") for found in re.findall(r"^\| `(ORCHESTRATE_[A-Z_]+)", row)}

    assert documented == (read | {options.KEEP, places.STATE_DIR}) - {"None"}


def test_every_exit_code_is_documented():
    """The table of exit codes has exactly the codes of the command."""
    codes = {int(row.split("|")[1]) for row in _rows("Exit codes")}

    assert codes == {*range(3), int(common.ExitCode.INTERRUPTED), int(common.ExitCode.PIPE_CLOSED)}


def _options() -> set[str]:
    params = [option for one in command.orchestrate.commands.values() for option in one.params]
    return {name for option in params if isinstance(option, click.Option) for name in option.opts}


def _rows(heading: str) -> list[str]:
    section = DOCUMENT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| (?!Option|Code|Command|Variable|---).*$", section, re.MULTILINE)
