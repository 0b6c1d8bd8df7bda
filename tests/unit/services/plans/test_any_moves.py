"""Any plan under any sequence of moves: no task begins too early, no plan stalls, and every state follows the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app import errors
from app.domain import plain, plan_events, plan_files
from app.domain.plans import PLAN_MOVES, TASK_MOVES, Plan, PlanState, Task, TaskState
from app.domain.states import RunState
from app.flows.session_plan import rules, transitions
from app.services.plans import edits
from tests.examples import examples
from tests.unit.services.plans.given import ERROR, LATER, asking, fact, task

ROOM = 2
CODES = {"wrong_state", "task_begun", "task_needed", "tasks_invalid", "order_incomplete", "order_breaks_dependency"}
CODES |= {"task_not_found"}
NUMBERS = st.integers(1, 9)


def steps(table: dict[object, frozenset[object]], source: object, target: object, left: int) -> bool:
    """Return whether a state can be reached from another in a limited number of moves."""
    return source == target or (left > 0 and any(steps(table, each, target, left - 1) for each in table[source]))


class AnyMoves(RuleBasedStateMachine):
    """A person, a planner and runs that act in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.plan: Plan
        self.runs: dict[str, plan_events.RunFact] = {}
        self.numbers: set[int] = set()

    @initialize(graph=st.lists(st.tuples(st.sets(st.integers(0, 6)), st.booleans()), max_size=6))
    def made(self, graph: list[tuple[set[int], bool]]) -> None:
        """Create any plan without a cycle."""
        tasks = []
        for index, (before, asks) in enumerate(graph):
            deps = sorted(each + 1 for each in before if each < index)
            tasks.append((asking if asks else task)(index + 1, *deps))
        edits.check_graph(tasks)
        made = Plan(session_id="sp_1", created_at=LATER, updated_at=LATER, tasks=tuple(tasks))
        self.plan = rules.reconciled(made, {})
        self.numbers = {each.id for each in tasks}

    # -- actions of a person

    @rule(
        move=st.sampled_from(
            [transitions.approved, transitions.started, transitions.started, transitions.paused, transitions.resumed]
        )
    )
    def moved(self, move: Callable[[Plan, str], Plan]) -> None:
        """Move the plan."""
        with self.allowed():
            self.become(move(self.plan, LATER))

    @rule(number=NUMBERS)
    def forced(self, number: int) -> None:
        """Force a task."""
        with self.allowed():
            self.become(transitions.forced(self.plan, number, LATER))

    @rule(number=NUMBERS, fresh=st.booleans())
    def retried(self, number: int, fresh: bool) -> None:
        """Retry a task, and continue its run if the run exists."""
        with self.allowed():
            run_id = rules.the_task(self.plan, number).run_id
            gone = run_id is not None and self.runs[run_id].status is None
            after = transitions.retried(self.plan, number, LATER, fresh=fresh or gone)
            self._began_in_time(after, number)
            if run_id is not None and rules.the_task(after, number).run_id == run_id:
                self.runs[run_id] = fact(RunState.PENDING)
            self.become(after)

    @rule(number=NUMBERS)
    def answered(self, number: int) -> None:
        """Answer an open question."""
        with self.allowed():
            asked = edits.answerable(self.plan, number)
            self.become(
                edits.with_answer(
                    self.plan, dataclasses.replace(asked, recipe_id="draft", scoping_answer="This"), LATER
                )
            )

    @rule(deps=st.lists(NUMBERS, max_size=3), asks=st.booleans())
    def added(self, deps: list[int], asks: bool) -> None:
        """Add a task."""
        with self.allowed():
            number = self.plan.highest_task_id + 1
            self.become(edits.with_new_task(self.plan, (asking if asks else task)(number, *deps), LATER))
            assert number not in self.numbers
            self.numbers.add(number)

    @rule(number=NUMBERS, deps=st.lists(NUMBERS, max_size=3), text=st.sampled_from(["a", "b"]), asks=st.booleans())
    def edited(self, number: int, deps: list[int], text: str, asks: bool) -> None:
        """Give a task other dependencies and another description, and perhaps a question."""
        with self.allowed():
            known = edits.editable(self.plan, number)
            changed = dataclasses.replace(known, deps=tuple(deps), description=text)
            if asks:
                changed = dataclasses.replace(changed, scoping_question="Sure?", scoping_answer=None)
            self.become(edits.with_edit(self.plan, changed, LATER))

    @rule(number=NUMBERS)
    def removed(self, number: int) -> None:
        """Remove a task."""
        with self.allowed():
            self.become(edits.without_task(self.plan, number, LATER))

    @rule(order=st.randoms(use_true_random=False))
    def reordered(self, order: object) -> None:
        """Reorder the tasks at random."""
        with self.allowed():
            ids = [each.id for each in self.plan.tasks]
            order.shuffle(ids)  # type: ignore[attr-defined]
            self.become(edits.reordered(self.plan, ids, LATER))

    # -- actions of the planner

    @rule(count=st.integers(1, 3))
    def begun(self, count: int) -> None:
        """Begin tasks as far as capacity allows."""
        for found in rules.startable(self.plan, ROOM)[:count]:
            after = transitions.begun(self.plan, found.id, LATER)
            self._began_in_time(after, found.id)
            self.become(after)

    @rule(refused=st.booleans())
    def completed(self, refused: bool) -> None:
        """Create the runs of tasks that were begun, or refuse them."""
        for found in rules.unbegun(self.plan):
            if refused:
                self.become(transitions.refused(self.plan, found.id, ERROR, LATER))
            else:
                run_id = f"run-{found.id}-{found.attempt}"
                assert run_id not in self.runs
                self.runs[run_id] = fact(RunState.RUNNING)
                self.become(transitions.with_run(self.plan, found.id, run_id, LATER))

    @rule(status=st.sampled_from([None, *RunState]), which=st.integers(0, 9))
    @precondition(lambda self: self.runs)
    def reconcile_run(self, status: RunState | None, which: int) -> None:
        """Give a run any possible state, and reconcile the plan with it."""
        run_id = sorted(self.runs)[which % len(self.runs)]
        if self.runs[run_id].status in (None, RunState.DONE):
            status = None
        self.runs[run_id] = fact(status)
        self.become(rules.renewed(self.plan, rules.reconciled(self.plan, self.runs), LATER))

    # -- invariants

    @invariant()
    def the_table_is_kept(self) -> None:
        """Check that states agree with fields and runs, and that each task comes after its dependencies."""
        assert rules.reconciled(self.plan, {}) is self.plan
        done = {each.id for each in self.plan.tasks if each.status is TaskState.DONE}
        seen: set[int] = set()
        for found in self.plan.tasks:
            assert seen.issuperset(found.deps)
            seen.add(found.id)
            assert found.status is _expected(found, done, self.runs)

    @invariant()
    def nothing_stalls(self) -> None:
        """Check that a running plan has a task to begin, under way or waiting for an answer."""
        busy = [each for each in self.plan.tasks if each.status in (TaskState.RUNNING, TaskState.NEEDS_SCOPING)]
        if self.plan.status is PlanState.RUNNING:
            assert busy or rules.startable(self.plan, ROOM)
        assert sum(each.status is TaskState.DONE for each in self.plan.tasks) == len(self.plan.tasks) or (
            self.plan.status is not PlanState.DONE
        )

    @invariant()
    def the_file_is_the_plan(self) -> None:
        """Check that a written plan is read back unchanged."""
        assert plan_files.read(plain.encode(self.plan.to_json())) == self.plan

    def teardown(self) -> None:
        """Check that every plan can be brought to its end: with all answers and successful runs it is done."""
        if not self.plan.tasks:
            return
        for _ in range(200):
            if self.plan.status is PlanState.DONE:
                return
            self._pushed()
        raise AssertionError(f"stalled: {self.plan.to_json()}")

    def _began_in_time(self, after: Plan, number: int) -> None:
        found = rules.the_task(after, number)
        finished = {each.id for each in after.tasks if each.status is TaskState.DONE}
        if found.status is TaskState.RUNNING:
            assert found.forced or finished.issuperset(found.deps)
            assert not found.asks

    def _pushed(self) -> None:
        for move in (transitions.approved, transitions.started):
            with self.allowed():
                self.become(move(self.plan, LATER))
        for found in self.plan.tasks:
            if found.asks and not found.begun:
                self.answered(found.id)
            if found.status is TaskState.FAILED:
                self.retried(found.id, True)
        self.begun(3)
        self.completed(False)
        for run_id, known in self.runs.items():
            if known.status not in (None, RunState.DONE):
                self.runs[run_id] = fact(RunState.DONE)
        self.become(rules.renewed(self.plan, rules.reconciled(self.plan, self.runs), LATER))

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Ignore a refusal whose code is expected."""
        try:
            yield
        except errors.ControlRoomError as error:
            if error.code not in CODES:
                raise

    def become(self, after: Plan) -> None:
        """Take the changed plan, and check that its moves are allowed."""
        before, self.plan = self.plan, after
        assert after.revision == before.revision + (after != before)
        # A move of a person and its consequences are one change.
        assert steps(dict(PLAN_MOVES), before.status, after.status, 2)  # type: ignore[arg-type]
        for found in after.tasks:
            known = before.task(found.id)
            if known is not None:
                assert steps(dict(TASK_MOVES), known.status, found.status, 1)  # type: ignore[arg-type]


def _expected(found: Task, done: set[int], runs: dict[str, plan_events.RunFact]) -> TaskState:
    """Return the expected state of a task by an independent rule."""
    status = runs[found.run_id].status if found.run_id is not None else None
    if found.status in (TaskState.DONE, TaskState.FAILED):
        # The actions that led to them check whether they are right.
        return found.status
    if found.run_id is not None:
        assert status is not None
        return TaskState.RUNNING
    if found.status is TaskState.RUNNING:
        assert found.started_at is not None
        return TaskState.RUNNING
    open_question = found.recipe_id is None or (found.scoping_question and found.scoping_answer is None)
    if open_question:
        return TaskState.NEEDS_SCOPING
    return TaskState.PENDING if found.forced or done.issuperset(found.deps) else TaskState.BLOCKED


TestAnyMoves = AnyMoves.TestCase
TestAnyMoves.settings = settings(deadline=None, max_examples=examples(50), stateful_step_count=40)
