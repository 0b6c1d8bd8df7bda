"""The how-to page about agents: its example without a price answers a bundled recipe."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from tests import example_project

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "connect-an-agent.md").read_text(encoding="utf-8")


def test_the_example_that_costs_nothing(tmp_path: Path, cli: Any) -> None:
    """With the files of the page in a new project, the page's command ends as done."""
    section = PAGE.partition("## An agent that costs nothing")[2].partition("\n## ")[0]
    agents, replies = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    (command,) = re.findall(r"^control-room (.*)$", section, re.MULTILINE)
    folder = example_project.copy(tmp_path / "project")
    (folder / ".control-room" / "agents.json").write_text(agents, encoding="utf-8")
    (folder / ".control-room" / "replies.json").write_text(replies, encoding="utf-8")
    code, out, err = cli(*shlex.split(command), "--project", str(folder))

    assert code == 0, err
    assert "The arrival is too quiet." in out
