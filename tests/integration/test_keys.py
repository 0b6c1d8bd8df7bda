"""Keys: several people use a service, each with a role, a scope and an expiry."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
from typing import Any

import httpx
import pytest

from app import clock
from app.domain import access, keys
from app.storage import keys as key_files
from tests.integration import listening, served
from tests.integration.project import Project

TOKEN = "a-token-of-some-length"
NAMES = ("viewer", "runner", "approver", "admin")


def bearer(secret: str) -> dict[str, str]:
    """Return the authorization header of a secret."""
    return {"Authorization": f"Bearer {secret}"}


async def add(service: served.Served, name: str, **fields: Any) -> dict[str, str]:
    """Add a key and return its header."""
    answer = await service.http.post("/api/keys", json={"name": name} | fields, headers=bearer(TOKEN))
    assert answer.status_code == 201, answer.text
    return bearer(answer.json()["secret"])


async def started(service: served.Served, recipe_id: str, **body: Any) -> str:
    """Start a run with the token and return its id."""
    answer = await service.http.post("/api/runs", json={"recipe_id": recipe_id} | body, headers=bearer(TOKEN))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run_id"])


async def ended(service: served.Served, run_id: str) -> None:
    """Wait until a run has ended."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        while True:
            shown = (await service.http.get(f"/api/runs/{run_id}?wait=5", headers=bearer(TOKEN))).json()
            if shown["status"] in ("done", "failed", "cancelled"):
                return


