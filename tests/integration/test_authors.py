"""Authors: who gave an order or an answer, in the journal, in events and at the gate."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.api import browser_sessions
from tests.integration import asking, listening, served
from tests.integration.project import Project

TOKEN = "a-token-of-some-length"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
HEADER = "X-Control-Room-Author"


def orders(project: Project, run_id: str) -> dict[str, Any]:
    """Return the author of the newest control line of each kind."""
    lines = (project.data / "runs" / run_id / "control.jsonl").read_text().splitlines()
    return {line["kind"]: line.get("author") for line in map(json.loads, lines)}


async def authors_by_type(service: served.Served, run_id: str) -> dict[str, Any]:
    """Return the author of the newest event of each type that has one."""
    answer = await service.http.get(f"/api/runs/{run_id}/events")
    found = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
    return {event["type"]: event["data"]["author"] for event in found if "author" in event["data"]}


async def newest(service: served.Served, known: int) -> dict[str, Any]:
    """Wait until there are more runs than this number and the newest has begun, and return the newest."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while True:
            rows = (await service.http.get("/api/runs", headers=BEARER)).json()
            if len(rows) > known and rows[0]["status"] == "running":
                return dict((await service.http.get(f"/api/runs/{rows[0]['run_id']}", headers=BEARER)).json())
            await served.moment()


async def test_orders_name_their_author(project: Project) -> None:
    """The journal and events show the author that the caller claims; a new order does not take over an old author."""
    project.say("draft", hang=True)
    ada, bob = ({"name": name, "claimed": True, "via": "local"} for name in ("Ada Lovelace", "Бо́б"))
    nobody = {"name": None, "claimed": False, "via": "local"}
    async with served.in_process(project) as service:
        run_id = await service.start("unguarded")
        await service.until(run_id, step="draft")
        path = f"/api/runs/{run_id}"
        await service.http.post(f"{path}/pause", json={"interrupt": True}, headers={HEADER: "Ada Lovelace"})
        await service.until(run_id, "paused")
        await service.http.post(f"{path}/unpause", headers=[(HEADER.encode(), "Бо́б".encode())])
        await service.until(run_id, step="draft")
        await service.http.post(f"{path}/cancel")
        await service.until(run_id, "cancelled")
        events = await authors_by_type(service, run_id)
        await service.http.post(f"{path}/resume", headers={HEADER: "Ada Lovelace"})
        await service.until(run_id, step="draft")
        bulk = {"action": "cancel", "run_ids": [run_id]}
        await service.http.post("/api/runs/bulk", json=bulk, headers={HEADER: "Bo"})
        await service.until(run_id, "cancelled")
        later = await authors_by_type(service, run_id)
    written = orders(project, run_id)

    assert events == {"run.paused": ada, "run.unpaused": bob, "run.cancel_requested": nobody}
    assert later["run.resumed"] == ada
    assert (written["paused"], written["unpaused"], written["resumed"]) == (ada, bob, ada)
    assert written["cancel_requested"] == later["run.cancel_requested"] == {**ada, "name": "Bo"}


async def test_the_way_in_is_part_of_the_author(project: Project) -> None:
    """With a token, an author's name is only claimed; a signed-in browser has its sign-in's name, not a claimed one."""
    project.say("draft", hang=True)
    async with served.in_process(project, api_token=TOKEN) as service:
        signed_in = await service.http.post("/api/session", json={"token": TOKEN, "name": "Ada"})
        browser = {browser_sessions.HEADER: signed_in.json()["session"], HEADER: "Mallory"}
        found = []
        for headers in ({**BEARER, HEADER: "Bob"}, browser):
            started = await service.http.post("/api/runs", json={"recipe_id": "unguarded"}, headers=BEARER)
            run_id = started.json()["run_id"]
            answer = await service.http.post(f"/api/runs/{run_id}/cancel", headers=headers)
            assert answer.status_code == 200
            found.append(orders(project, run_id)["cancel_requested"])

    assert found == [
        {"name": "Bob", "claimed": True, "via": "token"},
        {"name": "Ada", "claimed": False, "via": "browser"},
    ]


async def test_a_gate_shows_who_decided(project: Project) -> None:
    """The author of an answer is in its line and at the gate, and a repetition by another author is the same answer."""
    asking.add(project, "ship", *asking.SHIP)
    async with asking.in_process(project) as service:
        run_id = await service.start("ship")
        await service.until(run_id, "waiting")
        (gate,) = await service.gates()
        path, said = f"/api/gates/{gate['gate_id']}", {"decision": "approve"}
        answer = await service.http.post(path, json=said, headers={"Idempotency-Key": "once", HEADER: "Ada"})
        again = await service.http.post(path, json=said, headers={"Idempotency-Key": "once", HEADER: "Bob"})
        await service.until(run_id, "done")
        events = await authors_by_type(service, run_id)

    assert answer.json()["decided_by"] == {"name": "Ada", "claimed": True, "via": "local"}
    assert again.json() == answer.json()
    assert events["gate.decided"] == answer.json()["decided_by"]


