"""The engine on Temporal: the same recipes, with a real server, a service and a worker."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration import temporal_server

temporal_server.require()

from temporalio import activity  # noqa: E402
from temporalio.api.common.v1 import Payload  # noqa: E402
from temporalio.api.enums.v1 import TaskQueueType  # noqa: E402
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest  # noqa: E402
from temporalio.client import Client, WorkflowHandle, WorkflowHistory  # noqa: E402
from temporalio.service import RPCError  # noqa: E402

from app import bootstrap, clock, errors, settings  # noqa: E402
from app.dialects import registry as dialects  # noqa: E402
from app.domain import gates as answers  # noqa: E402
from app.domain import operations, plain, plans, states  # noqa: E402
from app.engine import run_engine, stores  # noqa: E402
from app.processes import jobs  # noqa: E402
from app.services import gate_inbox, gates, requests  # noqa: E402
from app.services.plans import requests as plan_requests  # noqa: E402
from app.temporal import activities, codec, messages, registration, slices, worker, worker_roster  # noqa: E402
from tests.integration import project as projects  # noqa: E402
from tests.integration import served  # noqa: E402

SERVE = bootstrap.OpenMode(address="http://127.0.0.1:1")
WORK = bootstrap.OpenMode(works=True)
BOTH = ("Read", "Write")

RECIPES = {
    "parent": [
        {"id": "first", "type": "bash", "command": "echo hello", "output": "said"},
        {"id": "below", "type": "recipe", "recipe": "child"},
    ],
    "child": [{"id": "nap", "type": "bash", "command": "echo rested", "output": "rest"}],
    "slow": [
        {"id": "nap", "type": "bash", "command": "echo $$ > pid; exec sleep 300"},
        {"id": "after", "type": "bash", "command": "echo after"},
    ],
    "talking": [{"id": "talk", "type": "bash", "command": "echo hello; while [ ! -e go ]; do sleep 0.05; done"}],
    "one": [{"id": "note", "type": "bash", "command": "echo one >> order"}],
    "two": [{"id": "note", "type": "bash", "command": "echo two >> order"}],
    "once": [
        {"id": "first", "type": "bash", "command": "echo x >> first; while [ ! -e go ]; do sleep 0.05; done"},
        {"id": "second", "type": "bash", "command": "echo y >> second; test -e good", "retry": {"max_attempts": 1}},
    ],
}
ASKING: dict[str, Any] = {
    "schema": "1.7",
    "name": "asking",
    "description": "Asks",
    "version": "1.0.0",
    "stages": [
        {
            "name": "one",
            "steps": [{"id": "a", "type": "bash", "command": "echo one", "output": "one"}],
            "approval": {"required": True, "prompt": "Go on?", "timeout": 0, "default": "deny"},
        },
        {"name": "two", "steps": [{"id": "b", "type": "bash", "command": "echo two", "output": "two"}]},
    ],
}


class Scene:
    """A project with a service and a worker."""

    def __init__(self, service: bootstrap.Application, project: projects.Project, client: Client) -> None:
        self.service = service
        self.project = project
        self.client = client
        self.workers: list[bootstrap.Application] = []

    async def start(self, recipe_id: str, **asked: Any) -> str:
        """Start a run."""
        asked = {"description": "The arrival"} | asked
        return (await self.service.runs.start(requests.StartRequest(recipe_id=recipe_id, **asked))).run_id

    async def ended(self, run_id: str, seconds: float = served.WAIT_SECONDS) -> states.RunState:
        """Wait for the end of a run."""
        async with asyncio.timeout(seconds):
            return await self.service.engine.ended(run_id)

    async def until(self, run_id: str, state: states.RunState) -> None:
        """Wait until a run's row shows a state."""

        async def shows() -> bool:
            return (await self.service.store.summary(run_id)).status == state

        await temporal_server.until(shows)

    async def there(self, name: str, lines: int = 1) -> str:
        """Wait until a file of the project has this number of lines, and return its text."""

        async def written() -> bool:
            return len(self.text(name).splitlines()) >= lines

        await temporal_server.until(written)
        return self.text(name)

    def text(self, name: str) -> str:
        """Return the text of a file of the project; empty if it does not exist."""
        path = self.project.root / name
        return path.read_text() if path.exists() else ""

    async def keys(self, run_id: str) -> list[str]:
        """Return the keys of a run's lines."""
        return [record.key for record in (await self.service.store.read(run_id)).records]

    async def history(self, run_id: str) -> WorkflowHistory:
        """Return the history of a run's newest workflow."""
        return await self.client.get_workflow_handle(messages.workflow_id(run_id)).fetch_history()


@pytest.fixture
def project(tmp_path: Path) -> projects.Project:
    """Create a project with recipes for this engine."""
    made = projects.Project(tmp_path / "project")
    for name, steps in RECIPES.items():
        whole = {"schema": "1.7", "name": name, "description": name, "version": "1.0.0", "steps": steps}
        made.write(f".control-room/recipes/amplifier/{name}.yaml", json.dumps(whole))
    made.write(".control-room/recipes/amplifier/asking.yaml", json.dumps(ASKING))
    return made


def chosen(project: projects.Project, address: str, **given: Any) -> settings.Settings:
    """Return the settings of a project on Temporal."""
    home = project.root / "nobody"
    return settings.load({}, project=project.root, home=home, engine="temporal", temporal=address, **given)


@pytest.fixture
async def scene(project: projects.Project, temporal: temporal_server.DevServer) -> AsyncIterator[Scene]:
    """Serve a project, with one worker."""
    async with serving(project, temporal.address, {}) as scene:
        yield scene


