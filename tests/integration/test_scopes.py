"""Scopes: a limited key has no indirect access to runs outside its scope."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration import listening, served
from tests.integration.project import Project
from tests.integration.test_keys import TOKEN, add, bearer, code, started
from tests.integration.test_waiting_pages import WHY, blocks
from tests.unit.dialects.agent_recipes.recipe_harness import recipe, says

ADMIN = bearer(TOKEN)
ONE, TWO = {"book": "one"}, {"book": "two"}


@pytest.fixture(autouse=True)
def recipes(project: Project) -> None:
    """Add a recipe that asks a person, and one whose agent uses a conversation."""
    project.write(".control-room/recipes/amplifier/publish.yaml", blocks(WHY, "yaml")[0])
    project.write(".control-room/recipes/agent_recipes/small.json", json.dumps(recipe()))
    project.say("review", text=says("issues-found"))
    project.say("fix", text=says("done"))


async def until(service: served.Served, run_id: str, *statuses: str) -> None:
    """Wait until a run has one of the states."""
    while (await service.http.get(f"/api/runs/{run_id}?wait=5", headers=ADMIN)).json()["status"] not in statuses:
        pass


async def test_why_ends_before_runs_outside(project: Project) -> None:
    """The chain names the blocking run outside by its id, but does not contain that run's question."""
    held = {"concurrency": {"key": "press"}}
    async with served.in_process(project, api_token=TOKEN) as service:
        limited = await add(service, "ada", labels=["book:one"])
        other = await started(service, "publish", labels=TWO, **held)
        await until(service, other, "waiting")
        own = await started(service, "publish", labels=ONE, **held)
        limited_view = (await service.http.get(f"/api/runs/{own}/why", headers=limited)).json()
        complete = (await service.http.get(f"/api/runs/{own}/why", headers=ADMIN)).json()

    assert [link["run_id"] for link in complete["chain"]] == [own, other]
    assert [(link["run_id"], link["kind"]) for link in limited_view["chain"]] == [(own, "concurrency")]
    assert "Publish it?" not in json.dumps(limited_view)
    assert other in limited_view["sentence"]


async def test_a_policy_cancels_no_runs_outside(project: Project) -> None:
    """A start that would cancel runs outside is refused; runs of the scope are cancelled; a fork waits."""
    taken = {"recipe_id": "publish", "concurrency": {"key": "press", "policy": "cancel_running"}}
    async with served.in_process(project, api_token=TOKEN) as service:
        limited = await add(service, "ada", role="runner", labels=["book:one"])
        first = (await service.http.post("/api/runs", json=taken, headers=limited)).json()["run_id"]
        await until(service, first, "waiting")
        repeated = [
            await service.http.post("/api/runs", json=taken, headers=limited | {"Idempotency-Key": "k"})
            for _ in range(2)
        ]
        own = repeated[0].json()["run_id"]
        await until(service, first, "cancelled")
        await until(service, own, "waiting")
        other = await started(service, "publish", labels=TWO, concurrency={"key": "press", "limit": 2})
        await until(service, other, "waiting")
        refused = [
            await service.http.post(path, json=body, headers=limited)
            for path, body in (
                ("/api/runs", taken),
                ("/api/runs", {**taken, "concurrency": {"key": "press", "policy": "cancel_waiting"}}),
            )
        ]
        fork = await service.http.post(f"/api/runs/{own}/fork", json={}, headers=limited)
        shown = (await service.http.get(f"/api/runs/{other}", headers=ADMIN)).json()["status"]
        count = len((await service.http.get("/api/runs", headers=ADMIN)).json())

    assert [code(each) for each in refused] == [(403, "out_of_scope")] * 2
    assert (fork.status_code, fork.json()["status"]) == (201, "pending")
    assert (shown, count) == ("waiting", 4)
    assert [answer.status_code for answer in repeated] == [201, 200]
    assert _concurrency(project, own)["within"] == {"recipes": [], "labels": [["book", "one"]]}
    assert "within" not in _concurrency(project, fork.json()["run_id"])


def _concurrency(project: Project, run_id: str) -> dict[str, Any]:
    """Return the concurrency setting that a run froze."""
    return dict(json.loads((project.data / "runs" / run_id / "start.json").read_text())["concurrency"])


