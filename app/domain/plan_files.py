"""Plan files: reads session plans from JSON, written by the service or by hand (execution-modes, appendix G).

Missing or null fields get their defaults, unknown fields are kept, and each invalid value is reported with its place.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NoReturn, TypeAlias

from app import clock, errors
from app.domain import authors, plain, shapes, task_graphs, task_reviews
from app.domain.plans import Plan, Task

_Read: TypeAlias = Callable[[Any], Any]

_LEAST = {"last_task_id": 0, "runs_above": 0, "attempt": 0}
_PRIORITIES = range(-100, 101)


def read(content: bytes) -> Plan:
    """Read a plan from the bytes of its file.

    Raises:
        errors.InputRefused: `plan_damaged`, with all flaws.
    """
    try:
        value = plain.plain(json.loads(content, parse_constant=_refuse_constant))
    except (ValueError, RecursionError, errors.InputRefused) as error:
        raise _damaged([errors.Flaw(path="$", code="not_json", message=f"is not JSON: {error}"[:200])]) from error
    return from_json(value)


def from_json(value: plain.Json) -> Plan:
    """Read a plan from plain JSON.

    Raises:
        errors.InputRefused: as `read`.
    """
    flaws: list[errors.Flaw] = []
    plan = _accepted_fields(Plan, value, "$", flaws, needed=("session_id", "tasks"))
    found = [
        _accepted_fields(Task, each, f"$.tasks[{index}]", flaws, needed=("id", "description"))
        for index, each in enumerate(plan.get("tasks", ()))
    ]
    # The graph is checked only if every task could be read.
    if not flaws:
        nodes = [(task["id"], task.get("deps", ())) for task in found]
        flaws = task_graphs.flaws(
            [task_graphs.Node(id=each, deps=deps, path=f"$.tasks[{at}]") for at, (each, deps) in enumerate(nodes)]
        )
    if flaws:
        raise _damaged(flaws)
    plan = {"created_at": plain.LONG_AGO, **plan}
    # A task with a run set by hand has begun one attempt; a plan with a parent is below one run.
    plan = {"updated_at": plan["created_at"], "runs_above": int("parent_run_id" in plan), **plan}
    return Plan(**plan | {"tasks": tuple(Task(**{"attempt": int("run_id" in task), **task}) for task in found)})


def review(value: Any) -> task_reviews.Review:
    """Read a task's review.

    Raises:
        ValueError: the value has another form.
    """
    found: task_reviews.Review = _shape(task_reviews.Review, value)
    return found


def proposals(value: Any) -> tuple[task_reviews.Proposal, ...]:
    """Read proposals.

    Raises:
        ValueError: the value has another form.
    """
    return tuple(_shape(task_reviews.Proposal, each) for each in _list(value))


def _accepted_fields(
    kind: type, value: Any, path: str, flaws: list[errors.Flaw], needed: tuple[str, ...]
) -> dict[str, Any]:
    """Return the given fields that are valid, with unknown ones under `other`; add flaws to `flaws`."""
    if not isinstance(value, dict):
        flaws.append(errors.Flaw(path=path, message="must be an object"))
        return {}
    known, taken = _readers(kind), dict[str, Any]()
    for name, read_field in known.items():
        if (given := value.get(name)) is not None:
            try:
                taken[name] = read_field(given)
            except ValueError as error:
                flaws.append(errors.Flaw(path=f"{path}.{name}", message=str(error)))
        elif name in needed:
            flaws.append(errors.Flaw(path=f"{path}.{name}", code="missing", message="is missing"))
    return taken | {"other": {name: each for name, each in value.items() if name not in known}}


def _shape(kind: type, value: Any) -> Any:
    readers, given = _readers(kind), _object(value)
    optional = {each.name for each in dataclasses.fields(kind) if not _is_required(each)}
    named = [name for name in readers if given.get(name) is not None or name not in optional]
    return kind(**{name: readers[name](given.get(name)) for name in named})


def _is_required(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING


@functools.cache
def _readers(kind: type) -> dict[str, _Read]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {each.name: _reader(hints[each.name], each.name) for each in shapes.published(kind)}


def _reader(hint: Any, name: str) -> _Read:
    """Return the reader of a field by its type; annotations of the type narrow it, as in the OpenAPI document."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in _READERS:
        return _READERS[hint]
    if hint is int:
        return _priority if name == "priority" else functools.partial(_number, least=_LEAST.get(name, 1))
    if origin is typing.Annotated:
        return _narrowed(inner[0], inner[1], name)
    if origin in (typing.Union, types.UnionType):
        given = [each for each in inner if each is not types.NoneType]
        return _reader(given[0], name) if len(given) == 1 else _dod
    if origin is tuple:
        read_item = _reader(inner[0], name)
        return _list if inner[0] is Task else lambda value: tuple(read_item(each) for each in _list(value))
    if origin is not None:
        return _labels if inner[1] is str else _object
    if issubclass(hint, StrEnum):
        return functools.partial(_one_of, names=[*hint], kind=hint)
    return functools.partial(_shape, hint)


def _narrowed(hint: Any, note: Any, name: str) -> _Read:
    if typing.get_origin(note) is Literal:
        return functools.partial(_one_of, names=typing.get_args(note))
    if isinstance(note, type) and issubclass(note, StrEnum):
        return functools.partial(_one_of, names=[*note])
    return _reader(hint, name)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _refuse("must be a text")


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse("must be true or false")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else _refuse("must be a list")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else _refuse("must be an object")


def _labels(value: Any) -> dict[str, str]:
    found = _object(value)
    return found if all(isinstance(each, str) for each in found.values()) else _refuse("must hold texts")


def _number(value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        _refuse(f"must be a whole number from {least} on")
    return value


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in _PRIORITIES:
        _refuse(f"must be a whole number from {_PRIORITIES[0]} to {_PRIORITIES[-1]}")
    return value


def _one_of(value: Any, names: Sequence[str], kind: Callable[[str], str] = str) -> str:
    return kind(value) if value in names else _refuse(f"must be one of {', '.join(names)}")


def _author(value: Any) -> dict[str, plain.Json]:
    found = authors.in_line({"author": value}) or {}
    return found if authors.is_author(found) else _refuse("must be an author, {name, claimed, via}")


def _dod(value: Any) -> str | tuple[Mapping[str, Any], ...]:
    if isinstance(value, list):
        return tuple(_object(each) for each in value)
    return value if isinstance(value, str) else _refuse("must be a text, or a list of checks")


def _instant(value: Any) -> str:
    # In one form, so that texts sort as times do.
    try:
        return clock.stamp(clock.instant(_text(value)))
    except (ValueError, OverflowError):
        return _refuse("must be an instant such as 2026-02-10T14:00:00Z")


_READERS: Mapping[Any, _Read] = {str: _text, bool: _flag, shapes.Instant: _instant, authors.Shown: _author}


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _damaged(flaws: list[errors.Flaw]) -> errors.InputRefused:
    message = f"{flaws[0].path}: {flaws[0].message}"
    return errors.InputRefused(message, code="plan_damaged", flaws=flaws)
