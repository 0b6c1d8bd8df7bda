"""Answers: the shapes that routes give, for the OpenAPI document; tests hold the real answers against them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.instants import At
from app.domain import states

_Status = Annotated[states.RunState, Field(description="Where the run stands.")]
_RunId = Annotated[str, Field(description="Id of the run.", examples=["20260210T143000Z-k3x9af"])]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Accepted(_Answer):
    """Where a run stands after it was asked for something."""

    run_id: _RunId
    status: _Status
    reason: str | None = Field(
        default=None,
        description="Why it stands there, where there is a reason: `pausing` until its steps in flight are over, "
        "`cancelling`, `paused_by_person`, `workspace_busy`.",
    )


class StepFault(_Answer):
    """Why a step or a run failed."""

    code: str = Field(description="Stable name.")
    message: str = Field(description="One sentence for people.")
    key: str | None = Field(description="Step it belongs to.")
    detail: dict[str, Any] = Field(description="Facts for programs.")


class Usage(_Answer):
    """What steps cost."""

    input_tokens: int | None = Field(description="Tokens read; null where they were not reported.")
    output_tokens: int | None = Field(description="Tokens written; null where they were not reported.")
    cost_usd: float | None = Field(description="Price in US dollars; null where it was not reported.")


class EndingShown(_Answer):
    """How a run ended."""

    reason: str = Field(description="Stable name of why.")
    partial: bool = Field(description="Whether it went past failures, or kept replies that were cut off.")
    failed_steps: list[str] = Field(description="Keys of the steps it went past.")
    cut_off_steps: list[str] = Field(
        default_factory=list, description="Keys of the steps whose replies reached their longest, and were kept."
    )


class UnreadableShown(_Answer):
    """A file of a run that cannot be read now: nothing is known to be wrong with it, and nothing was changed."""

    file: str = Field(description="File within the run's folder, `.` for the folder itself.", examples=["start.json"])
    errno: str = Field(description="Why, as the system names it.", examples=["EIO"])
    since: At = Field(description="When it could not be read for the first time.")
    next_try_at: At = Field(description="When it is read again.")


_Unreadable = Annotated[
    UnreadableShown | None,
    Field(description="File that cannot be read now; null as a rule. Until it can, the last known status is shown."),
]


class RunListed(_Answer):
    """A run as lists show it."""

    run_id: _RunId
    recipe_id: str
    dialect: str
    status: _Status
    created_at: At
    updated_at: At
    completed_at: At | None
    description: str
    labels: dict[str, str]
    priority: int
    session_id: str
    parent_run_id: str | None
    error_code: str | None
    owner: str = Field(description="`service`, `process`, or `foreign` for a folder that is only listed.")
    working_dir: str
    exclusive_workspace: bool
    current_step_index: int | None = Field(description="Number of finished steps; null where it cannot be read.")
    total_steps: int | None = Field(description="Steps of the recipe; null where its flow can loop.")
    unreadable: _Unreadable


class Task(_Answer):
    """What a run is asked to do."""

    description: str
    session_plan_task_id: int | None
    initial_args: dict[str, Any]


class StepShown(_Answer):
    """A step in a run's consolidated answer."""

    step_id: str | None = None
    phase: str | None = None
    status: states.StepState
    tool: str | None = None
    agent_archetype: str | None = None
    agent_id: str | None = None
    output_slot: str | None = None
    output_preview: str | None = None
    finish: Literal["length"] | None = Field(default=None, description="`length`: the reply reached its longest.")
    gate_id: str | None = Field(default=None, description="Gate that the step waits at.")
    key: str = Field(description="Name of the step within its run, for ever.")
    attempt: int
    started_at: At
    completed_at: At | None = None
    error: StepFault | None = None


class SlotShown(_Answer):
    """A slot in a run's consolidated answer."""

    type: Literal["pointer", "artifact"]
    preview: str


class RunDetail(_Answer):
    """Everything about a run that a poll needs (the newest 200 steps)."""

    run_id: _RunId
    recipe_id: str
    session_id: str
    status: _Status
    created_at: At
    updated_at: At
    completed_at: At | None
    task: Task
    current_step_index: int = Field(description="Number of finished steps.")
    total_steps: int | None = Field(description="Steps of the recipe; null where its flow can loop.")
    phase: str | None = Field(description="`a`, `b` or `dod` while a pipeline runs.")
    error: StepFault | None
    reason: str | None = Field(description="Why the run stands where it stands, e.g. `paused_by_person`.")
    holder: str | None = Field(description="Run that holds the workspace that this one waits for.")
    dialect: str
    working_dir: str
    labels: dict[str, str]
    priority: int
    usage: Usage
    ending: EndingShown | None
    recipe_sha256: str
    parent_run_id: str | None
    steps: list[StepShown]
    steps_total: int = Field(description="Number of steps, those left out of the list included.")
    cache_summary: dict[str, SlotShown]
    unreadable: _Unreadable
    machine: dict[str, Any] | None = Field(
        default=None, description="Where a recipe that is a state machine stands: step, visits, conversation, cost."
    )


