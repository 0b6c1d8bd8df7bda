"""Crash points: names that storage reports before and after each write, so that tests can stop at every one."""

from __future__ import annotations

_JOURNALS = ("append", "decide")  # steps.jsonl and control.jsonl.
_REPLACED = (
    "snapshot",
    "blob",
    "issue",
    "plan",
    "document",
    "project_file",
    "heal",
    "adopt.aside",
    "adopt.steps",
    "adopt.control",
    "adopt.start",
    "repair.aside",
    "repair.prefix",
)
"""Writes that put a file in place by a rename."""
_OTHERS = (
    "commit.before_segment",
    "commit.before_write",
    "commit.before_sync",
    "commit.after_sync",
    "commit.before_checkpoint",
    "commit.before_drop",
    "commit.before_restore",
    "create.before_sync",
    "create.after_sync",
    "create.before_folder",
    "create.before_start",
    "create.before_folder_sync",
    "create.before_rename",
    "create.before_runs_sync",
    "create.before_row",
    "create.after_row",
    "events.before_append",
    "events.after_append",
    "audit.before_append",
    "audit.after_append",
    "receipt.before_append",
    "receipt.before_row",
    "receipt.after_row",
    "inherit.before_blob",
    "inherit.before_steps",
    "inherit.after_steps",
    "label.before_row",
    "move.before_row",
    "move.after_row",
    "cut.before_cut",
    "cut.after_cut",
    "plan.before_marker",
    "plan.before_remove",
    "plan.after_remove",
    "document.before_remove",
    "document.after_remove",
    "delete.before_rename",
    "delete.before_sync",
    "delete.before_row",
    "delete.after_row",
    "delete.before_sweep",
)

POINTS: tuple[str, ...] = (
    *(f"storage.{name}.{at}" for name in _JOURNALS for at in ("before_write", "before_sync", "after_sync")),
    *(f"storage.{name}.{at}" for name in _REPLACED for at in ("before_write", "before_rename", "after_rename")),
    *(f"storage.{name}" for name in _OTHERS),
)
"""Every name that storage passes to `Probes.reach`."""
