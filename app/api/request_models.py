"""Request bodies: strict in types and names; the use cases check what the values mean."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from app import errors
from app.api.concurrency_body import ConcurrencyBody
from app.domain import approvals, limits
from app.domain import issues as engine_issues
from app.engine import run_engine
from app.services import conferences, gates, issue_texts, issues, requests

_Text = Annotated[str, Field(max_length=requests.DESCRIPTION_CHARACTERS)]
LabelName = Annotated[str, Field(pattern=requests.LABEL_NAME_PATTERN)]  # Name of a label.

LabelValue = Annotated[str, Field(max_length=requests.LABEL_CHARACTERS)]  # Value of a label.

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
    description: _Text | None = Field(None, description="The task, as text; by default the recipe's label.")
    args: dict[str, Any] = Field(default_factory=dict, description="Arguments; the recipe's defaults fill the rest.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="How the recipe's language is to go about it; most languages take none."
    )
    session_id: Annotated[str, Field(pattern=requests.SESSION_ID_PATTERN)] | None = Field(
        None, description="Work session that receipts belong to; by default the parent's, or a new one."
    )
    session_plan_task_id: int | None = Field(None, description="Task of the session plan that asks.")
    working_dir: str | None = Field(
        None,
        description="Workspace, absolute or below the project, inside the allowed folders; by default the project.",
    )
    labels: dict[LabelName, LabelValue] = Field(
        default_factory=dict, max_length=requests.LABELS, description="Labels for finding the run again."
    )
    priority: int = Field(0, ge=requests.PRIORITIES[0], le=requests.PRIORITIES[-1], description="Higher goes first.")
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
    parent_run_id: str | None = Field(None, description="Run that asks; the depth of nested runs is limited.")
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


class AnswerBody(BaseModel):
    """A decision at a gate."""

    model_config = strict({"decision": "approve", "message": "well done"})

    decision: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="One of the gate's options.")
    message: Annotated[str, Field(max_length=gates.MESSAGE_CHARACTERS)] = Field(
        "", description="Message with the answer; later steps can read it."
    )
    shown_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        None, description="Hash of what was decided on; refused with `gate_lapsed` if its question has changed."
    )

    def reply(self, idempotency_key: str | None) -> gates.Reply:
        """Return the reply that the body and its header make."""
        return gates.Reply(**dict(self), idempotency_key=idempotency_key)


_Title = Annotated[str, Field(pattern=issue_texts.TITLE_PATTERN, max_length=issue_texts.TITLE_CHARACTERS)]
_Body = Annotated[str, Field(max_length=issue_texts.BODY_CHARACTERS)]
_ReceiptId = Annotated[str, Field(min_length=1, max_length=200)]


class IssueBody(BaseModel):
    """An issue written by hand."""

    model_config = strict({"title": "The lantern is lit again in scene 22", "kind": "continuity"})

    title: _Title = Field(description="One line.")
    body: _Body = Field("", description="Text of the issue.")
    kind: Annotated[str, Field(pattern=issue_texts.KIND_PATTERN)] = Field(
        "note", description="What sort of issue it is, in a word of small letters."
    )
    severity: engine_issues.Severity | None = Field(None, description="Severity of the issue.")
    run_id: str | None = Field(None, description="Run that it is about.")
    session_id: str | None = Field(
        None, description="Work session that it belongs to; by default that of the run, or of the receipts."
    )
    receipts: Annotated[list[_ReceiptId], Field(max_length=issues.RECEIPTS)] = Field(
        default_factory=list, description="Receipts that prove it."
    )

    def issue(self, idempotency_key: str | None) -> issues.NewIssue:
        """Return the issue that the body and its header describe."""
        return issues.NewIssue(**(dict(self) | {"receipts": tuple(self.receipts)}), idempotency_key=idempotency_key)


class IssueEditBody(BaseModel):
    """Changes to an issue."""

    model_config = strict({"status": "closed", "note": "mended in the second draft", "revision": 1})

    title: _Title | None = Field(None, description="Another title.")
    body: _Body | None = Field(None, description="Another body.")
    severity: engine_issues.Severity | None = Field(None, description="Another severity.")
    status: Literal["open", "closed"] | None = Field(None, description="Closes it, or opens it again.")
    note: Annotated[str, Field(min_length=1, max_length=issue_texts.NOTE_CHARACTERS)] | None = Field(
        None, description="A note, stored after the earlier ones."
    )
    revision: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Revision that was seen; refused with `issue_changed` if the issue has another one."
    )

    def edit(self, matched: int | None) -> issues.Edit:
        """Return the change that the body and its header make.

        Raises:
            errors.RequestInvalid: they name different revisions.
        """
        return issues.Edit(**(dict(self) | {"revision": seen_revision(self.revision, matched)}))


class RepairBody(BaseModel):
    """Options of a repair; empty: repair at once."""

    model_config = strict({}, {"dry_run": True})

    dry_run: bool = Field(False, description="Change nothing; return what a repair would change.")


class ValidateBody(BaseModel):
    """A recipe to look at, as an object or as the text of its file."""

    model_config = strict(
        {
            "recipe": {
                "recipe_id": "mine",
                "label": "Mine",
                "phase_a": [
                    {
                        "step_id": "find",
                        "tool": "file_locator",
                        "args": {"search_criteria": "harbour"},
                        "output_slot": "found",
                    }
                ],
                "dod": [{"check": "slot_not_null", "slot": "found"}],
            }
        }
    )

    recipe: dict[str, Any] | str = Field(description="The recipe; text keeps line numbers in the flaws.")
    dialect: str = Field("control_room", description="Language it is written in.")


class RouteBody(BaseModel):
    """A task to find a recipe for."""

    model_config = strict({"description": "draft scene 21"})

    description: _Text = Field(description="The task, as text.")


def seen_revision(named: int | None, matched: int | None) -> int | None:
    """Return the revision that a body and its `If-Match` name; None for any.

    Raises:
        errors.RequestInvalid: they name different ones.
    """
    if None not in (matched, named) and matched != named:
        flaw = errors.Flaw(path="$.revision", message="is not the one that If-Match names")
        raise errors.RequestInvalid(f"{flaw.path}: {flaw.message}", flaws=[flaw])
    return named if matched is None else matched


_Name = Annotated[str, Field(min_length=1, max_length=200)]


class ConferenceBody(BaseModel):
    """A conference: a message to several agents, and what they may judge it by."""

    model_config = strict(
        {"message": "Is the lantern's light in scene 21 what the canon says of it?"},
        {
            "message": "Does the arrival hold up beside the outline?",
            "agents": ["critic", "continuity-001"],
            "allowed_tools": ["file_locator", "outline_analyzer"],
            "require_tool": True,
        },
    )

    message: Annotated[str, Field(min_length=1, max_length=conferences.MESSAGE_CHARACTERS, pattern=r"\S")] = Field(
        description="What the team is asked."
    )
    agents: Annotated[list[_Name], Field(max_length=conferences.MOST_AGENTS)] | None = Field(
        None,
        description="Agents to ask, by id or archetype, the chief too if named; by default all others that confer.",
    )
    allowed_tools: Annotated[list[_Name], Field(max_length=200)] | None = Field(
        None, description="Tools that the chief may call; by default all, an empty list: none."
    )
    require_tool: bool = Field(False, description="Whether at least one call of the chief must bring something.")
    max_tool_calls: int = Field(
        conferences.USUAL_TOOL_CALLS,
        ge=1,
        le=conferences.MOST_TOOL_CALLS,
        description="Calls that the chief may make, refused ones included.",
    )
    session_id: Annotated[str, Field(pattern=requests.SESSION_ID_PATTERN)] | None = Field(
        None, description="Work session that receipts belong to; by default the parent's, or a new one."
    )
    working_dir: str | None = Field(None, description="Workspace of the tools; by default the project.")
    labels: dict[LabelName, LabelValue] = Field(
        default_factory=dict, max_length=requests.LABELS, description="Labels for finding the run again."
    )
    priority: int = Field(0, ge=requests.PRIORITIES[0], le=requests.PRIORITIES[-1], description="Higher goes first.")
    parent_run_id: str | None = Field(None, description="Run that asks; the depth of nested runs is limited.")
    runs_above: RunsAbove = None

    def conference(self, idempotency_key: str | None) -> conferences.NewConference:
        """Return the conference that the body and its header ask for."""
        return conferences.NewConference(**dict(self), idempotency_key=idempotency_key)
