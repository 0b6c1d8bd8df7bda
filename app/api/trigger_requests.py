"""Bodies of requests for triggers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from app.api import request_models
from app.domain import triggers
from app.services.triggers import requests

_Name = Annotated[str, Field(min_length=1, max_length=requests.NAME_CHARACTERS)]
_Pointers = Annotated[dict[str, Annotated[str, Field(max_length=500)]], Field(max_length=100)]


class ScheduleBody(BaseModel):
    """Times at which runs start: one of `cron`, `every_seconds` and `at`."""

    model_config = request_models.strict({"cron": "30 7 * * MON-FRI", "timezone": "Europe/Berlin"})

    cron: Annotated[str, Field(max_length=200)] | None = Field(None, description="Five fields of cron.")
    timezone: Annotated[str, Field(max_length=100)] = Field("UTC", description="Time zone of `cron`, by its IANA name.")
    every_seconds: int | None = Field(None, description="Seconds between two runs, from 10 to a year.")
    at: Annotated[str, Field(max_length=50)] | None = Field(None, description="One instant, with its offset.")


class WebhookBody(BaseModel):
    """Conditions for accepting deliveries."""

    model_config = request_models.strict({"scheme": "github", "events": ["push"]})

    scheme: triggers.Scheme = Field("none", description="How deliveries are signed.")
    events: Annotated[list[str], Field(max_length=requests.MOST_EVENTS)] = Field(
        default_factory=list, description="Only these events of GitHub; empty: all."
    )
    signing_secret: Annotated[str, Field(max_length=requests.SECRET_CHARACTERS)] | None = Field(
        None, description="Secret of the signatures; by default one is made."
    )


class FilesBody(BaseModel):
    """Files that start runs."""

    model_config = request_models.strict({"pattern": "inbox/*.md"})

    pattern: Annotated[str, Field(max_length=500)] = Field(description="A glob below `working_dir`.")
    settle_seconds: float = Field(2.0, description="How long a file must have stayed the same.", strict=False)
    existing: Literal["ignore", "start"] = Field("ignore", description="What becomes of files that are there now.")


class TriggerBody(BaseModel):
    """A new trigger: one of `schedule`, `webhook` and `files`."""

    model_config = request_models.strict(
        {
            "recipe_id": "analytical_prose",
            "args": {"scene_path": "Story/Scenes/SCN-the-arrival.md"},
            "schedule": {"cron": "30 7 * * MON-FRI", "timezone": "Europe/Berlin"},
        },
        {
            "recipe_id": "analytical_prose",
            "args_from": {"scene_path": "/path"},
            "files": {"pattern": "Story/Scenes/*.md"},
        },
    )

    recipe_id: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="Recipe that it starts.")
    name: _Name | None = Field(None, description="What people call it; by default the recipe's id.")
    args: dict[str, Any] = Field(default_factory=dict, description="Arguments of every run.")
    args_from: _Pointers = Field(
        default_factory=dict,
        description="Arguments that each occurrence brings: JSON pointers into the body of a delivery, or into "
        "`{path, absolute_path, name, size_bytes}` of a file.",
    )
    labels: request_models.Labels = Field(default_factory=dict, description="Labels of every run.")
    priority: request_models.Priority = Field(0, description="Priority of every run.")
    working_dir: str | None = Field(None, description="Workspace of every run; by default the project.")
    overlap: triggers.Overlap | None = Field(
        None, description="While an earlier run is unfinished; by default `skip` for schedules, else `allow`."
    )
    catch_up: triggers.CatchUp = Field("one", description="Which missed occurrences of a schedule are made up for.")
    paused: bool = Field(False, description="Whether it starts nothing at first.")
    schedule: ScheduleBody | None = Field(None, description="When it starts runs.")
    webhook: WebhookBody | None = Field(None, description="Requests that start runs.")
    files: FilesBody | None = Field(None, description="Files that start runs.")

    def new(self, idempotency_key: str | None) -> requests.NewTrigger:
        """Return the trigger that the body and its header describe."""
        kinds = ("schedule", "webhook", "files")
        given = {name: getattr(self, name).model_dump() for name in kinds if getattr(self, name) is not None}
        return requests.NewTrigger(**dict(self) | given, idempotency_key=idempotency_key)


class WebhookEditBody(BaseModel):
    """Changes to a webhook; omitted fields are unchanged."""

    model_config = request_models.strict({"scheme": "github", "events": ["push"]}, {"new_address": True})

    scheme: triggers.Scheme = Field("none", description="How deliveries are signed; another scheme needs a new secret.")
    events: Annotated[list[str], Field(max_length=requests.MOST_EVENTS)] = Field(
        default_factory=list, description="Only these events of GitHub; empty: all."
    )
    signing_secret: Annotated[str, Field(max_length=requests.SECRET_CHARACTERS)] | None = Field(
        None, description="Another secret of the signatures; null makes one."
    )
    new_address: bool = Field(False, description="Make another address; the one before admits nothing more.")


class FilesEditBody(BaseModel):
    """Changes to a file drop; omitted fields are unchanged."""

    model_config = request_models.strict({"pattern": "inbox/*.txt"})

    pattern: Annotated[str, Field(max_length=500)] = Field(
        "", description="Another glob; `existing` then decides about the files that are there now."
    )
    settle_seconds: float = Field(2.0, description="How long a file must have stayed the same.", strict=False)
    existing: Literal["ignore", "start"] = Field("ignore", description="What becomes of files that are there now.")


class TriggerEditBody(BaseModel):
    """Changes to a trigger."""

    model_config = request_models.strict(
        {"paused": True}, {"overlap": "queue", "revision": 1}, {"webhook": {"new_address": True}}
    )

    name: _Name | None = Field(None, description="Another name.")
    args: dict[str, Any] | None = Field(None, description="Other arguments.")
    args_from: _Pointers | None = Field(None, description="Other pointers.")
    labels: request_models.Labels | None = Field(None, description="Other labels.")
    priority: request_models.Priority | None = Field(None, description="Another priority.")
    overlap: triggers.Overlap | None = Field(None, description="Another policy.")
    catch_up: triggers.CatchUp | None = Field(None, description="Another rule.")
    paused: bool | None = Field(None, description="Pauses it, or lets it continue; a pause is not made up for.")
    schedule: ScheduleBody | None = Field(None, description="Another schedule; it counts from now.")
    webhook: WebhookEditBody | None = Field(None, description="Changes of its webhook.")
    files: FilesEditBody | None = Field(None, description="Changes of its files.")
    revision: Annotated[int, Field(ge=1)] | None = Field(None, description="Revision that was seen.")

    def edit(self) -> requests.TriggerEdit:
        """Return the changes."""
        given = {} if self.schedule is None else {"schedule": self.schedule.model_dump()}
        parts = {"webhook": self.webhook, "files": self.files}
        given |= {name: part.model_dump(exclude_unset=True) for name, part in parts.items() if part is not None}
        return requests.TriggerEdit(**dict(self) | given)


class FireBody(BaseModel):
    """An order to start a run of the trigger now."""

    model_config = request_models.strict({}, {"args": {"scene_path": "Story/Scenes/SCN-the-arrival.md"}})

    args: dict[str, Any] = Field(default_factory=dict, description="Arguments put over those of the trigger.")
    parent_run_id: str | None = Field(
        None, description="Run that asks; by default that of the agent or command that asks, where it is known."
    )
    runs_above: request_models.RunsAbove = None
