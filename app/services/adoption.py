"""Adoption: creates the missing start.json of a run folder written by hand (execution-modes, appendix A)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app import clock, errors
from app.domain import plain, runs
from app.services import arguments
from app.services.recipes import Catalogue
from app.services.workspaces import Workspaces


class Adopter:
    """Derives a run's start from its manifest and the present recipe of the catalogue."""

    def __init__(self, *, catalogue: Catalogue, workspaces: Workspaces, clock: clock.Clock) -> None:
        self._catalogue = catalogue
        self._workspaces = workspaces
        self._clock = clock

    async def adopt(self, manifest: Mapping[str, plain.Json]) -> runs.RunStart:
        """Return the start; fields of the wrong type count as absent.

        Raises:
            errors.RequestInvalid: the recipe is unknown or broken, or the workspace is not allowed.
        """
        fields = _Manifest(manifest)
        recipe_id = fields.text("recipe_id")
        if recipe_id is None:
            raise errors.RequestInvalid("run.json names no recipe", code="recipe_id_missing")
        await self._catalogue.refresh()
        recipe_version = self._catalogue.get(recipe_id)
        recipe = recipe_version.recipe
        task = _Manifest(fields.object("task"))
        return runs.RunStart(
            run_id=fields.text("run_id") or "",
            recipe_id=recipe_id,
            created_at=fields.instant("created_at") or clock.stamp(self._clock.now()),
            description=task.text("description") or recipe.label,
            args=arguments.completed(task.object("initial_args"), recipe),
            session_id=fields.text("session_id") or "",
            session_plan_task_id=task.number("session_plan_task_id"),
            # Every later reader would refuse a label of another type.
            labels={name: value for name, value in fields.object("labels").items() if isinstance(value, str)},
            priority=fields.number("priority") or 0,
            working_dir=self._workspaces.choose(fields.text("working_dir")),
            parent_run_id=fields.text("parent_run_id"),
            **recipe_version.frozen(),
        )


class _Manifest:
    def __init__(self, value: Mapping[str, Any]) -> None:
        self._value = value

    def text(self, name: str) -> str | None:
        found = self._value.get(name)
        return found if isinstance(found, str) and found else None

    def number(self, name: str) -> int | None:
        found = self._value.get(name)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def object(self, name: str) -> dict[str, Any]:
        found = self._value.get(name)
        return dict(found) if isinstance(found, Mapping) else {}

    def instant(self, name: str) -> str | None:
        try:
            return clock.stamp(clock.instant(self.text(name) or ""))
        except ValueError:
            return None
