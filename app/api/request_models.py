"""Request bodies: strict in types and names; the use cases check what the values mean."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from app import errors
from app.domain import approvals, concurrency, limits
from app.engine import run_engine
from app.services import requests

LabelName = Annotated[str, Field(pattern=requests.LABEL_NAME_PATTERN)]  # Name of a label.


def label_text(given: object) -> object:
    """Return a label written as `name=value` in its usual form, `name:value`."""
    return re.sub(r"\A([A-Za-z0-9_./-]{1,64})=", r"\1:", given) if isinstance(given, str) else given


LabelValue = Annotated[str, Field(max_length=requests.LABEL_CHARACTERS)]  # Value of a label.
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=requests.LABELS)]  # Labels of a run.
Priority = Annotated[int, Field(ge=requests.PRIORITIES[0], le=requests.PRIORITIES[-1])]  # Priority of a run.
SessionId = Annotated[str, Field(pattern=requests.SESSION_ID_PATTERN)]  # Id of a work session.
Description = Annotated[str, Field(max_length=requests.DESCRIPTION_CHARACTERS)]  # A task, as text.

RunsAbove = Annotated[
    Annotated[int, Field(ge=requests.RUNS_ABOVE[0], le=requests.RUNS_ABOVE[-1])] | None,
    Field(
        description="How many runs are above, where the run that asks may be one of another project; by default it is "
        "one of this service."
    ),
]
"""How deep a request comes from."""


def strict(*examples: dict[str, Any], **schema: Any) -> ConfigDict:
    """Return the rules of a body: no field but its own, no type but the declared ones."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": list(examples)} | schema)


_LIMITS = {
    "cost_usd": "Price of the calls of agents in US dollars, told or estimated.",
    "tokens": "Tokens that agents read and write.",
    "calls": "Calls of agents, repeated ones included.",
    "wall_seconds": "Time since the run was accepted.",
    "active_seconds": "Time in which the run executes.",
}


def limit(name: str) -> Any:
    """Return the field of a limit."""
    least, most = limits.RANGES[name]
    return Field(None, ge=least, le=most, description=_LIMITS[name])


