"""Answers and bodies of the routes that verify and repair, for the OpenAPI document."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api import request_models
from app.domain import states


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FileVerified(_Answer):
    """What was found in one file."""

    file: str = Field(description="File, within the folder of what is checked.", examples=["steps.jsonl"])
    state: Literal["ok", "torn", "corrupt", "unreadable"] = Field(
        description="`torn`: an end that was never confirmed, which the next opening cuts off; `unreadable`: it cannot "
        "be read now, which says nothing about what it holds."
    )
    lines: int | None = Field(description="Lines that can be believed; null where they were not counted.")
    line: int | None = Field(description="First line that cannot be believed, from 1; null for the whole file.")
    reason: str | None = Field(description="What is wrong there.")


class Verification(_Answer):
    """What was found when something was checked; nothing was changed."""

    kind: Literal["run", "receipts", "plan", "issue", "conversation"]
    id: str = Field(description="Id of the run; else the name of the file or folder in the data directory.")
    state: Literal["sound", "damaged", "unreadable"] = Field(
        description="`unreadable`: nothing is known to be damaged, but a file cannot be read now."
    )
    ok: bool = Field(description="Whether it is sound.")
    run_id: str | None = Field(default=None, description="The same as `id`, only of a run.")
    files: list[FileVerified]
    advice: str | None = Field(description="What to do where something is damaged.")


class JournalRepaired(_Answer):
    """What a repair keeps of a journal."""

    file: Literal["steps.jsonl", "control.jsonl"]
    kept: int = Field(description="Lines that are kept.")
    lost: int = Field(description="Lines that are cut off.")
    aside: str | None = Field(description="File beside it that keeps the damaged journal whole; null: nothing is cut.")
    reason: str | None = Field(description="What is wrong behind the kept lines.")


class Repaired(_Answer):
    """What a repair has changed, or would change."""

    run_id: str
    changed: bool = Field(description="Whether there is anything to repair.")
    dry_run: bool = Field(description="Whether nothing was changed, and this tells what would be.")
    status: states.RunState = Field(description="Where the run stands afterwards.")
    files: list[JournalRepaired]


class RepairBody(BaseModel):
    """How a run is repaired; empty: at once."""

    model_config = request_models.strict({}, {"dry_run": True})

    dry_run: bool = Field(False, description="Change nothing, and tell what would be changed.")
