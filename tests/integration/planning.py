"""A project whose recipes are chores, the real service for it, and actions of clients on session plans."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from app import bootstrap
from app.api import service
from app.main import _services
from tests.integration import served
from tests.integration.project import Project
from tests.unit.services.plans import chores

Plan = dict[str, Any]
Task = dict[str, Any]

TASK_STATES = ("pending", "blocked", "needs_scoping", "running", "done", "failed")
"""States of a task (execution-modes, task states)."""

SHAPE: Mapping[str, type | tuple[type, ...]] = {
    "session_id": str,
    "created_by": str,
    "status": str,
    "created_at": str,
    "tasks": list,
}
"""Fields of a plan that execution-modes, appendix G, names."""

TASK_SHAPE: Mapping[str, type | tuple[type, ...]] = {
    "id": int,
    "description": str,
    "recipe_id": (str, type(None)),
    "deps": list,
    "dod": (str, list),
    "status": str,
    "run_id": (str, type(None)),
    "scoping_question": (str, type(None)),
}
"""Fields of a task that it names."""

NOT_A_TASK: Task = {"description": "xyzzy"}
"""A task for which no recipe is known."""


def task(description: str, *deps: int, **fields: Any) -> Task:
    """Return a task of a request."""
    return {"description": description, "deps": list(deps)} | fields


def sweeping(count: int) -> list[Task]:
    """Return tasks that do not depend on one another."""
    return [task(f"sweep room {number}") for number in range(1, count + 1)]


def states(plan: Plan) -> dict[int, str]:
    """Return the state of each task by its number."""
    return {each["id"]: each["status"] for each in plan["tasks"]}


def the(plan: Plan, task_id: int) -> Task:
    """Return a task of a plan by its number."""
    return next(dict(each) for each in plan["tasks"] if each["id"] == task_id)


class Planned(served.Served):
    """The service of a project of chores, and the toolbox that performs the chores."""

    def __init__(self, project: Project, http: httpx.AsyncClient, toolbox: chores.Toolbox) -> None:
        super().__init__(project, http)
        self.toolbox = toolbox
        """The toolbox that performs the chores."""

    async def ask(self, *tasks: Task, key: str | None = None, **more: Any) -> httpx.Response:
        """Post a plan of tasks, or of an intent alone, and return the answer."""
        body = ({"tasks": list(tasks)} if tasks else {}) | more
        return await self.http.post("/api/sessions", json=body, headers={"Idempotency-Key": key} if key else {})

    async def plan(self, *tasks: Task, **more: Any) -> Plan:
        """Make a plan and return it."""
        return answered(await self.ask(*tasks, **more), 201)

    async def started(self, *tasks: Task, **more: Any) -> Plan:
        """Make a plan, approve and start it, and return it."""
        plan = await self.plan(*tasks, **more)
        await self.do(plan, "approve")
        return await self.do(plan, "start")

    async def call(
        self, plan: Plan, verb: str, task_id: int | None = None, *, method: str = "POST", **body: Any
    ) -> httpx.Response:
        """Send an order for a plan, or for a task of it, and return the answer."""
        place = [] if task_id is None else ["tasks", str(task_id)]
        address = "/".join(["/api/sessions", plan["session_id"], *place, *([verb] if verb else [])])
        if method == "DELETE":
            return await self.http.delete(address, params=body or None)
        return await self.http.request(method, address, json=body)

    async def do(self, plan: Plan, verb: str, task_id: int | None = None, *, method: str = "POST", **body: Any) -> Plan:
        """Send an order, and return the plan afterwards."""
        return answered(await self.call(plan, verb, task_id, method=method, **body), 200)

    async def order(self, plan: Plan, *task_ids: int) -> httpx.Response:
        """Change the order of the tasks."""
        return await self.call(plan, "", method="PATCH", order=list(task_ids))

    async def add(self, plan: Plan, given: Task) -> httpx.Response:
        """Add a task."""
        return await self.http.post(f"/api/sessions/{plan['session_id']}/tasks", json=given)

    async def edit(self, plan: Plan, task_id: int, **fields: Any) -> httpx.Response:
        """Change a task."""
        return await self.call(plan, "", task_id, method="PATCH", **fields)

    async def remove(self, plan: Plan, task_id: int) -> httpx.Response:
        """Remove a task."""
        return await self.call(plan, "", task_id, method="DELETE")

    async def shown(self, plan: Plan) -> Plan:
        """Return the current plan."""
        return answered(await self.http.get(f"/api/sessions/{plan['session_id']}"), 200)

    async def plan_until(self, plan: Plan, holds: Callable[[Plan], bool]) -> Plan:
        """Wait by long polls until a condition is true for a plan; each change of the plan renews the time limit."""
        address, etag, shown, time = f"/api/sessions/{plan['session_id']}", "", plan, asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(served.WAIT_SECONDS) as limit:
                while True:
                    # The first request does not wait: the state may be there already, and the next change may leave it.
                    wait = {"wait": 5 if etag else 0}
                    answer = await self.http.get(address, params=wait, headers={"If-None-Match": etag})
                    if answer.status_code == 200:
                        etag, shown = answer.headers["etag"], answer.json()
                        if holds(shown):
                            return shown
                        limit.reschedule(time() + served.WAIT_SECONDS)
                    await asyncio.sleep(0)
        except TimeoutError as late:
            told = f"{shown['status']}, revision {shown['revision']}, {states(shown)}"
            raise AssertionError(f"it did not come to hold: {told}") from late

    async def comes_to(self, plan: Plan, *expected: str, status: str | None = None) -> Plan:
        """Wait until the plan and its tasks, in their order, have the given states, and each task has a run."""
        return await self.plan_until(
            plan,
            lambda shown: (
                [each["status"] for each in shown["tasks"]] == list(expected)
                and status in (None, shown["status"])
                and all(each["run_id"] for each in shown["tasks"] if each["status"] == "running")
            ),
        )

    async def ends(self, plan: Plan, status: str = "done") -> Plan:
        """Wait until a plan is done or failed, and check that it is the expected state."""
        shown = await self.plan_until(plan, lambda shown: shown["status"] in ("done", "failed"))
        assert shown["status"] == status, states(shown)
        return shown

    async def runs_of(self, plan: Plan) -> list[dict[str, Any]]:
        """Return every run of a plan's session, oldest first."""
        query: dict[str, Any] = {"limit": 1000, "session_id": plan["session_id"]}
        rows = (await self.http.get("/api/runs", params=query)).json()
        return [await self.show(row["run_id"]) for row in reversed(rows)]

    def file(self, plan: Plan) -> Path:
        """Return the file of a plan."""
        return self.project.data / "sessions" / plan["session_id"] / "plan.json"

    def by_hand(self, plan: Plan, content: str | bytes) -> None:
        """Write the file of a plan in one move, as editors do, so that the service never reads half of it."""
        fresh = self.file(plan).with_name("plan.json~")
        fresh.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
        fresh.replace(self.file(plan))

    def kept(self, plan: Plan) -> Plan:
        """Return a plan as its file contains it."""
        found: Plan = json.loads(self.file(plan).read_text(encoding="utf-8"))
        return found


