"""The how-to pages about waiting runs: their examples work, and their tables are complete."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from app.cli import formats, root
from app.domain import explanations
from tests.integration import asking, served
from tests.integration.project import Project
from tests.integration.test_why import until_explained

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
CONCURRENCY = (HOW_TO / "limit-concurrency.md").read_text(encoding="utf-8")
WHY = (HOW_TO / "find-out-why-a-run-waits.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page."""
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def anonymous(text: str) -> str:
    """Return an output without values that differ from run to run, and with single spaces between columns."""
    text = re.sub(r"\d{8}T\d{6}Z-[a-z0-9]{6}\.[0-9a-f]{12}", "GATE_ID", text)
    text = re.sub(r"\d{8}T\d{6}Z-[a-z0-9]{6}", "RUN_ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    return re.sub(r" +", " ", text).strip()


async def test_the_example_of_why(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe of the page waits, and the command prints the explanation of the page."""
    project.write(".control-room/recipes/amplifier/publish.yaml", blocks(WHY, "yaml")[0])
    async with served.in_process(project) as service:
        run_id = await service.start("publish")
        await service.until(run_id, "waiting")
    assert await asyncio.to_thread(root.execute, ["runs", "why", run_id, "--project", str(project.root)]) == 0
    alone, behind = blocks(WHY, "text")

    assert anonymous(capsys.readouterr().out.replace(f" --project {project.root}", "")) == anonymous(alone)

    asking.add(project, "top", {"child": "go", "recipe_id": "publish"})
    async with asking.in_process(project) as asked:
        top = await asked.start("top")
        told = await until_explained(asked, top, "Publish it?")

    assert anonymous(told["sentence"]) == anonymous(behind)


async def test_the_example_of_concurrency(project: Project) -> None:
    """A second run with the body of the page waits, policies match the page's table, and a wrong key is refused."""
    project.write(".control-room/recipes/amplifier/publish.yaml", blocks(WHY, "yaml")[0])
    body = json.loads(blocks(CONCURRENCY, "json")[0])
    async with served.in_process(project) as service:
        first = await service.start(**body)
        await service.until(first, "waiting")
        second = await service.start(**body)
        shown = await service.show(second)
        because = await until_explained(service, second, "Publish it?")
        keyed = {"concurrency": body["concurrency"] | {"policy": "reject"}}
        refused = await service.http.post("/api/runs", json=body | keyed)
        wrong = await service.http.post("/api/runs", json=body | {"concurrency": {"key": "", "limit": 0}})
        newest = await service.start(**body | {"concurrency": body["concurrency"] | {"policy": "cancel_running"}})
        await service.until(first, "cancelled")
        await service.until(second, "cancelled")
        await service.until(newest, "waiting")
        row = next(row for row in (await service.http.get("/api/runs")).json() if row["run_id"] == newest)
        ended = [await service.show(run_id) for run_id in (first, second)]
        by = (await service.show(newest))["started_by"]
        why = (await service.http.get(f"/api/runs/{first}/why")).json()["sentence"]
        audit = (await service.http.get("/api/audit?action=run.cancelled")).json()

    superseded = {"superseded_by": {"run_id": newest, "key": "book-one"}}
    assert [shown["ending"]["superseded_by"] for shown in ended] == [superseded["superseded_by"]] * 2
    assert why.rstrip(".").removeprefix("It was ") in formats.run(ended[0]).splitlines()
    assert {entry["target"]: entry["details"] for entry in audit} == dict.fromkeys((first, second), superseded)
    assert [entry["author"] for entry in audit] == [by] * 2
    assert (shown["status"], shown["reason"], shown["holder"]) == ("pending", "concurrency", first)
    assert [(link["run_id"], link["kind"]) for link in because["chain"]] == [(second, "concurrency"), (first, "gate")]
    assert (refused.status_code, refused.json()["code"]) == (409, "concurrency_limit")
    assert refused.json()["facts"] == {"key": "book-one", "limit": 1, "run_id": first, "run_ids": [first, second]}
    assert refused.json()["detail"] == f"run {first} and 1 more run with the concurrency key 'book-one' must end first"
    assert [flaw["path"] for flaw in wrong.json()["flaws"]] == ["$.concurrency.key", "$.concurrency.limit"]
    assert (row["concurrency_key"], row["concurrency_policy"]) == ("book-one", "cancel_running")


def test_the_command_of_concurrency(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The command of the page is refused while a run has the key, and executes afterwards."""
    project.write(".control-room/recipes/amplifier/publish.yaml", blocks(WHY, "yaml")[0])
    command = [*shlex.split(blocks(CONCURRENCY, "sh")[0])[1:], "--project", str(project.root)]

    async def hold() -> None:
        async with served.in_process(project) as service:
            run_id = await service.start(**json.loads(blocks(CONCURRENCY, "json")[0]))
            await service.until(run_id, "waiting")

    asyncio.run(hold())

    assert root.execute(command) == 1
    assert "[concurrency_limit]" in capsys.readouterr().err


def test_the_table_of_causes_is_complete() -> None:
    """The page names every kind of cause."""
    rows = re.findall(r"^\| (`[^|]+`) \|", WHY, flags=re.MULTILINE)

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(get_args(explanations.CauseKind))