class LimitsBody(BaseModel):
    """What a run may take, with the runs that it starts."""

    model_config = strict({"cost_usd": 5, "calls": 40}, {"tokens": 2_000_000, "wall_seconds": 7200})

    cost_usd: float | None = limit("cost_usd")
    tokens: int | None = limit("tokens")
    calls: int | None = limit("calls")
    wall_seconds: float | None = limit("wall_seconds")
    active_seconds: float | None = limit("active_seconds")

    def limits(self) -> limits.RunLimits:
        """Return the limits that the body sets."""
        return limits.RunLimits(**dict(self))

    def changes(self) -> dict[str, float | None]:
        """Return the limits that the body names; None lifts one."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class ApprovalsBody(BaseModel):
    """What the gates of a run need beside one answer."""

    model_config = strict({"count": 2, "not_starter": True})

    count: int = Field(1, ge=1, le=approvals.MOST, description="Number of keys that must give the same decision.")
    not_starter: bool = Field(False, description="The key that started the run does not count.")


class ConcurrencyBody(BaseModel):
    """How many runs of one key may be under way."""

    model_config = strict({"key": "deploy"}, {"key": "book", "limit": 2, "policy": "cancel_waiting"})

    key: Annotated[str, Field(pattern=concurrency.KEY_PATTERN)] = Field(description="Key that runs share.")
    limit: int = Field(1, ge=1, le=concurrency.MOST_RUNS, description="Runs of the key that may be under way.")
    policy: concurrency.Policy = Field(
        "queue",
        description="At the limit the new run waits, or is refused with 409, or the earlier runs of the key are "
        "cancelled, or those of them that have not begun.",
    )

    def given(self) -> concurrency.Concurrency:
        """Return the key of the body."""
        return concurrency.Concurrency(**dict(self))


class StartBody(BaseModel):
    """A new run: `recipe_id`, or a `description` that the router finds a recipe for."""

    model_config = strict(
        {
            "recipe_id": "creative_draft_scene",
            "args": {
                "scene_path": "Story/Scenes/SCN-the-arrival.md",
                "canon_paths": ["Compendium/Characters/CHAR-kael.md"],
            },
        },
        {"description": "Draft scene 22"},
        {"description": "draft scene 21 in Story/Scenes/SCN-the-arrival.md", "labels": {"book": "one"}, "priority": 5},
    )

    recipe_id: str | None = Field(None, description="Recipe to execute; without it the router chooses.")
    description: Description | None = Field(None, description="The task, as text; by default the recipe's label.")
    args: dict[str, Any] = Field(default_factory=dict, description="Arguments; the recipe's defaults fill the rest.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="How the recipe's language is to go about it; most languages take none."
    )
    session_id: SessionId | None = Field(
        None, description="Work session that receipts belong to; by default the parent's, or a new one."
    )
    session_plan_task_id: int | None = Field(None, description="Task of the session plan that asks.")
    working_dir: str | None = Field(
        None,
        description="Workspace, absolute or below the project, inside the allowed folders; by default the project.",
    )
    labels: Labels = Field(default_factory=dict, description="Labels for finding the run again.")
    priority: Priority = Field(0, description="Higher goes first.")
    limits: LimitsBody = Field(
        default_factory=LimitsBody,
        description="What the run may take, with the runs that it starts; at a limit it is paused, to be continued.",
    )
    approvals: ApprovalsBody | None = Field(
        None, description="Keys that must agree at the run's gates, and at those of the runs that it starts."
    )
    concurrency: ConcurrencyBody | None = Field(
        None, description="Limits how many runs of one key are under way at the same time."
    )
    exclusive: bool = Field(False, description="Refuse with 409 if a run of the recipe is unfinished.")
    exclusive_workspace: bool = Field(False, description="Hold the workspace alone from start to end.")
    share_workspace: bool = Field(False, description="Share the workspace, as runs of agent recipes do not unasked.")
    parent_run_id: str | None = Field(
        None,
        description="Run that asks; by default that of the agent or command that asks, where it is known. The depth "
        "of nested runs is limited.",
    )
    runs_above: RunsAbove = None
    recipe: dict[str, Any] | str | None = Field(
        None,
        description="A recipe brought along, as an object or as text, where CONTROL_ROOM_INLINE_RECIPES allows it.",
    )
    dialect: str = Field("control_room", description="Language of a recipe brought along.")

    @field_validator("recipe")
    @classmethod
    def _is_no_name(cls, recipe: dict[str, Any] | str | None) -> dict[str, Any] | str | None:
        # No language has a recipe of one word, so this is the id of one.
        if isinstance(recipe, str) and re.fullmatch(r"[\w.-]{1,128}", recipe):
            raise ValueError("must contain a whole recipe, not its name; did you mean recipe_id?")
        return recipe

    def request(self, idempotency_key: str | None) -> requests.StartRequest:
        """Return the request that the body and its header make."""
        given = dict(self) | {"limits": self.limits.limits()}
        given["approvals"] = self.approvals and approvals.Approvals(**dict(self.approvals))
        given["concurrency"] = self.concurrency and self.concurrency.given()
        return requests.StartRequest(**given, idempotency_key=idempotency_key)


class EmptyBody(BaseModel):
    """Nothing; an address that needs no body takes an empty object too."""

    model_config = strict({})


class PauseBody(BaseModel):
    """How a run is paused; empty: at its next step boundary."""

    model_config = strict({}, {"interrupt": True})

    interrupt: bool = Field(
        False,
        description="Cut the steps in flight off; they leave no record, and run again as their next attempt when the "
        "run continues.",
    )


Labelling = Annotated[
    dict[LabelName, LabelValue | None],
    Field(max_length=requests.LABELS, description="Labels to set; null removes one. All others stay."),
]
"""Changes of labels."""

Pinning = Annotated[bool | None, Field(description="Whether retention keeps the run; null: as before.")]
"""A change of a pin."""


class MarksBody(BaseModel):
    """What changes about a run, whatever its state."""

    model_config = strict({"labels": {"book": "one", "draft": None}}, {"pinned": True})

    labels: Labelling = Field(default_factory=dict)
    pinned: Pinning = None

    @model_validator(mode="after")
    def _changes_something(self) -> MarksBody:
        if not self.labels and self.pinned is None:
            raise ValueError("name what changes: `labels` or `pinned`")
        return self

    def marks(self) -> run_engine.Marks:
        """Return what changes."""
        return run_engine.Marks(labels=self.labels, pinned=self.pinned)


class ResumeBody(BaseModel):
    """How an ended run is resumed; empty: from the causes of its ending, as it was."""

    model_config = strict({"from": "draft"}, {"args": {"scene_path": "Story/Scenes/SCN-the-locked-lamp-room.md"}})

    from_key: str | None = Field(None, alias="from", description="Key of the step to go back to.")
    args: dict[str, Any] | None = Field(None, description="Arguments put over those that the run has.")
    options: dict[str, Any] | None = Field(None, description="Options put over those that the run has.")
    recipe: Literal["current"] | None = Field(None, description="`current` uses the recipe as it is now.")
    conversation: Literal["new"] | None = Field(
        None, description="`new` begins the agent's conversation again, with the prompts and replies of the journal."
    )

    def request(self) -> requests.ResumeRequest:
        """Return the request that the body makes."""
        return requests.ResumeRequest(
            from_key=self.from_key,
            args=self.args,
            options=self.options,
            current_recipe=self.recipe == "current",
            new_conversation=self.conversation == "new",
        )


def seen_revision(named: int | None, matched: int | None) -> int | None:
    """Return the revision that a body and its `If-Match` name; None for any.

    Raises:
        errors.RequestInvalid: they name different ones.
    """
    if None not in (matched, named) and matched != named:
        flaw = errors.Flaw(path="$.revision", message="is not the one that If-Match names")
        raise errors.RequestInvalid(f"{flaw.path}: {flaw.message}", flaws=[flaw])
    return named if matched is None else matched
