"""Bad input: each kind causes its own clear error, and no data is lost."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import main
from tests.integration import project as projects
from tests.integration import served

JSON = {"Content-Type": "application/json"}


def checked_problem(answer: httpx.Response) -> dict[str, Any]:
    """Check the form of a problem document and return it."""
    problem: dict[str, Any] = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(problem) == {"type", "title", "status", "detail", "code", "flaws", "facts"}
    assert problem["status"] == answer.status_code
    assert problem["type"] == f"urn:control-room:problem:{problem['code']}"
    assert "Traceback" not in answer.text
    return problem


async def post(service: served.Served, content: bytes, **headers: str) -> httpx.Response:
    """Post a start request with raw bytes."""
    return await service.http.post("/api/runs", content=content, headers=JSON | headers)


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b"{",
        b'{"recipe_id": "quick"',
        b"\xff\xff",
        b'{"recipe_id": "qu\\u0000ick"}',
        b'{"recipe_id": "quick", "description": "a\\ud800b"}',
        b'{"recipe_id": "quick", "recipe_id": "draft"}',
        b'{"recipe_id": "quick", "priority": 1e999}',
        b'{"recipe_id": "quick", "priority": NaN}',
        b'{"recipe_id": "quick", "args": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    ],
)
async def test_a_malformed_body_is_refused(service: served.Served, content: bytes) -> None:
    """A body that is not strict JSON is a 400 that names the place, and no run starts."""
    problem = checked_problem(await post(service, content))
    listed = (await service.http.get("/api/runs")).json()

    assert (problem["status"], problem["code"]) == (400, "malformed_body")
    assert problem["flaws"][0]["path"].startswith("$")
    assert listed == []


@pytest.mark.parametrize(
    ("body", "path", "code"),
    [
        (b"", "$", "missing"),
        (b"null", "$", None),
        (b"[]", "$", None),
        (b'"quick"', "$", None),
        (b"{}", "$.recipe_id", "missing"),
        (b'{"recipe_id": 7}', "$.recipe_id", "wrong_type"),
        (b'{"recipe_id": ["quick"]}', "$.recipe_id", "wrong_type"),
        (b'{"recipe_id": "quick", "args": []}', "$.args", "wrong_type"),
        (b'{"recipe_id": "quick", "args": null}', "$.args", "wrong_type"),
        (b'{"recipe_id": "quick", "priority": "1"}', "$.priority", "wrong_type"),
        (b'{"recipe_id": "quick", "priority": 1.5}', "$.priority", None),
        (b'{"recipe_id": "quick", "priority": true}', "$.priority", "wrong_type"),
        (b'{"recipe_id": "quick", "priority": 1000000000000000000000000000000}', "$.priority", None),
        (b'{"recipe_id": "quick", "exclusive": 1}', "$.exclusive", "wrong_type"),
        (b'{"recipe_id": "quick", "labels": ["a"]}', "$.labels", "wrong_type"),
        (b'{"recipe_id": "quick", "labels": {"a": 1}}', "$.labels.a", "wrong_type"),
        (b'{"recipe_id": "quick", "session_id": "../x"}', "$.session_id", None),
        (b'{"recipe_id": "quick", "recipe_id_": "x"}', "$.recipe_id_", "unknown_field"),
        (b'{"recipe_id": "quick", "arg": {}}', "$.arg", "unknown_field"),
    ],
)
async def test_a_field_of_the_wrong_kind_is_refused(
    service: served.Served, body: bytes, path: str, code: str | None
) -> None:
    """Unknown fields, wrong types and wrong values are a 400 that names the field; never a 422."""
    problem = checked_problem(await post(service, body))

    assert problem["status"] == 400
    assert problem["flaws"][0]["path"] == path
    assert code is None or problem["flaws"][0]["code"] == code
    assert body or problem["detail"] == "$: must be an object; the request has no body"


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/api/recipes/validate", {"recipe": 5}, "$.recipe: must be an object or a text"),
        ("/api/runs", {"recipe": [{}]}, "$.recipe: must be an object or a text"),
        ("/api/runs/{run_id}/fork", {"from": []}, "$.from: must be a text or a whole number"),
        ("/api/runs/{run_id}/fork", {"from": -1}, "$.from: must be at least 0"),
        ("/api/runs/{run_id}/fork", {"from": ""}, "$.from: must say something"),
        ("/api/runs/{run_id}/preview", {"order": "fork", "from": ""}, "$.from: must say something"),
    ],
)
async def test_a_field_of_several_types_is_named_alone(
    service: served.Served, path: str, body: dict[str, Any], message: str
) -> None:
    """The place of a wrong value that may have several types is its field, once, and no name of a type."""
    run_id = await service.start("quick")
    problem = checked_problem(await service.http.post(path.format(run_id=run_id), json=body))

    assert (problem["status"], problem["detail"]) == (400, message)
    assert [flaw["path"] for flaw in problem["flaws"]] == [message.split(":")[0]]


async def test_all_wrong_fields_are_reported_together(service: served.Served) -> None:
    """One answer reports all faults of a body, and a misspelt field with the nearest name."""
    problem = checked_problem(await post(service, b'{"recipe": 1, "arguments": {}, "prioritty": 2, "labels": 3}'))
    messages = {flaw["path"]: flaw["message"] for flaw in problem["flaws"]}

    assert {"$.arguments", "$.prioritty", "$.labels"} <= set(messages)
    assert "did you mean priority?" in messages["$.prioritty"]


async def test_a_body_of_ten_megabytes_is_refused(project: projects.Project) -> None:
    """A body over the limit is a 413, over a real socket too, and the service still works afterwards."""
    async with served.on_a_port(project) as service:
        answer = await post(service, b'{"description": "' + b"x" * 10_000_000 + b'"}')
        ended = await service.run("quick")

    assert checked_problem(answer)["code"] == "too_large"
    assert answer.status_code == 413
    assert ended["status"] == "done"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_another_media_type_is_refused(service: served.Served, content_type: str) -> None:
    """A body that is not declared as JSON is a 415."""
    answer = await service.http.post(
        "/api/runs", content=b'{"recipe_id": "quick"}', headers={"Content-Type": content_type}
    )

    assert (answer.status_code, checked_problem(answer)["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/runs", {"GET", "HEAD", "POST"}),
        ("DELETE", "/api/runs", {"GET", "HEAD", "POST"}),
        ("PUT", "/api/runs/x", {"GET", "HEAD", "DELETE", "PATCH"}),
        ("GET", "/api/runs/x/cancel", {"POST"}),
        ("POST", "/api/recipes", {"GET", "HEAD"}),
        ("POST", "/healthz", {"GET", "HEAD"}),
        ("POST", "/ws", {"GET", "HEAD"}),
        ("PUT", "/openapi.json", {"GET", "HEAD"}),
    ],
)
async def test_another_method_is_not_allowed(service: served.Served, method: str, path: str, allowed: set[str]) -> None:
    """A method that an address does not have is a 405 that names the allowed methods."""
    answer = await service.http.request(method, path)

    assert (answer.status_code, checked_problem(answer)["code"]) == (405, "method_not_allowed")
    assert {name.strip() for name in answer.headers["allow"].split(",")} == allowed


@pytest.mark.parametrize(
    "path", ["/nothing", "/api", "/api/runs/", "/api/nothing", "/docs", "/API/RUNS", "/api/runs/x/y/z"]
)
async def test_an_unknown_address_is_not_found(service: served.Served, path: str) -> None:
    """An address that does not exist is a 404 problem document."""
    answer = await service.http.get(path)

    assert (answer.status_code, checked_problem(answer)["code"]) == (404, "not_found")


async def test_a_foreign_page_starts_nothing(service: served.Served) -> None:
    """An unknown Host is a 400, a foreign Origin a 403, and neither starts a run."""
    hosted = await post(service, b'{"recipe_id": "quick"}', Host="evil.example")
    foreign = await post(service, b'{"recipe_id": "quick"}', Origin="https://evil.example")
    own = await post(service, b'{"recipe_id": "quick"}', Origin=f"http://{served.HOST}")
    listed = (await service.http.get("/api/runs")).json()

    assert (hosted.status_code, checked_problem(hosted)["code"]) == (400, "unknown_host")
    assert (foreign.status_code, checked_problem(foreign)["code"]) == (403, "foreign_origin")
    assert own.status_code == 201
    assert len(listed) == 1


async def test_a_token_is_asked_for(project: projects.Project) -> None:
    """With a token in the settings, a request without it is a 401, except for health."""
    async with served.in_process(project, api_token="a-token-of-some-length") as service:
        without = await service.http.get("/api/runs")
        healthy = await service.http.get("/healthz")
        right = {"Authorization": "Bearer a-token-of-some-length"}
        answered = await service.http.get("/api/runs", headers=right)

    assert (without.status_code, checked_problem(without)["code"]) == (401, "unauthorized")
    assert without.headers["www-authenticate"] == "Bearer"
    assert (healthy.status_code, answered.status_code) == (200, 200)


@pytest.mark.parametrize("setting", ["https://desk.example", "https://Desk.Example/", "https://desk.example:443"])
async def test_an_allowed_page_may_call(project: projects.Project, setting: str) -> None:
    """A page of an allowed origin, in any spelling, gets an answer to its preflight request and may read answers."""
    page = "https://desk.example"
    asked = {"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    async with served.in_process(project, allowed_origins=(setting,), api_token="a-token-of-some-length") as service:
        preflight = await service.http.options("/api/runs", headers=asked)
        answer = await service.http.get("/healthz", headers={"Origin": page})

    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] in (page, "*")
    assert answer.headers["access-control-allow-origin"] in (page, "*")
    assert answer.headers["access-control-expose-headers"] == "ETag, Link, Location, Retry-After"


async def test_an_internal_error_is_reported_under_an_incident_id(
    service: served.Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error is a 500 with an incident id and without a traceback; the log has both."""

    def broken() -> list[Any]:
        raise ZeroDivisionError("seven by nothing")

    transport = service.http._transport
    assert isinstance(transport, httpx.ASGITransport)
    monkeypatch.setattr(transport.app.state.services.inventory, "tools", broken)  # type: ignore[attr-defined]
    with caplog.at_level(logging.ERROR):
        answer = await service.http.get("/api/tools")
    problem = checked_problem(answer)
    record = next(record for record in caplog.records if record.name == "control_room.api")

    assert (answer.status_code, problem["code"]) == (500, "internal_error")
    assert problem["detail"] == f"see the service's log for {problem['facts']['incident_id']}"
    assert "seven" not in answer.text
    assert record.__dict__["incident_id"] == problem["facts"]["incident_id"]
    assert record.exc_info is not None