async def test_tools_and_agents_run_as_on_the_embedded_engine(scene: Scene, tmp_path: Path):
    """A recipe of tools and agents writes the lines that the embedded engine writes."""
    args = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
    run_id = await scene.start("draft", args=args)
    assert await scene.ended(run_id) is states.RunState.DONE

    alone = projects.Project(tmp_path / "alone")
    embedded = settings.load({}, project=alone.root, home=alone.root / "nobody")
    async with bootstrap.build(embedded, SERVE) as application:
        asked = requests.StartRequest(recipe_id="draft", args=args, description="The arrival")
        other = (await application.runs.start(asked)).run_id
        await application.engine.ended(other)
        wanted = [(line.key, line.operation, line.output) for line in (await application.store.read(other)).records]
    found = [(line.key, line.operation, line.output) for line in (await scene.service.store.read(run_id)).records]
    assert found == wanted
    assert (await scene.service.maintenance.verify(run_id))["ok"]


async def test_a_child_that_does_not_end_in_time_is_cancelled(scene: Scene):
    """The child's command is ended, whether its parent has failed or continues without it."""
    step = {"id": "below", "type": "recipe", "recipe": "slow", "timeout": 2, "on_error": "continue"}
    after = {"id": "after", "type": "bash", "command": "echo after"}
    whole = {"schema": "1.7", "name": "hasty", "description": "hasty", "version": "1.0.0", "steps": [step, after]}
    scene.project.write(".control-room/recipes/amplifier/hasty.yaml", json.dumps(whole))
    run_id = await scene.start("hasty")
    pid = int(await scene.there("pid"))
    assert await scene.ended(run_id) is states.RunState.DONE
    below, _ = (await scene.service.store.read(run_id)).records
    assert below.error is not None
    assert isinstance(below.output, dict)

    assert (below.error.code, below.error.message.endswith("did not end in time and is cancelled")) == ("timeout", True)
    assert await scene.ended(str(below.output["run_id"])) is states.RunState.CANCELLED
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_children_end_with_a_parent_that_fails(scene: Scene):
    """Of two children beside each other, the failure of one fails the parent, and ends the other with its command."""
    go = (
        "if [ {{kid}} = slow ]; then echo $$ > pid; exec sleep 300; fi; while [ ! -e pid ]; do sleep 0.05; done; exit 3"
    )
    picked = {"context": {"kid": ""}, "steps": [{"id": "go", "type": "bash", "command": go}]}
    each = {"id": "each", "foreach": "{{kids}}", "as": "kid", "parallel": True, "type": "recipe", "recipe": "picked"}
    fan = {"context": {"kids": ["slow", "broken"]}, "steps": [{**each, "context": {"kid": "{{kid}}"}}]}
    for name, parts in (("picked", picked), ("fan", fan)):
        whole = {"schema": "1.7", "name": name, "description": name, "version": "1.0.0", **parts}
        scene.project.write(f".control-room/recipes/amplifier/{name}.yaml", json.dumps(whole))
    run_id = await scene.start("fan")
    assert await scene.ended(run_id) is states.RunState.FAILED

    rows = await scene.service.store.list_runs(stores.RunQuery(parent_run_id=run_id))
    ended = sorted([(await scene.ended(row.run_id)).value for row in rows])
    assert ended == ["cancelled", "failed"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(scene.text("pid")), 0)


async def test_the_history_holds_no_content_and_replays(scene: Scene):
    """The server has no text of a run, and a replayer with the codec repeats the history from the store."""
    run_id = await scene.start("draft", args={"scene_path": "Story/Scenes/SCN-the-arrival.md"})
    await scene.ended(run_id)
    history = await scene.history(run_id)

    held = b"".join(event.SerializeToString() for event in history.events)
    assert projects.REPLY.encode()[:20] not in held
    assert b"The arrival" not in held
    await worker.replayer(slices.Contents(scene.service.store)).replay_workflow(history)


SECRET = "s3cr3t-of-the-deployment"
# Drivers receive the secret as data: argument, output, prompt of a gate, argument of a child, ending.
TELLING: dict[str, Any] = {
    "schema": "1.7",
    "name": "telling",
    "description": "Tells",
    "version": "1.0.0",
    "context": {"token": ""},
    "stages": [
        {
            "name": "one",
            "steps": [
                {"id": "say", "type": "bash", "command": "echo $DEPLOY_TOKEN {{token}}", "output": "said"},
                {"id": "below", "type": "recipe", "recipe": "told", "context": {"token": "{{token}} {{said}}"}},
            ],
            "approval": {"required": True, "prompt": "Use {{token}} and {{said}}?", "timeout": 0, "default": "deny"},
        }
    ],
}
TOLD: dict[str, Any] = {key: value for key, value in TELLING.items() if key != "stages"} | {
    "name": "told",
    "steps": [{"id": "again", "type": "bash", "command": "echo {{token}}"}],
}


async def test_no_secret_is_on_the_server(
    project: projects.Project, temporal: temporal_server.DevServer, monkeypatch: pytest.MonkeyPatch
):
    """Wherever a driver uses a secret, neither the server nor a line of a journal contains it."""
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    project.write(".control-room/recipes/amplifier/telling.yaml", json.dumps(TELLING))
    project.write(".control-room/recipes/amplifier/told.yaml", json.dumps(TOLD))
    async with serving(project, temporal.address, {}) as scene:
        run_id = await scene.start("telling", args={"token": SECRET})
        await scene.until(run_id, states.RunState.WAITING)
        [gate], _ = await scene.service.gates.page(gate_inbox.GateQuery(run_id=run_id))
        reply = gates.Reply(decision="deny", message=f"not with {SECRET}")
        await scene.service.gates.answer(gate.gate_id, reply)
        assert await scene.ended(run_id) is states.RunState.FAILED
        found = [each.run_id for each in await scene.service.store.list_runs(stores.RunQuery())]
        histories = [await scene.history(each) for each in found]

    held = b"".join(event.SerializeToString() for history in histories for event in history.events)
    journals = b"".join(file.read_bytes() for file in (project.data / "runs").glob("*/*.jsonl"))
    assert len(found) == 2
    assert SECRET.encode() not in held
    assert b"say" in journals
    assert SECRET.encode() not in journals


