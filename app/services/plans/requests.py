"""Requests: what a caller asks of a session plan, checked as values before any effect."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from app import errors
from app.domain import plain, plans, task_reviews
from app.services import requests

TASKS = 200  # Most tasks of a plan.
INTENT_CHARACTERS = 20_000  # Longest intent.
DESCRIPTION_CHARACTERS = 4_000  # Longest description of a task.
DOD_CHARACTERS = 4_000  # Longest definition of done of a task, in words.
QUESTION_CHARACTERS = 4_000  # Longest question about a task.
ANSWER_CHARACTERS = 4_000  # Longest answer to a question.
TASK_IDS = range(1, 1_000_000)  # Numbers that a task can have.

_SEPARATE = frozenset({"idempotency_key", "runs_above"})


class Left(Enum):
    """Marks a field as unchanged."""

    AS_IT_IS = "as it is"  # The only member; None is a value of its own.


AS_IT_IS: Final = Left.AS_IT_IS  # Leaves a field unchanged.

AsItIs: TypeAlias = Literal[Left.AS_IT_IS]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A requested task."""

    id: int | None = None  # Number within the plan; None: the next one.
    description: str  # Work to be done.
    recipe_id: str | None = None  # Recipe for the task; None: the router chooses by the description.
    args: Mapping[str, plain.Json] = field(default_factory=dict)
    """Arguments; values that the router finds in the description complete them."""
    deps: tuple[int, ...] = ()  # Tasks that must be done first.
    dod: str | Sequence[Mapping[str, plain.Json]] = ""
    """When the task is done: words for people, or checks as in recipes."""
    scoping_question: str | None = None  # Question that must be answered before the task starts.
    idempotency_key: str | None = None
    """Key by which a repeated request finds the same task; only for a task that is added to a plan."""

    def sha256(self) -> str:
        """Return the hash that distinguishes a repetition from another request with the same key."""
        return _sha256(_asked(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlan:
    """A requested session plan: an intent alone, which the chief splits, or tasks, with or without an intent."""

    intent: str | None = None  # Goal of the whole plan.
    tasks: tuple[NewTask, ...] = ()
    """Tasks in the order in which they are shown and started; empty: the chief makes them."""
    working_dir: str | None = None  # Workspace of its runs, absolute or below the project; None: the project.
    labels: Mapping[str, str] = field(default_factory=dict)  # Labels of its runs.
    priority: int = 0  # Priority of its runs, -100 to 100; a higher priority starts first.
    parent_run_id: str | None = None  # Run that requests the plan.
    runs_above: int | None = None
    """Number of runs above its own, if its parent may be of another project; None: it is of this one."""
    review: str = task_reviews.ON  # Whether definitions of done in words are reviewed: `on` or `off`.
    idempotency_key: str | None = None  # Key by which a repeated request finds the same plan.

    def sha256(self) -> str:
        """Return the hash that distinguishes a repetition from another request with the same key."""
        asked = _asked(self) | {"tasks": [_asked(task) for task in self.tasks]}
        if asked["review"] == task_reviews.ON:
            # Requests of 0.1.0 had no such field, and may be repeated now.
            del asked["review"]
        return _sha256(asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEdit:
    """A person's changes of a task; `AS_IT_IS` leaves a field unchanged."""

    description: str | AsItIs = AS_IT_IS  # Work to be done.
    recipe_id: str | AsItIs | None = AS_IT_IS  # Recipe for the task; None: the router chooses.
    args: Mapping[str, plain.Json] | AsItIs = AS_IT_IS  # All its arguments.
    deps: tuple[int, ...] | AsItIs = AS_IT_IS  # Tasks that must be done first.
    dod: str | Sequence[Mapping[str, plain.Json]] | AsItIs = AS_IT_IS  # When the task is done: words or checks.
    scoping_question: str | AsItIs | None = AS_IT_IS
    """Question that must be answered before the task starts; None withdraws the question."""

    def changes(self) -> dict[str, plain.Json]:
        """Return the changed fields, by name."""
        asked = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return {name: value for name, value in asked.items() if value is not AS_IT_IS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopingAnswer:
    """A person's answer to the open question about a task."""

    answer: str  # The answer.
    args: Mapping[str, plain.Json] = field(default_factory=dict)
    """Arguments that override those of the task."""
    recipe_id: str | None = None  # Recipe for the task; None: its present one, or the router chooses.


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """Result of a request for a new plan or for a further task."""

    plan: plans.Plan  # The plan in its present state.
    existed: bool  # Whether an earlier request created it.


def check(new: NewPlan) -> None:
    """Refuse values of the wrong form.

    Raises:
        errors.RequestInvalid: names every flaw.
    """
    flaws = [*_frame_flaws(new)]
    for index, task in enumerate(new.tasks[:TASKS]):
        flaws += task_flaws(task, f"$.tasks[{index}]")
    refuse(flaws)


def task_flaws(task: NewTask, path: str = "$") -> list[errors.Flaw]:
    """Return the flaws of a task's form, at their positions."""
    asked = {item.name: getattr(task, item.name) for item in dataclasses.fields(task)}
    flaws = list(_field_flaws(asked, path))
    flaws += requests.key_flaws(task.idempotency_key)
    if task.id is not None and task.id not in TASK_IDS:
        flaws.append(_flaw(f"{path}.id", f"must be from {TASK_IDS[0]} to {TASK_IDS[-1]}"))
    return flaws


def check_task(task: NewTask) -> None:
    """Refuse a task of the wrong form.

    Raises:
        errors.RequestInvalid: names every flaw.
    """
    refuse(task_flaws(task))


def check_edit(edit: TaskEdit) -> None:
    """Refuse an edit that changes nothing, or has the wrong form.

    Raises:
        errors.RequestInvalid: names every flaw.
    """
    changes = edit.changes()
    if not changes:
        refuse([_flaw("$", "changes nothing", "missing")])
    refuse(_field_flaws(changes, "$"))


def check_answer(answer: ScopingAnswer) -> None:
    """Refuse an answer that is blank or too long.

    Raises:
        errors.RequestInvalid: names every flaw.
    """
    refuse(_text_flaws(answer.answer, "$.answer", ANSWER_CHARACTERS))


def refuse(flaws: Iterator[errors.Flaw] | list[errors.Flaw]) -> None:
    """Refuse a request that has flaws.

    Raises:
        errors.RequestInvalid: it has flaws.
    """
    found = list(flaws)
    if found:
        raise errors.RequestInvalid(f"{found[0].path}: {found[0].message}", flaws=found)


def _asked(value: NewTask | NewPlan) -> dict[str, Any]:
    return {item.name: getattr(value, item.name) for item in dataclasses.fields(value) if item.name not in _SEPARATE}


def _sha256(asked: Mapping[str, Any]) -> str:
    return plain.sha256(plain.canonical(plain.plain(asked)))


def _frame_flaws(new: NewPlan) -> Iterator[errors.Flaw]:
    if new.intent is None and not new.tasks:
        yield _flaw("$.intent", "intent or tasks are required", "missing")
    if new.intent is not None:
        yield from _text_flaws(new.intent, "$.intent", INTENT_CHARACTERS)
    if len(new.tasks) > TASKS:
        yield _flaw("$.tasks", f"a plan has at most {TASKS} tasks", "too_many_tasks")
    if new.review not in (task_reviews.ON, task_reviews.OFF):
        yield _flaw("$.review", "must be on or off")
    as_run = requests.StartRequest(
        recipe_id="any", labels=new.labels, priority=new.priority, idempotency_key=new.idempotency_key
    )
    try:
        requests.check(as_run)
    except errors.RequestInvalid as error:
        yield from error.flaws


def _field_flaws(fields: Mapping[str, plain.Json], path: str) -> Iterator[errors.Flaw]:
    if "description" in fields:
        yield from _text_flaws(fields["description"], f"{path}.description", DESCRIPTION_CHARACTERS)
    dod = fields.get("dod") or ""
    if not isinstance(dod, str):
        from app.services.plans import task_checks

        yield from task_checks.flaws(dod, path)
    elif len(dod) > DOD_CHARACTERS:
        yield _flaw(f"{path}.dod", f"has more than {DOD_CHARACTERS} characters")
    question = fields.get("scoping_question")
    if question is not None:
        yield from _text_flaws(question, f"{path}.scoping_question", QUESTION_CHARACTERS)
    if len(fields.get("deps") or ()) > TASKS:
        yield _flaw(f"{path}.deps", f"names more than {TASKS} tasks")


def _text_flaws(text: str, path: str, most: int) -> Iterator[errors.Flaw]:
    if not text.strip():
        yield _flaw(path, "must say something", "missing")
    if len(text) > most:
        yield _flaw(path, f"has more than {most} characters")


def _flaw(path: str, message: str, code: str = "invalid") -> errors.Flaw:
    return errors.Flaw(path=path, message=message, code=code)
