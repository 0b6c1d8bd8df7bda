"""Task graphs: each impossible dependency is reported once, with its place."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from app.domain import task_graphs
from app.domain.task_graphs import Node

ids = st.integers(1, 6)
any_graph = st.lists(st.tuples(ids, st.lists(ids, max_size=4)), max_size=8)


def nodes(*tasks: tuple[int, list[int]]) -> list[Node]:
    """Return tasks of a request."""
    return [Node(id=task_id, deps=deps, path=f"$.tasks[{at}]") for at, (task_id, deps) in enumerate(tasks)]


def places_and_codes(*tasks: tuple[int, list[int]]) -> list[tuple[str, str]]:
    """Return places and codes of the flaws."""
    return [(flaw.path, flaw.code) for flaw in task_graphs.flaws(nodes(*tasks))]


def test_each_flaw_has_its_place() -> None:
    """Repeated numbers, and unknown, own and repeated dependencies, are reported with their places."""
    assert places_and_codes((1, []), (1, [4]), (2, [2, 1, 1])) == [
        ("$.tasks[1].id", "duplicate_task"),
        ("$.tasks[1].deps[0]", "unknown_dependency"),
        ("$.tasks[2].deps[0]", "self_dependency"),
        ("$.tasks[2].deps[2]", "repeated_dependency"),
    ]


def test_a_cycle_is_reported_from_its_smallest_number_on() -> None:
    """A cycle is reported once, from its smallest number on, at its first dependency."""
    (flaw,) = task_graphs.flaws(nodes((3, [5]), (5, [2]), (2, [9, 3]), (9, [])))

    assert (flaw.path, flaw.code) == ("$.tasks[2].deps[1]", "dependency_cycle")
    assert flaw.message == "these tasks wait for one another: 2 → 3 → 5 → 2"


def test_each_separate_cycle_is_reported() -> None:
    """Separate cycles are reported each, and a task that only waits for one is not."""
    assert task_graphs.cycles(nodes((1, [2]), (2, [1]), (3, [4]), (4, [3]), (5, [1, 4]))) == [[1, 2], [3, 4]]


def test_a_cycle_is_reported_at_the_given_task() -> None:
    """A cycle is reported at the given task if the task is part of it."""
    graph = nodes((1, [2]), (2, [1]), (3, []))

    assert task_graphs.flaws(graph, reported_at=2)[0].path == "$.tasks[1].deps[0]"
    assert task_graphs.flaws(graph, reported_at=3)[0].path == "$.tasks[0].deps[0]"


def test_a_cycle_through_a_number_that_is_given_twice() -> None:
    """Of two tasks with one number, a cycle is reported at the one that has the dependency."""
    assert places_and_codes((1, []), (2, [1]), (1, [2])) == [
        ("$.tasks[2].id", "duplicate_task"),
        ("$.tasks[2].deps[0]", "dependency_cycle"),
    ]


def test_the_order_given_stays_as_far_as_it_can() -> None:
    """Only a task before one of its dependencies moves, to the place behind it."""
    assert task_graphs.in_order(nodes((4, []), (2, [1]), (3, []), (1, []))) == [4, 3, 1, 2]
    assert task_graphs.in_order(nodes((2, []), (1, [2]), (3, []))) == [2, 1, 3]
    assert task_graphs.dependents(nodes((2, []), (1, [2]), (3, [1, 2])), 2) == [1, 3]


def test_a_chain_of_five_hundred_tasks_is_sorted() -> None:
    """A chain of five hundred tasks in the worst order is sorted, and a cycle through all of them is reported."""
    chain = [(number, [number + 1]) for number in range(1, 500)]

    assert task_graphs.in_order(nodes(*chain, (500, []))) == list(range(500, 0, -1))
    assert [path for path, _ in places_and_codes(*chain, (500, [1]))] == ["$.tasks[0].deps[0]"]


@given(any_graph)
def test_a_graph_without_flaws_can_be_done(graph: list[tuple[int, list[int]]]) -> None:
    """Any graph has flaws, or an order in which each task is behind its dependencies."""
    found = nodes(*graph)
    flaws = task_graphs.flaws(found)
    if not flaws:
        order = task_graphs.in_order(found)
        assert sorted(order) == sorted(node.id for node in found)
        assert all(order.index(dep) < order.index(node.id) for node in found for dep in node.deps)
    for flaw in flaws:
        at = int(flaw.path.split("[")[1].split("]")[0])
        assert flaw.path.startswith(found[at].path)


@given(any_graph)
def test_a_graph_without_its_reported_tasks_has_no_cycles(graph: list[tuple[int, list[int]]]) -> None:
    """Without the tasks of the reported cycles a graph has no cycles, and each reported one is a cycle."""
    found = nodes(*graph)
    cycles = task_graphs.cycles(found)
    within = {each for cycle in cycles for each in cycle}

    assert len(within) == sum(len(cycle) for cycle in cycles)
    assert task_graphs.cycles([node for node in found if node.id not in within]) == []
    for cycle in cycles:
        for waiting, awaited in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert any(node.id == waiting and awaited in node.deps for node in found)