@pytest.mark.slow
async def test_a_replay_refuses_lines_that_were_changed(scene: Scene):
    """A replay refuses a journal whose lines are not those that the workflow received."""
    run_id = await scene.start("quick")
    await scene.ended(run_id)
    history = await scene.history(run_id)
    contents = slices.Contents(_Forger(scene.service.store))  # type: ignore[arg-type]

    with pytest.raises(Exception, match="not those that its workflow received"):
        await worker.replayer(contents).replay_workflow(history)


class _Forger:
    """A store that returns lines with another output."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def read(self, run_id: str) -> Any:
        loaded = await self._store.read(run_id)
        return dataclasses.replace(loaded, records=_forged(loaded.records))

    async def read_lines(self, run_id: str, first: int, count: int) -> Any:
        return _forged(await self._store.read_lines(run_id, first, count))


def _forged(lines: Sequence[Any]) -> list[Any]:
    return [dataclasses.replace(line, line={**line.line, "output": "forged"}) for line in lines]


async def test_a_child_ends_before_its_parent_continues(scene: Scene):
    """A child run is started once, and its result is the line of its parent's step."""
    run_id = await scene.start("parent")
    assert await scene.ended(run_id) is states.RunState.DONE

    lines = (await scene.service.store.read(run_id)).records
    child = lines[-1].output
    assert isinstance(child, dict)
    assert [line.key for line in lines] == ["first", "below"]
    assert (await scene.service.store.read(str(child["run_id"]))).start.parent_run_id == run_id


async def test_a_gate_is_answered_once(scene: Scene):
    """A confirmed answer is durable, counts once, and lets the run continue."""
    run_id = await scene.start("asking")
    await scene.until(run_id, states.RunState.WAITING)
    [gate], _ = await scene.service.gates.page(gate_inbox.GateQuery(run_id=run_id))

    answered = await scene.service.gates.answer(gate.gate_id, gates.Reply(decision="approve"))
    assert answered.decision == "approve"
    with pytest.raises(errors.Conflict):
        await scene.service.gates.answer(gate.gate_id, gates.Reply(decision="deny"))
    # As from a service that read the gate before another one answered the gate.
    with pytest.raises(errors.Conflict, match="is decided"):
        await scene.service.engine.deliver(run_id, gate.key, answers.Answer(decision="deny"))
    assert await scene.ended(run_id) is states.RunState.DONE
    assert (await scene.keys(run_id))[-1] == "b"


