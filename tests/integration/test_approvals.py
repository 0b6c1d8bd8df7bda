"""Approvals: gates that need several keys, or a key other than the starter's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.acceptance import programs
from tests.integration import asking, served
from tests.integration.project import Project

TOKEN = "a-token-of-some-length"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}
Header = Mapping[str, str]


@pytest.fixture
def shipping(project: Project) -> Project:
    """Return a project with a recipe that asks."""
    asking.add(project, "ship", *asking.SHIP)
    return project


async def people(service: served.Served, *names: str) -> list[dict[str, str]]:
    """Add keys that may answer gates, and return their headers."""
    found = []
    for name in names:
        body = {"name": name, "role": "approver"}
        secret = (await service.http.post("/api/keys", json=body, headers=ADMIN)).json()["secret"]
        found.append({"Authorization": f"Bearer {secret}"})
    return found


async def begun(service: served.Served, header: Header, **approvals: Any) -> tuple[str, str]:
    """Start a run whose gates need approvals; return it with the gate that it waits at."""
    body = {"recipe_id": "ship", "approvals": approvals}
    started = await service.http.post("/api/runs", json=body, headers=header)
    assert started.status_code == 201, started.text
    run_id = str(started.json()["run_id"])
    await until(service, run_id, "waiting")
    gates = (await service.http.get("/api/gates", params={"run_id": run_id}, headers=ADMIN)).json()
    return run_id, gates[0]["gate_id"]


async def until(service: served.Served, run_id: str, status: str) -> None:
    """Wait until a run has a state."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while (await service.http.get(f"/api/runs/{run_id}", headers=ADMIN)).json()["status"] != status:
            await served.moment()


async def explained(service: served.Served, run_id: str, kind: str, header: Header) -> dict[str, Any]:
    """Wait until a run does not move for a cause of a kind, and return the explanation."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while True:
            why: dict[str, Any] = (await service.http.get(f"/api/runs/{run_id}/why", headers=header)).json()
            if [cause["kind"] for cause in why["chain"]] == [kind]:
                return why
            await served.moment()


async def vote(service: served.Served, gate_id: str, header: Header, decision: str = "approve") -> httpx.Response:
    """Answer a gate."""
    return await service.http.post(f"/api/gates/{gate_id}", json={"decision": decision}, headers=header)


def code(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the code of a refusal."""
    return answer.status_code, answer.json()["code"]


def names(shown: Mapping[str, Any]) -> list[str]:
    """Return the names whose votes a gate shows."""
    return [vote["author"]["name"] for vote in shown["approvals"]["given"]]


async def test_two_keys_must_agree(shipping: Project) -> None:
    """After one vote the gate stays open, even after a restart; a key counts once; the second key decides."""
    async with asking.in_process(shipping, api_token=TOKEN) as service:
        ada, bob = await people(service, "ada", "bob")
        run_id, gate_id = await begun(service, ADMIN, count=2)
        first = await vote(service, gate_id, ada)
        again = await vote(service, gate_id, ada)
        otherwise = await vote(service, gate_id, ada, "deny")
    assert first.status_code == again.status_code == 200
    assert (first.json()["status"], names(first.json()), names(again.json())) == ("open", ["ada"], ["ada"])
    assert otherwise.json()["status"] == "decided"
    control = (shipping.data / "runs" / run_id / "control.jsonl").read_text().splitlines()
    assert [line["author"]["name"] for line in map(json.loads, control) if line["kind"] == "voted"] == ["ada"]

    async with asking.in_process(shipping, api_token=TOKEN) as service:
        run_id, gate_id = await begun(service, ADMIN, count=2)
        await vote(service, gate_id, ada)
    async with asking.in_process(shipping, api_token=TOKEN) as service:
        await until(service, run_id, "waiting")
        shown = (await service.http.get(f"/api/gates/{gate_id}", headers=bob)).json()
        listed = (await service.http.get("/api/gates", headers=bob)).json()
        # The run waits as soon as its journal is read; a moment later the service loads it and reports the cause.
        why = await explained(service, run_id, "gate", bob)
        second = await vote(service, gate_id, bob)
        await until(service, run_id, "done")
        decided = (await service.http.get(f"/api/gates/{gate_id}", headers=ada)).json()
        events = (await service.http.get(f"/api/runs/{run_id}/events", headers=ada)).text
    steps = (shipping.data / "runs" / run_id / "steps.jsonl").read_text().splitlines()
    (answer,) = [line["output"] for line in map(json.loads, steps) if line["key"] == "ship"]

    assert (shown["approvals"]["needed"], names(shown), names(listed[0])) == (2, ["ada"], ["ada"])
    assert "; 1 of 2 votes are given" in why["sentence"]
    assert (second.json()["status"], second.json()["decided_by"]["name"]) == ("decided", "bob")
    assert names(decided) == ["ada", "bob"]
    assert [vote["author"]["name"] for vote in answer["approvals"]] == ["ada", "bob"]
    assert [line for line in events.splitlines() if line == "event: gate.voted"] == ["event: gate.voted"]


