"""The page docs/reference/agent-recipes-cli.md agrees with the command."""

from __future__ import annotations

import re
from pathlib import Path

from app.cli import exit_codes as common
from app.cli.agent_recipes import command

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "agent-recipes-cli.md").read_text(
    encoding="utf-8"
)


def test_every_option_is_documented():
    """The table of options names exactly the options of the command."""
    options = {name for option in command.agent_recipes.params for name in option.opts if name.startswith("--")}
    documented = {name for row in _rows("Options") for name in re.findall(r"`(--[a-z-]+)", row)}

    assert documented == options | {"--help"}


def test_every_exit_code_is_documented():
    """The table of exit codes has exactly the codes of the command."""
    codes = {int(row.split("|")[1]) for row in _rows("Exit codes")}

    assert codes == {*range(6), int(common.ExitCode.INTERRUPTED), int(common.ExitCode.PIPE_CLOSED)}


def _rows(heading: str) -> list[str]:
    section = DOCUMENT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [row.replace("`--arg` ", "") for row in re.findall(r"^\| (?!Option|Code|---).*$", section, re.MULTILINE)]