async def test_a_service_without_its_services_is_unavailable(project: projects.Project) -> None:
    """An application that has not started answers 503, but its health check answers 200."""
    app = main.create_app(served.chosen(project))
    async with served.client(httpx.ASGITransport(app), f"http://{served.HOST}") as http:
        answers = [await http.get(path) for path in ("/api/runs", "/readyz", "/healthz")]

    assert [answer.status_code for answer in answers] == [503, 503, 200]
    assert checked_problem(answers[0])["code"] == "starting"


async def test_a_damaged_run_is_shown_as_failed(project: projects.Project) -> None:
    """A run with a damaged journal is shown as failed with the place, its parts report this, and other runs work."""
    async with served.in_process(project) as service:
        run_id = (await service.run("draft", args={"scene_path": "Story/Scenes/SCN-the-arrival.md"}))["run_id"]
    journal = project.data / "runs" / run_id / "steps.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0] + lines[1].replace("analyze", "analyse") + "".join(lines[2:]))
    async with served.in_process(project) as service:
        shown = await service.show(run_id)
        steps = await service.http.get(f"/api/runs/{run_id}/steps")
        slot = await service.http.get(f"/api/runs/{run_id}/cache/draft")
        ended = await service.run("quick")

    assert (shown["status"], shown["error"]["code"]) == ("failed", "journal_corrupt")
    assert shown["error"]["detail"]
    assert (steps.status_code, checked_problem(steps)["code"]) == (409, "journal_corrupt")
    assert (slot.status_code, checked_problem(slot)["code"]) == (409, "journal_corrupt")
    assert ended["status"] == "done"
    assert journal.read_text().startswith(lines[0])


