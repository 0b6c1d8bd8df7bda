"""A recipe that takes long to read delays no other request: the service answers others meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from app.dialects.control_room import ControlRoom
from app.services import prompts
from tests.integration import project as projects
from tests.integration import served

NAME = "long-winded"
STEP = projects.tool_step("look", "file_locator", "found", search_criteria="*")
RECIPE = {"recipe_id": NAME, "phase_a": [STEP], "phase_b": [], "dod": []}


class Reading:
    """Reader of recipes and prompts that finishes this recipe, and the prompts, only when the test allows it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = threading.Event()
        self.let: list[bool] = []
        self._loop = asyncio.get_running_loop()
        self._parse = ControlRoom.parse
        self._load = prompts.load

    def parse(self, language: ControlRoom, source: str, stem: str) -> Any:
        """Read a text."""
        if NAME in source:
            self._wait()
        return self._parse(language, source, stem)

    def load(self, folders: Any) -> Any:
        """Read the prompts."""
        self._wait()
        return self._load(folders)

    def _wait(self) -> None:
        self._loop.call_soon_threadsafe(self.begun.set)
        self.let.append(self.may_end.wait(served.WAIT_SECONDS))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/recipes", None),
        (f"/api/recipes/{NAME}", None),
        ("/api/runs", {"recipe_id": NAME}),
        ("/api/runs", {"recipe": RECIPE}),
        ("/api/recipes/validate", {"recipe": RECIPE}),
        ("/api/route", {"description": "Look around."}),
    ],
)
async def test_other_requests_are_answered_while_a_recipe_is_read(
    project: projects.Project, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any] | None
) -> None:
    """While the service reads a new recipe for one request, it answers another one; later it answers the first."""
    reading = Reading()
    async with served.in_process(project, inline_recipes=True) as service:
        await service.run("quick")
        if "recipe" not in (body or {}):
            project.add_recipe(RECIPE)
        monkeypatch.setattr(ControlRoom, "parse", lambda *args: reading.parse(*args))
        asked = asyncio.create_task(service.http.request("POST" if body else "GET", path, json=body))
        await asyncio.wait_for(reading.begun.wait(), served.WAIT_SECONDS)
        beside = await service.http.get("/api/runs")
        reading.may_end.set()
        answer = await asked

    assert set(reading.let) == {True}
    assert (beside.status_code, answer.status_code < 300) == (200, True)


async def test_other_requests_are_answered_while_prompts_are_read(
    project: projects.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start after a change of prompts waits until all prompts are read; another request does not wait."""
    reading = Reading()
    async with served.in_process(project) as service:
        await service.run("quick")
        project.write(".control-room/prompts/templates/another.md", "Say it in other words.\n")
        monkeypatch.setattr(prompts, "load", reading.load)
        asked = asyncio.create_task(service.http.post("/api/runs", json={"recipe_id": "quick"}))
        await asyncio.wait_for(reading.begun.wait(), served.WAIT_SECONDS)
        beside = await service.http.get("/api/runs")
        reading.may_end.set()
        answer = await asked

    assert reading.let == [True]
    assert (beside.status_code, answer.status_code) == (200, 201)
