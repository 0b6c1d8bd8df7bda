"""The library: the tools, agents and prompt templates that recipes can refer to, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeAlias

from app.domain import plain, shapes

Tier = Literal["t1", "t3", "t5"]
"""Size class of an agent: small and fast, medium, capable (execution-modes, tier-based step sizing)."""


USUAL_MODEL = "sonnet"  # Model of an agent that names none, of those that each backend has.

MOST_OUTPUT_TOKENS = 1_000_000  # Most tokens that a step or an agent can set as the longest reply.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec(shapes.Shape):
    """A tool."""

    published_as: ClassVar[str] = "ToolListed"

    name: str  # Id in the registry.
    description: str  # What the tool does, in one sentence.
    args_schema: Mapping[str, plain.Json]  # JSON Schema of its arguments.


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(shapes.Shape):
    """A configured role on a backend."""

    id: str  # Name, unique among the agents.
    archetype: str  # Role that recipes name: planner, writer, editor, …
    tier: Tier  # Size class, which selects the prompt variant.
    backend: str  # Backend of the agent.
    model: str | None = None  # Model or tier name; None: the backend's default.
    role: str = ""  # Role contract, part of every prompt.
    evidence: str = "none"  # Evidence that its replies must have: none, any, file or receipt.
    modes: tuple[str, ...] = ()  # Modes in which it takes part; empty: all.
    max_output_tokens: int | None = None
    """Longest reply, in tokens, if a step sets none; None: the backend's default."""
    on_cut_off: Annotated[str, Literal["fail", "keep"]] = "fail"
    """Whether a reply that was cut off fails its step or is kept, unless the step decides."""

    def takes_part_in(self, mode: str) -> bool:
        """Return whether the agent takes part in a mode, e.g. `conference`."""
        return not self.modes or mode in self.modes


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """A prompt type with its variants by tier (execution-modes, appendix F)."""

    prompt_type: str  # Key in the registry.
    label: str  # Purpose of the prompt, in a few words.
    variants: Mapping[str, str]  # Template text by tier: t1, t3, t5; at least one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """All values that recipes of a project can refer to."""

    tools: Mapping[str, ToolSpec] = field(default_factory=dict)  # Tools by name.
    agents: tuple[Agent, ...] = ()  # Agents in order; of each archetype the first is used.
    prompts: Mapping[str, PromptTemplate] = field(default_factory=dict)  # Prompt templates by type.
    unread_prompts: Mapping[str, str] = field(default_factory=dict)
    """Why a file cannot be read now, by the prompt type whose templates it contains; by `*` if it can list any."""
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    """Recipes of the project by id, for recipes that lead to another one."""
    backends: Mapping[str, Mapping[str, str]] | None = None
    """Models for haiku, sonnet and opus by backend; None: the existing backends are not known."""

    def agent_of(self, archetype: str, mode: str | None = None) -> Agent | None:
        """Return the agent that fills an archetype, or None.

        Args:
            mode: Mode in which it must take part; None: any.
        """
        playing = (agent for agent in self.agents if agent.archetype == archetype)
        return next((agent for agent in playing if mode is None or agent.takes_part_in(mode)), None)


NO_OPTIONS: Mapping[str, plain.Json] = {"type": "object", "properties": {}, "additionalProperties": False}
"""Schema of the options in languages without options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A parsed recipe of any dialect."""

    recipe_id: str  # Unique id; a project recipe with this id overrides a bundled one.
    dialect: str  # Language of the recipe.
    label: str  # Name for people.
    document: Mapping[str, plain.Json]  # The recipe itself, as plain JSON.
    source_sha256: str = ""  # Bare hash of its text, if the language shows it.
    args_schema: Mapping[str, plain.Json]  # JSON Schema of its arguments, declared or derived.
    options_schema: Mapping[str, plain.Json] = field(default_factory=lambda: NO_OPTIONS)
    """JSON Schema of the options of its runs; strict."""
    task_patterns: tuple[str, ...] = ()  # Phrases and `/expressions/` by which a task is routed to it.
    done_when: tuple[str, ...] = ()  # Conditions of its definition of done, each in a few words.
    leaves: tuple[str, ...] = ()  # Slots that its runs fill with texts, as far as the language defines them.
    writes: tuple[str, ...] = ()  # Those of the slots that are written to files.
    total_steps: int | None = None  # Number of its steps; None if its flow can loop.
    leads_to: tuple[str, ...] = ()  # Other recipes to which a run of it may continue.
    holds_workspace: bool = False  # Whether its runs hold their workspace alone unless a request shares it.
    path: str = ""  # Path of its file; empty if it has none.
    line_of: Callable[[str], int | None] = field(default=lambda _: None, compare=False, repr=False)
    """Returns the line of a JSON path in its text; None if the language has no lines."""
    speaks_through: str | None = None
    """Argument that names the backend of its runs; None if no argument chooses the backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendUse:
    """A place in a recipe where an agent is called."""

    path: str  # JSON path of the place, e.g. `$.phase_b[0].agent_archetype`.
    backends: tuple[str, ...]  # Backends in order of preference; the agent can be called if one of them works.
    continues: bool = False  # Whether a later prompt continues the same conversation.
    model: str | None = None  # Model, or one of haiku, sonnet and opus, that is asked for; None: not known.


def use_of(agent: Agent, path: str) -> BackendUse:
    """Return the place of a recipe that calls an agent as it is configured."""
    return BackendUse(path=path, backends=(agent.backend,), model=agent.model or USUAL_MODEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramUse:
    """A place in a recipe where a model's program is called by name."""

    path: str  # JSON path of the place, e.g. `$.providers.claude.command[0]`.
    program: str  # Name or path of the program.


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildUse:
    """A place in a recipe where another recipe is run."""

    path: str  # JSON path of the place.
    recipe_id: str  # The other recipe.
    args: Mapping[str, plain.Json] = field(default_factory=dict)
    """Arguments that are known before the run, without computed ones."""
    computed: tuple[str, ...] = ()  # Names of arguments whose values are only known in the run.


Use: TypeAlias = BackendUse | ProgramUse | ChildUse
"""A requirement that a run of a recipe has for calling its agents."""
