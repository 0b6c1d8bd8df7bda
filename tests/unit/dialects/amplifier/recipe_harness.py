"""Small recipes for the tests of the dialect amplifier."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app import clock, errors
from app.dialects.amplifier import Amplifier, parse, walk
from app.domain import decisions, library, operations, plain, records
from app.domain.states import RunState
from app.engine import ports, probes, refusal_performers, resume_rules, runner
from app.engine.run_equipment import Equipment
from app.services import arguments
from tests.unit.engine import logs, samples

ROOT = Path(__file__).resolve().parents[4]
DIALECT: Any = Amplifier()


def recipe(*steps: Any, **more: Any) -> dict[str, Any]:
    """Return a recipe of the first version."""
    made = {"name": "small", "description": "A small one.", "version": "1.0.0", "steps": list(steps), **more}
    return {name: value for name, value in made.items() if value is not None}


def later(*steps: Any, **more: Any) -> dict[str, Any]:
    """Return a recipe of the newest version."""
    return recipe(*steps, **{"schema": "1.7", **more})


def staged(*stages: Any, **more: Any) -> dict[str, Any]:
    """Return a recipe of stages."""
    return later(**{"steps": None, "stages": list(stages), **more})


def step(id: str = "a", **more: Any) -> dict[str, Any]:
    """Return a step, which asks an agent unless its fields say otherwise."""
    other = "type" in more or "substeps" in more
    return {"id": id, **({} if other else {"agent": "helper", "prompt": "Do it."}), **more}


def parsed(document: Any) -> library.Recipe:
    """Parse a recipe, given as a value or as a text; JSON is YAML."""
    return parse.parse(document if isinstance(document, str) else json.dumps(document))


def own_flaws(document: Any) -> tuple[errors.Flaw, ...]:
    """Return every flaw of a recipe, except for missing agents and recipes."""
    try:
        found = DIALECT.check(parsed(document), library.Library())
    except errors.RecipeInvalid as error:
        return error.flaws
    return tuple(flaw for flaw in found if flaw.code not in ("unknown_agent", "unknown_recipe"))


def flaws(document: Any) -> set[tuple[str, str]]:
    """Return path and code of every flaw of a recipe."""
    return {(flaw.path, flaw.code) for flaw in own_flaws(document)}


AGENT: dict[str, Any] = {
    "id": "helper", "archetype": "helper", "tier": "t3", "backend": "script", "model": "small", "role": "You help.",
    "evidence": "none", "modes": [],
}  # fmt: skip
"""The agent of all steps, as frozen in a run."""


class HastyClock(clock.FakeClock):
    """A clock on which every sleep ends at once; it records their lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Return at once."""
        self.slept.append(round(seconds, 3))
        self.advance(max(seconds, 0))
        await asyncio.sleep(0)


class StubWork:
    """Perform operations from tables, and record them."""

    def __init__(self) -> None:
        self.replies: dict[str, Any] = {}
        """Replies, outputs and answers by key: a list has one for each attempt; an exception is raised."""
        self.asked: list[tuple[str, int]] = []
        """Keys and attempts that were performed, except for refusals and skips."""
        self.operations: dict[str, Any] = {}
        """The operation that was performed under each key."""
        self.going = 0
        self.most = 0
        """The most agents that were asked at a time."""
        self.cut: list[str] = []
        """Keys that were cancelled."""
        self.held: dict[str, asyncio.Event] = {}
        """Steps that wait until the test releases them."""

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one attempt."""
        self.asked.append((call.key, call.attempt))
        self.operations[call.key] = call.operation
        self.going += 1
        self.most = max(self.most, self.going)
        try:
            # Two turns of the event loop, so that other steps begin meanwhile.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if call.key in self.held:
                await self.held[call.key].wait()
        except asyncio.CancelledError:
            self.cut.append(call.key)
            raise
        finally:
            self.going -= 1
        return self._result(call)

    def _result(self, call: ports.Call) -> records.Result:
        planned = self.replies.get(call.key, self._usual(call))
        if isinstance(planned, list):
            planned = planned[min(call.attempt, len(planned)) - 1]
        if isinstance(planned, Exception):
            raise planned
        return planned if isinstance(planned, records.Result) else records.Result(output=planned)

    def _usual(self, call: ports.Call) -> Any:
        match call.operation:
            case operations.Gate():
                return {"decision": "approve", "message": "", "by_default": False}
            case operations.Command():
                return printed(f"{call.key} printed")
            case operations.Timer():
                return None
        return f"{call.key} said"


