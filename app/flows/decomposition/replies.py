"""Replies: convert the chief's reply into tasks, or report all its flaws; and read and write the tasks of a run's
slot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from app import errors
from app.domain import json_schemas, json_text, plain, records, task_graphs, task_outputs
from app.flows.decomposition import schema

MAX_BYTES = records.BLOB_BYTES  # Largest size of all tasks together, as JSON.

_FENCE = "```"
_NOTHING = frozenset({"", "null", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """A task as the chief describes it."""

    id: int  # Its number, unique among the tasks.
    description: str  # What the task does.
    deps: tuple[int, ...] = ()  # Numbers of the tasks that must be done before this one; each of them precedes it.
    dod: str = ""  # Definition of done.
    args: plain.Object = field(default_factory=dict)
    """Arguments that the chief knows; they are not checked yet."""
    scoping_question: str | None = None  # Question that a person must answer first.

    def to_json(self) -> dict[str, plain.Json]:
        """Return the task in the form of the slot."""
        return {name: plain.plain(getattr(self, name)) for name in self.__slots__}


def read(
    reply: str, most_tasks: int, *, whole: bool = True, exact: bool = True, outputs: bool = True
) -> tuple[TaskDraft, ...]:
    """Return the tasks of a reply that is JSON, or has it in a fenced block; each task is after those that it
    depends on.

    Args:
        whole: Whether each task must have dependencies and a definition of done.
        outputs: Whether arguments may be outputs of earlier tasks; before, an object with `$task` was any object.
        exact: Whether half of a surrogate pair is a flaw; the first version did not check this, and had other messages.

    Raises:
        errors.InputRefused: with every flaw and its path, from the first stage that finds any: the JSON, its
            schema, the dependencies, the size.
    """
    value = json_text.read(inside(reply), exact=exact)
    _refuse(json_schemas.flaws(schema.checked(most_tasks, whole=whole), value, as_first=not exact))
    drafts = {index: _draft(task) for index, task in enumerate(value["tasks"])}
    # By their position in the reply, so that a flaw names its place.
    nodes = [_node(index, draft.id, value["tasks"][index].get("deps", ())) for index, draft in drafts.items()]
    # To name a dependency twice has the same meaning as to name it once.
    _refuse([flaw for flaw in task_graphs.flaws(nodes) if flaw.code != "repeated_dependency"])
    if outputs:
        users = [(draft, node.path) for draft, node in zip(drafts.values(), nodes, strict=True)]
        used = [task_outputs.User(id=each.id, deps=each.deps, args=each.args, path=path) for each, path in users]
        _refuse(task_outputs.flaws(used))
    by_id = {draft.id: draft for draft in drafts.values()}
    ordered = tuple(by_id[task_id] for task_id in task_graphs.in_order(nodes))
    size_bytes = len(text(ordered).encode())
    if size_bytes > MAX_BYTES:
        message = f"have {size_bytes} bytes together, more than the {MAX_BYTES} that a plan may have"
        _refuse([json_schemas.flaw(("tasks",), "too_large", message)])
    return ordered


def text(tasks: Iterable[TaskDraft]) -> str:
    """Return tasks in the form of the slot."""
    return plain.encode({"tasks": [task.to_json() for task in tasks]}).decode()


def kept(slot: str) -> tuple[TaskDraft, ...]:
    """Return the tasks in a slot's text."""
    return tuple(_draft(task) for task in json.loads(slot)["tasks"])


def inside(reply: str) -> str:
    """Return the content of the first fenced block; the whole reply if it has none."""
    if reply.lstrip().startswith(("{", "[")):
        return reply
    lines = reply.split("\n")
    fences = (number for number, line in enumerate(lines) if line.lstrip().startswith(_FENCE))
    first, last = next(fences, None), next(fences, len(lines))
    return reply if first is None else "\n".join(lines[first + 1 : last])


def _draft(task: plain.Object) -> TaskDraft:
    question = (task.get("scoping_question") or "").strip()
    return TaskDraft(
        id=int(task["id"]),
        description=task["description"].strip(),
        deps=tuple(dict.fromkeys(int(dep) for dep in task.get("deps", ()))),
        dod=task.get("dod", "").strip(),
        args=task.get("args", {}),
        # Models fill the field with "none" if they have no question.
        scoping_question=None if question.casefold() in _NOTHING else question,
    )


def _node(index: int, task_id: int, deps: Iterable[plain.Json]) -> task_graphs.Node:
    return task_graphs.Node(id=task_id, deps=[int(dep) for dep in deps], path=json_text.json_path(("tasks", index)))


def _refuse(flaws: Sequence[errors.Flaw]) -> None:
    if flaws:
        raise errors.InputRefused(f"{flaws[0].path} {flaws[0].message}", flaws=flaws)