@pytest.mark.parametrize("path", ["/api/runs", "/api/runs/{run_id}/fork", "/api/conferences"])
async def test_no_request_takes_the_place_of_a_run_that_control_room_starts(project: Project, path: str) -> None:
    """Keys with the form that triggers, plans and runs use for their own runs are refused, and start no run."""
    async with served.in_process(project) as service:
        run_id = await service.start("quick")
        body = {"/api/runs": {"recipe_id": "quick"}, "/api/conferences": {"message": "What now?"}}.get(path, {})
        answers = [
            await service.http.post(
                path.format(run_id=run_id), json=body, headers={"Idempotency-Key": f"{kind}:trg_x:2026-02-10T14:31:00Z"}
            )
            for kind in ("trigger", "plan", "child")
        ]
        count = len((await service.http.get("/api/runs")).json())

    assert [answer.status_code for answer in answers] == [400] * 3, answers[0].text
    assert {answer.json()["flaws"][0]["path"] for answer in answers} == {"header.Idempotency-Key"}
    assert "must not begin with child: or plan: or trigger:" in answers[0].json()["flaws"][0]["message"]
    assert count == 1


async def test_no_run_outside_becomes_a_parent(project: Project) -> None:
    """Neither a run nor a plan can have a parent outside the scope, since it would use up the parent's limits.

    A parent in another project is accepted.
    """
    async with served.in_process(project, api_token=TOKEN) as service:
        limited = await add(service, "ada", role="runner", labels=["book:one"])
        other = await started(service, "quick", labels=TWO)
        plan = {"tasks": [{"description": "Look", "recipe_id": "quick"}]}
        answers = {
            (path, parent, above): await service.http.post(
                path, json=body | {"parent_run_id": parent} | above_body(above), headers=limited
            )
            for path, body in (("/api/runs", {"recipe_id": "quick"}), ("/api/sessions", plan))
            for parent, above in ((other, None), (other, 1), ("20260101T000000Z-abc123", 1))
        }

    assert {key: answer.status_code for key, answer in answers.items()} == {
        key: 201 if key[1] != other else 400 for key in answers
    }
    assert {answer.json()["code"] for key, answer in answers.items() if key[1] == other} == {"unknown_parent"}


def above_body(above: int | None) -> dict[str, int]:
    """Return the body's field for the number of runs above."""
    return {} if above is None else {"runs_above": above}


async def test_no_conversation_outside_is_continued(project: Project) -> None:
    """A start, a resume and a fork in the conversation of a run outside are refused, also once that run was deleted."""
    said = {"args": {"backend": "said"}}
    async with served.in_process(project, api_token=TOKEN) as service:
        limited = await add(service, "ada", role="runner", labels=["book:one"])
        other, own = [await started(service, "small", labels=labels, **said) for labels in (TWO, ONE)]
        conversations = {}
        for run_id in (other, own):
            await until(service, run_id, "done", "failed")
            shown = (await service.http.get(f"/api/runs/{run_id}", headers=ADMIN)).json()
            conversations[run_id] = {"args": {"backend": "said", "agent_session_id": shown["machine"]["sessionId"]}}
        orders = {
            "/api/runs": {"recipe_id": "small"},
            f"/api/runs/{own}/resume": {},
            f"/api/runs/{own}/fork": {},
        }
        refused = [
            await service.http.post(path, json=body | conversations[other], headers=limited)
            for path, body in orders.items()
        ]
        granted = await service.http.post(
            "/api/runs", json={"recipe_id": "small"} | conversations[own], headers=limited
        )
        assert (await service.http.delete(f"/api/runs/{other}", headers=ADMIN)).status_code == 204
        refused.append(
            await service.http.post("/api/runs", json={"recipe_id": "small"} | conversations[other], headers=limited)
        )

    assert [code(each) for each in refused] == [(404, "unknown_agent_session")] * 4
    assert granted.status_code == 201


