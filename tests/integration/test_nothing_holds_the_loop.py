"""A free event loop: whatever a client, recipe or file does, each turn of the loop does a bounded amount of work.

The fast suite tries one of each kind; the marker `slow` tries all, in their largest sizes.
"""

from __future__ import annotations

import asyncio
import collections
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets.sync.client

from app import settings
from app.api import ws_messages
from app.domain.events import Event
from app.storage.runs import events_file
from bench import crowds, nastiest
from tests import smoke
from tests.integration import project as projects
from tests.integration import slices
from tests.integration.project import Project
from tests.unit.dialects.agent_recipes import recipe_harness as agent_recipes
from tests.unit.dialects.amplifier import recipe_harness as amplifier

pytestmark = pytest.mark.timeout(1200)
DOCUMENT = json.loads(Path("openapi/openapi.json").read_text(encoding="utf-8"))
PATHS = sorted(nastiest.paths(DOCUMENT))
IDS = {"run_id": "20260101T000000Z-abcdef", "session_id": "sp_1", "task_id": "1"}
"""Ids of a required form; any word is valid for the others."""
SMOKES = ("long text", "names", "objects", "deep lists", "unknown fields")
"""Kinds of bodies that the fast suite sends to one address."""

SLOW = pytest.mark.slow


def both(values: list[Any], fast: Any) -> list[Any]:
    """Return test cases, only one of which belongs to the fast suite."""
    return [pytest.param(value, marks=() if value == fast else SLOW) for value in values]


@pytest.fixture
def service(project: Project) -> Iterator[slices.Watched]:
    """Return a service whose turns are counted."""
    with slices.watching(project, inline_recipes=True, stop_grace_seconds=0.2) as watched:
        yield watched


def test_the_instrument_sees_work() -> None:
    """The instrument reports a turn with too many calls and its place, and not the turns beside it."""

    def work() -> None:
        for _ in range(slices.MOST_CALLS + 10):
            len("")

    async def turns() -> slices.Slices:
        found = slices.Slices()
        found.install()
        try:
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(work)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            sys.setprofile(None)
        return found

    found = asyncio.run(turns())

    assert slices.MOST_CALLS < found.longest < slices.MOST_CALLS + 1000
    assert "in work" in found.place


@pytest.mark.parametrize("path", both(PATHS, "/api/sessions"))
def test_bodies(service: slices.Watched, path: str, request: pytest.FixtureRequest) -> None:
    """Every address accepts or refuses the largest and worst bodies in short turns."""
    is_fast = not request.node.get_closest_marker("slow")
    for body in nastiest.bodies(DOCUMENT, path):
        if not is_fast or body.name.endswith(SMOKES):
            headers = {"Content-Type": "application/json"}
            address = path.format_map(collections.defaultdict(lambda: "x", IDS))
            answer = service.http.request(body.method, address, content=body.content, headers=headers)

            assert answer.status_code < 500, (body.name, answer.text[:300])
            service.check(f"{body.method} {path}: {body.name}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", both(sorted(ws_messages.TYPES), "subscribe"))
def test_messages(service: slices.Watched, kind: str) -> None:
    """Every type of message is answered in short turns with every nasty content."""
    schema = ws_messages.TYPES[kind].model_json_schema()
    address = f"ws://127.0.0.1:{service.http.base_url.port}/ws"
    with websockets.sync.client.connect(address, proxy=None, compression=None, max_size=None) as socket:
        codes = set()
        for name, content in nastiest.contents(schema, {"type": kind}):
            socket.send(content.decode())
            codes.add(json.loads(socket.recv(60)).get("code"))
            service.check(f"{kind}: {name}")

    assert {"message_invalid", "message_too_large"} <= codes


@pytest.mark.parametrize("path", ["/api/runs", "/api/issues", "/api/recipes", "/api/receipts"])
def test_queries(service: slices.Watched, path: str) -> None:
    """A head of the largest allowed size is read, and its query refused, in short turns."""
    for query in ("&".join(f"a{number}=1" for number in range(6_000)), "status=" + "x" * 60_000, "label=%00" * 6_000):
        answer = service.http.get(f"{path}?{query[:60_000]}")

        assert answer.status_code < 500
        service.check(f"{path}?{query[:20]}")


def chained(count: int) -> dict[str, Any]:
    """Return steps that each depend on the one before."""
    steps = [
        {**amplifier.step(f"s{number}", agent="writer"), "depends_on": [f"s{number - 1}"] if number else []}
        for number in range(count)
    ]
    return amplifier.later(*steps, name="largest")


def each(count: int, **more: Any) -> dict[str, Any]:
    """Return a loop over many items."""
    looped = amplifier.step("each", agent="writer", foreach="{{items}}", max_iterations=count, **more)
    return amplifier.later(looped, name="largest", context={"items": list(range(count))})


