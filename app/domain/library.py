"""What recipes can refer to: tools, agents and prompt templates, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeAlias

from app.domain import plain, shapes

Tier = Literal["t1", "t3", "t5"]
"""Size of an agent: small and fast, middle, capable (execution-modes, tier-based step sizing)."""


MOST_OUTPUT_TOKENS = 1_000_000  # Most tokens that a step or an agent can set as the longest reply.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec(shapes.Shape):
    """A tool."""

    published_as: ClassVar[str] = "ToolListed"

    name: str  # Id in the registry.
    description: str  # What it does, in a sentence.
    args_schema: Mapping[str, plain.Json]  # JSON Schema of its arguments.


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(shapes.Shape):
    """A configured role on a backend."""

    id: str  # Name, unique among the agents.
    archetype: str  # Role that recipes name: planner, writer, editor, …
    tier: Tier  # Size, which chooses the prompt variant.
    backend: str  # Backend of the agent.
    model: str | None = None  # Model or tier name; None: the backend's default.
    role: str = ""  # Role contract, part of every prompt.
    evidence: str = "none"  # Evidence its replies must bring: none, any, file or receipt.
    modes: tuple[str, ...] = ()  # Modes it takes part in; empty: all.
    max_output_tokens: int | None = None
    """Longest reply, in tokens, where a step sets none; None: the backend's default."""
    on_cut_off: Annotated[str, Literal["fail", "keep"]] = "fail"
    """Whether a reply that was cut off fails its step or is kept, unless the step says."""

    def takes_part_in(self, mode: str) -> bool:
        """Return whether the agent takes part in a mode, e.g. `conference`."""
        return not self.modes or mode in self.modes


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """A prompt type with its variants by tier (execution-modes, appendix F)."""

    prompt_type: str  # Key in the registry.
    label: str  # What it is for, in a few words.
    variants: Mapping[str, str]  # Template text by tier: t1, t3, t5; at least one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Everything that recipes of a project can refer to."""

    tools: Mapping[str, ToolSpec] = field(default_factory=dict)  # Tools by name.
    agents: tuple[Agent, ...] = ()  # Agents in order; the first of an archetype is used.
    prompts: Mapping[str, PromptTemplate] = field(default_factory=dict)  # Prompt templates by type.
    unread_prompts: Mapping[str, str] = field(default_factory=dict)
    """Why a file cannot be read now, by the prompt type whose templates it has; by `*` if it lists those of any."""
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    """Recipes of the project by id, for those that lead to another one."""
    backends: Mapping[str, Mapping[str, str]] | None = None
    """Models for haiku, sonnet and opus by backend; None: which backends there are is not known."""

    def agent_of(self, archetype: str, mode: str | None = None) -> Agent | None:
        """Return the agent that plays an archetype, or None.

        Args:
            mode: Mode that it must take part in; None: any.
        """
        playing = (agent for agent in self.agents if agent.archetype == archetype)
        return next((agent for agent in playing if mode is None or agent.takes_part_in(mode)), None)


NO_OPTIONS: Mapping[str, plain.Json] = {"type": "object", "properties": {}, "additionalProperties": False}
"""Schema of the options of languages that have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A parsed recipe of any dialect."""

    recipe_id: str  # Unique id; project recipes shadow bundled ones by it.
    dialect: str  # Language it is written in.
    label: str  # Name for people.
    document: Mapping[str, plain.Json]  # The recipe itself, as plain JSON.
    source_sha256: str = ""  # Bare hash of its text, where the language shows it.
    args_schema: Mapping[str, plain.Json]  # JSON Schema of its arguments, declared or derived.
    options_schema: Mapping[str, plain.Json] = field(default_factory=lambda: NO_OPTIONS)
    """JSON Schema of what its runs can be told beside them; strict."""
    task_patterns: tuple[str, ...] = ()  # Phrases and `/expressions/` that route a task to it.
    done_when: tuple[str, ...] = ()  # What its definition of done asks for, each in a few words.
    leaves: tuple[str, ...] = ()  # Slots that its runs fill with a text, as far as the language defines them.
    writes: tuple[str, ...] = ()  # Those of them that are written to a file.
    total_steps: int | None = None  # Number of its steps; None where its flow can loop.
    leads_to: tuple[str, ...] = ()  # Other recipes that a run of it may continue to.
    holds_workspace: bool = False  # Whether its runs hold their workspace alone unless a request shares it.
    path: str = ""  # Path of its file; empty where it has none.
    line_of: Callable[[str], int | None] = field(default=lambda _: None, compare=False, repr=False)
    """Returns the line of a JSON path in its text; None where the language has no lines."""
    speaks_through: str | None = None
    """Argument that names the backend of its runs; None where it does not choose one by an argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendUse:
    """A place of a recipe at which an agent is asked."""

    path: str  # JSON path of the place, e.g. `$.phase_b[0].agent_archetype`.
    backends: tuple[str, ...]  # Backends in order of preference; the agent can be asked if one of them works.
    continues: bool = False  # Whether a later prompt continues the same conversation.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramUse:
    """A place of a recipe at which a model's program is called by name."""

    path: str  # JSON path of the place, e.g. `$.providers.claude.command[0]`.
    program: str  # Name or path of the program.


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildUse:
    """A place of a recipe at which another recipe is run."""

    path: str  # JSON path of the place.
    recipe_id: str  # The other recipe.
    args: Mapping[str, plain.Json] = field(default_factory=dict)
    """Arguments that are known before the run; those that are computed are left out."""
    computed: tuple[str, ...] = ()  # Names of arguments whose values show only in the run.


Use: TypeAlias = BackendUse | ProgramUse | ChildUse
"""What a run of a recipe needs to be able to ask its agents."""
