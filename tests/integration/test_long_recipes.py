"""
A recipe that takes long to be read holds nobody up: whoever asks for something else meanwhile is answered.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from app.dialects.control_room import ControlRoom
from tests.integration import project as projects
from tests.integration import served

NAME = "long-winded"
STEP = projects.tool_step("look", "file_locator", "found", search_criteria="*")
RECIPE = {"recipe_id": NAME, "phase_a": [STEP], "phase_b": [], "dod": []}


class Reading:
    """
    The language, which comes to the end of that recipe's text only when it is let.
    """

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = threading.Event()
        self.let: list[bool] = []
        self._loop = asyncio.get_running_loop()
        self._parse = ControlRoom.parse

    def parse(self, language: ControlRoom, source: str, stem: str) -> Any:
        """
        Read a text.
        """
        if NAME in source:
            self._loop.call_soon_threadsafe(self.begun.set)
            self.let.append(self.may_end.wait(served.PATIENCE_SECONDS))
        return self._parse(language, source, stem)


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
async def test_others_are_answered_meanwhile(
    project: projects.Project, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any] | None
) -> None:
    """While a new recipe is read for one request, another one is answered; then the first one is, too."""
    reading = Reading()
    async with served.in_process(project, inline_recipes=True) as service:
        await service.run("quick")
        if "recipe" not in (body or {}):
            project.add_recipe(RECIPE)
        monkeypatch.setattr(ControlRoom, "parse", lambda *args: reading.parse(*args))
        asked = asyncio.create_task(service.http.request("POST" if body else "GET", path, json=body))
        await asyncio.wait_for(reading.begun.wait(), served.PATIENCE_SECONDS)
        beside = await service.http.get("/api/runs")
        reading.may_end.set()
        answer = await asked

    assert set(reading.let) == {True}
    assert (beside.status_code, answer.status_code < 300) == (200, True)