async def test_no_task_continues_a_conversation_outside(project: Project) -> None:
    """A task of a plan cannot name the conversation of a run outside, when it is made, added, changed or answered."""
    async with served.in_process(project, api_token=TOKEN) as service:
        http = service.http
        limited = await add(service, "ada", role="runner", labels=["book:one"])
        other, own = [await started(service, "small", labels=labels, args={"backend": "said"}) for labels in (TWO, ONE)]
        conversations = []
        for run_id in (other, own):
            await until(service, run_id, "done", "failed")
            shown = (await http.get(f"/api/runs/{run_id}", headers=ADMIN)).json()
            conversations.append({"args": {"backend": "said", "agent_session_id": shown["machine"]["sessionId"]}})
        small = {"description": "Look", "recipe_id": "small"}
        asking = {"tasks": [{"description": "Look", "recipe_id": "draft"}]}
        plan = (await http.post("/api/sessions", json=asking, headers=limited)).json()["session_id"]
        place = f"/api/sessions/{plan}/tasks"
        orders = [
            ("POST", place, small),
            ("POST", f"{place}/1/answer", {"recipe_id": "small", "answer": "This one"}),
            ("PATCH", f"{place}/1", {"recipe_id": "small"}),
        ]
        refused, granted = [
            [await http.post("/api/sessions", json={"tasks": [small | named]}, headers=limited)]
            + [await http.request(method, path, json=body | named, headers=limited) for method, path, body in orders]
            for named in conversations
        ]

    assert [code(each) for each in refused] == [(404, "unknown_agent_session")] * 4
    assert [each.status_code for each in granted] == [201, 201, 200, 200]


async def test_no_address_shows_anything_of_a_run_outside(project: Project) -> None:
    """An address that reads never answers with the ids or words of runs outside the scope."""
    words = "A-secret-of-book-two"
    async with served.in_process(project, api_token=TOKEN) as service:
        limited = await add(service, "ada", role="admin", labels=["book:one"])
        other = await started(service, "publish", labels=TWO, description=words)
        drafted = await started(service, "unguarded", labels=TWO, description=words)
        await until(service, other, "waiting")
        await until(service, drafted, "done")
        (gate,) = (await service.http.get("/api/gates", headers=ADMIN)).json()
        issue = await service.http.post("/api/issues", json={"title": words, "run_id": other}, headers=ADMIN)
        plan = {"intent": words, "labels": TWO, "tasks": [{"description": words, "recipe_id": "quick"}]}
        session = await service.http.post("/api/sessions", json=plan, headers=ADMIN)
        receipts = (await service.http.get("/api/audit/receipts", headers=ADMIN)).json()
        names = {
            "gate_id": [gate["gate_id"]],
            "issue_id": [issue.json()["issue_id"]],
            "session_id": [session.json()["session_id"], drafted],
            "receipt_id": [receipts[0]["receipt_id"]],
            "run_id": [other, drafted],
            "slot": ["draft"],
            "name": ["draft.1.prompt.md"],
            "recipe_id": ["publish"],
        }
        document = (await service.http.get("/openapi.json", headers=ADMIN)).json()
        asked = [
            filled
            for path, methods in document["paths"].items()
            if "get" in methods and path != "/api/events"
            for filled in every_filling(path, names)
        ]
        answers = {path: await service.http.get(path, headers=limited) for path in asked}
        seen = (await service.http.get("/api/runs", headers=ADMIN)).text
    hidden = [words, *(each for ids in list(names.values())[:5] for each in ids)]
    shown = {
        path: [word for word in hidden if word in answer.text.replace(path.rpartition("/")[2], "")]
        for path, answer in answers.items()
        if answer.status_code == 200
    }

    assert words in seen
    assert len(answers) > 50
    assert {path: found for path, found in shown.items() if found} == {}


def every_filling(path: str, names: dict[str, list[str]]) -> list[str]:
    """Return an address with every combination of names for its parameters; without parameters, the address itself."""
    filled = [path]
    for name, values in names.items():
        filled = [each.replace(f"{{{name}}}", value) for each in filled for value in values]
    return list(dict.fromkeys(each for each in filled if "{" not in each))