def answered(answer: httpx.Response, status: int) -> Plan:
    """Check the form of an answer and return its plan."""
    assert answer.status_code == status, answer.text
    plan: Plan = answer.json()
    assert answer.headers["etag"] == f'"{plan["revision"]}"'
    shaped(plan)
    return plan


def added(answer: httpx.Response) -> Plan:
    """Return the plan to which a new task was added."""
    return answered(answer, 201)


def refused(answer: httpx.Response, status: int, code: str, path: str | None = None) -> dict[str, Any]:
    """Check the status, code and place of a problem that an answer reports, and return the problem."""
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    if path is not None:
        assert path in [flaw["path"] for flaw in problem["flaws"]], problem
    return problem


def shaped(plan: Plan) -> None:
    """Check that a plan has the shape of execution-modes, appendix G."""
    for name, kind in SHAPE.items():
        assert isinstance(plan[name], kind), (name, plan)
    for each in plan["tasks"]:
        for name, kind in TASK_SHAPE.items():
            assert isinstance(each[name], kind), (name, each)
        assert each["status"] in TASK_STATES
        assert all(isinstance(dep, int) for dep in each["deps"])


def make_project(root: Path) -> Project:
    """Create a project whose recipes are chores."""
    project = Project(root)
    for recipe in chores.RECIPES:
        project.write(f".control-room/recipes/chores/{recipe['recipe_id']}.json", json.dumps(recipe))
    return project


@contextlib.asynccontextmanager
async def in_process(
    project: Project,
    toolbox: chores.Toolbox | None = None,
    platform: bootstrap.Platform | None = None,
    **overrides: Any,
) -> AsyncIterator[Planned]:
    """Serve a project to a client in this process."""
    tools = toolbox or chores.Toolbox()
    chosen = served.chosen(project, **({"stop_grace_seconds": 0.0} | overrides))
    use = bootstrap.OpenMode(address="http://127.0.0.1:8000")
    async with bootstrap.build(chosen, use, platform or chores.platform(tools)) as application:
        app = service.create(chosen.server)
        app.state.services = _services(application, chosen.server)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with served.client(transport, f"http://{served.HOST}") as http:
            yield Planned(project, http, tools)
        application.runs.stopping.set()