async def test_files_beside_the_runs_do_no_harm(project: projects.Project, tmp_path: Path) -> None:
    """The service ignores stray files and folders beside the runs."""
    runs = project.data / "runs"
    (runs / "not a run").mkdir(parents=True)
    (runs / "empty").mkdir()
    (runs / "note.txt").write_text("x")
    (runs / "link").symlink_to(tmp_path)
    async with served.in_process(project) as service:
        listed = await service.http.get("/api/runs")
        shown = await service.http.get("/api/runs/empty")
        ended = await service.run("quick")

    assert listed.status_code == 200
    assert shown.status_code in (200, 404)
    assert ended["status"] == "done"
    assert json.dumps(listed.json())


@pytest.mark.parametrize(
    ("method", "path", "body", "flaw", "message"),
    [
        (
            "POST",
            "/api/runs",
            {"recipe": "quick"},
            "$.recipe",
            "must contain a whole recipe, not its name; did you mean recipe_id?",
        ),
        ("POST", "/api/runs", {"recipeId": "quick"}, "$.recipeId", "is not known; did you mean recipe_id?"),
        ("POST", "/api/runs/x/resume", {"form": "draft"}, "$.form", "is not known; did you mean from?"),
        ("POST", "/api/runs/x/unpause", {"now": True}, "$.now", "is not known; there are none"),
        ("POST", "/api/sessions", {"tasks": [{"text": "x"}]}, "$.tasks[0].text", "there are args, deps, description,"),
        ("PATCH", "/api/issues/x", {"state": "closed"}, "$.state", "is not known; did you mean status?"),
        ("GET", "/api/runs?state=done", None, "query.state", "is not known; did you mean status?"),
        ("GET", "/api/runs/x?wiat=1", None, "query.wiat", "is not known; did you mean wait?"),
        ("GET", "/api/tools?limit=1", None, "query.limit", "is not known; there are none"),
        ("DELETE", "/api/runs/x?force=1", None, "query.force", "is not known; there are none"),
        ("GET", "/healthz?a=1&b=2", None, "query.a", "is not known; there are none"),
    ],
)
async def test_an_unknown_name_is_answered_with_those_there_are(
    service: served.Served, method: str, path: str, body: Any, flaw: str, message: str
) -> None:
    """An unknown name in a body or query is refused with the nearest valid name, or with all of them."""
    answer = await service.http.request(method, path, json=body)
    flaws = {found["path"]: found["message"] for found in checked_problem(answer)["flaws"]}

    assert (answer.status_code, answer.json()["code"]) == (400, "request_invalid")
    assert message in flaws[flaw]
