"""Incoming webhooks: requests from outside that start runs."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from app import clock
from app.domain import triggers
from app.services.triggers import pointers
from tests.integration import held, scheduled
from tests.integration.project import Project, quick

TOKEN = "a-token-of-sixteen-characters"
BODY = {"ref": "refs/heads/main", "commits": [{"id": "c0ffee", "files": ["a/b"]}], "a/b": {"~": 1}}


def greeting() -> dict[str, Any]:
    """Return a recipe that accepts any text as `what`."""
    schema = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    return quick("greeting") | {"args_schema": schema, "task_patterns": []}


async def _hook(service: scheduled.Scheduled, **webhook: Any) -> dict[str, Any]:
    return await service.add(recipe_id="greeting", args_from={"what": "/commits/0/id"}, webhook=webhook)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with the recipe `greeting`."""
    project = Project(tmp_path)
    project.add_recipe(greeting())
    return project


async def test_a_delivery_starts_a_run_with_arguments_from_its_body(project: Project) -> None:
    """The address is the credential, even if the service has a token; the run is on disk before the answer."""
    async with scheduled.in_process(project, api_token=TOKEN) as service:
        service.http.headers["Authorization"] = f"Bearer {TOKEN}"
        added = await _hook(service)
        del service.http.headers["Authorization"]
        answer = await service.http.post(added["address"], json=BODY)
        closed = await service.http.get("/api/triggers")
        service.http.headers["Authorization"] = f"Bearer {TOKEN}"
        await service.until(answer.json()["run_id"], "done")
        args = await service.args(answer.json()["run_id"])
        later = await service.trigger(added["trigger_id"])

    assert (answer.status_code, answer.json()["result"]) == (202, "started")
    assert args == {"what": "c0ffee"}
    assert closed.status_code == 401
    assert "address" not in later
    assert "secret" not in json.dumps(later)


@pytest.mark.parametrize("change", ["secret", "trigger", "both"])
async def test_a_wrong_address_is_answered_as_no_address(project: Project, change: str) -> None:
    """A wrong address gets the same answer, whichever part is wrong, and starts no run."""
    async with scheduled.in_process(project) as service:
        added = await _hook(service)
        _, hooks, trigger_id, secret = added["address"].split("/")
        wrong = {
            "secret": f"/{hooks}/{trigger_id}/{secret[:-1]}",
            "trigger": f"/{hooks}/trg_0/{secret}",
            "both": f"/{hooks}/x/y",
        }[change]
        answer = await service.http.post(wrong, json=BODY)
        runs = await service.runs()

    assert (answer.status_code, answer.json()["code"]) == (404, "hook_not_found")
    assert answer.json()["detail"] == "there is nothing at this address"
    assert runs == []


async def test_a_repeated_delivery_finds_its_run(project: Project) -> None:
    """Deliveries with the same id start one run, also after a restart; each delivery without an id starts a run."""
    one = {"webhook-id": "msg_1"}
    async with scheduled.in_process(project) as service:
        added = await _hook(service)
        first = (await service.http.post(added["address"], json=BODY, headers=one)).json()
        again = (await service.http.post(added["address"], json=BODY, headers=one)).json()
    async with scheduled.in_process(project) as service:
        third = (await service.http.post(added["address"], json=BODY, headers=one)).json()
        others = [(await service.http.post(added["address"], json=BODY)).json() for _ in range(2)]
        runs = await service.runs()

    assert (first["result"], again["result"], third["result"]) == ("started", "repeated", "repeated")
    assert first["run_id"] == again["run_id"] == third["run_id"]
    assert len({first["run_id"], *(each["run_id"] for each in others)}) == len(runs) == 3


