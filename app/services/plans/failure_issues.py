"""Troubles: the issue that a failed task of a plan leaves behind."""

from __future__ import annotations

from typing import Any

from app.domain import issues, plain, plans
from app.flows.session_plan import rules
from app.services import issue_texts

KIND = "task"
"""Kind of these issues."""

CLOSED_BY_SUCCESS = frozenset({KIND, "dod"})
"""Kinds of the issues that close when a later try of their task is done."""

_TOLD_OTHERWISE = frozenset({"dod_failed", "run_cancelled", rules.RUN_DELETED})
"""Failures that have issues of their own, or that a person has brought about."""


def issue(plan: plans.Plan, task: plans.Task, masker: plain.Masker) -> issues.Issue | None:
    """Return the issue of a failed task, None where none is due. The same failure of the same run
    has the same issue.
    """
    error: dict[str, Any] = dict(task.error or {})
    if error.get("code") in _TOLD_OTHERWISE:
        return None
    # Hidden before anything is cut, so that no half of a secret is left.
    told, error = masker.mask(task.description), masker.mask(error)
    made = task.run_id or f"attempt {task.attempt}"
    digest = plain.sha256(f"{plan.session_id}:{task.id}:{made}".encode())
    return issues.made(
        f"iss_{digest[:20]}",
        task.ended_at or plan.updated_at,
        title=f"Task {task.id} failed: {plain.preview(told)}"[: issue_texts.TITLE_CHARACTERS],
        body=_body(task, told, error)[: issue_texts.BODY_CHARACTERS],
        kind=KIND,
        run_id=task.run_id,
        session_id=plan.session_id,
        severity="error",
        receipts=[],
        facts={"kind": KIND, "task": task.id, "code": error.get("code"), "step": error.get("key")},
    )


def _body(task: plans.Task, told: str, error: dict[str, Any]) -> str:
    where = f" at the step {error['key']}" if error.get("key") else ""
    by = f"Its run {task.run_id} failed{where}" if task.run_id else "No run could be made for it"
    if error.get("code") in (rules.NOT_MET, rules.REVIEW_FAILED):
        by = f"Its run {task.run_id} is done, but the task is not"
    return f"{told}\n\n{by}: {error.get('message')} ({error.get('code')})"
