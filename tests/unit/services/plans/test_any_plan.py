"""Any plan and any orders at any time: the guarantees of plans hold under edits, failures and crashes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

from app import bootstrap, clock, errors, settings
from app.domain import plans, states, task_graphs
from app.engine import stores
from app.services.plans import requests
from app.storage import memory_store
from app.storage.disk import memory_disk
from app.storage.index import memory_index
from tests.unit.services.plans import chores

LIMIT = 2
MOST = 6
TIMEOUT_SECONDS = 60
GOES_ON = ("running", "pending", "needs_scoping")
_NEXT = {"draft": "approve", "approved": "start", "paused": "resume"}
AT_WORK = ("running", "failed", "done")

Json = dict[str, Any]

_kinds = st.sampled_from(["sweep", "sweep", "sweep", "paint", "carry", "xyzzy", "asked"])
_numbers = st.integers(0, 20)
_few = st.lists(_numbers, max_size=3)
_endings = st.booleans()


def _new(kind: str, number: int, deps: tuple[int, ...]) -> requests.NewTask:
    question = "Which one?" if kind == "asked" else None
    description = f"{'sweep' if kind == 'asked' else kind} thing {number}"
    return requests.NewTask(description=description, deps=deps, scoping_question=question)


class Watch:
    """Probes that record every version of the plan's file, and crash the disk at a chosen passing."""

    def __init__(self) -> None:
        self.versions: list[Json] = []
        """All versions since the last check."""
        self.store: memory_store.MemoryStore | None = None
        self.left: tuple[memory_disk.MemoryDisk, memory_index.MemoryIndex] | None = None
        """The contents that a restart finds after the crash."""
        self._last = b""
        self._armed: tuple[int, bool] | None = None

    @property
    def armed(self) -> bool:
        """Return whether a crash is planned or has happened."""
        return self._armed is not None or self.left is not None

    def arm(self, passings: int, lose_unsynced: bool) -> None:
        """Crash after a number of passings of any point."""
        self._armed = (passings, lose_unsynced)

    def reach(self, point: str) -> None:
        """Record a passing."""
        assert self.store is not None
        self.look()
        if self._armed is not None:
            left, lose = self._armed
            self._armed = (left - 1, lose) if left > 1 else None
            if left <= 1:
                self.left = (self.store.disk.crashed(lose_unsynced=lose), self.store.index.copy())

    def look(self) -> None:
        """Record the plan's file if it has changed."""
        content = self.content()
        if content and content != self._last and self.left is None:
            self._last = content
            self.versions.append(json.loads(content))

    def content(self) -> bytes:
        """Return the plan's file."""
        assert self.store is not None
        for name in self.store.disk.names("sessions"):
            with contextlib.suppress(FileNotFoundError):
                return self.store.disk.read(f"sessions/{name}/plan.json")
        return b""

    def disarm(self) -> None:
        """Cancel the crash, and record the file again."""
        self._armed = None
        self.left = None