@pytest.mark.slow
async def test_votes_stay_with_a_default(project: Project) -> None:
    """A gate that its default decided still shows the votes that were given before, which did not suffice."""
    asking.add(project, "ship", {"gate": "ship", "default": "deny", "expires_seconds": 4})
    async with asking.in_process(project, api_token=TOKEN) as service:
        ada, _ = await people(service, "ada", "bob")
        run_id, gate_id = await begun(service, ADMIN, count=2)
        await vote(service, gate_id, ada)
        await until(service, run_id, "failed")
        shown = (await service.http.get(f"/api/gates/{gate_id}", headers=ada)).json()

    assert (shown["decision"], shown["by_default"], names(shown)) == ("deny", True, ["ada"])


async def test_the_command_says_how_many_votes_are_missing(project: Project) -> None:
    """A vote that decides nothing yet is printed with the missing votes, also when it is repeated, and the last one
    with the decision.
    """
    approval = {"required": True, "prompt": "Publish?"}
    stage = {"name": "s", "steps": [{"id": "a", "type": "bash", "command": "true"}], "approval": approval}
    document = {"schema": "1.7", "name": "publish", "description": "d", "version": "1.0.0", "stages": [stage]}
    project.write(".control-room/recipes/amplifier/publish.yaml", json.dumps(document))
    async with served.on_a_port(project, api_token=TOKEN) as service:
        ada, bob = await people(service, "ada", "bob")
        body = {"recipe_id": "publish", "approvals": {"count": 2}}
        run_id = (await service.http.post("/api/runs", json=body, headers=ADMIN)).json()["run_id"]
        await until(service, run_id, "waiting")
        gate_id = (await service.http.get("/api/gates", headers=ADMIN)).json()[0]["gate_id"]

        def printed(header: Header, *words: str) -> str:
            server, token = str(service.http.base_url), header["Authorization"].removeprefix("Bearer ")
            ended = programs.control_room("gates", *words, "--server", server, CONTROL_ROOM_API_TOKEN=token)
            return ended.stdout.strip()

        first, again, shown, last = [
            await asyncio.to_thread(printed, header, *words)
            for header, words in (
                (ada, ("answer", gate_id, "approve")),
                (ada, ("answer", gate_id, "approve")),
                (bob, ("show", gate_id)),
                (bob, ("answer", gate_id, "approve")),
            )
        ]

    assert first == again
    assert first.endswith(" is still open: your vote counts, approve has 1 of 2 votes, and 1 is missing")
    assert "1 (approve by ada) of 2" in shown
    assert last.endswith(": approve")


async def test_votes_at_the_same_moment_decide(shipping: Project) -> None:
    """When many keys vote at once, each counts once, and the gate is decided."""
    async with asking.in_process(shipping, api_token=TOKEN) as service:
        headers = await people(service, "a", "b", "c", "d")
        run_id, gate_id = await begun(service, ADMIN, count=3)
        answers = await asyncio.gather(*(vote(service, gate_id, header) for header in headers for _ in range(2)))
        await until(service, run_id, "done")
        decided = (await service.http.get(f"/api/gates/{gate_id}", headers=ADMIN)).json()

    assert {answer.status_code for answer in answers} <= {200, 409}
    assert len(set(names(decided))) == len(names(decided)) >= 3


async def test_not_starter_refuses_the_key_that_started_the_run(shipping: Project) -> None:
    """With `not_starter` the key that started the run is refused and not counted, and any other key decides."""
    async with asking.in_process(shipping, api_token=TOKEN) as service:
        ada, bob = await people(service, "ada", "bob")
        body = {"recipe_id": "ship", "approvals": {"count": 2, "not_starter": True}}
        lacking = await service.http.post("/api/runs", json=body, headers=ada)
        run_id, gate_id = await begun(service, ada, not_starter=True)
        own = await vote(service, gate_id, ada)
        other = await vote(service, gate_id, bob)
        await until(service, run_id, "done")

    assert (*code(lacking), lacking.json()["facts"]["approvers"]) == (409, "approvals_need_keys", 1)
    assert code(own) == (403, "approver_started")
    assert other.json()["decided_by"]["name"] == "bob"