def nested(count: int) -> dict[str, Any]:
    """Return a loop within a loop."""
    side = int(count**0.5)
    inner = {"foreach": "{{items}}", "as": "other", "max_iterations": side}
    looped = amplifier.step(
        "each", agent="writer", foreach="{{items}}", nested_foreach=inner, collect="all", max_iterations=side
    )
    return amplifier.later(looped, name="largest", context={"items": list(range(side))})


def iterating(count: int) -> dict[str, Any]:
    """Return a step that is repeated while a condition is true."""
    again = amplifier.step(
        "again", agent="writer", while_condition="{{go}} == 'on'", max_while_iterations=count, on_error="continue"
    )
    return amplifier.later(again, name="largest", context={"go": "on"})


def machine(count: int) -> dict[str, Any]:
    """Return a machine that calls its agent repeatedly until its guardrail ends it."""
    again = {"prompt": "Go on.", "outcomes": ["more"], "onOutcome": {"more": {"nextStep": "again"}}}
    guards = {"maxTotalSteps": count, "maxStepVisits": count}
    return agent_recipes.recipe(id="largest", initialStep="again", steps={"again": again}, guardrails=guards)


def ring(count: int) -> dict[str, Any]:
    """Return a machine with a cycle within a cycle, which its guardrail ends."""
    steps = {
        "outer": {"prompt": "Begin.", "outcomes": ["more"], "onOutcome": {"more": {"nextStep": "inner"}}},
        "inner": {
            "prompt": "Go on.",
            "outcomes": ["more", "over"],
            "onOutcome": {"more": {"nextStep": "inner"}, "over": {"nextStep": "outer"}},
        },
    }
    guards = {"maxTotalSteps": count, "maxStepVisits": count}
    return agent_recipes.recipe(id="largest", initialStep="outer", steps=steps, guardrails=guards)


def workflow(count: int) -> dict[str, Any]:
    """Return a chain of steps that are all skipped."""
    skipped = {"when": {"equals": {"left": "a", "right": "b"}}}
    steps = [{"name": f"S{number}", "command": ["true"], **skipped} for number in range(count)]
    return {"version": "1.1", "name": "largest", "strict_flow": True, "steps": steps}


def jumps(count: int) -> dict[str, Any]:
    """Return steps that lead from the last to the first, each by a jump."""
    steps: list[dict[str, Any]] = [{"name": "Begin", "command": ["true"], "on": {"success": {"goto": f"S{count - 1}"}}}]
    for number in range(count):
        target = f"S{number - 1}" if number else "_end"
        steps.append({"name": f"S{number}", "command": ["true"], "on": {"success": {"goto": target}}})
    return {"version": "1.1", "name": "largest", "steps": steps}


def circle(count: int) -> dict[str, Any]:
    """Return a step that jumps back to itself until a file has a number of lines."""
    counted = f"echo x >> rounds && test $(wc -l < rounds) -ge {count}"
    ways = {"success": {"goto": "_end"}, "failure": {"goto": "Count"}}
    return {
        "version": "1.1",
        "name": "largest",
        "steps": [{"name": "Count", "command": ["sh", "-c", counted], "on": ways}],
    }


def tools(count: int) -> dict[str, Any]:
    """Return a pipeline of tools."""
    steps = [projects.tool_step(f"s{n}", "file_locator", f"o{n}", search_criteria="x") for n in range(count)]
    return {"recipe_id": "largest", "label": "Largest", "phase_a": steps, "dod": []}


FORMS: dict[str, tuple[str, Callable[[int], dict[str, Any]], int]] = {
    "a chain of amplifier": ("amplifier", chained, 1_000),
    "a parallel foreach": ("amplifier", lambda count: each(count, parallel=True, collect="all"), 3_000),
    "a foreach in sequence": ("amplifier", lambda count: each(count, collect="all"), 3_000),
    "a loop in a loop": ("amplifier", nested, 3_000),
    "a while": ("amplifier", iterating, 2_000),
    "a machine": ("agent_recipes", machine, 2_000),
    "a machine of two circles": ("agent_recipes", ring, 2_000),
    "a chain of jumps": ("orchestrate", jumps, 999),
    "a workflow": ("orchestrate", workflow, 1_000),
    "a workflow in a circle": ("orchestrate", circle, 2_000),
    "a pipeline": ("", tools, 200),
}
FEW = 40


