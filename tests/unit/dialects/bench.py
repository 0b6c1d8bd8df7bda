"""A pipeline on a bench: the real dialect and the real runner, with performers that answer from tables."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from app import clock, errors
from app.dialects.registry import DIALECTS
from app.domain import library, operations, plain, records
from app.domain.states import RunState
from app.engine import ports, probes, refusal_performers, runner
from app.engine.run_equipment import Equipment
from app.tools import issue_performer
from tests.unit.engine import logs, samples

DIALECT: Any = DIALECTS["control_room"]

ANY_ARGS = {"type": "object"}

RECIPE: Mapping[str, Any] = {
    "recipe_id": "small",
    "label": "Small",
    "phase_a": [
        {"step_id": "find", "tool": "finder", "args": {"query": {"$ref": "task.description"}}, "output_slot": "found"},
        {"step_id": "read", "tool": "reader", "args": {"path": {"$ref": "found.files[0].path"}}, "output_slot": "text"},
    ],
    "phase_b": [
        {
            "step_id": "brief",
            "agent_archetype": "planner",
            "input_slots": ["found", "text"],
            "output_slot": "plan",
            "prompt_type": "make_plan",
        },
        {
            "step_id": "draft",
            "agent_archetype": "writer",
            "input_slots": ["plan"],
            "output_slot": "prose",
            "prompt_type": "write",
        },
    ],
    "dod": [{"check": "slot_not_null", "slot": "prose"}],
}
"""Two tools and two agents."""

PROMPTS = {
    "make_plan": {"t3": "Found: {{found}}\nFirst: {{text.lines[0]}}\nPlan it."},
    "write": {"t3": "Plan:\n{{plan}}\nWrite it."},
}

PAYLOADS: Mapping[str, Any] = {
    "finder": {"files": [{"path": "a.md"}, {"path": "b.md"}], "none": None},
    "reader": {"lines": ["one", "two"], "pass": True},
}


def recipe(**changes: Any) -> dict[str, Any]:
    """Return the small recipe, changed."""
    return plain.plain({**RECIPE, **changes})


def parsed(document: Mapping[str, Any]) -> library.Recipe:
    """Return a recipe read from a document's text."""
    made: library.Recipe = DIALECT.parse(json.dumps(document), "recipe")
    return made


def flaws(document: Any) -> list[errors.Flaw]:
    """Return the flaws that the parser finds in a document or a text."""
    try:
        DIALECT.parse(document if isinstance(document, str) else json.dumps(document), "recipe")
    except errors.RecipeInvalid as error:
        return list(error.flaws)
    return []


def agent(archetype: str, tier: library.Tier = "t3") -> library.Agent:
    """Return an agent of an archetype."""
    return library.Agent(id=f"{archetype}-1", archetype=archetype, tier=tier, backend="table", role=f"You {archetype}.")


def stock(
    prompts: Mapping[str, Mapping[Any, str]] | None = None,
    tiers: Mapping[str, library.Tier] | None = None,
    evidence: str = "none",
) -> library.Library:
    """Return a library that fits the small recipe; all its agents must bring the same evidence."""
    tiers = tiers or {}
    return library.Library(
        tools={name: library.ToolSpec(name=name, description="", args_schema=ANY_ARGS) for name in PAYLOADS},
        agents=tuple(
            dataclasses.replace(agent(name, tiers.get(name, "t3")), evidence=evidence) for name in ("planner", "writer")
        ),
        prompts={
            name: library.PromptTemplate(prompt_type=name, label=name, variants=variants)
            for name, variants in (PROMPTS | dict(prompts or {})).items()
        },
    )


class Died(BaseException):
    """The process has died."""


class Tables:
    """Perform operations from tables, and record them."""

    def __init__(self) -> None:
        self.payloads: dict[str, Any] = dict(PAYLOADS)
        self.replies: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.failing: set[str] = set()
        self.dying: str | None = None
        self.asked: list[tuple[str, operations.Operation]] = []

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one attempt."""
        operation = call.operation
        self.asked.append((call.key, operation))
        if call.key == self.dying:
            raise Died
        if call.key in self.failing:
            raise errors.StepError(f"{call.key} broke", code="broke", detail={"why": "told to"})
        match operation:
            case operations.ToolCall():
                return records.Result(output=self.payloads[operation.tool], summary=f"{operation.tool} ran")
            case operations.AgentCall():
                return records.Result(output=self.replies.get(call.key, f"{call.key} said"))
            case operations.CommitFile():
                taken = operation.otherwise is not None and operation.path in self.files
                path = str(operation.otherwise) if taken else operation.path
                self.files[path] = operation.text
                return records.Result(output={"path": path})
            case operations.Check():
                return records.Result(output={"holds": operation.subject in self.files})
            case operations.CheckEvidence(path=None):
                return records.Result(output={"form": "receipt", "receipt_id": operation.receipt_id})
            case operations.CheckEvidence():
                return records.Result(output={"form": "file", "path": operation.path, "sha256": "0" * 64})
            case operations.OpenIssue():
                return records.Result(output={"issue_id": f"iss_{call.key}"})
            case operations.CloseFindings() | operations.CloseFailedChecks():
                return records.Result(output={"closed": []})
        raise AssertionError(operation)


class Pipeline:
    """One run of a control_room recipe that can be taken up again and again."""

    def __init__(self, document: Mapping[str, Any], registry: library.Library | None = None, **facts: Any) -> None:
        registry = registry or stock()
        self.recipe = parsed(document)
        flaws = DIALECT.check(self.recipe, registry)
        assert flaws == [], flaws
        given: dict[str, Any] = {"description": "Do it", "args": {}, "driver_version": DIALECT.driver_version}
        self.disk = logs.Disk(
            samples.start(
                dialect="control_room",
                recipe_id=self.recipe.recipe_id,
                recipe=plain.plain(document),
                frozen=plain.plain(DIALECT.freeze(self.recipe, registry)),
                **(given | facts),
            )
        )
        self.tables = Tables()
        self.performers: dict[str, Any] = {}
        self.last: Any = None

    async def run(self) -> RunState:
        """Take the run up and continue until it rests."""
        kinds = ("tool_call", "agent_call", "commit_file", "check", "check_evidence", *issue_performer.KINDS)
        engines = {"refusal": refusal_performers.RefusalPerformer(), "skip": refusal_performers.SkipPerformer()}
        performers = {**dict.fromkeys(kinds, self.tables), **engines, **self.performers}
        equipment = Equipment(
            performers=performers, clock=clock.FakeClock(), masker=plain.Masker(), probes=probes.NoProbes()
        )
        log: Any = logs.ListLog(self.disk)
        self.last = runner.Runner(log, DIALECT, equipment, logs.CountedSlots(), lambda: None)
        state: RunState = await asyncio.wait_for(self.last.run(), 60)
        return state

    def asked(self, key: str) -> Any:
        """Return the operation that was performed under a key."""
        return next(operation for name, operation in self.tables.asked if name == key)

    def prompt(self, key: str) -> str:
        """Return the prompt that was sent under a key."""
        return "".join(self.asked(key).prompt)

    def lines(self) -> list[dict[str, Any]]:
        """Return the journal."""
        return [json.loads(line) for line in self.disk.steps]

    @property
    def error(self) -> dict[str, Any]:
        """Return the error of the failed run."""
        error: dict[str, Any] = self.disk.files["run.json"]["error"]
        return error

    @property
    def slots(self) -> dict[str, Any]:
        """Return cache.json."""
        slots: dict[str, Any] = self.disk.files["cache.json"]
        return slots