async def test_deliveries_of_github_are_signed(project: Project) -> None:
    """A delivery starts a run only with a signature of its bytes; pings and other events start none."""
    async with scheduled.in_process(project) as service:
        added = await _hook(service, scheme="github", events=["push"])
        secret, body = added["signing_secret"], json.dumps(BODY).encode()
        signed = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"

        async def deliver(signature: str, event: str, content: bytes = body) -> httpx.Response:
            headers = {"X-GitHub-Delivery": "d-1", "Content-Type": "application/json"}
            headers |= {"X-GitHub-Event": event} if event else {}
            headers |= {"X-Hub-Signature-256": signature} if signature else {}
            return await service.http.post(added["address"], content=content, headers=headers)

        bad = [await deliver(signature, "push") for signature in ("", "sha256=00", signed[:-1])]
        bad.append(await deliver(signed, "push", body.replace(b"main", b"evil")))
        ping, other = await deliver(signed, "ping"), await deliver(signed, "issues")
        good, again = await deliver(signed, "push"), await deliver(signed, "push")
        await deliver(signed, "issues")
        unnamed = await deliver(signed, "")
        runs, shown = await service.runs(), await service.trigger(added["trigger_id"])

    assert [(each.status_code, each.json()["code"]) for each in bad] == [(400, "signature_invalid")] * 4
    # GitHub sends no timestamp.
    assert {each.json()["detail"] for each in bad} == {"the delivery has no valid signature of the scheme github"}
    assert [(each.status_code, each.json()["result"]) for each in (ping, other)] == [(202, "skipped")] * 2
    assert other.json()["reason"] == "the event 'issues' is not wanted"
    assert unnamed.json()["reason"] == "the delivery names no event"
    assert (good.status_code, good.json()["result"]) == (202, "started")
    assert again.json()["result"] == "repeated"
    assert len(runs) == 1
    assert [(one["result"], one["subject"]) for one in reversed(shown["history"])] == [
        ("refused", None),
        ("skipped", "ping"),
        ("started", "push"),
        ("repeated", "push"),
        ("skipped", "issues"),
        ("skipped", None),
    ]
    assert "no valid signature of the scheme github" in shown["history"][-1]["reason"]


