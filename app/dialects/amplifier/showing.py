"""Showing: the visible state of a run, and the variables that describe the run to its steps."""

from __future__ import annotations

import re

from app.dialects.amplifier import agents, calls, failures, schema, templates, walk
from app.domain import plain, runs, slots
from app.engine import ports

SESSION_FILE = "session.json"
"""File of the run folder that lists skipped steps (amplifier-recipe-schema, session state)."""


def facts(run: runs.RunStart) -> dict[str, templates.Value]:
    """Return the values of the reserved names."""
    recipe = run.recipe
    known: dict[str, templates.Value] = {
        "recipe": {name: recipe[name] for name in ("name", "version", "description")},
        "session": {"id": run.root_id, "started": run.root_at, "project": slug(run.working_dir)},
    }
    if recipe.get("schema", schema.FIRST) != schema.FIRST:
        known[templates.APPROVAL] = dict(failures.NONE_YET)
    return known


def slug(path: str) -> str:
    """Return a path as one word of small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")


class Shown:
    """The visible state of one run."""

    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._total = len(walk.steps(ctx.run.recipe))
        self._failed: list[str] = []
        self._partial = False
        self._missing_result: str | None = None
        self._skipped: list[plain.Json] = []
        self._reported: set[str] = set()
        # Do not capture `self` or the context: since the context keeps this function, either would be a cycle.
        run_id, skipped = ctx.run.run_id, self._skipped
        ctx.project(lambda _: {SESSION_FILE: {"session_id": run_id, "skipped_steps": list(skipped)}})
        self.progress(0)

    def progress(self, finished: int) -> None:
        """Show how many steps of the recipe have ended."""
        self._ctx.show(slots.Progress(finished_steps=finished, total_steps=self._total))

    def skipped(self, key: str, reason: str, reported: plain.Object) -> None:
        """Add a skipped step to the visible state."""
        self._skipped.append({"id": key, "reason": reason, **reported})

    def went_past(self, failure: failures.StepFailed) -> None:
        """Report that the flow continues although a step has failed."""
        if failure.key is not None and failure.key not in self._failed:
            self._failed.append(failure.key)
        self._partial = True
        self._ctx.emit(f"{failure.key} failed", {"event": "step:failed", **failure.to_json()})

    def partial(self) -> None:
        """Mark the run as only partly successful."""
        self._partial = True

    def unused_settings(self, step: plain.Object) -> None:
        """Report the settings of a step that no agent here uses, once per step."""
        found = agents.unused(step.get("agent_config") or {})
        if found and step["id"] not in self._reported:
            self._reported.add(step["id"])
            self._ctx.emit(f"{step['id']} agent_config", {"event": "step:settings_ignored", "settings": found})

    def fill(self, step: plain.Object, scope: templates.Scope) -> None:
        """Fill slots with the variables that a step of the recipe has set."""
        for name in sorted(_shown_by(step)):
            if name in scope.own:
                self.fill_one(name, scope.own[name], step["id"], step.get("agent"))

    def fill_one(self, name: str, value: templates.Value, key: str, agent: str | None = None) -> None:
        """Fill a slot with one variable."""
        blob = value.blob if isinstance(value, templates.Kept) else None
        text = templates.written(value)
        slot = slots.Slot(
            type="artifact",
            agent_id=agent,
            text=None if blob is not None else text,
            blob=blob,
            sha256=plain.sha256(text.encode()),
            summary=plain.preview(text),
            key=key,
            data=not isinstance(value, (str, templates.Kept)),
        )
        self._ctx.fill(name, slot)

    def result(self, name: str | None, scope: templates.Scope) -> None:
        """Fill a slot with the result of the run, if the recipe names it and it was set."""
        if name is not None and name in scope.own:
            self.fill_one(calls.FINAL_OUTPUT, scope.own[name], name)
        elif name is not None:
            self._missing_result = name

    def ending(self, *, skipped: bool) -> runs.Ending:
        """Return how the run ends."""
        reason = "skipped_remaining" if skipped else "completed"
        return runs.Ending(
            reason=reason,
            partial=self._partial,
            failed_steps=tuple(self._failed),
            missing_result=self._missing_result,
        )


def slots_of(document: plain.Object) -> list[str]:
    """Return the names of the slots that a run of a recipe can fill."""
    asked = [stage.get("approval") or {} for _, stage in walk.stages(document)]
    found = {approval["output"] for approval in asked if "output" in approval}
    found = found.union(*map(_shown_by, walk.steps(document)))
    return sorted(found | ({calls.FINAL_OUTPUT} if schema.final(document) is not None else set()))


def _shown_by(step: plain.Object) -> set[str]:
    own = {step[name] for name in ("output", "collect") if name in step}
    return own.union(*(_shown_by(substep) for _, _, substep in walk.body(step)))