class StepLine(BaseModel):
    """A line of the journal (steps.jsonl), whole; further fields may follow."""

    model_config = ConfigDict(extra="allow")

    step_index: int | None
    step_id: str
    phase: str | None
    tool: str | None
    agent_archetype: str | None
    agent_id: str | None
    status: states.StepState
    output_slot: str | None
    receipt_id: str | None
    input_slot_refs: list[str] = Field(description="Slots read to build the step's input.")
    output_hash: str | None = Field(description="`sha256:` and the hash of the full output.")
    output_preview: str | None
    started_at: At
    completed_at: At
    error: StepFault | None


class PointerSlot(_Answer):
    """A slot that names a receipt; the payload is there."""

    slot: str
    type: Literal["pointer"]
    receipt_id: str | None
    sha256: str
    summary: str


class ArtifactSlot(_Answer):
    """A slot that holds its text."""

    slot: str
    type: Literal["artifact"]
    agent_id: str | None
    text: str | None
    sha256: str
    summary: str


class GateListed(_Answer):
    """A question to a person, and its answer if it has one."""

    gate_id: str = Field(description="Its id; the same after every restart.")
    run_id: _RunId
    recipe_id: str
    key: str = Field(description="Step that asks.")
    status: Literal["open", "paused", "decided", "lapsed"] = Field(
        description="`paused`: its run is, and asks again when it goes on; `lapsed`: what came before it ran again."
    )
    prompt: str = Field(description="The question.")
    options: list[str] = Field(description="Decisions that can be given.")
    asked_at: At | None
    expires_at: At | None = Field(description="When the default is taken; null: never.")
    default: str | None = Field(description="Decision that is taken when nobody answers in time.")
    shown_sha256: str = Field(description="Hash of what is decided on; send it back to decide on nothing else.")
    decision: str | None
    message: str | None = Field(description="What whoever decided adds.")
    by_default: bool | None = Field(description="Whether nobody answered in time.")
    denied: bool | None = Field(description="Whether the decision is final: no resume goes past it.")
    decided_at: At | None


class FlawShown(_Answer):
    """One thing wrong with a recipe."""

    path: str
    code: str
    message: str
    line: int | None = None


class RecipeListed(_Answer):
    """A recipe as lists show it; a broken one with its flaws."""

    recipe_id: str
    label: str | None
    dialect: str
    layer: str
    path: str
    shadows: list[str] = Field(description="Layers whose recipe of this id is hidden by this one.")
    task_patterns: list[str]
    total_steps: int | None
    valid: bool
    flaws: list[FlawShown]
    ready: bool = Field(description="Whether it is valid and every backend that a run could need works here.")
    lacks: list[FlawShown] = Field(description="Backends and programs that a run would need and lacks.")


class RecipeDetail(RecipeListed):
    """Everything about a recipe."""

    args_schema: dict[str, Any] | None = Field(description="JSON Schema of its arguments.")
    document: dict[str, Any] | None
    graph: dict[str, Any] | None = Field(description="`nodes` and `edges`.")


class Examined(_Answer):
    """What came of looking at a recipe."""

    valid: bool
    recipe_id: str | None
    flaws: list[FlawShown]
    ready: bool = Field(description="Whether it is valid and every backend that a run could need works here.")
    lacks: list[FlawShown] = Field(description="Backends and programs that a run would need and lacks.")
    args_schema: dict[str, Any] | None


class Routed(_Answer):
    """The router's choice."""

    recipe_id: str | None
    initial_args: dict[str, Any]
    routable: bool
    reason: str
    questions: dict[str, str] = Field(description="What is left open, by argument.")


class AgentListed(_Answer):
    """An agent, and what it is at."""

    id: str
    archetype: str
    tier: Literal["t1", "t3", "t5"]
    backend: str
    model: str | None
    role: str
    evidence: str
    modes: list[str]
    max_output_tokens: int | None = Field(description="Longest reply where a step sets none; null: the backend's own.")
    on_cut_off: Literal["fail", "keep"] = Field(description="What becomes of a reply that reached its longest.")
    state: Literal["executing", "processing", "idle"] = Field(
        description="`executing`: tools work for it; `processing`: it works on a prompt without tools."
    )
    run: str | None = Field(description="Run that it works in.")
    key: str | None = Field(description="Step that it works in.")


class ToolListed(_Answer):
    """A tool."""

    name: str
    description: str
    args_schema: dict[str, Any]


class Alive(_Answer):
    """The process answers."""

    status: Literal["ok"]


class Readiness(_Answer):
    """New runs can be taken."""

    status: Literal["ready"]
    running: int
    queued: int
    resting: int
    limit: int


class EventShown(_Answer):
    """One event of a run, as a Server-Sent Event's data holds it."""

    seq: int
    at: At
    type: str
    run_id: str
    key: str | None
    data: dict[str, Any]