async def test_a_run_shows_who_started_it(project: Project) -> None:
    """A run keeps the author of its start; a repetition does not change it, and an invalid name starts no run."""
    ada = {"name": "Ada", "claimed": True, "via": "local"}
    async with served.in_process(project) as service:
        body, key = {"recipe_id": "quick"}, {"Idempotency-Key": "once"}
        answer = await service.http.post("/api/runs", json=body, headers={HEADER: "Ada", **key})
        again = await service.http.post("/api/runs", json=body, headers={HEADER: "Bob", **key})
        refused = await service.http.post("/api/runs", json=body, headers={HEADER: "a\x01b"})
        run_id = answer.json()["run_id"]
        shown = await service.until(run_id, "done")
        there = (await service.http.get("/api/runs")).json()

    assert (again.json()["run_id"], refused.status_code, len(there)) == (run_id, 400, 1)
    assert shown["started_by"] == ada
    assert json.loads((project.data / "runs" / run_id / "start.json").read_text())["started_by"] == ada


async def test_the_websocket_has_the_author_of_its_ticket(project: Project) -> None:
    """A ticket names the author of starts and cancels over the WebSocket; without one, the handshake claims a name."""
    project.say("prompt", hang=True)
    async with listening.on_a_port(project, api_token=TOKEN) as service:
        signed_in = await service.http.post("/api/session", json={"token": TOKEN, "name": "Ada"})
        browser = {browser_sessions.HEADER: signed_in.json()["session"]}
        ticket = (await service.http.post("/api/tickets", headers=browser)).json()["ticket"]
        found: list[Any] = []
        for query, headers in ((f"?ticket={ticket}", {}), ("", {**BEARER, HEADER: "Bob"})):
            async with service.client(query, additional_headers=headers) as client:
                await client.say("prompt", text="Hi!", backend="said", session_id=None, working_directory=None)
                run = await newest(service, len(found) // 2)
                await client.say("exit_recipe", session_id=run["task"]["initial_args"]["agent_session_id"])
                async with asyncio.timeout(served.WAIT_SECONDS):
                    while "cancel_requested" not in orders(project, run["run_id"]):
                        await served.moment()
            found += [run["started_by"], orders(project, run["run_id"])["cancel_requested"]]

    assert found[:2] == [{"name": "Ada", "claimed": False, "via": "browser"}] * 2
    assert found[2:] == [{"name": "Bob", "claimed": True, "via": "token"}] * 2


async def test_a_plan_shows_who_changed_it(project: Project) -> None:
    """The file and the journal of a plan name who approved, started and last changed it, also after a restart."""
    ada, bob, eve = ({"name": name, "claimed": True, "via": "local"} for name in ("Ada", "Bob", "Eve"))
    names = ("changed_by", "approved_by", "started_by")
    found = []
    async with served.in_process(project) as service:
        body = {"tasks": [{"description": "xyzzy"}]}
        plan = (await service.http.post("/api/sessions", json=body, headers={HEADER: "Ada"})).json()
        found.append([plan.get(name) for name in names])
        path = f"/api/sessions/{plan['session_id']}"
        for order, name in (("approve", "Bob"), ("start", "Eve"), ("pause", "Ada")):
            plan = (await service.http.post(f"{path}/{order}", headers={HEADER: name})).json()
            found.append([plan.get(name) for name in names])
    async with served.in_process(project) as service:
        later = (await service.http.get(path)).json()
    (journal,) = (project.data / "runs").glob("sp_*/steps.jsonl")
    inputs = [json.loads(line) for line in journal.read_text().splitlines()]
    written = [line["output"]["author"] for line in inputs if line["key"].startswith("input#")]

    assert found == [[ada, None, None], [bob, bob, None], [eve, bob, eve], [ada, bob, eve]]
    assert [later[name] for name in names] == [ada, bob, eve]
    assert written == [bob, eve, ada]


@pytest.mark.parametrize("name", [b"x" * 101, b"a\x01b", b"\xff\xfe", "\u202eevil".encode(), b"tab\there"])
async def test_a_name_that_is_none_is_refused(service: served.Served, name: bytes) -> None:
    """A claimed name that cannot be displayed is refused, and the order is not carried out."""
    run_id = (await service.run("quick"))["run_id"]
    answer = await service.http.post(f"/api/runs/{run_id}/resume", headers=[(HEADER.encode(), name)])

    assert (answer.status_code, answer.json()["flaws"][0]["path"]) == (400, f"header.{HEADER}")