async def test_a_cancel_reaches_the_process_within_two_seconds(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    """The line is written first; the process of the step ends one heartbeat and one grace period later.

    Heartbeats are counted instead of seconds: a busy machine takes longer, but does not send more of them.
    """
    beats: list[int] = []
    heartbeat = activity.heartbeat

    def counted(*details: Any) -> None:
        if activity.info().activity_type == "perform":
            beats.append(1)
        heartbeat(*details)

    monkeypatch.setattr(activity, "heartbeat", counted)
    run_id = await scene.start("slow")
    pid = int(await scene.there("pid"))
    beats.clear()
    await scene.service.engine.cancel(run_id)

    async def is_gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await temporal_server.until(is_gone)

    # As many as fit into two seconds, minus the time that a process gets to end.
    assert len(beats) * activities.BEAT_SECONDS < 2
    assert activities.BEAT_SECONDS + worker.BEAT.total_seconds() + jobs.GRACE_SECONDS < 2
    assert await scene.ended(run_id) is states.RunState.CANCELLED
    assert await scene.keys(run_id) == []


AWAITING = """version: "1.1.1"
name: awaiting
steps:
  - name: inbox
    wait_for: {glob: "inbox/*.task", timeout_sec: 120, poll_ms: 20}
  - name: sort
    command: ["sh", "-c", "echo sorted > sorted"]
"""


@pytest.mark.slow
async def test_waiting_for_files_takes_no_capacity(project: projects.Project, temporal: temporal_server.DevServer):
    """A workflow that waits for its file leaves the capacity of its worker to others, and ends once the file exists."""
    await temporal_server.connected(temporal.address)
    project.write(".control-room/recipes/orchestrate/awaiting.yaml", AWAITING)
    given = chosen(project, temporal.address)
    narrow = dataclasses.replace(given, pool=dataclasses.replace(given.pool, max_running=1))
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(bootstrap.build(given, SERVE))
        await stack.enter_async_context(bootstrap.build(narrow, WORK))
        scene = Scene(service, project, await Client.connect(temporal.address))
        waiting = [await scene.start("awaiting") for _ in range(2)]
        for run_id in waiting:
            await temporal_server.until(functools.partial(_has_begun, scene, run_id))
        beside = await scene.start("quick")
        assert await scene.ended(beside) is states.RunState.DONE
        assert [await scene.keys(run_id) for run_id in waiting] == [[], []]

        scene.project.write("inbox/one.task", "")
        assert [await scene.ended(run_id) for run_id in waiting] == [states.RunState.DONE] * 2
        lines = (await service.store.read(waiting[0])).records

    assert [line.key for line in lines][-1].endswith("sort")
    assert scene.text("sorted") == "sorted\n"


async def _has_begun(scene: Scene, run_id: str) -> bool:
    return bool((await scene.service.store.read(run_id)).decisions.attempts)


@asynccontextmanager
async def serving(project: projects.Project, address: str, *workers: dict[str, Any]) -> AsyncIterator[Scene]:
    """Serve a project, with one worker for each of the given settings."""
    await temporal_server.connected(address)
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(bootstrap.build(chosen(project, address), SERVE))
        scene = Scene(service, project, await Client.connect(address))
        for given in workers:
            building = bootstrap.build(chosen(project, address, **given), WORK)
            scene.workers.append(await stack.enter_async_context(building))
        yield scene


async def asked_for(scene: Scene, run_id: str, name: str = "perform") -> None:
    """Wait until the workflow of a run has requested an activity."""

    async def has_asked() -> bool:
        try:
            events = (await scene.history(run_id)).events
        except RPCError:
            return False
        scheduled = [each.activity_task_scheduled_event_attributes for each in events]
        return name in [each.activity_type.name for each in scheduled]

    await temporal_server.until(has_asked)


def remote(scene: Scene) -> run_engine.RemoteExecution:
    """Return what shows the work of a scene's workers."""
    found = scene.service.engine.remote
    assert found is not None
    return found


async def is_queued(scene: Scene, run_id: str, least: int) -> bool:
    """Return whether at least this number of activities waits in the queue of a run's last activity."""
    events = (await scene.history(run_id)).events
    scheduled = [each.activity_task_scheduled_event_attributes for each in events]
    asked = DescribeTaskQueueRequest(
        namespace=scene.client.namespace,
        task_queue=next(each.task_queue for each in reversed(scheduled) if each.activity_type.name == "perform"),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        report_stats=True,
    )
    found = await scene.client.workflow_service.describe_task_queue(asked)
    return found.stats.approximate_backlog_count >= least


async def test_a_step_waits_for_a_worker_that_serves_its_capability(
    project: projects.Project, temporal: temporal_server.DevServer, monkeypatch: pytest.MonkeyPatch
):
    """`runs why` names the capability that no worker serves; once a worker serves it, the step is performed."""
    monkeypatch.setattr(worker_roster, "_PARTING", timedelta(seconds=60))
    async with serving(project, temporal.address, {"serve": ("tools", "backend:said")}) as scene:
        run_id = await scene.start("child")
        await asked_for(scene, run_id)
        found = await scene.service.explanations.why(run_id)
        beside = await scene.start("quick")
        assert await scene.ended(beside) is states.RunState.DONE
        assert await scene.keys(run_id) == []

        commands = chosen(project, temporal.address, serve=("commands",))
        command = [operations.Command(argv=("true",))]

        async def serves() -> bool:
            return await remote(scene).missing_capabilities(run_id, command) == {}

        for _ in range(2):
            async with bootstrap.build(commands, WORK):
                assert await scene.ended(run_id) is states.RunState.DONE
                await temporal_server.until(serves)
            left = await remote(scene).missing_capabilities(run_id, command)

    assert left == {"commands": run_engine.Lack(text="no worker serves commands")}
    [cause] = found.chain
    assert (cause.kind, cause.key, cause.act) == ("no_worker", "nap", "control-room worker --serve commands")
    assert found.sentence == "Step nap cannot be performed: no worker serves commands."


@pytest.mark.slow
async def test_a_service_needs_no_program_of_its_workers(
    project: projects.Project, temporal: temporal_server.DevServer
):
    """A run is accepted if another machine may have its agent, and not if its agent is configured nowhere."""
    absent = {"type": "template", "command": ["no-such-agent-program", "{prompt}"]}
    agents = json.loads((project.data / "agents.json").read_text())
    project.write(".control-room/agents.json", json.dumps({**agents, "backends": {"said": absent}}))
    machine = {"id": "m", "label": "M", "description": "M", "initialStep": "a", "guardrails": {}}
    step = {"prompt": "Do it.", "outcomes": ["done"], "onOutcome": {"done": {"action": "exit", "reason": "done"}}}
    project.write(".control-room/recipes/agent_recipes/m.json", json.dumps({**machine, "steps": {"a": step}}))
    async with serving(project, temporal.address, {"serve": ("tools", "commands")}) as scene:
        run_id = await scene.start("draft", args={"scene_path": "Story/Scenes/SCN-the-arrival.md"})
        asked = [operations.AgentCall(agent_id="writer-1", prompt=("Write.",), backend="said")]
        lacks = await remote(scene).missing_capabilities(run_id, asked)
        with pytest.raises(errors.RequestInvalid, match="there is no backend 'nowhere'"):
            await scene.start("m", args={"backend": "nowhere"})

    assert lacks == {"backend:said": run_engine.Lack(text="no worker serves backend:said")}


@pytest.mark.slow
async def test_a_step_without_any_server_is_explained(project: projects.Project, tmp_path: Path):
    """While the Temporal server is away, `runs why` reports this."""
    own = temporal_server.DevServer(tmp_path)
    own.start()
    try:
        async with serving(project, own.address) as scene:
            run_id = await scene.start("child")
            own.stop()
            loaded = await scene.service.store.read(run_id)
            found = await remote(scene).missing_capabilities(run_id, [operations.Command(argv=("true",))])
    finally:
        own.stop()

    assert loaded.decisions.ended is None
    assert found["commands"].text.startswith("the Temporal server does not answer")


async def test_capacity_is_shared_by_all_queues_of_a_worker(
    project: projects.Project, temporal: temporal_server.DevServer
):
    """A worker with a capacity of one step performs no tool while its command works."""
    narrow = chosen(project, temporal.address)
    narrow = dataclasses.replace(narrow, pool=dataclasses.replace(narrow.pool, max_running=1))
    async with serving(project, temporal.address) as scene, bootstrap.build(narrow, WORK):
        first = await scene.start("once")
        await scene.there("first")
        others = [await scene.start("quick") for _ in range(3)]
        for run_id in others:
            await asked_for(scene, run_id)
        project.write("go", "")
        project.write("good", "")
        assert {await scene.ended(run_id) for run_id in (first, *others)} == {states.RunState.DONE}
        command = (await scene.service.store.read(first)).records[0]
        tools = [(await scene.service.store.read(run_id)).records[0] for run_id in others]

    assert all(str(tool.line["started_at"]) >= str(command.line["completed_at"]) for tool in tools)


@pytest.mark.slow
async def test_heartbeats_carry_the_time_of_the_last_output(scene: Scene):
    """A service sees the time of the last output of a program on a worker, and the history does not contain it."""
    run_id = await scene.start("talking")

    async def is_explained() -> bool:
        return "with output" in (await scene.service.explanations.why(run_id)).sentence

    await temporal_server.until(is_explained)
    scene.project.write("go", "")
    assert await scene.ended(run_id) is states.RunState.DONE

    held = b"".join(event.SerializeToString() for event in (await scene.history(run_id)).events)
    assert b"output_age" not in held
    assert await remote(scene).last_outputs(run_id) == {}


async def test_runs_are_found_by_search_attributes(scene: Scene):
    """The server finds a run by id, recipe, state and labels, also by a label that is set later."""
    engine: Any = scene.service.engine
    assert await registration.Registration(scene.client, clock.SystemClock()).register()
    await temporal_server.until(functools.partial(_is_searchable, scene))
    long = {f"long-{number}": "x" * 150 for number in range(20)}
    run_id = await scene.start("asking", labels={"book": "one", **long})

    async def is_found(query: str) -> bool:
        return [run_id] == [each.id.removeprefix("control-room-") async for each in scene.client.list_workflows(query)]

    of_run = f"ControlRoomRun = '{run_id}' AND ControlRoomRecipe = 'asking'"
    waiting = f"{of_run} AND ControlRoomStatus = 'waiting' AND ControlRoomLabels = 'book=one'"
    await temporal_server.until(functools.partial(is_found, waiting))
    await engine.mark(run_id, run_engine.Marks(labels={"book": None, "a-volume": "two"}))
    await temporal_server.until(functools.partial(is_found, f"{of_run} AND ControlRoomLabels = 'a-volume=two'"))
    assert not await is_found(waiting)

    await engine.cancel(run_id)
    await temporal_server.until(functools.partial(is_found, f"{of_run} AND ControlRoomStatus = 'cancelled'"))
    await worker.replayer(slices.Contents(scene.service.store)).replay_workflow(await scene.history(run_id))


async def _is_searchable(scene: Scene) -> bool:
    engines: list[Any] = [each.engine for each in scene.workers]
    return all(each.searchable for each in engines)


@pytest.mark.slow
async def test_a_run_of_another_driver_version_waits_for_a_worker_that_knows_it(
    project: projects.Project, temporal: temporal_server.DevServer, monkeypatch: pytest.MonkeyPatch
):
    """A worker of an earlier version parks the run without a line; an upgraded one continues it, like older runs.

    A cancel needs no upgrade.
    """
    driver: Any = dialects.DIALECTS["amplifier"]
    newest = driver.driver_version
    async with serving(project, temporal.address) as scene:
        newer, unwanted = await scene.start("child"), await scene.start("child")
        monkeypatch.setattr(driver, "driver_version", newest - 1)
        older = await scene.start("parent")
        async with bootstrap.build(chosen(project, temporal.address), WORK):
            await scene.until(newer, states.RunState.PAUSED)
            assert await scene.ended(older) is states.RunState.DONE
            await scene.until(unwanted, states.RunState.PAUSED)
            await scene.service.runs.cancel(unwanted)
            assert await scene.ended(unwanted) is states.RunState.CANCELLED
        parked = await scene.service.runs.reader.view(newer)
        assert await scene.keys(newer) == []
        monkeypatch.setattr(driver, "driver_version", newest)
        async with bootstrap.build(chosen(project, temporal.address), WORK):
            await scene.service.runs.unpause(newer)
            assert await scene.ended(newer) is states.RunState.DONE

    error: Any = parked.error
    assert error["code"] == "driver_newer"
    assert error["message"].startswith(f"On the machine {socket.gethostname()}: the run was begun by version")


async def test_a_run_whose_working_folder_is_gone_waits_for_it(scene: Scene):
    """A run without its working folder is parked when it is taken up again, and loses no step."""
    folder = scene.project.write("book/draft.md", "").parent
    run_id = await scene.start("asking", working_dir=str(folder))
    await scene.until(run_id, states.RunState.WAITING)
    await scene.service.runs.pause(run_id)
    await scene.until(run_id, states.RunState.PAUSED)
    aside = folder.rename(folder.with_name("aside"))
    await scene.service.runs.unpause(run_id)
    await scene.until(run_id, states.RunState.WAITING)
    [gate], _ = await scene.service.gates.page(gate_inbox.GateQuery(run_id=run_id))
    await scene.service.gates.answer(gate.gate_id, gates.Reply(decision="approve"))
    await scene.until(run_id, states.RunState.PAUSED)
    paused = (await scene.service.store.read(run_id)).decisions.paused
    keys = await scene.keys(run_id)
    aside.rename(folder)
    await scene.service.runs.unpause(run_id)
    assert await scene.ended(run_id) is states.RunState.DONE

    assert (paused, keys) == ("workspace_missing", ["a", gate.key])


@pytest.mark.slow
async def test_a_server_without_search_attributes_is_named(
    temporal: temporal_server.DevServer, caplog: pytest.LogCaptureFixture
):
    """The log contains the command that creates the attributes, and runs continue without them."""
    await temporal_server.connected(temporal.address)
    client = await Client.connect(temporal.address, namespace="nowhere")

    assert not await registration.Registration(client, clock.SystemClock()).register()
    assert "search-attribute create --namespace nowhere --name ControlRoomRun --type Keyword" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "code", "words"),
    [
        ("comands", "unknown_capability", "did you mean commands"),
        ("backend:gone", "capability_missing", "this machine cannot serve backend:gone"),
    ],
)
async def test_a_worker_that_lacks_a_needed_part_is_refused(
    project: projects.Project, temporal: temporal_server.DevServer, wanted: str, code: str, words: str
):
    """The message names the missing part."""
    backends = {
        "said": {"type": "scripted", "file": "replies.json"},
        "gone": {"type": "claude-code", "command": ["no-such"]},
    }
    project.write(".control-room/agents.json", json.dumps({"backends": backends}))
    await temporal_server.connected(temporal.address)
    with pytest.raises(errors.ConfigurationError, match=words) as refused:
        async with bootstrap.build(chosen(project, temporal.address, serve=("tools", wanted)), WORK):
            pass

    assert refused.value.code == code


