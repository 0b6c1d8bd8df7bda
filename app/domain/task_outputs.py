"""Task outputs: outputs of tasks as arguments of later tasks: `{"$task": 1, "output": "edited_draft"}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app import errors
from app.domain import json_text, plain, task_graphs

NAME = "$task"  # Field that makes an object a reference; its value is the task: `1`, `"1"` or `"t1"`.

OUTPUT = "output"
"""Field that names a slot of the task's run, or a place inside one: `discovery.matches[0].path`."""

PATH = "path"  # Field that names a slot instead, for the file to which its text was written.
MAX_CHARACTERS = 500  # Longest name of an output.

_FORM = f'a reference has the form {{"{NAME}": 1, "{OUTPUT}": "slot"}} or {{"{NAME}": 1, "{PATH}": "slot"}}'
_TASK = re.compile(r"t?([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A parsed reference."""

    task: int  # Number of the task.
    field: str  # `output` or `path`.
    name: str  # The slot, or the place inside it.

    def __str__(self) -> str:
        return f"the {self.field} {self.name!r:.80} of task {self.task}"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """The facts of a task that references need."""

    id: int  # Number of the task.
    deps: Sequence[int]  # Tasks that it depends on.
    args: Mapping[str, plain.Json]  # Arguments of the task.
    path: str  # Position of the task in the input, e.g. `$.tasks[2]`.


def read(value: plain.Object) -> Reference:
    """Read a reference.

    Raises:
        ValueError: the object does not have the form of one; the message names the flaw.
    """
    task, names = value[NAME], value.keys() - {NAME}
    found = None if isinstance(task, bool) else _TASK.fullmatch(str(task) if isinstance(task, int | str) else "")
    if found is None:
        raise ValueError(f'{NAME} must be the number of a task, such as 1 or "t1"')
    if names not in ({OUTPUT}, {PATH}):
        raise ValueError(_FORM)
    (field,) = names
    name = value[field]
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_CHARACTERS:
        raise ValueError(f"{field} must name a slot, in at most {MAX_CHARACTERS} characters")
    return Reference(task=int(found[1]), field=field, name=name)


def found_in(value: plain.Json, place: json_text.Parts = ()) -> Iterator[tuple[json_text.Parts, plain.Object]]:
    """Yield every object inside a value that has the field of a reference, with its place."""
    if isinstance(value, dict):
        if NAME in value:
            yield place, value
            return
        for name, item in value.items():
            yield from found_in(item, (*place, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from found_in(item, (*place, index))


def named(args: Mapping[str, plain.Json]) -> frozenset[str]:
    """Return the arguments that contain references, whose values are therefore not known yet."""
    return frozenset(name for name, value in args.items() if next(found_in(value), None) is not None)


def replaced(value: plain.Json, values: Mapping[Reference, plain.Json]) -> plain.Json:
    """Return a value with its references replaced by their values."""
    if isinstance(value, dict):
        if NAME in value:
            return values[read(value)]
        return {name: replaced(item, values) for name, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, values) for item in value]
    return value


def references(args: Mapping[str, plain.Json]) -> list[Reference]:
    """Return the references in arguments, each once.

    Raises:
        ValueError: one of them does not have the required form.
    """
    return list(dict.fromkeys(read(value) for _, value in found_in(dict(args))))


def flaws(users: Sequence[User]) -> list[errors.Flaw]:
    """Return the flaws of the references of tasks: `invalid`, `unknown_task`, `not_a_dependency`.

    Args:
        users: All tasks of a plan, without cycles; a dependency on an unknown task is ignored.
    """
    needed: dict[int, frozenset[int]] = {}
    deps = {user.id: user.deps for user in users}
    nodes = [task_graphs.Node(id=user.id, deps=user.deps, path=user.path) for user in users]
    # In this order, the dependencies of each task are known before the task itself.
    for task_id in task_graphs.in_order(nodes):
        needed[task_id] = frozenset(deps[task_id]).union(*(needed.get(dep, ()) for dep in deps[task_id]))
    return [flaw for user in users for flaw in _flaws(user, needed)]


def _flaws(user: User, needed: Mapping[int, frozenset[int]]) -> Iterator[errors.Flaw]:
    for place, value in found_in(dict(user.args)):
        path = f"{user.path}{json_text.json_path(('args', *place)).removeprefix('$')}"
        try:
            reference = read(value)
        except ValueError as error:
            yield errors.Flaw(path=path, message=str(error))
            continue
        if reference.task not in needed:
            message = f"there is no task {reference.task}"
            yield errors.Flaw(path=f"{path}.{NAME}", code="unknown_task", message=message)
        elif reference.task not in needed[user.id]:
            message = f"task {user.id} does not depend on task {reference.task}; add {reference.task} to its deps"
            yield errors.Flaw(path=f"{path}.{NAME}", code="not_a_dependency", message=message)
