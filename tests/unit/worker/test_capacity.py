"""Capacity: order, limit, and workspaces that a run holds alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from app.worker import capacity, workspace_holds
from app.worker.capacity import CapacityRequest

ARRIVALS = itertools.count()


class Line:
    """Capacity that records which runs got it."""

    def __init__(self, limit: int, *, known: bool = True) -> None:
        self.reported: list[tuple[str, capacity.Obstacle | None]] = []
        self.capacity = capacity.WorkerCapacity(
            limit, lambda run_id: self.reported.append((run_id, self.capacity.obstacle(run_id)))
        )
        self.granted: list[str] = []
        if known:
            self.capacity.know_holders()

    def join(self, run_id: str, priority: int = 0, workspace: str | None = None, *ancestors: str) -> None:
        """Request capacity."""
        self.capacity.join(self.ticket(run_id, priority, workspace, *ancestors))

    def ticket(self, run_id: str, priority: int = 0, workspace: str | None = None, *ancestors: str) -> CapacityRequest:
        """Return a request."""
        return CapacityRequest(
            run_id=run_id,
            priority=priority,
            arrival=next(ARRIVALS),
            workspace=workspace,
            ancestors=frozenset(ancestors),
            granted=lambda: self.granted.append(run_id),
        )

    def end(self, run_id: str) -> None:
        """Let a run end."""
        self.capacity.free(run_id)
        self.capacity.release(run_id)


def test_the_first_come_is_the_first_served() -> None:
    """Runs of one priority get capacity in the order of their requests, never more than the limit."""
    line = Line(2)
    for run_id in "abcd":
        line.join(run_id)
    line.end("b")

    assert line.granted == ["a", "b", "c"]
    assert (line.capacity.in_use, line.capacity.queued) == (2, 1)


def test_a_higher_priority_goes_first() -> None:
    """A later request of higher priority passes the waiting runs, but not those that have capacity."""
    line = Line(1)
    line.join("seated", -100)
    line.join("low", -1)
    line.join("middle")
    line.join("high", 100)
    for run_id in ("seated", "high", "middle"):
        line.end(run_id)

    assert line.granted == ["seated", "high", "middle", "low"]


def test_a_withdrawn_request_is_forgotten() -> None:
    """A run that has withdrawn its request is skipped."""
    line = Line(1)
    for run_id in "abc":
        line.join(run_id)
    line.capacity.withdraw("b")
    line.end("a")

    assert line.granted == ["a", "c"]
    assert not line.capacity.is_queued("b")


def test_a_closed_queue_grants_nothing() -> None:
    """A closed queue keeps its requests and grants none."""
    line = Line(1)
    line.join("a")
    line.capacity.close()
    line.join("b")
    line.end("a")

    assert line.granted == ["a"]
    assert line.capacity.is_queued("b")


def test_a_run_that_wants_a_held_workspace_lets_others_pass() -> None:
    """A run that wants a held workspace lets others pass, gets the reason, and is granted once it is free."""
    line = Line(4)
    line.join("holder", 0, "/w")
    line.join("other", 0, "/w")
    line.join("elsewhere", 0, "/v")
    line.join("sharing")

    assert line.granted == ["holder", "elsewhere", "sharing"]
    assert line.capacity.obstacle("other") == capacity.Obstacle(reason="workspace_busy", holder="holder")
    assert line.capacity.obstacle("holder") is None

    line.end("holder")

    assert line.granted[-1] == "other"


def test_a_workspace_outlives_the_capacity() -> None:
    """A run that returns its capacity keeps its workspace, and comes back to it."""
    line = Line(4)
    line.join("holder", 0, "/w")
    line.join("other", 0, "/w")
    line.capacity.free("holder")

    assert line.granted == ["holder"]

    line.join("holder", 0, "/w")
    line.end("holder")

    assert line.granted == ["holder", "holder", "other"]


def test_a_child_may_enter_its_parents_workspace() -> None:
    """A child of the holder may enter the workspace; its sibling waits for the child, a stranger for all of them."""
    line = Line(8)
    line.join("parent", 0, "/w")
    line.join("stranger", 0, "/w")
    line.join("child", 0, "/w", "parent")
    line.join("sibling", 0, "/w", "parent")

    assert line.granted == ["parent", "child"]

    line.end("child")

    assert line.granted == ["parent", "child", "sibling"]

    line.end("sibling")
    line.end("parent")

    assert line.granted[-1] == "stranger"


def test_no_workspace_is_granted_before_the_holders_are_known() -> None:
    """After a restart, the earlier holder of a workspace gets it first."""
    line = Line(8, known=False)
    line.join("early", 0, "/w")
    line.join("sharing")

    assert line.granted == ["sharing"]
    assert line.capacity.obstacle("early") == capacity.Obstacle(reason="recovering")

    line.capacity.hold("/w", "found")
    line.capacity.know_holders()

    assert line.granted == ["sharing"]
    assert line.capacity.obstacle("early") == capacity.Obstacle(reason="workspace_busy", holder="found")

    line.end("found")

    assert line.granted == ["sharing", "early"]


def test_each_change_of_a_waiting_runs_obstacle_is_reported() -> None:
    """Each change of the obstacle of a run that waits for a workspace is reported."""
    line = Line(8, known=False)
    line.join("waiting", 0, "/w")
    line.join("other", 0, "/v")
    line.capacity.hold("/w", "found")
    line.capacity.know_holders()
    line.join("first", 1, "/w")
    line.end("found")

    assert line.granted == ["other", "first"]
    busy = [capacity.Obstacle(reason="workspace_busy", holder=holder) for holder in ("found", "first")]
    assert _without_repetition(told for run_id, told in line.reported if run_id == "waiting") == [
        capacity.Obstacle(reason="recovering"),
        *busy,
    ]

    line.reported.clear()
    line.join("sharing")
    line.end("sharing")

    assert line.reported == []


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([None, "/v", "/w"])), max_size=25),
    st.randoms(use_true_random=False),
)
def test_the_last_reported_obstacle_is_the_present_one(
    limit: int, wishes: list[tuple[int, str | None]], chance: object
) -> None:
    """The last reported obstacle of a waiting run is always its present one."""
    outside = Outside("/v")
    line = Line(limit, known=False)
    line.capacity.guard(outside.lock, lambda: None)
    line.capacity.hold("/w", "found")
    line.capacity.join(*(line.ticket(f"r{number}", *wish) for number, wish in enumerate(wishes)))
    holding = ["found"]
    shown = {f"r{number}": line.capacity.obstacle(f"r{number}") for number in range(len(wishes))}
    deeds = [lambda: line.capacity.know_holders(), lambda: outside.busy.clear(), lambda: line.capacity.grant_released()]
    for number in range(2 * len(wishes) + 4):
        before = len(line.granted)
        line.reported.clear()
        leaving = chance.choice(holding) if holding else None  # type: ignore[attr-defined]
        if number % 2 == 0 or leaving is None:
            deeds[number // 2 % 3]()
        else:
            line.end(leaving)
            holding.remove(leaving)
        holding += line.granted[before:]
        shown |= dict(line.reported)

        waiting = [run_id for run_id in shown if line.capacity.is_queued(run_id)]
        assert {run_id: shown[run_id] for run_id in waiting} == {
            run_id: line.capacity.obstacle(run_id) for run_id in waiting
        }


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([None, "/v", "/w"])), max_size=25),
    st.randoms(use_true_random=False),
)
def test_runs_of_a_kind_are_granted_once_and_in_order(
    limit: int, wishes: list[tuple[int, str | None]], chance: object
) -> None:
    """Runs may end in any order: the limit and the workspaces hold, and runs of a kind are granted in order."""
    line = Line(limit)
    line.capacity.join(*(line.ticket(f"r{number}", *wish) for number, wish in enumerate(wishes)))
    holding = list(line.granted)
    while holding:
        held = [wishes[int(run_id[1:])][1] for run_id in holding]

        assert len(holding) <= limit
        assert sorted(map(str, filter(None, held))) == sorted(map(str, {item for item in held if item}))

        leaving = chance.choice(holding)  # type: ignore[attr-defined]
        before = len(line.granted)
        line.end(leaving)
        holding = [run_id for run_id in holding if run_id != leaving] + line.granted[before:]

    assert sorted(line.granted) == sorted(f"r{number}" for number in range(len(wishes)))
    for kind in set(wishes):
        served = [int(run_id[1:]) for run_id in line.granted if wishes[int(run_id[1:])] == kind]
        assert served == sorted(served)


def _without_repetition(told: Iterable[capacity.Obstacle | None]) -> list[capacity.Obstacle | None]:
    return [each for each, _ in itertools.groupby(told)]


class Outside:
    """Other processes that may hold a workspace."""

    def __init__(self, *busy: str) -> None:
        self.busy = set(busy)
        self.ours: list[str] = []

    def lock(self, workspace: str) -> workspace_holds.Lock | None:
        """Lock a workspace for this process."""
        if workspace in self.busy:
            return None
        self.ours.append(workspace)
        return Held(self, workspace)


class Held:
    """A workspace that this process has locked."""

    def __init__(self, outside: Outside, workspace: str) -> None:
        self._outside = outside
        self._workspace = workspace

    def release(self) -> None:
        """Release a workspace."""
        self._outside.ours.remove(self._workspace)


def guarded(limit: int, outside: Outside) -> tuple[Line, list[str]]:
    """Return capacity that locks its workspaces, and the reports about other processes."""
    line, told = Line(limit), list[str]()
    line.capacity.guard(outside.lock, lambda: told.append("elsewhere"))
    return line, told


def test_a_workspace_of_another_process_is_waited_for() -> None:
    """A run that wants the workspace of another process lets others pass, and gets it once a check finds it free."""
    outside = Outside("/a")
    line, told = guarded(2, outside)
    line.join("one", 0, "/a")
    line.join("two", 0, "/b")

    assert (line.granted, told, outside.ours) == (["two"], ["elsewhere"], ["/b"])
    assert line.capacity.obstacle("one") == capacity.Obstacle(reason="workspace_busy")
    assert line.capacity.grant_released() is True
    assert line.granted == ["two"]

    outside.busy.clear()

    assert line.capacity.grant_released() is False
    assert line.granted == ["two", "one"]
    assert line.capacity.obstacle("one") is None


def test_a_lock_is_given_back_with_the_workspace() -> None:
    """A run and those below it hold one lock until the last of them ends; a stop releases the rest."""
    outside = Outside()
    line, _ = guarded(3, outside)
    line.join("parent", 0, "/a")
    line.join("child", 0, "/a", "parent")
    line.join("other", 0, "/b")

    assert outside.ours == ["/a", "/b"]

    line.end("child")

    assert outside.ours == ["/a", "/b"]

    line.end("parent")

    assert outside.ours == ["/b"]

    line.capacity.clear()

    assert outside.ours == []


def test_no_lock_is_taken_before_capacity_is_free() -> None:
    """A run that waits for capacity does not lock its workspace against other processes."""
    outside = Outside()
    line, _ = guarded(1, outside)
    line.join("one", 0, "/a")
    line.join("two", 0, "/b")

    assert outside.ours == ["/a"]


def test_a_run_begun_before_the_start_holds_its_workspace() -> None:
    """A run that had begun before the start holds its workspace, though another process may have locked it."""
    outside = Outside("/a")
    line, told = guarded(2, outside)
    line.capacity.hold("/a", "begun")
    line.join("begun", 0, "/a")
    line.join("next", 0, "/a")

    assert (line.granted, told) == (["begun"], [])
    assert line.capacity.obstacle("next") == capacity.Obstacle(reason="workspace_busy", holder="begun")