@pytest.mark.parametrize(
    ("form", "signed", "expected"),
    [
        ({"payload": json.dumps(BODY)}, True, (202, "c0ffee")),
        ({"payload": json.dumps(BODY)}, False, (415, None)),
        ({"payload": "{"}, True, (400, None)),
        ({"load": json.dumps(BODY)}, True, (400, None)),
        ({"payload": [json.dumps(BODY), "{}"]}, True, (400, None)),
        ({str(number): "" for number in range(20)} | {"payload": json.dumps(BODY)}, True, (400, None)),
    ],
    ids=["signed", "unsigned", "no JSON", "no payload", "two payloads", "many fields"],
)
async def test_forms_of_github_are_signed(
    project: Project, form: dict[str, Any], signed: bool, expected: tuple[int, str | None]
) -> None:
    """A form with a signature of its bytes starts a run with arguments from its payload; any other form is refused."""
    body = urlencode(form, doseq=True).encode()
    async with scheduled.in_process(project) as service:
        added = await _hook(service, scheme="github")
        secret = added["signing_secret"].encode()
        headers = {"X-GitHub-Delivery": "d-1", "Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        if signed:
            headers["X-Hub-Signature-256"] = f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"
        answer = await service.http.post(added["address"], content=body, headers=headers)
        other = await service.http.post("/api/runs", content=body, headers=headers)
        runs = await service.runs()
        args = await service.args(runs[0]["run_id"]) if runs else {"what": None}

    assert (answer.status_code, args["what"]) == expected, answer.text
    assert other.status_code == 415


@pytest.mark.parametrize("is_form", [False, True])
async def test_a_delivery_of_many_values_is_accepted(project: Project, is_form: bool) -> None:
    """The sender of a delivery chooses its fields, so a push of many commits starts a run like any other."""
    commits = [{"id": "c0ffee", "added": [f"chapter-{number}", "notes"]} for number in range(1500)]
    async with scheduled.in_process(project) as service:
        added = await _hook(service, scheme="github")
        content = json.dumps({"commits": commits})
        body, kind = content.encode(), "application/json"
        if is_form:
            body, kind = urlencode({"payload": content}).encode(), "application/x-www-form-urlencoded"
        digest = hmac.new(added["signing_secret"].encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Event": "push", "Content-Type": kind}
        answer = await service.http.post(added["address"], content=body, headers=headers)

    assert (answer.status_code, answer.json().get("result")) == (202, "started"), answer.text


async def test_deliveries_without_a_signature_have_one_line_a_minute(project: Project) -> None:
    """Unsigned deliveries cannot fill the history, and cause at most one write a minute."""
    async with scheduled.in_process(project) as service:
        added = await _hook(service, scheme="standard")

        async def refused() -> list[str]:
            answers = [await service.http.post(added["address"], json=BODY) for _ in range(3)]
            assert [each.json()["code"] for each in answers] == ["signature_invalid"] * 3
            return [one["at"] for one in (await service.trigger(added["trigger_id"]))["history"]]

        first = await refused()
        service.time.advance(61)
        second = await refused()

    assert (first, second) == ([clock.stamp(scheduled.BEGIN)], [clock.stamp(scheduled.BEGIN + timedelta(seconds=61))])


async def test_deliveries_during_a_pause_are_noted_each(project: Project) -> None:
    """The history of a paused trigger lists every delivery."""
    async with scheduled.in_process(project) as service:
        added = await service.add(recipe_id="greeting", webhook={}, paused=True, args_from={"what": "/ref"})
        for _ in range(2):
            await service.http.post(added["address"], json=BODY)
        shown = await service.trigger(added["trigger_id"])

    assert [(one["result"], one["reason"]) for one in shown["history"]] == [("skipped", "the trigger is paused")] * 2


async def test_deliveries_of_standard_webhooks_are_signed_and_fresh(project: Project) -> None:
    """A signature covers id, timestamp and bytes; an old timestamp is refused; one of several signatures suffices."""
    async with scheduled.in_process(project) as service:
        added = await _hook(service, scheme="standard")
        key, body = pointers.key_of(added["signing_secret"]), json.dumps(BODY).encode()
        assert key is not None
        now = int(service.time.now().timestamp())

        async def deliver(message: str, at: int, signature: str) -> httpx.Response:
            headers = {"webhook-id": message, "webhook-timestamp": str(at), "webhook-signature": signature}
            headers |= {"Content-Type": "application/json"}
            return await service.http.post(added["address"], content=body, headers=headers)

        valid = pointers.signature(key, "msg_1", now, body)
        old = await deliver("msg_1", now - 301, pointers.signature(key, "msg_1", now - 301, body))
        foreign = await deliver("msg_2", now, valid)
        good = await deliver("msg_1", now, f"v1,AAAA v2,x {valid}")

    assert [each.json().get("code") for each in (old, foreign)] == ["signature_invalid"] * 2
    assert good.json()["result"] == "started"


def test_signatures_are_those_of_standard_webhooks() -> None:
    """The example of the specification has the computed signature."""
    key = pointers.key_of("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
    assert key is not None
    body = b'{"email":"test@example.com","username":"test_user"}'

    assert (
        pointers.signature(key, "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1649367553, body)
        == "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="
    )


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("", {"what": BODY}),
        ("/ref", {"what": "refs/heads/main"}),
        ("/commits/0/files/0", {"what": "a/b"}),
        ("/a~1b/~0", {"what": 1}),
        ("/commits/1/id", {}),
        ("/commits/00/id", {}),
        ("/commits/-1", {}),
        ("/ref/0", {}),
        ("/nowhere", {}),
    ],
)
def test_pointers_lead_to_values(pointer: str, expected: dict[str, Any]) -> None:
    """A pointer is resolved by RFC 6901; one without a target gives no argument."""
    assert pointers.is_pointer(pointer)
    assert pointers.resolved(BODY, {"what": pointer}) == expected


async def test_an_unmatched_delivery_reveals_no_reason_to_its_sender(project: Project) -> None:
    """The answer has one code for every reason; the trigger's history contains the reason."""
    async with scheduled.in_process(project) as service:
        added = await _hook(service)
        answer = await service.http.post(added["address"], json={"commits": []})
        (result,) = await service.results(added["trigger_id"], 1)

    assert (answer.status_code, answer.json()["code"], answer.json()["flaws"]) == (400, "hook_refused", [])
    assert (result["result"], result["reason"]) == ("refused", "recipe greeting needs what [args_invalid]")


async def test_deliveries_wait_in_a_queue(tmp_path: Path) -> None:
    """With `queue`, a delivery during a run is accepted without a run, keeps its arguments, and starts one later."""
    project = Project(tmp_path)
    project.say("draft", text="Done.", delay_seconds=held.DELAY_SECONDS)
    async with scheduled.in_process(project) as service:
        added = await service.add(recipe_id="unguarded", webhook={}, overlap="queue")
        first = (await service.http.post(added["address"], json={})).json()
        await service.until(first["run_id"], step="draft")
        second = (await service.http.post(added["address"], json={}, headers={"webhook-id": "two"})).json()
        again = (await service.http.post(added["address"], json={}, headers={"webhook-id": "two"})).json()
        await service.http.post(f"/api/runs/{first['run_id']}/cancel")
        shown = await service.until_so(added["trigger_id"], lambda shown: not shown["waiting"])

    assert (second["result"], second["run_id"], again["result"]) == ("queued", None, "queued")
    assert [one["result"] for one in reversed(shown["history"])] == ["started", "queued", "started"]


async def test_a_delivery_does_not_overtake_those_that_wait(tmp_path: Path) -> None:
    """With `queue`, a delivery starts after those that wait, even if no run is unfinished when it arrives."""
    async with scheduled.in_process(Project(tmp_path)) as service:
        added = await service.add(webhook={}, overlap="queue")
        assert service.app is not None
        repository = service.app.state.services.hooks._repository
        trigger = await repository.get(added["trigger_id"])
        await repository.put(trigger.noted(waiting=(triggers.Waiting(occurrence="one", due_at=trigger.created_at),)))
        second = (await service.http.post(added["address"], json={}, headers={"webhook-id": "two"})).json()
        shown = await service.until_so(added["trigger_id"], lambda shown: len(shown["history"]) == 3)

    assert second["result"] == "queued"
    started = [one["occurrence"] for one in reversed(shown["history"]) if one["result"] == "started"]
    assert started == ["one", "two"]


async def test_secrets_are_in_no_log(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    """A delivery that causes an error of the service leaves no secret in the log."""
    async with scheduled.in_process(project) as service:
        added = await _hook(service)
        assert service.app is not None
        service.app.state.services = service.app.state.services.__class__(
            **{name: getattr(service.app.state.services, name) for name in service.app.state.services.__slots__}
            | {"hooks": None}
        )
        answer = await service.http.post(added["address"], json=BODY)

    assert answer.status_code == 500
    assert "/***" in str([record.__dict__.get("path") for record in caplog.records])
    assert added["address"].rpartition("/")[2] not in str([record.__dict__ for record in caplog.records])


async def test_a_kind_of_site_guard_stays(project: Project) -> None:
    """A delivery to a host that is not allowed is refused before any other check."""
    async with scheduled.in_process(project, allowed_hosts=("hooks.example.org",)) as service:
        added = await _hook(service)
        url = added["address"]
        refused = await service.http.post(url, json=BODY, headers={"Host": "evil.example.org"})
        taken = await service.http.post(url, json=BODY, headers={"Host": "hooks.example.org"})

    assert (refused.status_code, refused.json()["code"]) == (400, "unknown_host")
    assert taken.status_code == 202