class StoreHarness:
    """The real use cases of a project over a store in memory, with chores that the test controls."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="any-plan-"))
        for recipe in chores.RECIPES:
            file = self.folder / ".control-room" / "recipes" / "chores" / f"{recipe['recipe_id']}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(recipe))
        self.clock = clock.FakeClock()
        self.ids = clock.RandomIds(random.Random(7))
        self.toolbox = chores.Toolbox()
        self.toolbox.hold_all()
        self.watch = Watch()
        self.disk = memory_disk.MemoryDisk()
        self.index = memory_index.MemoryIndex()
        self._closing: contextlib.AsyncExitStack | None = None
        self.application: bootstrap.Application

    async def open(self) -> None:
        """Start the service over the contents of the disk."""
        chosen = settings.load({}, project=self.folder, home=self.folder, max_running=LIMIT, stop_grace_seconds=0)
        platform = chores.platform(
            self.toolbox,
            clock=self.clock,
            ids=self.ids,
            probes=self.watch,
            make_store=lambda *given: self._store(given[3]),
        )
        self._closing = contextlib.AsyncExitStack()
        use = bootstrap.OpenMode(address="http://127.0.0.1:1")
        self.application = await self._closing.enter_async_context(bootstrap.build(chosen, use, platform))

    async def close(self) -> None:
        """Stop the service."""
        assert self._closing is not None
        self.application.runs.stopping.set()
        await self._closing.aclose()

    async def crash(self, left: tuple[memory_disk.MemoryDisk, memory_index.MemoryIndex]) -> None:
        """Stop the service, and start it over the contents that a crash left."""
        # Anything written during the stop reaches a disk that no process reads any more.
        await self.close()
        self.disk, self.index = left
        self.watch.disarm()
        await self.open()

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        """Run the loop and advance the time until a condition holds; return whether it did."""
        deadline = asyncio.get_running_loop().time() + TIMEOUT_SECONDS
        while not await holds():
            if asyncio.get_running_loop().time() > deadline:
                return False
            for _ in range(20):
                await asyncio.sleep(0)
            # Part of the work runs in threads.
            await asyncio.sleep(0.0005)
            self.clock.advance(0.5)
        return True

    def _store(self, adopt: Any) -> memory_store.MemoryStore:
        made = memory_store.MemoryStore(
            clock=self.clock, probes=self.watch, adopt=adopt, disk=self.disk, index=self.index
        )
        self.watch.store = made
        return made


def _where(applies: Callable[[AnyPlan], object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Skip a rule that does not apply.

    With a precondition, the drawn values would depend on the progress of real threads, and no two stories would be
    the same.
    """

    def where(rule: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(rule)
        def tried(self: AnyPlan, *given: Any, **drawn: Any) -> None:
            if applies(self):
                rule(self, *given, **drawn)

        return tried

    return where


class AnyPlan(stateful.RuleBasedStateMachine):
    """One plan, and the people and crashes that act on it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.harness = StoreHarness()
        self.session_id = ""
        self.last: Json = {}
        self.failing: set[int] = set()
        self.runner.run(self.harness.open())

    # -- actions

    @stateful.initialize(
        given=st.lists(st.tuples(_kinds, _few), min_size=1, max_size=5),
        begin=st.sampled_from([True, True, True, False]),
    )
    def make(self, given: list[tuple[str, list[int]]], begin: bool) -> None:
        """Create a plan of tasks that depend on earlier ones."""
        tasks = []
        for number, (kind, picks) in enumerate(given, 1):
            deps = tuple(sorted({1 + pick % (number - 1) for pick in picks})) if number > 1 else ()
            tasks.append(_new(kind, number, deps))
        created = self.runner.run(self.harness.application.plans.create(requests.NewPlan(tasks=tuple(tasks))))
        self.session_id = created.plan.session_id
        self.settle()
        if begin:
            self.move("approve")
            self.move("start")

    @stateful.rule()
    @_where(lambda self: self.last["status"] in _NEXT)
    def move_on(self) -> None:
        """Take the plan a step further towards running."""
        self.move(_NEXT[self.last["status"]])

    @stateful.rule(verb=st.sampled_from(["approve", "start", "pause", "resume"]))
    def move(self, verb: str) -> None:
        """Give an order to the whole plan."""
        status, living = self.last["status"], any(task["status"] in GOES_ON for task in self.last["tasks"])
        allowed = {
            "approve": status == "draft",
            "start": status in ("approved", "paused", "running") or (status in ("failed", "done") and living),
            "pause": status == "running",
            "resume": status == "paused",
        }[verb]
        asked = getattr(self.harness.application.plans, verb)(self.session_id)
        # A plan without tasks cannot be approved or begun.
        self.order(asked, allowed if self.last["tasks"] else None)

    @stateful.rule(pick=_numbers, well=st.booleans())
    @_where(lambda self: self.harness.toolbox.busy)
    def finish(self, pick: int, well: bool) -> None:
        """End the work of a task, with or without success."""
        busy = sorted(self.harness.toolbox.busy)
        task = busy[pick % len(busy)]
        (self.harness.toolbox.mend if well else self.harness.toolbox.fail)(task)
        self.harness.toolbox.release(task)
        self.runner.run(self.harness.until(self._is_idle(task)))
        self.harness.toolbox.hold(task)
        self.settle()

    @stateful.rule(well=st.booleans())
    def finish_all(self, well: bool) -> None:
        """End the work of all tasks."""
        for _ in range(len(self.harness.toolbox.busy)):
            if self.harness.toolbox.busy:
                self.finish(0, well)

    def _is_idle(self, task: int) -> Callable[[], Awaitable[bool]]:
        async def idle() -> bool:
            return task not in self.harness.toolbox.busy

        return idle

    @stateful.rule(pick=_numbers, fresh=st.booleans())
    @_where(lambda self: self.has("failed"))
    def retry(self, pick: int, fresh: bool) -> None:
        """Retry a task."""
        task = self.task(pick, "failed")
        allowed = task["status"] == "failed" and self.last["status"] in AT_WORK
        self.order(self.harness.application.plans.retry(self.session_id, task["id"], fresh), allowed)

    @stateful.rule(pick=_numbers)
    @_where(lambda self: self.has("blocked"))
    def force_start(self, pick: int) -> None:
        """Start a task by force."""
        task = self.task(pick, "blocked")
        allowed = task["status"] == "blocked" and self.last["status"] in AT_WORK
        self.order(self.harness.application.plans.force_start(self.session_id, task["id"]), allowed)

    @stateful.rule(pick=_numbers, said=st.sampled_from(["sweep it", "carry it", "hm"]), what=st.booleans())
    @_where(lambda self: self.has("needs_scoping"))
    def answer(self, pick: int, said: str, what: bool) -> None:
        """Answer a question."""
        task = self.task(pick, "needs_scoping")
        args = {"what": "a thing"} if what and task["recipe_id"] == "carry" else {}
        # A failed task may have a question from an edit.
        allowed = None if task["status"] == "failed" else task["status"] == "needs_scoping"
        answer = requests.ScopingAnswer(answer=said, args=args)
        self.order(self.harness.application.plans.answer(self.session_id, task["id"], answer), allowed)

    @stateful.rule(kind=_kinds, picks=_few)
    def add(self, kind: str, picks: list[int]) -> None:
        """Add a task."""
        if len(self.last["tasks"]) < MOST:
            new = _new(kind, 10 + len(self.last["tasks"]), self.some(picks))
            self.order(self.harness.application.plans.add_task(self.session_id, new), True)

    @stateful.rule(pick=_numbers, picks=_few)
    @_where(lambda self: self.last["tasks"])
    def let_depend(self, pick: int, picks: list[int]) -> None:
        """Make a task depend on others, perhaps in a cycle."""
        task = self.task(pick)
        deps = self.some(picks)
        edges = {each["id"]: tuple(each["deps"]) for each in self.last["tasks"]} | {task["id"]: deps}
        nodes = [task_graphs.Node(id=number, deps=needed, path="$") for number, needed in edges.items()]
        sound = not task_graphs.flaws(nodes)
        edit = requests.TaskEdit(deps=deps)
        self.order(
            self.harness.application.plans.edit_task(self.session_id, task["id"], edit),
            sound and self.open_to_edits(task),
        )

    @stateful.rule(pick=_numbers, kind=_kinds)
    @_where(lambda self: self.last["tasks"])
    def describe(self, pick: int, kind: str) -> None:
        """Change the description of a task."""
        task = self.task(pick)
        edit = requests.TaskEdit(description=f"{kind} something else")
        self.order(
            self.harness.application.plans.edit_task(self.session_id, task["id"], edit), self.open_to_edits(task)
        )

    @stateful.rule(pick=_numbers)
    @_where(lambda self: self.last["tasks"])
    def remove(self, pick: int) -> None:
        """Remove a task."""
        task = self.task(pick)
        needed = any(task["id"] in each["deps"] for each in self.last["tasks"])
        allowed = task["status"] != "running" and not needed
        self.order(self.harness.application.plans.remove_task(self.session_id, task["id"]), allowed)

    @stateful.rule(chance=st.randoms(use_true_random=False))
    def reorder(self, chance: random.Random) -> None:
        """Put the tasks into some order."""
        if order := [task["id"] for task in self.last["tasks"]]:
            chance.shuffle(order)
            needs = {task["id"]: task["deps"] for task in self.last["tasks"]}
            sound = all(order.index(dep) < order.index(number) for number in order for dep in needs[number])
            self.order(self.harness.application.plans.edit(self.session_id, order=order), sound)

    @stateful.rule()
    def restart(self) -> None:
        """Stop the service and start it again."""
        self.runner.run(self.harness.close())
        self.runner.run(self.harness.open())
        self.settle()

    @stateful.rule(passings=st.integers(1, 25), lose_unsynced=st.booleans())
    def crash_soon(self, passings: int, lose_unsynced: bool) -> None:
        """Plan a crash during the next actions."""
        self.harness.watch.arm(passings, lose_unsynced)

    # -- checks

    def order(self, asked: Any, allowed: bool | None) -> None:
        """Give an order, and check that it is refused exactly when it must be; None accepts both."""
        revision, crashing = self.last["revision"], self.harness.watch.armed
        answered, refusal = self.runner.run(_plan_or_refusal(asked, self.harness.watch))
        hypothesis.note(f"refused: {refusal}" if answered is None else f"answered: revision {answered['revision']}")
        assert answered is not None or allowed is not True or crashing, f"refused although it is right: {refusal}"
        assert answered is None or allowed is not False, "answered although it is wrong"
        # An answer before a crash survives it, and a refusal changes no state.
        if self.harness.watch.left is None:
            assert answered is not None or self.runner.run(self.shown())["revision"] == revision
            self.last = answered or self.last
        self.settle()

    def settle(self) -> None:
        """Wait until the service is idle, and check all guarantees."""
        at_rest = self.runner.run(self.harness.until(self._rests))
        if self.harness.watch.left is not None:
            promised = self.last
            left, self.harness.watch.versions = self.harness.watch.left, []
            self.runner.run(self.harness.crash(left))
            # A journalled change reaches the file once the plan's run has been replayed after the crash.
            if promised:
                self.runner.run(self.harness.application.plans._planner.commands.shown(self.session_id))
            at_rest = self.runner.run(self.harness.until(self._rests))
            assert promised == {} or self.runner.run(self.shown())["revision"] >= promised["revision"]
            self.last = {}
        shown = self.runner.run(self.shown())
        assert at_rest, f"a stall: {json.dumps(shown, indent=1)}"
        assert json.loads(self.harness.watch.content()) == shown
        self.harness.watch.look()
        for version in self.harness.watch.versions:
            if self.last and version["revision"] > self.last["revision"]:
                _check_step(self.last, version)
            self.last = version
        self.harness.watch.versions = []
        self.last = shown
        _check_shape(shown)
        self.runner.run(self.check_runs())

    async def _rests(self) -> bool:
        if self.harness.watch.left is not None:
            return True
        shown = await self.shown()
        found = [task["status"] for task in shown["tasks"]]
        running = [task for task in shown["tasks"] if task["status"] == "running"]
        await self.send_on(running)
        # Tasks within the capacity work and the others are queued; none is left to begin while there is capacity.
        if len(self.harness.toolbox.busy) < min(len(running), LIMIT):
            return False
        if not all(task["run_id"] and self.is_held(task) for task in running):
            return False
        if not self.harness.toolbox.busy <= {task["id"] for task in running}:
            return False
        # The run of a failed task that was continued just before a crash is about to change the plan, too.
        rows = {row.run_id: row for row in await self.harness.application.store.list_runs(stores.RunQuery(limit=1000))}
        failed = [rows[task["run_id"]] for task in shown["tasks"] if task["status"] == "failed" and task["run_id"]]
        if not all(states.RunState(row.status).finished for row in failed):
            return False
        if shown["status"] == "running":
            return any(each in GOES_ON for each in found) and ("pending" not in found or len(running) >= LIMIT)
        return True

    async def send_on(self, running: list[Json]) -> None:
        """Resume runs that were parked because three crashes met the same step, as a person would."""
        use = self.harness.application
        for run_id in (task["run_id"] for task in running if task["run_id"]):
            if (await use.store.summary(run_id)).error_code == "crash_loop":
                with contextlib.suppress(errors.WrongState):
                    await use.runs.unpause(run_id)

    def is_held(self, task: Json) -> bool:
        """Return whether a task works or is queued: one whose run has ended is about to change the plan."""
        engine = self.harness.application.engine
        known = engine.view(task["run_id"]) or engine.standing(task["run_id"])
        queued = known is not None and known.status is states.RunState.PENDING
        return queued or task["id"] in self.harness.toolbox.busy

    async def check_runs(self) -> None:
        """Check that each attempt of each task is one run."""
        rows = await self.harness.application.store.list_runs(stores.RunQuery(limit=1000))
        made: dict[int, set[str]] = {}
        for row in rows:
            start = (await self.harness.application.store.read(row.run_id)).start
            assert start.session_id == self.session_id
            made.setdefault(start.session_plan_task_id or 0, set()).add(row.run_id)
        for task in self.last["tasks"]:
            named = {*task["earlier_runs"], *([task["run_id"]] if task["run_id"] else [])}
            assert made.get(task["id"], set()) == named, task
            assert len(named) == task["attempt"], task

    async def shown(self) -> Json:
        """Return the plan as the service returns it."""
        plan: Json = (await self.harness.application.plans.show(self.session_id)).to_json()
        return plan

    def teardown(self) -> None:
        """Help the plan to its end, and check that it gets there."""
        try:
            if self.session_id and self.last:
                self.help_to_the_end()
        finally:
            self.runner.run(self.harness.close())
            self.runner.close()
            shutil.rmtree(self.harness.folder)

    def help_to_the_end(self) -> None:
        """Do what a patient person does until the whole plan is done."""
        self.harness.watch.disarm()
        self.harness.toolbox.mend(*range(100))
        self.harness.toolbox.release_all()
        for _ in range(60):
            self.settle_released()
            if not self.last["tasks"] or self.last["status"] == "done":
                return
            self.runner.run(self.help())
        raise AssertionError(f"it came not to its end: {json.dumps(self.last, indent=1)}")

    def settle_released(self) -> None:
        """Wait until all begun work has ended."""

        async def rests() -> bool:
            shown = await self.shown()
            await self.send_on([task for task in shown["tasks"] if task["status"] == "running"])
            found = {task["status"] for task in shown["tasks"]}
            busy = "running" in found or (shown["status"] == "running" and "pending" in found)
            return not busy and not self.harness.toolbox.busy

        assert self.runner.run(self.harness.until(rests)), f"a stall: {self.runner.run(self.shown())}"
        self.last = self.runner.run(self.shown())

    async def help(self) -> None:
        """Take one step that helps."""
        use, plan = self.harness.application.plans, self.last
        asking = next((task for task in plan["tasks"] if task["status"] == "needs_scoping"), None)
        failed = next((task for task in plan["tasks"] if task["status"] == "failed"), None)
        match plan["status"]:
            case "draft":
                await use.approve(self.session_id)
            case "approved":
                await use.start(self.session_id)
            case "paused":
                await use.resume(self.session_id)
            case _ if asking is not None:
                args = {"what": "this"} if asking["recipe_id"] == "carry" else {}
                recipe = None if asking["recipe_id"] else "paint"
                given = requests.ScopingAnswer(answer="Whatever.", args=args, recipe_id=recipe)
                await use.answer(self.session_id, asking["id"], given)
            case _ if failed is not None:
                await use.retry(self.session_id, failed["id"])
            case _:
                await use.start(self.session_id)

    # -- selections

    def has(self, status: str) -> bool:
        """Return whether a task is in a state."""
        return any(task["status"] == status for task in self.last["tasks"])

    def task(self, pick: int, status: str | None = None) -> Json:
        """Return a task; in four of five cases one in the given state, if there is one."""
        fitting = [task for task in self.last["tasks"] if task["status"] == status]
        some = fitting if fitting and pick % 5 else self.last["tasks"]
        return dict(some[pick % len(some)])

    def some(self, picks: list[int]) -> tuple[int, ...]:
        """Return numbers of tasks."""
        known = [task["id"] for task in self.last["tasks"]]
        return tuple(sorted({known[pick % len(known)] for pick in picks})) if known else ()

    def open_to_edits(self, task: Json) -> bool:
        """Return whether a task may be changed."""
        return task["status"] not in ("running", "done")


async def _plan_or_refusal(asked: Awaitable[plans.Plan | requests.Created], watch: Watch) -> tuple[Json | None, str]:
    """Return the plan that answers an order, or the reason of the refusal; a crashed service does not answer."""
    order = asyncio.ensure_future(asked)
    while not order.done() and watch.left is None:
        await asyncio.wait({order}, timeout=0.01)
    if not order.done():
        order.cancel()
        await asyncio.wait({order})
    try:
        found = order.result()
        return (found.plan if isinstance(found, requests.Created) else found).to_json(), ""
    except (errors.Conflict, errors.InputRefused) as error:
        return None, error.message
    except asyncio.CancelledError:
        return None, "the service died"


def _check_step(before: Json, after: Json) -> None:
    """Check that a change of the file is allowed."""
    assert after["revision"] == before["revision"] + 1, (before, after)
    known = {task["id"]: task for task in before["tasks"]}
    done = {task["id"] for task in after["tasks"] if task["status"] == "done"}
    for task in after["tasks"]:
        old = known.get(task["id"])
        if old is None:
            assert task["status"] not in ("running", "done", "failed"), task
            assert task["id"] > max(known, default=0), "a number was given twice"
            continue
        if old["status"] == "done":
            assert task == old, "what is done was changed"
        if task["attempt"] != old["attempt"]:
            assert task["attempt"] == old["attempt"] + 1
            assert after["status"] == "running"
        if task["status"] == "running" and old["status"] != "running":
            assert task["forced"] or done.issuperset(task["deps"]), f"begun before its dependencies: {task}"


def _check_shape(plan: Json) -> None:
    """Check that a plan's states agree with its fields, in the shape of execution-modes, appendix G."""
    done = {task["id"] for task in plan["tasks"] if task["status"] == "done"}
    found = [task["status"] for task in plan["tasks"]]
    assert {"session_id", "created_by", "status", "created_at", "tasks"} <= plan.keys()
    assert plan["created_by"] == "user"
    assert plan["status"] in set(plans.PlanState)
    for task in plan["tasks"]:
        assert {"id", "description", "recipe_id", "deps", "dod", "status", "run_id", "scoping_question"} <= task.keys()
        asks = task["recipe_id"] is None or (task["scoping_question"] and task["scoping_answer"] is None)
        match task["status"]:
            case "needs_scoping":
                assert asks
                assert task["scoping_question"], task
            case "blocked":
                assert not asks
                assert not done.issuperset(task["deps"])
            case "pending":
                assert not asks
                assert task["forced"] or done.issuperset(task["deps"])
            case "running" | "done":
                assert task["run_id"], task
                assert task["error"] is None
            case "failed":
                assert task["error"], task
            case other:
                raise AssertionError(other)
    if plan["status"] == "done":
        assert set(found) <= {"done"}
    if plan["status"] == "running":
        assert any(each in GOES_ON for each in found)


def test_the_promises_of_a_plan_hold() -> None:
    """No task begins before its dependencies unless forced, none begins twice, and each plan can be ended."""
    stateful.run_state_machine_as_test(AnyPlan, settings=_tried(12))


@pytest.mark.parametrize("passings", [3, 10])
def test_a_failed_task_is_not_under_way_again_after_a_power_cut(passings: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut, a failed task whose run is opened again does not begin before its new dependency."""
    monkeypatch.setattr(hypothesis, "note", str)
    plan = AnyPlan()
    try:
        plan.make([("sweep", []), ("sweep", [])], begin=True)
        plan.finish_all(well=False)
        plan.let_depend(pick=0, picks=[1])
        plan.crash_soon(passings=passings, lose_unsynced=True)
        plan.describe(pick=0, kind="paint")
        plan.restart()
    finally:
        plan.teardown()


def test_a_retry_while_a_power_cut_is_recovered_from_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry counts while the run's lost row is recovered, because opening the run has not continued it."""
    monkeypatch.setattr(hypothesis, "note", str)
    plan = AnyPlan()
    late, open_at_once = asyncio.Event(), memory_store.MemoryStore.open

    async def open_late(store: memory_store.MemoryStore, run_id: str) -> Any:
        if run_id == plan.last["tasks"][0]["run_id"]:
            await late.wait()
        return await open_at_once(store, run_id)

    async def retry_early() -> None:
        monkeypatch.setattr(memory_store.MemoryStore, "open", open_late)
        await plan.harness.crash(left)
        use, run_id = plan.harness.application, plan.last["tasks"][0]["run_id"]
        looks = iter(range(100))

        async def lags() -> bool:
            return use.store.lags(run_id)

        async def is_answered() -> bool:
            return retrying.done() or next(looks, None) is None

        assert await plan.harness.until(lags)
        retrying = asyncio.ensure_future(use.plans.retry(plan.session_id, 1))
        await plan.harness.until(is_answered)
        late.set()
        await retrying

    try:
        plan.make([("sweep", [])], begin=True)
        index = plan.harness.index.copy()
        plan.finish_all(well=False)
        left = (plan.harness.disk.crashed(lose_unsynced=True), index)
        plan.runner.run(retry_early())
        plan.settle()
        assert [task["status"] for task in plan.last["tasks"]] == ["running"]
    finally:
        plan.teardown()


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_promises_of_many_plans_hold() -> None:
    """The same holds for many more plans and longer stories."""
    stateful.run_state_machine_as_test(AnyPlan, settings=_tried(400, 50))


def _tried(examples: int, steps: int = 25) -> hypothesis.settings:
    return hypothesis.settings(max_examples=examples, stateful_step_count=steps, deadline=None)
