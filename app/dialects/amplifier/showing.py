"""Showing: what is seen of a run while it goes on and when it is over, and what a run tells its own steps of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from app.dialects.amplifier import agents, calls, failures, schema, templates, walk
from app.domain import plain, runs, slots
from app.engine import ports

SESSION_FILE = "session.json"
"""File of the run folder that tells which steps were skipped (amplifier-recipe-schema, session state)."""


def facts(run: runs.RunStart) -> dict[str, templates.Value]:
    """Return what the reserved names stand for."""
    recipe = run.recipe
    known: dict[str, templates.Value] = {
        "recipe": {name: recipe[name] for name in ("name", "version", "description")},
        "session": {"id": run.run_id, "started": run.created_at, "project": slug(run.working_dir)},
    }
    if recipe.get("schema", schema.FIRST) != schema.FIRST:
        known[templates.APPROVAL] = dict(failures.NONE_YET)
    return known


def slug(path: str) -> str:
    """Return a path as one word of small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")


class Shown:
    """Keep what is shown of one run."""

    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._total = len(walk.steps(ctx.run.recipe))
        self._failed: list[str] = []
        self._partial = False
        self._skipped: list[plain.Json] = []
        self._reported: set[str] = set()
        ctx.project(lambda _: {SESSION_FILE: {"session_id": ctx.run.run_id, "skipped_steps": list(self._skipped)}})
        self.progress(0)

    def progress(self, finished: int) -> None:
        """Show how many steps of the recipe have ended."""
        self._ctx.show(slots.Progress(finished_steps=finished, total_steps=self._total))

    def skipped(self, key: str, reason: str, reported: plain.Object) -> None:
        """Show that a step was skipped."""
        self._skipped.append({"id": key, "reason": reason, **reported})

    def went_past(self, failure: failures.StepFailed) -> None:
        """Show that the flow continues although a step has failed."""
        if failure.key is not None and failure.key not in self._failed:
            self._failed.append(failure.key)
        self._partial = True
        self._ctx.emit(f"{failure.key} failed", {"event": "step:failed", **failure.to_json()})

    def partial(self) -> None:
        """Show that something was done in part only."""
        self._partial = True

    def unused_settings(self, step: plain.Object) -> None:
        """Return which settings of a step no agent here understands, once."""
        found = agents.unused(step.get("agent_config") or {})
        if found and step["id"] not in self._reported:
            self._reported.add(step["id"])
            self._ctx.emit(f"{step['id']} agent_config", {"event": "step:settings_ignored", "settings": found})

    def fill(self, step: plain.Object, scope: templates.Scope) -> None:
        """Put on the board what a step of the recipe has set."""
        for name in sorted(_shown_by(step)):
            if name in scope.own:
                self.fill_one(name, scope.own[name], step["id"], step.get("agent"))

    def fill_one(self, name: str, value: templates.Value, key: str, agent: str | None = None) -> None:
        """Put one variable on the board."""
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
        )
        self._ctx.fill(name, slot)

    def result(self, name: str | None, scope: templates.Scope) -> None:
        """Put the result of the run on the board, where the recipe says what it is and it was set."""
        if name is not None and name in scope.own:
            self.fill_one(calls.FINAL_OUTPUT, scope.own[name], name)

    def ending(self, *, skipped: bool) -> runs.Ending:
        """Return how the run ends."""
        reason = "skipped_remaining" if skipped else "completed"
        return runs.Ending(reason=reason, partial=self._partial, failed_steps=tuple(self._failed))


def _shown_by(step: plain.Object) -> set[str]:
    own = {step[name] for name in ("output", "collect") if name in step}
    return own.union(*(_shown_by(substep) for _, _, substep in walk.body(step)))


_Edge: TypeAlias = dict[str, plain.Json]


def graph(document: plain.Object) -> dict[str, plain.Json]:
    """Return `{nodes: [{id, label, kind}], edges: [{source, target, label}]}`."""
    nodes: list[_Edge] = []
    edges: list[_Edge] = []
    before: str | None = None
    for node, label, inner in _flow(document):
        nodes += [node, *(one for one, _ in inner)]
        if before is not None:
            edges.append({"source": before, "target": node["id"], "label": label})
        edges += [edge for _, edge in inner]
        before = node["id"]
    return {"nodes": nodes, "edges": edges}


def _flow(document: plain.Object) -> Iterator[tuple[_Edge, str, list[tuple[_Edge, _Edge]]]]:
    for place, stage in walk.stages(document):
        approval = stage.get("approval", {}) if place else {}
        requested = approval if approval.get("required") else None
        question = {"id": f"approval:{stage.get('name')}", "label": stage.get("name", ""), "kind": "gate"}
        if requested and schema.when(requested) == schema.BEFORE:
            yield question, "", []
        for step in stage["steps"]:
            yield _node(step), _why(step), list(_inside(step))
        if requested and schema.when(requested) != schema.BEFORE:
            yield question, "", []


def _inside(step: plain.Object) -> Iterator[tuple[_Edge, _Edge]]:
    for _, _, substep in walk.body(step):
        label = _why(substep) or ("parallel" if step.get("parallel") and "foreach" not in step else "")
        yield _node(substep), {"source": step["id"], "target": substep["id"], "label": label}
        yield from _inside(substep)


def _node(step: plain.Object) -> _Edge:
    kind = {"bash": "command", "recipe": "recipe"}.get(step.get("type", ""), "agent")
    return {"id": step["id"], "label": step["id"], "kind": kind if schema.body_of(step) is None else "group"}


def _why(step: plain.Object) -> str:
    condition, looped, repeated = step.get("condition"), step.get("foreach"), step.get("while_condition")
    reported = [f"if {condition}" if condition else "", f"for each {looped}" if looped else ""]
    return ", ".join(text for text in (*reported, f"while {repeated}" if repeated else "") if text)