@pytest.mark.parametrize("way", ["child", "task"])
async def test_not_starter_reaches_what_control_room_starts(shipping: Project, way: str) -> None:
    """The key that started the run or the plan above a run is refused at the gates of that run, too."""
    asking.add(shipping, "above", {"child": "shipped", "recipe_id": "ship"})
    policies = {"policies": [{"recipe_id": "ship", "approvals": {"count": 1, "not_starter": True}}]}
    async with asking.in_process(shipping, api_token=TOKEN) as service:
        http = service.http
        ada, bob = await people(service, "ada", "bob")
        assert (await http.put("/api/policies", json=policies, headers=ADMIN)).status_code == 200
        if way == "child":
            assert (await http.post("/api/runs", json={"recipe_id": "above"}, headers=ada)).status_code == 201
        else:
            plan = {"tasks": [{"description": "Ship", "recipe_id": "ship"}]}
            address = f"/api/sessions/{(await http.post('/api/sessions', json=plan, headers=bob)).json()['session_id']}"
            assert (await http.post(f"{address}/approve", headers=bob)).status_code == 200
            assert (await http.post(f"{address}/start", headers=ada)).status_code == 200
        async with asyncio.timeout(served.WAIT_SECONDS):
            while not (gates := (await http.get("/api/gates?wait=5", headers=bob)).json()):
                pass
        own = await vote(service, gates[0]["gate_id"], ada)
        other = await vote(service, gates[0]["gate_id"], bob)

    assert code(own) == (403, "approver_started")
    assert other.json()["decided_by"]["name"] == "bob"


async def test_a_child_needs_no_fewer_approvals(shipping: Project) -> None:
    """A request below a run can ask for more approvals than that run, but not for fewer, and so it is with a fork."""
    async with asking.in_process(shipping, api_token=TOKEN) as service:
        await people(service, "ada", "bob", "cyd")
        parent, _ = await begun(service, ADMIN, count=2)
        needed = {}
        for count in (1, 3):
            body = {"recipe_id": "ship", "parent_run_id": parent, "approvals": {"count": count, "not_starter": True}}
            run_id = (await service.http.post("/api/runs", json=body, headers=ADMIN)).json()["run_id"]
            await until(service, run_id, "waiting")
            (gate,) = (await service.http.get("/api/gates", params={"run_id": run_id}, headers=ADMIN)).json()
            needed[count] = gate["approvals"]["needed"], gate["approvals"]["not_starter"]
        free = (await service.http.post("/api/runs", json={"recipe_id": "ship"}, headers=ADMIN)).json()["run_id"]
        await until(service, free, "waiting")
        below = {"parent_run_id": parent}
        fork = (await service.http.post(f"/api/runs/{free}/fork", json=below, headers=ADMIN)).json()["run_id"]
        await until(service, fork, "waiting")
        (forked,) = (await service.http.get("/api/gates", params={"run_id": fork}, headers=ADMIN)).json()

    assert needed == {1: (2, True), 3: (3, True)}
    assert forked["approvals"]["needed"] == 2


DEPLOY = {"id": "deploy", "type": "bash", "command": "echo to {{target}}; test -e ready"}
LOOK = {"id": "look", "type": "bash", "command": "true"}


