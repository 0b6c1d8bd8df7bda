"""An intent that a scripted chief splits into tasks, with the real driver, runner and agent performer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app import clock
from app.agents.backends import Backends
from app.agents.configuration import BackendConfig
from app.agents.performer import AgentPerformer
from app.domain import library, operations, plain, records
from app.domain.decisions import DecisionKind
from app.domain.states import RunState
from app.engine import ports, probes, resume_rules, runner
from app.engine.run_equipment import Equipment
from app.flows import decomposition
from app.flows.registry import DRIVERS
from tests.unit.agents import around
from tests.unit.engine import logs, samples

DRIVER: Any = DRIVERS[decomposition.NAME]

INTENT = "write scene 21 and 22, check consistency, foreshadowing audit"

TASKS: list[dict[str, Any]] = [
    {
        "id": 1,
        "description": "Write scene 21",
        "deps": [],
        "dod": "The scene is there.",
        "args": {"scene_path": "Story/Scenes/SCN-the-arrival.md", "canon_paths": ["Compendium/Characters"]},
        "scoping_question": None,
    },
    {"id": 2, "description": "Write scene 22", "deps": [1], "dod": "It is, too.", "args": {}, "scoping_question": None},
    {"id": 3, "description": "Check consistency of scenes 21 and 22", "deps": [1, 2], "dod": "Nothing is left."},
    {
        "id": 4,
        "description": "Foreshadowing audit",
        "deps": [],
        "dod": "There is a report.",
        "scoping_question": "Which themes?",
    },
]
"""The tasks that a chief makes of the intent."""

REPLY = json.dumps({"tasks": TASKS})

SMALL_REPLY = json.dumps(
    {"tasks": [{name: each[name] for name in ("id", "description", "deps", "dod")} for each in TASKS]}
)
"""The same tasks from a T1 agent."""

MATCHES = {
    "matches": [
        {"path": "Story/SCN-outline.md", "category": "outline", "title": "The Dark Lantern"},
        {"path": "Story/Scenes/SCN-the-arrival.md", "category": "scene", "title": "The Arrival"},
    ]
}


def reply(*tasks: Mapping[str, Any]) -> str:
    """Return a reply that contains tasks."""
    return json.dumps({"tasks": tasks})


def task(id: int = 1, *deps: int, **more: Any) -> dict[str, Any]:
    """Return a task of a reply."""
    return {"id": id, "description": f"Write scene {id}", "deps": list(deps), "dod": "It is there.", **more}


def chief(tier: library.Tier = "t3") -> library.Agent:
    """Return a chief that answers from a script."""
    return library.Agent(id="chief-1", archetype="chief", tier=tier, backend="script", role="You are the chief.")


def recipe(recipe_id: str = "write", *patterns: str, args: Mapping[str, Any] | None = None) -> library.Recipe:
    """Return the parts of a recipe that the driver reads."""
    return library.Recipe(
        recipe_id=recipe_id,
        dialect="control_room",
        label=f"The label of {recipe_id}",
        document={},
        args_schema=args or {"type": "object", "properties": {}},
        task_patterns=patterns,
    )


SCENE_ARGS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "outline_path": {"type": "string", "description": "The outline.", "default": "o.md"},
        "scene_path": {"type": "string", "description": "The scene."},
        "canon_paths": {"type": "array", "items": {"type": "string", "maxLength": 9}, "description": "The canon."},
    },
    "required": ["scene_path", "canon_paths"],
}

RECIPES = (
    recipe("write", "draft scene", "write scene", r"/write .*\.md/", args=SCENE_ARGS),
    recipe("check", "consistency check", "check consistency"),
    recipe("unrouted"),
)


def stock(tier: library.Tier = "t3", recipes: tuple[library.Recipe, ...] = RECIPES) -> library.Library:
    """Return a library with a chief and recipes."""
    return library.Library(agents=(chief(tier),), recipes={each.recipe_id: each for each in recipes})


class Tool:
    """A tool that always finds the same files, or fails."""

    def __init__(self, result: records.Result | None = None) -> None:
        self.result = result or records.Result(output=MATCHES, summary="2 files found")

    async def perform(self, call: ports.Call) -> records.Result:
        """Return the result."""
        return self.result


class Kept:
    """A performer that records the operations and passes them to another one."""

    def __init__(self, inner: ports.Performer, asked: list[tuple[str, operations.Operation]]) -> None:
        self._inner = inner
        self._asked = asked

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one attempt."""
        self._asked.append((call.key, call.operation))
        return await self._inner.perform(call)


class Split:
    """One run that can be taken up again and again."""

    def __init__(
        self,
        folder: Path,
        said: Any,
        corrected: Any = None,
        *,
        definition_cache: library.Library | None = None,
        intent: str = INTENT,
        tool: ports.Performer | None = None,
        **facts: Any,
    ) -> None:
        script = folder / "script.json"
        replies = {"chief": said} | ({} if corrected is None else {"chief.correction": corrected})
        script.write_text(json.dumps(replies), encoding="utf-8")
        given: dict[str, Any] = {
            "dialect": decomposition.NAME,
            "recipe_id": decomposition.RECIPE_ID,
            "recipe": {"id": decomposition.RECIPE_ID},
            "frozen": plain.plain(DRIVER.freeze(decomposition.RECIPE, definition_cache or stock())),
            "args": {decomposition.INTENT: intent},
        }
        self.disk = logs.Disk(samples.start(**(given | facts), driver_version=DRIVER.driver_version))
        config = BackendConfig(name="script", type="scripted", file=script)
        backends = Backends({"script": config}, around.surroundings())
        self._performers: dict[str, ports.Performer] = {
            "tool_call": tool or Tool(),
            "agent_call": AgentPerformer(backends, around.conversations()),
        }
        self.asked: list[tuple[str, operations.Operation]] = []
        self.secrets: tuple[str, ...] = ()

    @property
    def keys(self) -> list[str]:
        """Return the keys of the performed operations, over all lives."""
        return [key for key, _ in self.asked]

    def call(self, key: str) -> Any:
        """Return the last operation performed under a key."""
        return dict(self.asked)[key]

    def prompt(self, key: str = "chief") -> str:
        """Return the last prompt sent under a key."""
        (text,) = self.call(key).prompt
        return str(text)

    def error(self) -> dict[str, Any]:
        """Return why the run failed."""
        found: dict[str, Any] = json.loads(self.disk.control[-1])["error"]
        return found

    def tasks(self) -> tuple[decomposition.TaskDraft, ...]:
        """Return the tasks of the slot."""
        return decomposition.tasks(self.disk.files["cache.json"][decomposition.SLOT]["text"])

    async def run(self) -> RunState:
        """Take the run up and continue until it rests."""
        equipment = Equipment(
            performers={kind: Kept(each, self.asked) for kind, each in self._performers.items()},
            clock=clock.FakeClock(),
            masker=plain.Masker(self.secrets),
            probes=probes.NoProbes(),
        )
        log: Any = logs.ListLog(self.disk)
        driven = runner.Runner(log, DRIVER, equipment, logs.CountedSlots(), lambda: None)
        state: RunState = await asyncio.wait_for(driven.run(), 60)
        return state

    async def resume(self) -> RunState:
        """Resume the failed run."""
        log: Any = logs.ListLog(self.disk)
        dead = resume_rules.dead_positions(log.loaded, None)
        await log.decide(DecisionKind.RESUMED, {"dead": [[position, position] for position in sorted(dead)]})
        self.disk.row = RunState.PENDING
        self.asked.clear()
        return await self.run()
