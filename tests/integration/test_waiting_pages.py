"""The how-to pages about waiting runs: their examples work, and their tables are complete."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import get_args

import pytest

from app.cli import root
from app.domain import explanations
from tests.integration import asking, served
from tests.integration.project import Project
from tests.integration.test_why import until_told

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
WHY = (HOW_TO / "find-out-why-a-run-waits.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page."""
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def anonymous(text: str) -> str:
    """Return an output without what differs from run to run, its columns one space apart."""
    text = re.sub(r"\d{8}T\d{6}Z-[a-z0-9]{6}\.[0-9a-f]{12}", "GATE_ID", text)
    text = re.sub(r"\d{8}T\d{6}Z-[a-z0-9]{6}", "RUN_ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    return re.sub(r" +", " ", text).strip()


async def test_the_example_of_why(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe of the page waits, and the command explains it in the words of the page."""
    project.write(".control-room/recipes/amplifier/publish.yaml", blocks(WHY, "yaml")[0])
    async with served.in_process(project) as service:
        run_id = await service.start("publish")
        await service.until(run_id, "waiting")
    assert await asyncio.to_thread(root.execute, ["runs", "why", run_id, "--project", str(project.root)]) == 0
    alone, behind = blocks(WHY, "text")

    assert anonymous(capsys.readouterr().out) == anonymous(alone)

    asking.add(project, "top", {"child": "go", "recipe_id": "publish"})
    async with asking.in_process(project) as asked:
        top = await asked.start("top")
        told = await until_told(asked, top, "Publish it?")

    assert anonymous(told["sentence"]) == anonymous(behind)


def test_the_table_of_causes_is_complete() -> None:
    """The page names every kind of cause."""
    rows = re.findall(r"^\| (`[^|]+`) \|", WHY, flags=re.MULTILINE)

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(get_args(explanations.CauseKind))