async def test_no_refusal_names_anything_outside(project: Project) -> None:
    """Refusals because of a run, plan or issue outside do not contain its id."""
    held = {"concurrency": {"key": "press", "policy": "reject"}}
    keyed = {"Idempotency-Key": "one"}
    plan = {"tasks": [{"description": "Look", "recipe_id": "quick"}]}
    async with served.in_process(project, api_token=TOKEN) as service:
        http = service.http
        limited = await add(service, "ada", role="runner", labels=["book:one"])
        run = {"recipe_id": "publish", "labels": TWO, "concurrency": {"key": "press"}}
        other = (await http.post("/api/runs", json=run, headers=ADMIN | keyed)).json()["run_id"]
        await until(service, other, "waiting")
        own = await started(service, "quick", labels=ONE)
        await until(service, own, "done")
        outside = [
            other,
            (await http.post("/api/issues", json={"title": "t"}, headers=ADMIN | keyed)).json()["issue_id"],
            (await http.post("/api/sessions", json=plan | {"labels": TWO}, headers=ADMIN | keyed)).json()["session_id"],
        ]
        orders: list[tuple[str, dict[str, Any]]] = [
            ("/api/runs", {"recipe_id": "quick"}),
            (f"/api/runs/{own}/fork", {}),
            ("/api/issues", {"title": "t", "run_id": own}),
            ("/api/sessions", plan),
        ]
        refused = [await http.post(path, json=body, headers=limited | keyed) for path, body in orders]
        refused += [
            await http.post("/api/runs", json={"recipe_id": "publish", **more}, headers=limited)
            for more in (held, {"exclusive": True})
        ]
        unlimited = await http.post("/api/runs", json={"recipe_id": "quick"}, headers=ADMIN | keyed)

    assert [code(each) for each in refused] == [(409, "idempotency_conflict")] * 4 + [
        (409, "concurrency_limit"),
        (409, "recipe_busy"),
    ]
    assert [named for each in refused for named in outside if named in each.text] == []
    assert "made a run outside of your scope" in refused[0].json()["detail"]
    assert "made an issue outside of your scope" in refused[2].json()["detail"]
    assert "made a plan outside of your scope" in refused[3].json()["detail"]
    assert unlimited.json()["facts"] == {"run_id": other}


async def test_what_is_outside_is_answered_as_what_does_not_exist(project: Project) -> None:
    """A receipt, and an order or its preview below a run, are refused in the same words as if they did not exist."""
    nowhere = "20260101T000000Z-abc123"
    async with served.in_process(project, api_token=TOKEN) as service:
        http = service.http
        limited = await add(service, "ada", role="runner", labels=["book:one"])
        other, own = [await started(service, "quick", labels=labels) for labels in (TWO, ONE)]
        for run_id in (other, own):
            await until(service, run_id, "done")
        receipt = (await http.get(f"/api/audit/receipts?run_id={other}", headers=ADMIN)).json()[0]["receipt_id"]
        receipts = [
            (await http.get(f"/api/audit/receipts/{each}", headers=limited), each)
            for each in (receipt, "rcpt_" + "0" * 20)
        ]
        orders = {
            "/api/preflight": {"recipe_id": "quick"},
            f"/api/runs/{own}/fork": {},
            f"/api/runs/{own}/preview": {"order": "fork"},
        }
        below = [
            [
                (await http.post(path, json=body | {"parent_run_id": each}, headers=limited), each)
                for each in (other, nowhere)
            ]
            for path, body in orders.items()
        ]
    told = [[(each.status_code, each.text.replace(name, "")) for each, name in pair] for pair in [receipts, *below]]

    assert all(outside == missing for outside, missing in told), told
    assert [outside[0] for outside, _ in told] == [404, 400, 400, 400]


async def test_no_recipe_outside_is_found_by_a_validation(project: Project) -> None:
    """A validation would suggest recipes outside for a wrong name, so a key that is limited to recipes has none."""
    steps = [{"id": "x", "type": "recipe", "recipe": "publis"}]
    recipe_text = json.dumps({"schema": "1.7", "name": "a", "description": "b", "version": "1.0.0", "steps": steps})
    body = {"recipe": recipe_text, "dialect": "amplifier"}
    async with served.in_process(project, api_token=TOKEN) as service:
        keys = [await add(service, "ada", recipes=["quick"]), await add(service, "bob", labels=["book:one"])]
        answers = [await service.http.post("/api/recipes/validate", json=body, headers=key) for key in keys]

    assert code(answers[0]) == (403, "out_of_scope")
    assert "did you mean publish?" in answers[1].text