async def test_approvals_do_not_hold_for_a_changed_run(project: Project) -> None:
    """A resume with other arguments does not keep the decision of keys; a resume from the gate asks them again, and
    one without changes keeps it.
    """
    gated = {"name": "s", "steps": [LOOK], "approval": {"required": True, "prompt": "Deploy?"}}
    stages = [gated, {"name": "t", "steps": [DEPLOY]}]
    document = {"schema": "1.7", "name": "deploy", "description": "d", "version": "1.0.0", "stages": stages}
    project.write(".control-room/recipes/amplifier/deploy.yaml", json.dumps(document | {"context": {"target": "here"}}))
    async with served.in_process(project, api_token=TOKEN) as service:
        http = service.http
        (ada,) = await people(service, "ada")
        body = {"recipe_id": "deploy", "approvals": {"count": 1}}
        run_id = (await http.post("/api/runs", json=body, headers=ADMIN)).json()["run_id"]
        await until(service, run_id, "waiting")
        (gate,) = (await http.get("/api/gates", headers=ADMIN)).json()
        await vote(service, gate["gate_id"], ada)
        await until(service, run_id, "failed")
        address, elsewhere = f"/api/runs/{run_id}", {"args": {"target": "there"}}
        refused = await http.post(f"{address}/resume", json=elsewhere, headers=ADMIN)
        preview = await http.post(f"{address}/preview", json=elsewhere | {"order": "resume"}, headers=ADMIN)
        unchanged = await http.post(f"{address}/resume", json={"args": {"target": "here"}}, headers=ADMIN)
        await until(service, run_id, "failed")
        again = await http.post(f"{address}/resume", json=elsewhere | {"from": gate["key"]}, headers=ADMIN)
        await until(service, run_id, "waiting")
        (asked,) = (await http.get("/api/gates", headers=ADMIN)).json()

    assert (*code(refused), refused.json()["facts"]["key"]) == (409, "approval_outdated", gate["key"])
    assert [each["code"] for each in preview.json()["problems"]] == ["approval_outdated"]
    assert (unchanged.status_code, again.status_code) == (200, 200)
    assert asked["gate_id"] != gate["gate_id"]


async def test_a_denial_needs_no_second_key(shipping: Project) -> None:
    """A denial needs no second key, and names the earlier votes."""
    async with asking.in_process(shipping, api_token=TOKEN) as service:
        ada, bob = await people(service, "ada", "bob")
        _, gate_id = await begun(service, ADMIN, count=2)
        await vote(service, gate_id, ada)
        denied = (await vote(service, gate_id, bob, "deny")).json()

    assert (denied["status"], denied["decision"], denied["denied"]) == ("decided", "deny", True)
    assert names(denied) == ["ada", "bob"]


async def test_claimed_names_do_not_count(shipping: Project) -> None:
    """Neither the token nor a claimed name can vote; without enough keys a start is refused and no run is created."""
    async with asking.in_process(shipping, api_token=TOKEN) as service:
        body = {"recipe_id": "ship", "approvals": {"count": 2}}
        refused = await service.http.post("/api/runs", json=body, headers=ADMIN)
        await people(service, "ada")
        still = await service.http.post("/api/runs", json=body, headers=ADMIN)
        await people(service, "bob")
        _, gate_id = await begun(service, ADMIN, count=2)
        claimed = await vote(service, gate_id, ADMIN | {"X-Control-Room-Author": "bob"})
        malformed = await service.http.post("/api/runs", json=body | {"approvals": {"count": 0}}, headers=ADMIN)
        runs = (await service.http.get("/api/runs", headers=ADMIN)).json()

    assert code(refused) == code(still) == (409, "approvals_need_keys")
    assert (refused.json()["facts"], still.json()["facts"]["approvers"]) == ({"needed": 2, "approvers": 0}, 1)
    assert code(claimed) == (403, "approvals_need_keys")
    assert malformed.json()["flaws"][0]["path"] == "$.approvals.count"
    assert len(runs) == 1


async def test_a_trigger_whose_gates_no_key_could_decide_is_refused(shipping: Project) -> None:
    """A trigger is refused at its creation and its change while a policy demands approvals that no key can give."""
    body = {"recipe_id": "ship", "schedule": {"every_seconds": 86400}}
    policies = {"policies": [{"recipe_id": "ship", "approvals": {"count": 2, "not_starter": True}}]}
    async with asking.in_process(shipping, api_token=TOKEN) as service:
        early = (await service.http.post("/api/triggers", json=body, headers=ADMIN)).json()["trigger_id"]
        assert (await service.http.put("/api/policies", json=policies, headers=ADMIN)).status_code == 200
        added = await service.http.post("/api/triggers", json=body, headers=ADMIN)
        edited = await service.http.patch(f"/api/triggers/{early}", json={"labels": {"a": "b"}}, headers=ADMIN)
        renamed = await service.http.patch(f"/api/triggers/{early}", json={"name": "daily"}, headers=ADMIN)
        await people(service, "ada")
        one = await service.http.post("/api/triggers", json=body, headers=ADMIN)
        await people(service, "bob")
        accepted = await service.http.post("/api/triggers", json=body, headers=ADMIN)

    assert code(added) == code(edited) == (409, "approvals_need_keys")
    assert "2 keys with the role approver, and there are none;" in added.json()["detail"]
    assert "2 keys with the role approver, and there is 1;" in one.json()["detail"]
    assert (renamed.status_code, accepted.status_code) == (200, 201)
