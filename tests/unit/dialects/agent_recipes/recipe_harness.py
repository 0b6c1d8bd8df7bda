"""A harness for agent recipes: the real dialect, runner and performer, a scripted backend, and small recipes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app import clock, errors
from app.agents.backends import Backends
from app.agents.configuration import BackendConfig
from app.agents.performer import AgentPerformer
from app.dialects.registry import DIALECTS
from app.domain import library, plain
from app.domain.states import RunState
from app.engine import agent_ports, probes, runner
from app.engine.run_equipment import Equipment
from tests.unit.agents import around
from tests.unit.engine import logs, samples

DIALECT: Any = DIALECTS["agent_recipes"]

ROOT = Path(__file__).resolve().parents[4]
CATALOGUE = ROOT / "recipes" / "agent_recipes"

OTHER = {"action": "exit", "reason": "user-provided-other"}

REVIEW: dict[str, Any] = {
    "prompt": "Review it.",
    "outcomes": ["no-issues", "issues-found", "other"],
    "onOutcome": {"no-issues": {"nextStep": "commit"}, "issues-found": {"nextStep": "fix"}, "other": OTHER},
}
FIX: dict[str, Any] = {
    "prompt": "Mend it.",
    "outcomes": ["complete", "other"],
    "onOutcome": {"complete": {"nextStep": "review"}, "other": OTHER},
}
COMMIT: dict[str, Any] = {
    "prompt": "Commit it.",
    "model": "haiku",
    "outcomes": ["committed", "other"],
    "onOutcome": {"committed": {"action": "exit", "reason": "changes-committed"}, "other": OTHER},
}
RECIPE: Mapping[str, Any] = {
    "id": "small",
    "label": "Small",
    "description": "Review, mend, commit",
    "initialStep": "review",
    "guardrails": {},
    "steps": {"review": REVIEW, "fix": FIX, "commit": COMMIT},
}
"""A loop of review and fix, with a commit at its end."""

DRAWN = """\
Recipe: small
  Label: Small
  Description: Review, mend, commit
  Guardrails: maxStepVisits=3, maxTotalSteps=100, exitOnOther=true

  Steps:
    review (initial)
      Outcomes: no-issues → commit, issues-found → fix, other → EXIT
      Model: (default)
    fix
      Outcomes: complete → review, other → EXIT
      Model: (default)
    commit
      Outcomes: committed → EXIT, other → EXIT
      Model: haiku
"""
"""The same recipe, drawn."""

AGAIN = COMMIT | {
    "onOutcome": {"committed": {"action": "restart-new-session", "recipeId": "small"}, "other": OTHER},
}
"""A commit after which the recipe restarts."""


def recipe(**changes: Any) -> dict[str, Any]:
    """Return the small recipe, changed."""
    return plain.plain({**RECIPE, **changes})


def with_step(name: str, **changes: Any) -> dict[str, Any]:
    """Return the small recipe with one changed step."""
    steps = RECIPE["steps"]
    return recipe(steps={**steps, name: {**steps[name], **changes}})


def parsed(document: Mapping[str, Any]) -> library.Recipe:
    """Return a recipe read from a document's text."""
    made: library.Recipe = DIALECT.parse(json.dumps(document), "recipe")
    return made


def flaws(document: Any) -> set[tuple[str, str]]:
    """Return place and kind of every flaw that the parser finds in a document or a text."""
    return {(flaw.path, flaw.code) for flaw in all_flaws(document)}


def all_flaws(document: Any) -> list[errors.Flaw]:
    """Return every flaw that the parser finds in a document or a text."""
    try:
        DIALECT.parse(document if isinstance(document, str) else json.dumps(document), "recipe")
    except errors.RecipeInvalid as error:
        return list(error.flaws)
    return []


def bundled(recipe_id: str) -> library.Recipe:
    """Return a recipe of the catalogue, including the steps that it shares."""
    source = (CATALOGUE / f"{recipe_id}.json").read_text(encoding="utf-8")
    composed = DIALECT.compose(source, lambda name: (CATALOGUE / name).read_text(encoding="utf-8"))
    assert composed.flaws == ()
    made: library.Recipe = DIALECT.parse(composed.source, recipe_id)
    return made


def says(outcome: str, words: str = "Looked at it.") -> str:
    """Return a reply that reports an outcome."""
    return f'{words}\n\n{{"outcome": "{outcome}"}}'


