"""Drafts: replace a scene's file by its newest rewrite from an earlier task of the session, for tasks that read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from app import errors
from app.domain import library, plain, runs, views
from app.engine import stores
from app.services.plans import run_outputs
from app.services.recipes import Catalogue
from app.services.requests import StartRequest
from app.services.runs import Runs
from app.services.starting import Starter

_ARG = "task.args."


class Drafts:
    """Gives the runs of a plan the drafts of its earlier runs."""

    def __init__(self, *, runs: Runs, store: stores.RunStore, starter: Starter, catalogue: Catalogue) -> None:
        self._runs = runs
        self._store = store
        self._starter = starter
        self._catalogue = catalogue

    async def seen(self, request: StartRequest) -> StartRequest:
        """Return a request with the newest drafts of its scenes, if a done run of its session has written any.

        A recipe that writes its scene still gets the scene itself.

        Raises:
            errors.ControlRoomError: the request cannot become a run.
        """
        names = _scenes_read(self._recipe(request.recipe_id))
        drafts = await self._drafts(request.session_id or "") if names else {}
        if not drafts:
            return request
        start: runs.RunStart = await self._starter.prepare(request)
        known = {name: start.args[name] for name in names if name in start.args}
        newest = {name: _newest(value, drafts) for name, value in known.items()}
        return request if newest == known else dataclasses.replace(request, args={**request.args, **newest})

    async def _drafts(self, session_id: str) -> dict[str, str]:
        """Return the drafts of a session, by the path that they replace."""
        found: dict[str, str] = {}
        done = stores.RunQuery(session_id=session_id, status="done")
        rows = [row async for row in stores.every_run(self._store, done) if _redrafts(self._recipe(row.recipe_id))]
        for row in reversed(rows):
            found |= written_elsewhere(await self._runs.reader.view(row.run_id))
        return found

    def _recipe(self, recipe_id: str | None) -> library.Recipe | None:
        try:
            return self._catalogue.find(recipe_id or "").recipe
        except errors.UnknownRecipe:
            return None


def written_elsewhere(view: views.RunView) -> dict[str, str]:
    """Return the files that a run has written instead of those that its arguments name, by the latter."""
    outputs: Any = view.start.recipe.get("outputs", ())
    found: dict[str, str] = {}
    for slot, path in run_outputs.paths(view).items():
        wanted = next(_wanted(output["path"], view.start.args) for output in outputs if output["slot"] == slot)
        if wanted not in (None, path):
            found[str(wanted)] = path
    return found


def _wanted(path: Any, args: Mapping[str, plain.Json]) -> plain.Json:
    named = path.get("$ref", "") if isinstance(path, dict) else ""
    return args.get(named.removeprefix(_ARG)) if named.startswith(_ARG) else None


def _redrafts(recipe: library.Recipe | None) -> bool:
    outputs: Any = recipe.document.get("outputs", ()) if recipe is not None else ()
    return any("otherwise" in output for output in outputs)


def _scenes_read(recipe: library.Recipe | None) -> list[str]:
    from app.services import story_args

    if recipe is None:
        return []
    declared: Any = recipe.args_schema.get("properties") or {}
    writes = plain.encode(plain.plain(recipe.document.get("outputs"))).decode()
    return [
        name for name in (story_args.SCENE, story_args.SCENES) if name in declared and f'"{_ARG}{name}"' not in writes
    ]


def _newest(value: plain.Json, drafts: Mapping[str, str]) -> plain.Json:
    if isinstance(value, list):
        return list(dict.fromkeys(str(_newest(each, drafts)) for each in value))
    # A draft may have a newer draft.
    for _ in drafts:
        if not isinstance(value, str) or value not in drafts:
            break
        value = drafts[value]
    return value