@pytest.mark.slow
async def test_lost_workflows_are_found_by_one_list(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    """Runs at gates cost no request each; a run whose workflow was terminated gets another, and ends as usual."""
    described: list[str] = []
    describe = WorkflowHandle.describe

    async def counted(self: Any, **given: Any) -> Any:
        described.append(self.id)
        return await describe(self, **given)

    runs = [await scene.start("asking") for _ in range(3)]
    for run_id in runs:
        await scene.until(run_id, states.RunState.WAITING)
    engine: Any = scene.service.engine

    async def are_listed() -> bool:
        return len([None async for _ in scene.client.list_workflows(_LISTED.format(" OR ".join(map(_is, runs))))]) == 3

    await temporal_server.until(are_listed)
    monkeypatch.setattr(WorkflowHandle, "describe", counted)
    assert await engine.workflow_recovery.round() == []
    assert described == []

    lost = runs[1]
    await scene.client.get_workflow_handle(messages.workflow_id(lost)).terminate()

    async def is_begun_again() -> bool:
        return await engine.workflow_recovery.round() == [lost]

    await temporal_server.until(is_begun_again)
    assert set(described) <= {messages.workflow_id(lost)}
    for run_id in runs:
        [gate], _ = await scene.service.gates.page(gate_inbox.GateQuery(run_id=run_id))
        await scene.service.gates.answer(gate.gate_id, gates.Reply(decision="approve"))
    assert {await scene.ended(run_id) for run_id in runs} == {states.RunState.DONE}


_LISTED = "ExecutionStatus = 'Running' AND ({})"


def _is(run_id: str) -> str:
    return f"WorkflowId = '{messages.workflow_id(run_id)}'"


async def test_a_paused_run_continues_where_it_stopped(scene: Scene):
    """A pause lets the open step finish and starts no other; afterwards the run repeats no step."""
    run_id = await scene.start("once")
    await scene.there("first")
    await scene.service.engine.pause(run_id)
    scene.project.write("go", "")
    await scene.until(run_id, states.RunState.PAUSED)
    assert await scene.keys(run_id) == ["first"]

    scene.project.write("good", "")
    await scene.service.engine.unpause(run_id)
    assert await scene.ended(run_id) is states.RunState.DONE
    assert (scene.project.root / "first").read_text() == "x\n"


async def test_a_failed_run_is_resumed_from_its_failure(scene: Scene):
    """A resume keeps finished steps and performs the failed one again."""
    scene.project.write("go", "")
    run_id = await scene.start("once")
    assert await scene.ended(run_id) is states.RunState.FAILED

    scene.project.write("good", "")
    await scene.service.engine.resume(run_id, run_engine.Resume())
    await scene.until(run_id, states.RunState.DONE)
    assert (scene.project.root / "first").read_text() == "x\n"
    assert (scene.project.root / "second").read_text() == "y\ny\n"


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_resume_reaches_the_run_below(scene: Scene, is_done: bool):
    """A resume from an earlier step resumes the failed run below when it reaches it, and replaces one that was done."""
    check = {"id": "check", "type": "bash", "command": "test -e good"}
    below: dict[str, Any] = {"schema": "1.7", "name": "below", "description": "Below", "version": "1.0.0"}
    begin = {"id": "begin", "type": "bash", "command": "echo begun"}
    sub = {"id": "sub", "type": "recipe", "recipe": "below"}
    steps = {"below": [begin] if is_done else [begin, check], "over": [begin, sub, *([check] if is_done else [])]}
    for name, each in steps.items():
        scene.project.write(
            f".control-room/recipes/amplifier/{name}.yaml", json.dumps({**below, "name": name, "steps": each})
        )
    run_id = await scene.start("over")
    assert await scene.ended(run_id) is states.RunState.FAILED

    scene.project.write("good", "")
    await scene.service.runs.resume(run_id, requests.ResumeRequest(from_key="begin"))
    await scene.until(run_id, states.RunState.DONE)
    rows = await scene.service.store.list_runs(stores.RunQuery(parent_run_id=run_id))
    keys = [await scene.keys(row.run_id) for row in rows]
    assert keys == ([["begin"], ["begin"]] if is_done else [["begin", "check", "check"]])


@pytest.mark.parametrize(("priority", "level"), [(100, 1), (0, 0), (-51, 5)])
async def test_the_server_orders_steps_by_priority(scene: Scene, priority: int, level: int):
    """Each step is scheduled at the server's level for its run's priority, with 0 as the default."""
    run_id = await scene.start("quick", priority=priority)
    assert await scene.ended(run_id) is states.RunState.DONE
    scheduled = [event.activity_task_scheduled_event_attributes for event in (await scene.history(run_id)).events]

    found = {each.priority.priority_key for each in scheduled if each.activity_type.name == "perform"}
    assert found == {level}


@pytest.mark.parametrize(
    ("labels", "key"), [({"book": "one"}, "one"), ({}, ""), ({"book": "ä" * 40}, plain.sha256(("ä" * 40).encode()))]
)
async def test_the_server_gives_turns_by_label(
    project: projects.Project, temporal: temporal_server.DevServer, labels: dict[str, str], key: str
):
    """Each step is scheduled with the value of the label as its fairness key, or with a hash of a long value."""
    async with serving(project, temporal.address, {"fair_label": "book"}) as scene:
        run_id = await scene.start("quick", labels=labels)
        assert await scene.ended(run_id) is states.RunState.DONE
        scheduled = [event.activity_task_scheduled_event_attributes for event in (await scene.history(run_id)).events]

    assert {each.priority.fairness_key for each in scheduled if each.activity_type.name == "perform"} == {key}


@pytest.mark.slow
async def test_a_late_run_of_another_label_overtakes_those_before_it(project: projects.Project, tmp_path: Path):
    """The step of a late run with another label is among the two that the only worker receives at each turn."""
    own, count = temporal_server.DevServer(tmp_path, *(f"matching.numTaskqueue{each}Partitions=1" for each in BOTH)), 60
    own.start()
    try:
        async with serving(project, own.address, {"fair_label": "book", "max_running": 1}) as scene:
            holder = await scene.start("once")
            await scene.there("first")
            books = ["one"] * count + ["two"]
            started = [await scene.start(book, labels={"book": book}) for book in books]
            for run_id in started:
                await asked_for(scene, run_id)
            # The server queues requested activities a moment later.
            await temporal_server.until(lambda: is_queued(scene, started[-1], count))
            (project.root / "go").touch()
            for run_id in (holder, *started):
                await scene.ended(run_id)
    finally:
        own.stop()

    order = scene.text("order").split()
    assert sorted(order) == books
    # In order of arrival, the run would come after half of the others.
    assert order.index("two") < 25


@pytest.mark.slow
async def test_runs_that_hold_a_workspace_alone_take_turns(project: projects.Project, tmp_path: Path):
    """The second run waits for the end of the first, in order, even if the server has lost every claim."""
    own = temporal_server.DevServer(tmp_path)
    own.start()
    try:
        await temporal_server.connected(own.address)
        async with AsyncExitStack() as stack:
            service = await stack.enter_async_context(bootstrap.build(chosen(project, own.address), SERVE))
            await stack.enter_async_context(bootstrap.build(chosen(project, own.address), WORK))
            scene = Scene(service, project, await Client.connect(own.address))
            first = await scene.start("once", exclusive_workspace=True)
            await scene.there("first")
            waiting = [await scene.start("child", exclusive_workspace=True) for _ in range(3)]
            beside = await scene.start("child")
            assert await scene.ended(beside) is states.RunState.DONE
            assert {(await service.store.summary(run_id)).status for run_id in waiting} == {states.RunState.PENDING}
            why = await service.explanations.why(waiting[0])
            assert (why.chain[0].kind, why.chain[1].run_id) == ("workspace_busy", first)
            assert first in why.chain[0].text

            own.wipe()
            own.start()
            await temporal_server.connected(own.address)
            await service.engine.cancel(waiting[0])
            assert await scene.ended(waiting[0]) is states.RunState.CANCELLED
            scene.project.write("good", "")
            scene.project.write("go", "")
            assert [await scene.ended(run_id) for run_id in (first, *waiting[1:])] == [states.RunState.DONE] * 3

            rows = [await service.store.summary(run_id) for run_id in (first, *waiting[1:])]
            assert (rows[0].completed_at or "") <= min(row.started_at or "" for row in rows[1:])
            assert sorted(rows, key=lambda row: row.started_at or "") == sorted(
                rows, key=lambda row: row.completed_at or ""
            )
    finally:
        own.stop()


def tasks(*recipe_ids: str) -> tuple[plan_requests.NewTask, ...]:
    """Return tasks of a plan, each dependent on the one before."""
    return tuple(
        plan_requests.NewTask(description=f"do {recipe_id}", recipe_id=recipe_id, deps=(number,) if number else ())
        for number, recipe_id in enumerate(recipe_ids)
    )


async def planned(scene: Scene, session_id: str, *wanted: plans.PlanState) -> plans.Plan:
    """Wait until a plan is in a state."""
    known: int | None = None
    async with asyncio.timeout(served.WAIT_SECONDS):
        while True:
            plan = await scene.service.plans.wait(session_id, 30, known)
            if plan.status in wanted:
                return plan
            known = plan.revision


@pytest.mark.slow
async def test_a_session_plan_is_carried_out_by_workers(scene: Scene):
    """Tasks run in their order, each once; a person's changes apply, and a deleted plan is removed."""
    created = await scene.service.plans.create(plan_requests.NewPlan(tasks=tasks("child", "parent"), review="off"))
    session_id = created.plan.session_id
    await scene.service.plans.approve(session_id)
    await scene.service.plans.start(session_id)
    plan = await planned(scene, session_id, plans.PlanState.DONE, plans.PlanState.FAILED)

    assert plan.status is plans.PlanState.DONE
    rows = await scene.service.store.list_runs(stores.RunQuery(session_id=session_id))
    started = [row.run_id for row in sorted(rows, key=lambda row: row.created_at) if row.parent_run_id is None]
    assert started == [task.run_id for task in plan.tasks]
    await scene.service.plans.delete(session_id)
    with pytest.raises(errors.NotFound):
        await scene.service.plans.show(session_id)


@pytest.mark.slow
async def test_a_failed_task_of_a_plan_is_tried_again(scene: Scene):
    """The plan fails with its run; a retry resumes the run and keeps its finished steps."""
    scene.project.write("go", "")
    created = await scene.service.plans.create(plan_requests.NewPlan(tasks=tasks("once"), review="off"))
    session_id = created.plan.session_id
    await scene.service.plans.approve(session_id)
    await scene.service.plans.start(session_id)
    assert (await planned(scene, session_id, plans.PlanState.DONE, plans.PlanState.FAILED)).tasks[0].error is not None

    scene.project.write("good", "")
    await scene.service.plans.retry(session_id, 1)
    await planned(scene, session_id, plans.PlanState.DONE)
    assert scene.text("first") == "x\n"
    assert scene.text("second") == "y\ny\n"


@pytest.mark.slow
async def test_a_plan_survives_the_loss_of_every_workflow(project: projects.Project, tmp_path: Path):
    """If the server has lost its database, the plan continues from its journal and repeats no step."""
    own = temporal_server.DevServer(tmp_path)
    own.start()
    try:
        await temporal_server.connected(own.address)
        async with AsyncExitStack() as stack:
            service = await stack.enter_async_context(bootstrap.build(chosen(project, own.address), SERVE))
            await stack.enter_async_context(bootstrap.build(chosen(project, own.address), WORK))
            scene = Scene(service, project, await Client.connect(own.address))
            created = await service.plans.create(plan_requests.NewPlan(tasks=tasks("once", "child"), review="off"))
            session_id = created.plan.session_id
            await service.plans.approve(session_id)
            await service.plans.start(session_id)
            await scene.there("first")
            own.wipe()
            own.start()
            await temporal_server.connected(own.address)
            scene.project.write("go", "")
            scene.project.write("good", "")

            assert (await planned(scene, session_id, plans.PlanState.DONE)).tasks[1].attempt == 1
    finally:
        own.stop()


@pytest.mark.slow
async def test_projects_share_a_server(scene: Scene, temporal: temporal_server.DevServer, tmp_path: Path):
    """Workers of another project on the same server do not take a project's runs."""
    other = projects.Project(tmp_path / "other")
    async with bootstrap.build(chosen(other, temporal.address), WORK):
        runs = [await scene.start("quick") for _ in range(5)]
        assert {await scene.ended(run_id) for run_id in runs} == {states.RunState.DONE}


async def test_a_worker_is_refused_while_the_embedded_engine_executes(
    project: projects.Project, temporal: temporal_server.DevServer
):
    """Each engine's refusal names the process to stop."""
    await temporal_server.connected(temporal.address)
    embedded = settings.load({}, project=project.root, home=project.root / "nobody")
    async with bootstrap.build(embedded, SERVE):
        with pytest.raises(errors.ConfigurationError, match="stop it first") as refused:
            async with bootstrap.build(chosen(project, temporal.address), WORK):
                pass
    assert refused.value.code == "other_engine"

    async with bootstrap.build(chosen(project, temporal.address), WORK):
        with pytest.raises(
            errors.ConfigurationError, match=r"give orders with --server .* or stop them first"
        ) as refused:
            async with bootstrap.build(embedded, SERVE):
                pass
    assert refused.value.code == "other_engine"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"temporal": "nowhere"}, "temporal_address"),
        ({"temporal": "127.0.0.1:1"}, "temporal_away"),
        ({"temporal_namespace": "missing"}, "temporal_namespace"),
    ],
)
async def test_a_wrong_server_is_refused_by_name(
    project: projects.Project, temporal: temporal_server.DevServer, given: dict[str, str], code: str
):
    """The message names the address or the namespace."""
    await temporal_server.connected(temporal.address)
    wanted = {"temporal": temporal.address} | given
    wrong = settings.load({}, project=project.root, home=project.root / "nobody", engine="temporal", **wanted)
    with pytest.raises(errors.ConfigurationError) as refused:
        async with bootstrap.build(wrong, WORK):
            pass

    assert refused.value.code == code
    assert next(iter(given.values())) in refused.value.message


async def test_a_workflow_begins_anew_where_the_journal_differs_from_its_history(scene: Scene):
    """If journal and history differ, another workflow continues the run, and repeats no step."""
    run_id = await scene.start("asking")
    await scene.until(run_id, states.RunState.WAITING)
    engine: Any = scene.service.engine
    before = await scene.client.get_workflow_handle(messages.workflow_id(run_id)).describe()
    told: list[str] = []
    reference = slices.Slice(run_id=run_id, whole=True, sha256="0" * 64)
    payload = Payload(metadata={"encoding": b"control-room/slice"}, data=reference.encoded())
    with pytest.raises(RuntimeError, match="not those that its workflow received"):
        await codec.ClaimCheck(slices.Contents(scene.service.store), told.append).decode([payload])
    await engine.begin_anew(*told)
    [gate], _ = await scene.service.gates.page(gate_inbox.GateQuery(run_id=run_id))
    await scene.service.gates.answer(gate.gate_id, gates.Reply(decision="approve"))
    assert await scene.ended(run_id) is states.RunState.DONE

    after = await scene.client.get_workflow_handle(messages.workflow_id(run_id)).describe()
    assert after.run_id != before.run_id
    assert await scene.keys(run_id) == ["a", gate.key, "b"]
