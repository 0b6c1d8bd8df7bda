"""The how-to page about limits: its commands work as described, in a folder and with a service."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from app.cli import root
from app.domain import prices
from tests.integration import served
from tests.integration.project import REPLY, Project

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "limit-what-runs-spend.md").read_text(encoding="utf-8")


def commands(beginning: str) -> list[list[str]]:
    """Return the commands of the page that begin with these words, without the program's name."""
    found = re.findall(rf"^control-room ({re.escape(beginning)}.*)$", PAGE, re.MULTILINE)
    return [shlex.split(command) for command in found]


def test_a_limited_run_in_a_folder_continues_after_a_raise(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run of the page is paused after one call, and continues after a raise of its limit and a resume."""
    project.say("*", text=REPLY, usage={"input_tokens": 10, "output_tokens": 2, "cost_usd": 0.25})
    place = ["--project", str(project.root)]
    ((*start,),), ((*raise_it,),) = commands("run draft"), commands("runs limits")
    paused = root.execute([*start, *place])
    (folder,) = (path for path in (project.data / "runs").iterdir() if (path / "start.json").is_file())
    raise_it[raise_it.index("RUN_ID")] = folder.name
    raised = root.execute([*raise_it, *place])
    ended = root.execute(["runs", "resume", folder.name, *place])
    capsys.readouterr()
    shown = root.execute(["runs", "show", folder.name, "--json", *place])
    budget = json.loads(capsys.readouterr().out)["budget"]

    assert (paused, raised, ended, shown) == (1, 0, 0, 0)
    assert (budget["used"]["calls"], budget["used"]["cost_usd"], budget["left"]["calls"]) == (2, 0.5, 8)


async def test_budgets_are_set_listed_and_removed_at_a_service(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of the page set, list and remove budgets of a service."""
    async with served.on_a_port(project) as service:
        place = ["--server", str(service.http.base_url)]
        for command in commands("budgets"):
            assert await asyncio.to_thread(root.execute, [*command, *place]) == 0
        left = (await service.http.get("/api/budgets")).json()
    printed = capsys.readouterr().out

    assert [budget["name"] for budget in left] == ["daily"]
    assert (left[0]["per"], left[0]["time_zone"], left[0]["limits"]) == ("day", "Europe/Berlin", {"cost_usd": 20})
    assert "recipe_id draft" in printed


def documents() -> list[dict[str, Any]]:
    """Return the files on the page: policies, then prices."""
    return [json.loads(each) for each in re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]


def test_the_price_file_of_the_page_is_one() -> None:
    """The example of prices.json is valid, and its pattern matches a model."""
    found = prices.Prices.of(documents()[1])
    price = found.price("anthropic", "claude-sonnet-5-5")

    assert (found.version, price and price.of(1_000_000, 0)) == ("2026-11", 3.0)


def test_the_files_of_the_page_are_set_by_its_commands(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands set policies and prices, and a run of the recipe gets the limits of both policies."""
    for name, document in zip(("policies", "prices"), documents(), strict=True):
        project.write(f"{name}.json", json.dumps(document))
    monkeypatch.chdir(project.root)
    codes = [root.execute(command) for each in ("policies", "prices") for command in commands(each)]
    capsys.readouterr()
    told = root.execute(["run", "draft", "--arg", "scene_path=Story/Scenes/SCN-the-arrival.md", "--dry-run", "--json"])
    report = json.loads(capsys.readouterr().out)

    assert [*codes, told] == [0] * 5
    assert report["limits"] == {"cost_usd": 5, "calls": 20}
    assert report["cost_at_most_usd"] == 5