@pytest.mark.parametrize("name", smoke.only("a foreach in sequence", FORMS))
@pytest.mark.parametrize("is_largest", [False, pytest.param(True, marks=SLOW)])
def test_loops(project: Project, name: str, is_largest: bool) -> None:
    """The largest recipe of every form is read, run, shown and recovered by the next service in short turns."""
    dialect, make, count = FORMS[name]
    suffix = "json" if dialect in ("", "agent_recipes") else "yaml"
    project.write(f".control-room/recipes/{dialect}/largest.{suffix}", json.dumps(make(count if is_largest else FEW)))
    project.say("*", text='{"outcome": "more"}' if dialect == "agent_recipes" else "Done.")
    for visit in range(5, count if is_largest else FEW, 5) if make is ring else ():
        project.say(f"inner#{visit}", text='{"outcome": "over"}')
    args = {"backend": "said"} if dialect == "agent_recipes" else {}
    with slices.watching(project, stop_grace_seconds=0.2) as service:
        shown = service.run("largest", **args)
        service.check(f"{name} runs")
        run_id = shown["run_id"]
        for path in ("", "/steps", "/recipe", "/events"):
            answer = service.http.get(f"/api/runs/{run_id}{path}")
            assert answer.status_code < 500, answer.text[:300]
            service.check(f"{name}: GET {path}")
        service.http.post(f"/api/runs/{run_id}/resume", json={})
        service.until_over(run_id)
        service.check(f"{name} is resumed")

    assert shown["status"] in ("done", "failed")
    assert len(shown["steps"]) >= 30


@SLOW
def test_lists_of_many_runs(tmp_path: Path) -> None:
    """Lists of 10,000 runs are read and followed in short turns."""
    root = asyncio.run(crowds.make(tmp_path / "crowd", finished=10_000, whole=False))
    with slices.watching(Project(root)) as service:
        for query in ("", "?limit=500", "?status=failed", "?label=book:one", "?limit=500&order=oldest"):
            assert service.http.get(f"/api/runs{query}").status_code in (200, 400)
            service.check(f"/api/runs{query}")
        assert service.http.get("/metrics").status_code == 200
        service.check("/metrics")


@pytest.mark.parametrize("count", [30, pytest.param(1_000, marks=SLOW)])
def test_many_recipe_files(project: Project, count: int) -> None:
    """A thousand recipe files are read, listed and routed in short turns, and again after one has changed."""
    for number in range(count):
        project.add_recipe(projects.draft(f"draft-{number}"))
    with slices.watching(project) as service:
        for _ in range(2):
            assert len(service.http.get("/api/recipes").json()) > count
            service.check("/api/recipes")
            assert service.http.post("/api/route", json={"description": "sketch scene"}).status_code == 200
            service.check("/api/route")
            service.run("quick")
            service.check("a run")
            project.add_recipe(projects.draft("draft-1"))


@pytest.mark.parametrize("megabytes", [1, pytest.param(100, marks=SLOW)])
def test_long_logs(project: Project, megabytes: int) -> None:
    """A log of 100 MB is listed and read in short turns."""
    with slices.watching(project) as service:
        run_id = service.run("quick")["run_id"]
        logs = project.data / "runs" / run_id / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / "discover.log").open("wb") as file:
            for _ in range(megabytes):
                file.write(b"a line of the log\n" * (1024 * 1024 // 18))
        service.check("a run")
        for path in ("", "/discover.log"):
            assert service.http.get(f"/api/runs/{run_id}/logs{path}").status_code == 200
            service.check(f"logs{path}")


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(100_000, marks=SLOW)])
def test_long_event_streams(project: Project, count: int) -> None:
    """A stream of 100,000 events, and its end alone, is sent in short turns."""
    with slices.watching(project) as service:
        run_id = service.run("quick")["run_id"]
    file = project.data / "runs" / run_id / "events.jsonl"
    said = file.read_bytes()
    last = json.loads(said.splitlines()[-1])
    more = [Event(seq=last["seq"] + n, at=last["at"], type="recipe.note", run_id=run_id) for n in range(1, count + 1)]
    file.write_bytes(said + b"".join(events_file.encoded(event) for event in more))
    with slices.watching(project) as service:
        for after, least in ((0, count), (count - 10, 10)):
            answer = service.http.get(f"/api/runs/{run_id}/events", headers={"Last-Event-ID": str(after)})

            assert answer.status_code == 200
            assert answer.text.count("\nid: ") + answer.text.startswith("id: ") >= least
            service.check(f"events after {after}")


def test_options(service: slices.Watched) -> None:
    """Options with 80,000 names, and with as many as a body may contain, are refused in short turns."""
    for count, status in ((80_000, 413), (10_000, 400)):
        options = ",".join(f'"{number:x}":1' for number in range(count))
        content = f'{{"recipe_id":"quick","options":{{{options}}}}}'
        answer = service.http.post("/api/runs", content=content, headers={"Content-Type": "application/json"})

        assert answer.status_code == status, answer.text[:300]
        service.check(f"{count} options")


def test_settings_are_those_of_a_service() -> None:
    """The largest body that loads send is just below the default limit of a service."""
    assert nastiest.BYTES < settings.load({}).server.max_body_bytes <= 2 * nastiest.BYTES
