"""Task graphs: reports invalid dependencies of tasks, each at its place, and orders tasks by their dependencies."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app import errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The dependencies of a task."""

    id: int  # Number of the task.
    deps: Sequence[int]  # Numbers of the tasks that it depends on.
    path: str  # Position of the task in the input, e.g. `$.tasks[2]`.


def flaws(nodes: Sequence[Node], *, reported_at: int | None = None) -> list[errors.Flaw]:
    """Return all flaws of a graph.

    These are `duplicate_task`, `unknown_dependency`, `self_dependency`, `repeated_dependency`, and for each group of
    tasks that wait for one another one `dependency_cycle`.

    Args:
        reported_at: Task at which a cycle through it is reported; any other cycle is reported at its smallest number.
    """
    found = [*_repeated(nodes), *_wrong(nodes)]
    return found + [_cycle_flaw(nodes, _from(reported_at, cycle)) for cycle in cycles(nodes)]


def cycles(nodes: Sequence[Node]) -> list[list[int]]:
    """Return cycles that share no task, at least one for each group of tasks that wait for one another.

    Each cycle is in the order of waiting, from its smallest number.
    """
    left = _graph(nodes)
    found: list[list[int]] = []
    # Cycles are removed as they are found: a group with many would otherwise be reported in every combination.
    while (cycle := _cycle(left)) is not None:
        found.append(_from(min(cycle), cycle))
        left = {each: [dep for dep in deps if dep not in cycle] for each, deps in left.items() if each not in cycle}
    return found


def dependents(nodes: Sequence[Node], task_id: int) -> list[int]:
    """Return the tasks that directly depend on a task."""
    return [node.id for node in nodes if task_id in node.deps]


def in_order(nodes: Sequence[Node]) -> list[int]:
    """Return the tasks of a valid graph, each after those it depends on, otherwise in the order given."""
    waiting, placed = {node.id: node.deps for node in nodes}, list[int]()
    while waiting:
        ready = next(each for each, deps in waiting.items() if not any(dep in waiting for dep in deps))
        placed.append(ready)
        del waiting[ready]
    return placed


def _graph(nodes: Sequence[Node]) -> dict[int, list[int]]:
    known = {node.id for node in nodes}
    graph: dict[int, list[int]] = {}
    for node in nodes:
        graph.setdefault(node.id, []).extend(dep for dep in node.deps if dep in known and dep != node.id)
    return graph


def _cycle(graph: Mapping[int, Sequence[int]]) -> list[int] | None:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        # graphlib lists a task before those that need it, and repeats the first at the end.
        return list(reversed(error.args[1][:-1]))
    return None


def _from(task_id: int | None, cycle: list[int]) -> list[int]:
    first = cycle.index(task_id) if task_id in cycle else 0
    return cycle[first:] + cycle[:first]


def _repeated(nodes: Sequence[Node]) -> Iterator[errors.Flaw]:
    seen: dict[int, str] = {}
    for node in nodes:
        if node.id in seen:
            message = f"the number {node.id} is given to {seen[node.id]} already"
            yield errors.Flaw(path=f"{node.path}.id", code="duplicate_task", message=message)
        seen.setdefault(node.id, node.path)


def _wrong(nodes: Sequence[Node]) -> Iterator[errors.Flaw]:
    known = {node.id for node in nodes}
    for node in nodes:
        for index, dep in enumerate(node.deps):
            path = f"{node.path}.deps[{index}]"
            if dep == node.id:
                yield errors.Flaw(path=path, code="self_dependency", message=f"task {dep} depends on itself")
            elif dep not in known:
                yield errors.Flaw(path=path, code="unknown_dependency", message=f"there is no task {dep}")
            elif dep in node.deps[:index]:
                yield errors.Flaw(path=path, code="repeated_dependency", message=f"task {dep} is named twice")


def _cycle_flaw(nodes: Sequence[Node], cycle: Sequence[int]) -> errors.Flaw:
    waits_for = cycle[1]
    # If a number is used twice, only one of the tasks may have the dependency.
    first = next(node for node in nodes if node.id == cycle[0] and waits_for in node.deps)
    path = f"{first.path}.deps[{list(first.deps).index(waits_for)}]"
    trail = " → ".join(str(each) for each in (*cycle, cycle[0]))
    message = f"these tasks wait for one another: {trail}"
    return errors.Flaw(path=path, code="dependency_cycle", message=message)
