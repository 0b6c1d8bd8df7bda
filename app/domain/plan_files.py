"""Plan files: session plans read from JSON, written by the service or by hand (execution-modes, appendix G).

Missing or null fields have their defaults, unknown fields stay, and each invalid value is reported with its position.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from app import clock, errors
from app.domain import authors, plain, task_graphs, task_reviews
from app.domain.plans import Plan, PlanState, Scoping, Task, TaskState

_T = TypeVar("_T")
_State = TypeVar("_State", bound=StrEnum)

_LONG_AGO = "1970-01-01T00:00:00.000Z"
_PRIORITIES = range(-100, 101)


def read(content: bytes) -> Plan:
    """Read a plan from the bytes of its file.

    Raises:
        errors.InputRefused: `plan_damaged`, with every flaw found.
    """
    try:
        value = plain.plain(json.loads(content, parse_constant=_refuse_constant))
    except (ValueError, RecursionError, errors.InputRefused) as error:
        raise _damaged([errors.Flaw(path="$", code="not_json", message=f"is no JSON: {error}"[:200])]) from error
    return from_json(value)


def from_json(value: plain.Json) -> Plan:
    """Read a plan from plain JSON.

    Raises:
        errors.InputRefused: as `read`.
    """
    reader = _Reader("$", value)
    listed = reader.take("tasks", _list, needed=True) or []
    readers = [_Reader(f"$.tasks[{index}]", each) for index, each in enumerate(listed)]
    found = [_task(each) for each in readers]
    plan = _plan(reader)
    flaws = [*reader.flaws, *(flaw for each in readers for flaw in each.flaws)]
    if not flaws:
        flaws = task_graphs.flaws([_node(task, index) for index, task in enumerate(found)])
    if flaws:
        raise _damaged(flaws)
    return Plan(**plan, tasks=tuple(Task(**each) for each in found))


@dataclass(slots=True)
class _Reader:
    """Takes the fields of an object one by one, and notes their flaws."""

    path: str
    value: Any
    flaws: list[errors.Flaw] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not isinstance(self.value, dict):
            self.flaws.append(errors.Flaw(path=self.path, message="must be an object"))
            self.value = None

    def take(self, name: str, read: Callable[[Any], Any], default: Any = None, *, needed: bool = False) -> Any:
        """Return a field as it is read; its default where it is missing or null, or cannot be read."""
        self.taken.add(name)
        if self.value is None:
            return default
        given = self.value.get(name)
        if given is None:
            if needed:
                self._tell(name, "is missing", "missing")
            return default
        try:
            return read(given)
        except ValueError as error:
            self._tell(name, str(error))
            return default

    def rest(self) -> dict[str, plain.Json]:
        """Return the fields that were not taken."""
        return {name: each for name, each in (self.value or {}).items() if name not in self.taken}

    def _tell(self, name: str, message: str, code: str = "invalid") -> None:
        self.flaws.append(errors.Flaw(path=f"{self.path}.{name}", code=code, message=message))


def _plan(reader: _Reader) -> dict[str, Any]:
    created_at = reader.take("created_at", _instant, _LONG_AGO)
    parent_run_id = reader.take("parent_run_id", _text)
    fields = {
        "session_id": reader.take("session_id", _text, "", needed=True),
        "created_by": reader.take("created_by", _text, "user"),
        "status": reader.take("status", _state(PlanState), PlanState.DRAFT),
        "intent": reader.take("intent", _text),
        "created_at": created_at,
        "updated_at": reader.take("updated_at", _instant, created_at),
        "revision": reader.take("revision", _number(1), 1),
        "last_task_id": reader.take("last_task_id", _number(0), 0),
        "awaits_chief": reader.take("awaits_chief", _flag, False),
        "chief_run_id": reader.take("chief_run_id", _text),
        "error": reader.take("error", _object),
        "working_dir": reader.take("working_dir", _text),
        "labels": reader.take("labels", _labels, {}),
        "priority": reader.take("priority", _priority, 0),
        "parent_run_id": parent_run_id,
        "runs_above": reader.take("runs_above", _number(0), 0 if parent_run_id is None else 1),
        "request_sha256": reader.take("request_sha256", _text),
        "review": reader.take("review", _switch),
        "reviewer": reader.take("reviewer", _reviewer),
        "proposals": reader.take("proposals", proposals, ()),
        "approved_by": reader.take("approved_by", _author),
        "started_by": reader.take("started_by", _author),
        "changed_by": reader.take("changed_by", _author),
    }
    return fields | {"other": reader.rest()}


def _task(reader: _Reader) -> dict[str, Any]:
    run_id = reader.take("run_id", _text)
    fields = {
        "id": reader.take("id", _number(1), 0, needed=True),
        "description": reader.take("description", _text, "", needed=True),
        "recipe_id": reader.take("recipe_id", _text),
        "routed": reader.take("routed", _flag, False),
        "args": reader.take("args", _object, {}),
        "deps": reader.take("deps", _numbers, ()),
        "dod": reader.take("dod", _dod, ""),
        "scoping_question": reader.take("scoping_question", _text),
        "asked_by": reader.take("asked_by", _text),
        "scoping_answer": reader.take("scoping_answer", _text),
        "scoping_before": reader.take("scoping_before", _scopings, ()),
        "status": reader.take("status", _state(TaskState), TaskState.PENDING),
        "run_id": run_id,
        # A task with a run set by hand has begun once.
        "attempt": reader.take("attempt", _number(0), 0 if run_id is None else 1),
        "earlier_runs": reader.take("earlier_runs", _texts, ()),
        "forced": reader.take("forced", _flag, False),
        "error": reader.take("error", _object),
        "started_at": reader.take("started_at", _instant),
        "ended_at": reader.take("ended_at", _instant),
        "idempotency_key": reader.take("idempotency_key", _text),
        "request_sha256": reader.take("request_sha256", _text),
        "review": reader.take("review", review),
    }
    return fields | {"other": reader.rest()}


def _node(task: Mapping[str, Any], index: int) -> task_graphs.Node:
    return task_graphs.Node(id=task["id"], deps=task["deps"], path=f"$.tasks[{index}]")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _refuse("must be a text")


def _author(value: Any) -> dict[str, plain.Json]:
    found = authors.in_line({"author": value}) or {}
    return found if authors.is_author(found) else _refuse("must be an author, {name, claimed, via}")


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(each) for each in _list(value))


def _dod(value: Any) -> str | tuple[dict[str, Any], ...]:
    if isinstance(value, list):
        return tuple(_object(each) for each in value)
    return value if isinstance(value, str) else _refuse("must be a text, or a list of checks")


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse("must be true or false")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else _refuse("must be a list")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else _refuse("must be an object")


def _labels(value: Any) -> dict[str, str]:
    found = _object(value)
    return found if all(isinstance(each, str) for each in found.values()) else _refuse("must hold texts")


def _number(least: int) -> Callable[[Any], int]:
    def read_number(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            _refuse(f"must be a whole number from {least} on")
        return value

    return read_number


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(_number(1)(each) for each in _list(value))


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in _PRIORITIES:
        _refuse(f"must be a whole number from {_PRIORITIES[0]} to {_PRIORITIES[-1]}")
    return value


def _state(kind: type[_State]) -> Callable[[Any], _State]:
    def read_state(value: Any) -> _State:
        names = [state.value for state in kind]
        return kind(value) if value in names else _refuse(f"must be one of {', '.join(names)}")

    return read_state


def _scopings(value: Any) -> tuple[Scoping, ...]:
    return tuple(_scoping(_object(each)) for each in _list(value))


def _scoping(value: Mapping[str, Any]) -> Scoping:
    return Scoping(
        question=_text(value.get("question")),
        answer=_text(value.get("answer")),
        asked_by=_maybe(_text, value.get("asked_by")),
    )


def _switch(value: Any) -> str:
    return str(value) if value in (task_reviews.ON, task_reviews.OFF) else _refuse("must be on or off")


def _reviewer(value: Any) -> task_reviews.Reviewer:
    found = _object(value)
    return task_reviews.Reviewer(
        by=_text(found.get("by")),
        agent_id=_maybe(_text, found.get("agent_id")),
        why=_maybe(_text, found.get("why")),
        tasks=_numbers(found.get("tasks") or []),
    )


def review(value: Any) -> task_reviews.Review:
    """Read a task's review.

    Raises:
        ValueError: it has another form.
    """
    found = _object(value)
    texts = {name: _maybe(_text, found.get(name)) for name in ("run_id", "gate_id", "by", "why", "evidence")}
    return task_reviews.Review(
        status=_state(task_reviews.ReviewState)(found.get("status")),
        number=_number(1)(found.get("number", 1)),
        verdict=_maybe(_state(task_reviews.Verdict), found.get("verdict")),
        usage=_maybe(_object, found.get("usage")),
        **texts,
    )


def proposals(value: Any) -> tuple[task_reviews.Proposal, ...]:
    """Read proposals.

    Raises:
        ValueError: they have another form.
    """
    return tuple(_proposal(_object(each)) for each in _list(value))


def _proposal(value: Mapping[str, Any]) -> task_reviews.Proposal:
    return task_reviews.Proposal(
        id=_number(1)(value.get("id")),
        after_task=_number(1)(value.get("after_task")),
        kind=_state(task_reviews.ProposalKind)(value.get("kind")).value,
        task=_maybe(_number(1), value.get("task")),
        fields=_object(value.get("fields") or {}),
        why=_text(value.get("why") or ""),
        status=_state(task_reviews.ProposalState)(value.get("status") or task_reviews.ProposalState.OPEN.value),
        problem=_maybe(_text, value.get("problem")),
    )


def _maybe(read: Callable[[Any], _T], value: Any) -> _T | None:
    return None if value is None else read(value)


def _instant(value: Any) -> str:
    # One form, so that texts sort as times do.
    try:
        return clock.stamp(clock.instant(_text(value)))
    except (ValueError, OverflowError):
        return _refuse("must be an instant such as 2026-02-10T14:00:00Z")


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _damaged(flaws: list[errors.Flaw]) -> errors.InputRefused:
    told = f"{flaws[0].path}: {flaws[0].message}"
    return errors.InputRefused(told, code="plan_damaged", flaws=flaws)