OTHER_SAID = 'Hm.\n{"outcome": "other", "otherDescription": "there is no repository"}'
"""A reply that reports `other`."""

STRAIGHT = {"review": says("no-issues"), "commit": says("committed")}
"""Replies that lead the small recipe straight to its end."""


class Listening(Backends):
    """Backends that record every prompt before they pass it on."""

    def __init__(self, configs: Mapping[str, BackendConfig]) -> None:
        super().__init__(configs, around.surroundings())
        self.prompts: list[agent_ports.AgentPrompt] = []

    def get(self, name: str) -> agent_ports.AgentBackend:
        """Return the recording backend of that name."""
        return _Listened(super().get(name), self.prompts)


class _Listened:
    def __init__(self, backend: agent_ports.AgentBackend, prompts: list[agent_ports.AgentPrompt]) -> None:
        self._backend = backend
        self._prompts = prompts
        self.get_name = backend.get_name
        self.resolve_model = backend.resolve_model
        self.close = backend.close

    async def prompt(self, prompt: agent_ports.AgentPrompt) -> agent_ports.AgentReply:
        self._prompts.append(prompt)
        return await self._backend.prompt(prompt)


class Play:
    """One run of an agent recipe that can be taken up again and again."""

    def __init__(
        self,
        folder: Path,
        made: library.Recipe | Mapping[str, Any],
        script: Mapping[str, Any],
        args: Mapping[str, Any] | None = None,
        others: tuple[library.Recipe, ...] = (),
        **facts: Any,
    ) -> None:
        self.recipe = made if isinstance(made, library.Recipe) else parsed(made)
        self.script = folder / "script.json"
        self.say(script)
        registry = library.Library(recipes={one.recipe_id: one for one in (self.recipe, *others)})
        found = DIALECT.check(self.recipe, registry)
        assert found == [], found
        given = {"recipe_id": self.recipe.recipe_id, "args": {"backend": "script", **(args or {})}}
        self.disk = logs.Disk(
            samples.start(
                dialect="agent_recipes",
                recipe=plain.plain(self.recipe.document),
                frozen=plain.plain(DIALECT.freeze(self.recipe, registry)),
                **(given | facts),
            )
        )
        models = {"haiku": "small-1", "sonnet": "middle-1", "opus": "large-1"}
        script_config = BackendConfig(name="script", type="scripted", file=self.script, models=models)
        self.backends = Listening({"script": script_config})
        self.last: Any = None

    def say(self, script: Mapping[str, Any]) -> None:
        """Set the backend's replies by step key."""
        self.script.write_text(json.dumps(dict(script)), encoding="utf-8")

    async def run(self) -> RunState:
        """Take the run up and continue until it rests."""
        equipment = Equipment(
            performers={"agent_call": AgentPerformer(self.backends, around.conversations())},
            clock=clock.FakeClock(),
            masker=plain.Masker(),
            probes=probes.NoProbes(),
        )
        log: Any = logs.ListLog(self.disk)
        self.last = runner.Runner(log, DIALECT, equipment, logs.CountedSlots(), lambda: None)
        state: RunState = await asyncio.wait_for(self.last.run(), 60)
        return state

    @property
    def prompts(self) -> list[agent_ports.AgentPrompt]:
        """Return every prompt that the backend received."""
        return self.backends.prompts

    @property
    def keys(self) -> list[str]:
        """Return the keys of the journal."""
        return self.disk.recorded()

    def lines(self) -> list[dict[str, Any]]:
        """Return the journal."""
        return [json.loads(line) for line in self.disk.steps]

    def notes(self, event: str = "") -> list[dict[str, Any]]:
        """Return the events of the driver, all of them or those of one name."""
        told = [dict(each.data) for each in self.disk.events if each.type == "recipe.note"]
        return [note for note in told if event in ("", note["event"])]

    @property
    def manifest(self) -> dict[str, Any]:
        """Return run.json."""
        manifest: dict[str, Any] = self.disk.files["run.json"]
        return manifest

    @property
    def reason(self) -> str:
        """Return the reason of the run's end."""
        reason: str = self.manifest["ending"]["reason"]
        return reason

    @property
    def slots(self) -> dict[str, Any]:
        """Return cache.json."""
        slots: dict[str, Any] = self.disk.files["cache.json"]
        return slots