def code(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the code of a refusal."""
    return answer.status_code, answer.json()["code"]


async def test_each_role_has_its_own_permissions(project: Project) -> None:
    """A viewer reads, a runner starts and stops, an approver answers, an admin configures; refusals name the role."""
    async with served.in_process(project, api_token=TOKEN) as service:
        holders = {name: await add(service, name, role=name) for name in NAMES}
        run_id = await started(service, "quick")
        await ended(service, run_id)
        asked = (
            ("GET", f"/api/runs/{run_id}", None, "viewer"),
            ("POST", "/api/runs", {"recipe_id": "quick"}, "runner"),
            ("POST", f"/api/gates/{run_id}.0123456789ab", {"decision": "yes"}, "approver"),
            ("GET", "/api/audit", None, "admin"),
            ("GET", "/api/keys", None, "admin"),
        )
        for method, path, body, needed in asked:
            for name, header in holders.items():
                answer = await service.http.request(method, path, json=body, headers=header)
                if NAMES.index(name) < NAMES.index(needed):
                    assert code(answer) == (403, "role_missing"), (path, name)
                    assert answer.json()["facts"] == {"needed": needed, "role": name}
                else:
                    assert answer.status_code in (200, 201, 404), (path, name, answer.text)
        missing = await service.http.get("/api/runs")
        nowhere = await service.http.get("/api/nowhere", headers=holders["viewer"])

    assert code(missing) == (401, "unauthorized")
    assert "CONTROL_ROOM_API_TOKEN" in missing.json()["detail"]
    assert code(nowhere) == (404, "not_found")


async def test_orders_with_a_key_have_its_name(project: Project) -> None:
    """The author of a start, an order and a change is the key's name, even if the request claims another."""
    project.say("draft", hang=True)
    async with served.in_process(project, api_token=TOKEN) as service:
        ada = await add(service, "ada", role="runner") | {"X-Control-Room-Author": "Mallory"}
        run_id = (await service.http.post("/api/runs", json={"recipe_id": "unguarded"}, headers=ada)).json()["run_id"]
        await service.http.post(f"/api/runs/{run_id}/cancel", headers=ada)
        issue = (await service.http.post("/api/issues", json={"title": "Door"}, headers=ada)).json()["issue_id"]
        changes = (await service.http.get("/api/audit", headers=bearer(TOKEN))).json()
    start = json.loads((project.data / "runs" / run_id / "start.json").read_text())
    control = (project.data / "runs" / run_id / "control.jsonl").read_text().splitlines()
    author = {"name": "ada", "claimed": False, "via": "key"}

    assert start["started_by"] == author
    assert [line["author"] for line in map(json.loads, control) if line["kind"] == "cancel_requested"] == [author]
    assert [(each["action"], each["target"]) for each in changes] == [
        ("issue.created", issue),
        ("run.cancelled", run_id),
        ("run.started", run_id),
        ("key.added", "ada"),
    ]
    assert [each["author"] for each in changes] == [author] * 3 + [{"name": None, "claimed": False, "via": "token"}]


async def test_only_hashes_are_kept(project: Project) -> None:
    """No file or list contains secrets, and only the owner can read the file of keys."""
    async with served.in_process(project, api_token=TOKEN) as service:
        secret = (await add(service, "ada", labels=["book:one"]))["Authorization"].removeprefix("Bearer ")
        listed = (await service.http.get("/api/keys", headers=bearer(TOKEN))).text
    kept = [path for path in project.data.rglob("*") if path.is_file()]

    assert secret not in listed
    assert not [path for path in kept if secret.encode() in path.read_bytes()]
    assert (project.data / key_files.FILE).stat().st_mode & 0o777 == 0o600


async def test_a_key_without_a_token_closes_the_service(project: Project) -> None:
    """A service without a token and keys is open; the first key closes it at once, and cannot be removed to open it."""
    async with served.in_process(project) as service:
        before = await service.http.get("/api/runs")
        made = (await service.http.post("/api/keys", json={"name": "ada", "role": "admin"})).json()
        ada = bearer(made["secret"])
        without, with_key = await service.http.get("/api/runs"), await service.http.get("/api/runs", headers=ada)
        removed = await service.http.delete("/api/keys/ada", headers=ada)
        after = await service.http.get("/api/runs")

    assert (before.status_code, without.status_code, with_key.status_code) == (200, 401, 200)
    assert (removed.status_code, after.status_code) == (409, 401)


@pytest.mark.parametrize("fields", [{"role": "viewer"}, {"role": "admin", "recipes": ["quick"]}])
async def test_the_first_key_is_one_that_manages_keys(project: Project, fields: dict[str, Any]) -> None:
    """A first key that cannot manage keys is refused and not stored; with a token, it is accepted."""
    new = {"name": "vic", **fields}
    async with served.in_process(project) as service:
        refused = await service.http.post("/api/keys", json=new)
        still = await service.http.get("/api/keys")
    async with served.in_process(project, api_token=TOKEN) as service:
        with_token = await service.http.post("/api/keys", json=new, headers=bearer(TOKEN))

    assert code(refused) == (409, "admin_key_needed")
    assert "keys add NAME --role admin" in refused.json()["detail"]
    assert (still.status_code, still.json(), with_token.status_code) == (200, [], 201)


async def test_the_last_key_that_manages_keys_stays(project: Project) -> None:
    """The last admin key stays beside limited and lesser keys; with another admin key or a token, it can be revoked."""
    path = "/api/keys/ada"
    async with served.in_process(project) as service:
        made = (await service.http.post("/api/keys", json={"name": "ada", "role": "admin"})).json()
        ada = bearer(made["secret"])
        for new in ({"name": "eve", "role": "approver"}, {"name": "bob", "role": "admin", "recipes": ["quick"]}):
            assert (await service.http.post("/api/keys", json=new, headers=ada)).status_code == 201
        refused = await service.http.delete(path, headers=ada)
        still = await service.http.get("/api/keys", headers=ada)
        cyd = (await service.http.post("/api/keys", json={"name": "cyd", "role": "admin"}, headers=ada)).json()
        revoked = await service.http.delete(path, headers=ada)
        last = await service.http.delete("/api/keys/cyd", headers=bearer(cyd["secret"]))
    async with served.in_process(project, api_token=TOKEN) as service:
        with_token = await service.http.delete("/api/keys/cyd", headers=bearer(TOKEN))

    assert code(refused) == code(last) == (409, "last_admin_key")
    assert [each["name"] for each in still.json()] == ["ada", "bob", "eve"]
    assert (revoked.status_code, with_token.status_code) == (204, 204)


async def test_a_service_without_its_last_key_stays_closed(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    """A file without a valid key keeps the service closed at its next start, which reports how to add a key."""
    (project.data / key_files.FILE).write_text('{"version": 1, "keys": []}')
    async with served.in_process(project) as service:
        closed = await service.http.get("/api/runs")
        signed_in = await service.http.post("/api/session", json={"token": "crk_lost"})
        ada = keys.Key(
            name="ada",
            role=access.Role.ADMIN,
            created_at="2026-02-10T14:30:00.000Z",
            secrets=(keys.Secret(sha256=keys.hashed("secret-of-ada")),),
        )
        key_files.KeyRing(project.data, clock.SystemClock()).write([ada])
        async with asyncio.timeout(served.WAIT_SECONDS):
            while (await service.http.get("/api/runs", headers=bearer("secret-of-ada"))).status_code != 200:
                await served.moment()

    assert code(closed) == (401, "unauthorized")
    assert code(signed_in) == (401, "unauthorized")
    assert "control-room keys add NAME --role admin" in signed_in.json()["detail"]
    assert "no key can manage keys" in caplog.text


async def test_rotation_keeps_the_old_secret_for_its_grace(project: Project) -> None:
    """After a rotation the new secret is valid at once, and the old one not at all, or for the given grace period."""
    async with served.in_process(project, api_token=TOKEN) as service:
        first = await add(service, "ada")
        path, token = "/api/keys/ada/rotate", bearer(TOKEN)
        graceful = await service.http.post(path, json={"grace_seconds": 600}, headers=token)
        second = bearer(graceful.json()["secret"])
        both = [(await service.http.get("/api/runs", headers=each)).status_code for each in (first, second)]
        third = bearer((await service.http.post(path, headers=token)).json()["secret"])
        last = [(await service.http.get("/api/runs", headers=each)).status_code for each in (first, second, third)]
        unknown = await service.http.post("/api/keys/bob/rotate", headers=token)

    assert graceful.json()["rotates_until"] is not None
    assert both == [200, 200]
    assert last == [401, 401, 200]
    assert code(unknown) == (404, "key_not_found")


async def test_a_key_expires(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expired key is refused with its own code, like its sign-in; an expiry in the past is refused."""
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    async with served.in_process(project, api_token=TOKEN) as service:
        ada = await add(service, "ada", expires_at=later.isoformat())
        secret = ada["Authorization"].removeprefix("Bearer ")
        signed_in = (await service.http.post("/api/session", json={"token": secret})).json()
        browser = {"X-Control-Room-Session": signed_in["session"]}
        before = await service.http.get("/api/runs", headers=browser)
        monkeypatch.setattr(clock.SystemClock, "now", lambda _: later + dt.timedelta(seconds=1))
        by_key, by_session = [await service.http.get("/api/runs", headers=each) for each in (ada, browser)]
        again = await service.http.post("/api/session", json={"token": secret})
        past = {"name": "bob", "expires_at": "2020-01-01T00:00:00Z"}
        refused = await service.http.post("/api/keys", json=past, headers=bearer(TOKEN))

    assert (signed_in["name"], signed_in["role"], signed_in["expires_at"]) == ("ada", "viewer", clock.stamp(later))
    assert before.status_code == 200
    assert code(by_key) == (401, "key_expired")
    assert code(by_session) == (401, "unauthorized")
    assert code(again) == (401, "key_expired")
    assert refused.json()["flaws"][0]["path"] == "$.expires_at"


async def test_a_revoked_key_ends_its_sign_ins_and_streams(project: Project) -> None:
    """Revoking a key ends its sign-in, unused tickets, streams and WebSockets, also silent ones."""
    async with listening.on_a_port(project, api_token=TOKEN) as service:
        ada = await add(service, "ada", role="runner")
        secret = ada["Authorization"].removeprefix("Bearer ")
        signed_in = (await service.http.post("/api/session", json={"token": secret})).json()
        browser = {"X-Control-Room-Session": signed_in["session"]}
        ticket, other = [(await service.http.post("/api/tickets", headers=browser)).json()["ticket"] for _ in range(2)]
        async with (
            service.client(f"?ticket={other}") as socket,
            service.http.stream("GET", "/api/events", headers=ada) as stream,
        ):
            lines = stream.aiter_lines()
            await anext(lines)
            known = await service.http.get("/api/runs", headers=ada)
            poll = service.http.get("/api/runs?wait=60", headers={**ada, "If-None-Match": known.headers["etag"]})
            polling = asyncio.create_task(poll)
            await service.http.delete("/api/keys/ada", headers=bearer(TOKEN))
            async with asyncio.timeout(served.WAIT_SECONDS):
                heard = [line async for line in lines]
                await socket.socket.wait_closed()
            async with asyncio.timeout(30):  # Before the poll ends by itself.
                polled = await polling
        after = await service.http.get("/api/runs", headers=browser)
        used = await service.http.get(f"/api/events?ticket={ticket}")

    assert not [line for line in heard if line.startswith("data: ")]
    assert socket.socket.close_code == 1008
    assert polled.status_code == 401
    assert (after.status_code, used.status_code) == (401, 401)


async def test_keys_of_another_process_count_without_a_restart(project: Project) -> None:
    """The service reads keys that a command writes within a second; a damaged file does not change the keys."""
    async with served.in_process(project, api_token=TOKEN) as service:
        await add(service, "ada")
        beside = key_files.KeyRing(project.data, clock.SystemClock())
        (key,) = beside.read()
        bob = keys.Secret(sha256=keys.hashed("secret-of-bob"))
        beside.write([dataclasses.replace(key, name="bob", secrets=(bob,))])
        async with asyncio.timeout(served.WAIT_SECONDS):
            while (await service.http.get("/api/runs", headers=bearer("secret-of-bob"))).status_code != 200:
                await served.moment()
        (project.data / key_files.FILE).write_text('{"version": 1, "keys": [{"name": "bob"')
        until = asyncio.get_running_loop().time() + 2 * key_files.RELOAD_SECONDS
        while asyncio.get_running_loop().time() < until:
            assert (await service.http.get("/api/runs", headers=bearer("secret-of-bob"))).status_code == 200
            await served.moment()
        refused = await service.http.post("/api/keys", json={"name": "eve"}, headers=bearer(TOKEN))

    assert code(refused) == (409, "file_damaged")
    assert (project.data / key_files.FILE).read_text().endswith('"bob"')


LIMITED = {"recipes": ["quick"], "labels": ["book:one"]}


async def test_a_limited_key_sees_its_runs_only(project: Project) -> None:
    """A limited key sees only runs of its scope in lists, sums, streams and by id; others are 404 or not counted."""
    async with served.in_process(project, api_token=TOKEN) as service:
        http, token = service.http, bearer(TOKEN)
        ada = await add(service, "ada", role="admin", **LIMITED)
        own = await started(service, "quick", labels={"book": "one"})
        others = [await started(service, "quick", labels={"book": "two"}), await started(service, "unguarded")]
        others += [await started(service, "unguarded", labels={"book": "one"}), await started(service, "quick")]
        for run_id in (own, *others):
            await ended(service, run_id)
        issues = {
            run_id: (await http.post("/api/issues", json={"title": "x", "run_id": run_id}, headers=token)).json()
            for run_id in (own, others[0])
        }
        free = (await http.post("/api/issues", json={"title": "free"}, headers=token)).json()

        async def get(path: str) -> Any:
            answer = await http.get(path, headers=ada)
            assert answer.status_code == 200, (path, answer.text)
            return answer.json()

        receipts = {
            row["run_id"]: row["receipt_id"] for row in (await http.get("/api/audit/receipts", headers=token)).json()
        }
        assert {row["run_id"] for row in await get("/api/runs")} == {own}
        assert {row["run_id"] for row in await get("/api/runs?q=quick&status=done&label=book:one")} == {own}
        assert await get("/api/runs?recipe_id=unguarded") == []
        assert [row["issue_id"] for row in await get("/api/issues")] == [issues[own]["issue_id"]]
        assert {row["run_id"] for row in await get("/api/audit/receipts")} == {own}
        assert await get("/api/gates") == []
        assert await get("/api/sessions") == []
        assert [row["recipe_id"] for row in await get("/api/recipes")] == ["quick"]
        stats = await get("/api/stats")
        assert (stats["runs"]["done"], stats["today"]["runs"], stats["pool"]["busy"]) == (1, 1, 0)
        usage = await get("/api/usage")
        assert (usage["rows"], usage["total"]["runs"]) == ([], 0)
        for part in (
            "",
            "/steps",
            "/graph",
            "/logs",
            "/events",
            "/verification",
            "/why",
            "/cache/discovery",
            "/logs/x/stream",
        ):
            inside = await http.get(f"/api/runs/{own}{part}", headers=ada)
            assert inside.status_code == 200 or inside.json()["code"] == "log_not_found", part
            for run_id in (*others, "20200101T000000Z-abc123"):
                outside = await http.get(f"/api/runs/{run_id}{part}", headers=ada)
                expected = f"there is no run '{run_id}'"
                assert (*code(outside), outside.json()["detail"]) == (404, "run_not_found", expected), part
        for order in ("cancel", "pause", "unpause", "resume", "repair"):
            assert code(await http.post(f"/api/runs/{others[0]}/{order}", headers=ada)) == (404, "run_not_found")
        assert code(await http.delete(f"/api/runs/{others[0]}", headers=ada)) == (404, "run_not_found")
        assert code(await http.get(f"/api/issues/{free['issue_id']}", headers=ada)) == (404, "issue_not_found")
        assert code(await http.get(f"/api/issues/{issues[others[0]]['issue_id']}", headers=ada)) == (
            404,
            "issue_not_found",
        )
        assert code(await http.get(f"/api/audit/receipts/{receipts[others[0]]}", headers=ada)) == (
            404,
            "receipt_not_found",
        )
        assert (await http.get(f"/api/audit/receipts/{receipts[own]}", headers=ada)).status_code == 200
        gate = f"{others[0]}.0123456789ab"
        assert code(await http.get(f"/api/gates/{gate}", headers=ada)) == (404, "gate_not_found")
        assert code(await http.get("/api/recipes/unguarded", headers=ada)) == (404, "recipe_not_found")
        new = {"title": "mine", "run_id": others[0]}
        assert code(await http.post("/api/issues", json=new, headers=ada)) == (400, "unknown_run")
        for path in ("/api/audit", "/api/keys", "/api/verification", "/metrics"):
            assert code(await http.get(path, headers=ada)) == (403, "out_of_scope")
        away = {"labels": {"book": "two"}}
        assert code(await http.patch(f"/api/runs/{own}", json=away, headers=ada)) == (403, "out_of_scope")
        assert code(await http.post(f"/api/runs/{own}/fork", json=away, headers=ada)) == (403, "out_of_scope")
        assert (await http.patch(f"/api/runs/{own}", json={"labels": {"mood": "dark"}}, headers=ada)).status_code == 200
        bulk: dict[str, Any] = {"action": "label", "run_ids": [own, others[0]], **away}
        refused = (await http.post("/api/runs/bulk", json=bulk, headers=ada)).json()["refused"]
        assert [each["problem"]["code"] for each in refused] == ["out_of_scope", "run_not_found"]
        bulk = {"action": "delete", "run_ids": [own, others[0]]}
        done = (await http.post("/api/runs/bulk", json=bulk, headers=ada)).json()
        counted = {"action": "delete", "filter": {"status": ["done"]}, "dry_run": True}
        matched = (await http.post("/api/runs/bulk", json=counted, headers=ada)).json()["matched"]
        left = (await http.get("/api/runs", headers=token)).json()

    assert [each["run_id"] for each in done["done"]] == [own]
    assert [each["problem"]["code"] for each in done["refused"]] == ["run_not_found"]
    assert matched == 0
    assert {row["run_id"] for row in left} == set(others)


async def test_a_label_of_a_key_is_one_that_a_run_can_have(project: Project) -> None:
    """A label given twice is one, which the key's runs get; a name that no run's label has is refused."""
    async with served.in_process(project, api_token=TOKEN) as service:
        ada = await add(service, "ada", role="runner", labels=["book:one", "book:one"])
        made = await service.http.post("/api/runs", json={"recipe_id": "quick"}, headers=ada)
        new = {"name": "bob", "labels": ["the book:one"]}
        refused = await service.http.post("/api/keys", json=new, headers=bearer(TOKEN))

    assert made.status_code == 201, made.text
    assert (*code(refused), refused.json()["flaws"][0]["path"]) == (400, "request_invalid", "$.labels[0]")


async def test_a_limited_key_starts_its_runs_only(project: Project) -> None:
    """A start within the scope gets the scope's label; any other start, and a plan, is refused and creates no run."""
    async with served.in_process(project, api_token=TOKEN) as service:
        http = service.http
        ada = await add(service, "ada", role="runner", **LIMITED)
        labelled = await add(service, "bob", role="runner", labels=["book:one"])
        parent = await started(service, "unguarded")
        made = await http.post("/api/runs", json={"recipe_id": "quick"}, headers=ada)
        shown = (await http.get(f"/api/runs/{made.json()['run_id']}", headers=ada)).json()
        plan = {"tasks": [{"description": "Look", "recipe_id": "quick"}]}
        refused = [
            await http.post(path, json=body, headers=ada)
            for path, body in (
                ("/api/runs", {"recipe_id": "unguarded"}),
                ("/api/runs", {"recipe_id": "nowhere"}),
                ("/api/runs", {"description": "look around"}),
                ("/api/runs", {"recipe_id": "quick", "labels": {"book": "two"}}),
                ("/api/preflight", {"recipe_id": "unguarded"}),
                ("/api/route", {"description": "look around"}),
                ("/api/conferences", {"question": "Why?"}),
                ("/api/sessions", plan),
            )
        ]
        child = await http.post("/api/runs", json={"recipe_id": "quick", "parent_run_id": parent}, headers=ada)
        own_plan = await http.post("/api/sessions", json=plan, headers=labelled)
        session_id = own_plan.json()["session_id"]
        seen = [
            (await http.get(f"/api/sessions/{session_id}", headers=each)).status_code
            for each in (labelled, ada, bearer(TOKEN))
        ]
        other = (await http.post("/api/sessions", json=plan, headers=bearer(TOKEN))).json()["session_id"]
        hidden = await http.post(f"/api/sessions/{other}/start", headers=labelled)
        listed = (await http.get("/api/sessions", headers=labelled)).json()
        changed = await http.post(f"/api/sessions/{session_id}/approve", headers=ada)

    assert shown["labels"] == {"book": "one"}
    assert [code(each) for each in refused] == [(403, "out_of_scope")] * len(refused)
    assert code(child) == (400, "unknown_parent")
    assert own_plan.json()["labels"] == {"book": "one"}
    assert seen == [200, 200, 200]
    assert code(hidden) == (404, "plan_not_found")
    assert [each["session_id"] for each in listed] == [session_id]
    assert code(changed) == (403, "out_of_scope")


async def test_a_limited_key_follows_its_runs_only(project: Project) -> None:
    """The stream of all events contains only events of the scope."""
    async with served.on_a_port(project, api_token=TOKEN) as service:
        ada = await add(service, "ada", **LIMITED)
        async with service.http.stream("GET", "/api/events", headers=ada) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            other = await started(service, "quick")
            await ended(service, other)
            own = await started(service, "quick", labels={"book": "one"})
            found = set()
            async with asyncio.timeout(served.WAIT_SECONDS):
                async for line in lines:
                    if line.startswith("data: "):
                        event = json.loads(line.removeprefix("data: "))
                        found.add(event["run_id"])
                        if event["type"] == "run.ended":
                            break

    assert found == {own}


async def test_a_limited_key_speaks_in_its_conversations_only(project: Project) -> None:
    """Roles and scopes apply to each message on the WebSocket."""
    async with listening.on_a_port(project, api_token=TOKEN) as service:
        viewer = await add(service, "vi")
        limited = await add(service, "li", role="runner", recipes=["quick"])
        async with service.client(additional_headers=bearer(TOKEN)) as socket:
            first = await socket.ask("prompt", text="Hello", backend="said")
            session = first["session_id"]
        async with service.client(additional_headers=viewer) as socket:
            refused = await socket.ask("prompt", text="Hello")
            seen = (await socket.ask("subscribe", session_id=session))["type"]
        async with service.client(additional_headers=limited) as socket:
            beyond = await socket.ask("prompt", text="Hello", session_id=session)
            hidden = await socket.ask("subscribe", session_id=session)
            ended_by = await socket.ask("exit_recipe", session_id=session)
            menu = await socket.ask("get_available_recipes")

    assert refused["code"] == "role_missing"
    assert seen != "error"
    assert beyond["code"] == "out_of_scope"
    assert (hidden["code"], ended_by["code"]) == ("unknown_agent_session", "unknown_agent_session")
    assert menu["recipes"] == []


async def test_a_damaged_file_refuses_changes_and_no_caller(project: Project) -> None:
    """While keys.json is damaged or unreadable, the keys known before count, and each route of keys names the file."""
    async with served.in_process(project, api_token=TOKEN) as service:
        ada = await add(service, "ada", role="admin")
        await add(service, "bob", role="approver")
        file = project.data / key_files.FILE
        sound = file.read_bytes()
        file.write_text("{bad")
        voted = {"recipe_id": "quick", "approvals": {"count": 1}}
        answers = await each_route(service, ada)
        answers.append(await service.http.post("/api/runs", json=voted, headers=ada))
        started = await service.http.post("/api/runs", json={"recipe_id": "quick"}, headers=ada)
        file.unlink()
        file.mkdir()
        unreadable = await each_route(service, ada)
        file.rmdir()
        file.write_bytes(sound)
        mended = await service.http.delete("/api/keys/bob", headers=ada)

    assert {code(answer) for answer in answers} == {(409, "file_damaged")}
    assert all("keys.json" in answer.json()["detail"] for answer in answers)
    assert started.status_code == 201, started.text
    assert {code(answer) for answer in unreadable} == {(503, "file_unreadable")}
    assert mended.status_code == 204


async def each_route(service: served.Served, header: dict[str, str]) -> list[httpx.Response]:
    """List, add, rotate and revoke keys, and return the answers."""
    http = service.http
    return [
        await http.get("/api/keys", headers=header),
        await http.post("/api/keys", json={"name": "eve"}, headers=header),
        await http.post("/api/keys/bob/rotate", headers=header),
        await http.delete("/api/keys/bob", headers=header),
    ]