def printed(stdout: str, exit_code: int = 0) -> dict[str, Any]:
    """Return the output of a command."""
    return {"exit_code": exit_code, "stdout": stdout, "stderr": "", "stdout_truncated": False}


def broke(code: str = "agent_error", message: str = "it broke") -> errors.StepError:
    """Return the failure of an agent."""
    return errors.StepError(message, code=code)


class Run:
    """One run of a recipe that can be taken up again and again."""

    def __init__(self, document: Any, args: Mapping[str, Any] | None = None, **facts: Any) -> None:
        self.recipe = parsed(document)
        fitting = {**dict.fromkeys(self.recipe.args_schema["required"], ""), **(args or {})}
        given = {"args": arguments.fit(fitting, self.recipe), "working_dir": "/workspace/My Project"}
        spots = (spot for spot in walk.spots(self.recipe.document) if isinstance(spot, walk.Spot))
        named = {spot.step["agent"] for spot in spots if "agent" in spot.step}
        self.disk = logs.Disk(
            samples.start(
                dialect="amplifier",
                recipe_id=self.recipe.recipe_id,
                recipe=self.recipe.document,
                frozen={"agents": {name: AGENT | {"id": name} for name in sorted(named)}},
                **({"driver_version": DIALECT.driver_version} | given | facts),
            )
        )
        self.stub = StubWork()
        self.clock = HastyClock()
        self.last: Any = None

    @property
    def replies(self) -> dict[str, Any]:
        """Return the table of the steps' replies."""
        return self.stub.replies

    def runner(self) -> runner.Runner:
        """Load the run like a new process."""
        kinds = ("agent_call", "command", "timer", "gate", "child_run")
        performers: dict[str, Any] = dict.fromkeys(kinds, self.stub)
        performers |= {"refusal": refusal_performers.RefusalPerformer(), "skip": refusal_performers.SkipPerformer()}
        equipment = Equipment(performers=performers, clock=self.clock, masker=plain.Masker(), probes=probes.NoProbes())
        self.last = logs.ListLog(self.disk)
        return runner.Runner(self.last, DIALECT, equipment, logs.CountedSlots(), lambda: None)

    async def run(self) -> RunState:
        """Take the run up and continue until it rests."""
        return await asyncio.wait_for(self.runner().run(), 60)

    async def resume(self, **overrides: Any) -> RunState:
        """Resume the ended run, as a person does."""
        log = logs.ListLog(self.disk)
        dead = sorted(resume_rules.dead_positions(log.loaded, None))
        facts = {"dead": decisions.ranges(dead), "overrides": overrides}
        await log.decide(decisions.DecisionKind.RESUMED, facts)
        self.disk.row = RunState.PENDING
        return await self.run()

    def lines(self) -> list[dict[str, Any]]:
        """Return the journal."""
        return [json.loads(line) for line in self.disk.steps]

    def statuses(self) -> dict[str, str]:
        """Return how each step ended, by key."""
        return {line["key"]: line["status"] for line in self.lines()}

    def prompt(self, key: str) -> str:
        """Return the prompt of an agent."""
        parts = self.stub.operations[key].prompt
        return "".join(part if isinstance(part, str) else f"<{part['blob']['size_bytes']}>" for part in parts)

    @property
    def prompts(self) -> dict[str, str]:
        """Return the prompts of agents, by key."""
        asked = self.stub.operations.items()
        return {key: self.prompt(key) for key, operation in asked if isinstance(operation, operations.AgentCall)}

    @property
    def manifest(self) -> dict[str, Any]:
        """Return run.json."""
        manifest: dict[str, Any] = self.disk.files["run.json"]
        return manifest

    @property
    def slots(self) -> dict[str, Any]:
        """Return the text of each slot."""
        return {name: slot["text"] for name, slot in self.disk.files["cache.json"].items()}

    @property
    def error(self) -> dict[str, Any]:
        """Return why the run failed."""
        error: dict[str, Any] = self.manifest["error"]
        return error

    @property
    def skipped(self) -> list[dict[str, Any]]:
        """Return the steps that were skipped."""
        skipped: list[dict[str, Any]] = self.disk.files["session.json"]["skipped_steps"]
        return skipped


async def ran(document: Any, replies: Mapping[str, Any] | None = None, **args: Any) -> Run:
    """Run a recipe to its end."""
    made = Run(document, args)
    made.replies.update(replies or {})
    await made.run()
    return made