async def test_an_issue_names_nothing_outside(project: Project) -> None:
    """What is outside is refused as what does not exist, with its place, and an issue that its key cannot see, too."""
    async with served.in_process(project, api_token=TOKEN) as service:
        limited = await add(service, "ada", role="runner", labels=["book:one"])
        own = await started(service, "quick", labels=ONE)
        other = await started(service, "quick", labels=TWO)
        # A run of the scope may belong to a session of another run.
        joined = await started(service, "quick", labels=ONE, session_id="shared")
        beside = await started(service, "quick", labels=TWO, session_id="shared")
        for run_id in (own, other, joined, beside):
            await until(service, run_id, "done")
        receipts = (await service.http.get("/api/audit/receipts", headers=ADMIN)).json()
        hidden = {row["run_id"]: row["receipt_id"] for row in receipts}
        alike: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"run_id": other}, {"run_id": "20260210T143000Z-k3x9af"}),
            ({"run_id": joined, "receipts": [hidden[beside]]}, {"run_id": joined, "receipts": ["rcpt_" + "0" * 20]}),
            ({"run_id": own, "session_id": "shared"}, {"run_id": own, "session_id": "nowhere"}),
        ]
        answers = [
            [await service.http.post("/api/issues", json={"title": "t"} | body, headers=limited) for body in pair]
            for pair in alike
        ]
        bare = await service.http.post("/api/issues", json={"title": "t"}, headers=limited)
        made = await service.http.post("/api/issues", json={"title": "t", "run_id": own}, headers=limited)
    found = [[(*code(each), each.json()["flaws"][0]["path"]) for each in pair] for pair in answers]

    assert found == [
        [(400, "unknown_run", "$.run_id")] * 2,
        [(400, "unknown_receipt", "$.receipts[0]")] * 2,
        [(400, "session_mismatch", "$.run_id")] * 2,
    ]
    assert (*code(bare), bare.json()["flaws"][0]["path"]) == (400, "request_invalid", "$.run_id")
    assert made.status_code == 201


async def test_no_message_continues_a_conversation_outside(project: Project) -> None:
    """A message cannot name the conversation of a run outside, neither as its own nor among the arguments."""
    async with listening.on_a_port(project, api_token=TOKEN) as service:
        limited = await add(service, "ada", role="runner", recipes=["small"])
        async with service.client(additional_headers=ADMIN) as socket:
            said = await socket.ask("prompt", text="Hello", backend="said")
            session_id = said["session_id"]
            await socket.until("turn_complete")
        wanted = {"recipe_id": "small", "backend": "said"}
        async with service.client(additional_headers=limited) as socket:
            own = await socket.ask("start_recipe", **wanted, session_id=session_id)
            among = await socket.ask("start_recipe", **wanted, args={"agent_session_id": session_id})
            deleted = await service.http.delete(f"/api/runs/{said['run_id']}", headers=ADMIN)
            left = await socket.ask("start_recipe", **wanted, session_id=session_id)

    assert deleted.status_code == 204
    assert [each.get("code") for each in (own, among, left)] == ["unknown_agent_session"] * 3


async def test_no_message_names_a_run_outside(project: Project) -> None:
    """A refused message on the WebSocket does not contain the id of a run outside."""
    async with listening.on_a_port(project, api_token=TOKEN) as service:
        limited = await add(service, "ada", role="runner", recipes=["small"])
        keyed = ADMIN | {"Idempotency-Key": "one"}
        other = (await service.http.post("/api/runs", json={"recipe_id": "quick"}, headers=keyed)).json()["run_id"]
        asked = {"recipe_id": "small", "backend": "said", "idempotency_key": "one"}
        async with service.client(additional_headers=limited) as socket:
            refused = await socket.ask("start_recipe", **asked)
        async with service.client(additional_headers=ADMIN) as socket:
            unlimited = await socket.ask("start_recipe", **asked)

    assert [each["type"] for each in (refused, unlimited)] == ["recipe_error"] * 2
    assert (other in json.dumps(refused), other in json.dumps(unlimited)) == (False, True)
