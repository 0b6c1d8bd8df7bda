"""Session plans over HTTP: addresses, revisions, pages, waiting, and answers to hostile requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from tests.integration import served
from tests.integration.project import Project

DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "openapi" / "openapi.json").read_text(encoding="utf-8")
)
LOOK = {"description": "look around"}
HUGE = 2**70
ANSWERS = {"POST /api/sessions": "201", "POST /api/sessions/{session_id}/tasks": "201"}


async def make(service: served.Served, *tasks: dict[str, Any], key: str | None = None, **fields: Any) -> dict[str, Any]:
    """Create a plan and return it."""
    headers = {"Idempotency-Key": key} if key else {}
    answer = await service.http.post("/api/sessions", json={"tasks": list(tasks) or [LOOK]} | fields, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


def at(plan: dict[str, Any], *parts: object) -> str:
    """Return an address below a plan."""
    return "/".join(["/api/sessions", plan["session_id"], *map(str, parts)])


async def until(
    service: served.Served, plan: dict[str, Any], holds: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Wait by long polls until a condition is true for a plan."""
    async with asyncio.timeout(served.WAIT_SECONDS):
        etag = ""
        while True:
            # The first request does not wait: the state may be there already, and the next change may leave it.
            wait = {"wait": 5 if etag else 0}
            answer = await service.http.get(at(plan), params=wait, headers={"If-None-Match": etag})
            if answer.status_code == 200:
                etag, shown = answer.headers["etag"], dict(answer.json())
                if holds(shown):
                    return shown
            # A poll of an idle plan does not wait.
            await asyncio.sleep(0)


def fits(answer: httpx.Response, name: str, status: str = "200") -> None:
    """Check that an answer has the documented form."""
    method, path = name.split()
    operation = DOCUMENT["paths"][path][method.lower()]
    schema = operation["responses"][status]["content"]["application/json"]["schema"]
    assert answer.status_code == int(status), answer.text
    jsonschema.validate(answer.json(), schema | {"components": DOCUMENT["components"]})


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check the status and code of a problem document, and return it."""
    told: dict[str, Any] = answer.json()
    assert (answer.status_code, told["code"]) == (status, code), answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    return told


async def test_every_address_answers_the_whole_plan(service: served.Served) -> None:
    """Each change answers the plan as changed, with its revision as ETag, in the documented form."""
    made = await service.http.post(
        "/api/sessions", json={"intent": "Look", "tasks": [LOOK, LOOK], "labels": {"a": "b"}}
    )
    plan = made.json()
    fits(made, "POST /api/sessions", "201")
    walk = [
        ("PATCH", "", "", {"order": [2, 1]}),
        ("POST", "/tasks", "tasks", {"description": "nothing fits this", "deps": [1]}),
        ("POST", "/tasks/{task_id}/answer", "tasks/3/answer", {"answer": "look around", "revision": 3}),
        ("PATCH", "/tasks/{task_id}", "tasks/3", {"description": "compare", "deps": [], "recipe_id": None}),
        ("DELETE", "/tasks/{task_id}", "tasks/2", None),
        ("POST", "/approve", "approve", None),
        ("POST", "/start", "start", {}),
    ]
    for method, path, place, body in walk:
        answer = await service.http.request(method, at(plan, place).rstrip("/"), json=body)
        name = f"{method} /api/sessions/{{session_id}}{path}"
        fits(answer, name, ANSWERS.get(name, "200"))

        assert answer.json()["session_id"] == plan["session_id"]
        assert answer.headers["etag"] == f'"{answer.json()["revision"]}"'
    listed = await service.http.get("/api/sessions")
    fits(listed, "GET /api/sessions")
    fits(await service.http.get(at(plan)), "GET /api/sessions/{session_id}")

    assert made.headers["location"] == at(plan)
    assert [row["session_id"] for row in listed.json()] == [plan["session_id"]]
    assert plan["labels"] == {"a": "b"}


async def test_a_plan_is_brought_to_its_end(service: served.Served) -> None:
    """The tasks of an approved and started plan become runs of its session, and the plan is done when they are."""
    plan = await make(service, LOOK, LOOK | {"deps": [1]})
    await service.http.post(at(plan, "approve"))
    await service.http.post(at(plan, "start"))
    ended = await until(service, plan, lambda shown: shown["status"] in ("done", "failed"))
    runs = [await service.show(task["run_id"]) for task in ended["tasks"]]

    assert ended["status"] == "done"
    assert [run["session_id"] for run in runs] == [plan["session_id"]] * 2
    assert [run["task"]["session_plan_task_id"] for run in runs] == [1, 2]


async def test_a_failed_task_is_retried(service: served.Served) -> None:
    """A task whose run failed fails its plan, and a fresh retry starts another run."""
    task = {"description": "jot down", "args": {"scene_path": "Story/none.md"}}
    plan = await make(service, task)
    await service.http.post(at(plan, "approve"))
    await service.http.post(at(plan, "start"))
    failed = await until(service, plan, lambda shown: shown["status"] == "failed")
    again = await service.http.post(at(plan, "tasks", 1, "retry"), json={"fresh": True, "revision": failed["revision"]})
    ended = await until(service, plan, lambda shown: shown["status"] == "failed")
    issues = (await service.http.get("/api/issues", params={"session_id": plan["session_id"]})).json()

    assert again.status_code == 200, again.text
    assert failed["tasks"][0]["error"]["code"] == "file_not_found"
    assert ended["tasks"][0]["earlier_runs"] == [failed["tasks"][0]["run_id"]]
    assert {issue["kind"] for issue in issues} == {"task"}


async def test_an_issue_belongs_to_a_plan(service: served.Served) -> None:
    """The session of a plan is known as soon as the plan is created, before it has a run."""
    plan = await make(service)
    issue = await service.http.post("/api/issues", json={"title": "Look here", "session_id": plan["session_id"]})
    listed = await service.http.get("/api/issues", params={"session_id": plan["session_id"]})

    assert issue.status_code == 201, issue.text
    assert [row["issue_id"] for row in listed.json()] == [issue.json()["issue_id"]]


async def test_polls_are_held_against_the_revision(service: served.Served) -> None:
    """A known revision is a 304, with any form of its tag; a poll of an idle plan does not wait."""
    plan = await make(service)
    first = await service.http.get(at(plan))
    known = {"If-None-Match": first.headers["etag"]}
    same = await service.http.get(at(plan), headers=known)
    weak = await service.http.get(at(plan), headers={"If-None-Match": '"7", W/"1"'})
    every = await service.http.get(at(plan), headers={"If-None-Match": "*"})
    other = await service.http.get(at(plan), headers={"If-None-Match": '"2"'})
    async with asyncio.timeout(served.WAIT_SECONDS):
        rested = await service.http.get(at(plan), params={"wait": 60}, headers=known)

    assert (same.status_code, weak.status_code, every.status_code, rested.status_code) == (304, 304, 304, 304)
    assert (same.content, same.headers["etag"]) == (b"", '"1"')
    assert (other.status_code, other.json()) == (200, plan)


async def test_a_waiting_poll_is_answered_when_a_task_ends(service: served.Served, project: Project) -> None:
    """A poll of a running plan is answered when a task has ended."""
    project.say("draft", hang=True)
    plan = await make(service, {"description": "jot down", "args": {"scene_path": "Story/Scenes/SCN-the-arrival.md"}})
    await service.http.post(at(plan, "approve"))
    await service.http.post(at(plan, "start"))
    shown = await until(service, plan, lambda shown: shown["tasks"][0]["run_id"])
    known = {"If-None-Match": f'"{shown["revision"]}"'}
    quiet = await service.http.get(at(plan), params={"wait": 0.2}, headers=known)
    waiting = asyncio.create_task(service.http.get(at(plan), params={"wait": 30}, headers=known))
    await service.until(shown["tasks"][0]["run_id"], step="draft")
    await service.http.post(f"/api/runs/{shown['tasks'][0]['run_id']}/cancel")
    heard = await asyncio.wait_for(waiting, served.WAIT_SECONDS)

    assert quiet.status_code == 304
    assert heard.json()["revision"] > shown["revision"]


async def test_a_wait_that_is_none_is_refused(service: served.Served) -> None:
    """An invalid wait is refused: it must be a number of seconds, at most 60."""
    for wait in ("-1", "61", "x", "nan", "inf", ""):
        answer = await service.http.get("/api/sessions/sp_none", params={"wait": wait})

        assert problem(answer, 400, "request_invalid")["flaws"][0]["path"] == "query.wait"


async def test_a_repeated_request_finds_its_plan(service: served.Served) -> None:
    """The same request under the same key is a 200 with its plan; another request under the key is a 409."""
    plan = await make(service, key="one")
    again = await service.http.post("/api/sessions", json={"tasks": [LOOK]}, headers={"Idempotency-Key": "one"})
    other = await service.http.post("/api/sessions", json={"tasks": [LOOK] * 2}, headers={"Idempotency-Key": "one"})
    wrong = await service.http.post("/api/sessions", json={"tasks": [LOOK]}, headers={"Idempotency-Key": "x" * 300})

    assert (again.status_code, again.json(), again.headers["location"]) == (200, plan, at(plan))
    problem(other, 409, "idempotency_conflict")
    assert problem(wrong, 400, "request_invalid")["flaws"][0]["path"] == "header.Idempotency-Key"
    assert len((await service.http.get("/api/sessions")).json()) == 1


async def test_plans_are_listed_in_pages(service: served.Served) -> None:
    """Pages lead through all plans, newest first, each once; filters and limits apply to every page."""
    made = [await make(service, intent=f"Plan {number}") for number in range(7)]
    await service.http.post(at(made[3], "approve"))
    found: list[dict[str, Any]] = []
    address, pages = "/api/sessions?limit=3", 0
    while address:
        answer = await service.http.get(address)
        found, pages = found + answer.json(), pages + 1
        address = answer.links.get("next", {}).get("url", "")
    approved = (await service.http.get("/api/sessions", params={"status": "approved"})).json()

    assert pages == 3
    assert [row["session_id"] for row in found] == [
        row["session_id"]
        for row in sorted(made, key=lambda plan: (plan["created_at"], plan["session_id"]), reverse=True)
    ]
    assert [(row["session_id"], row["tasks"], row["revision"]) for row in approved] == [
        (made[3]["session_id"], {"pending": 1}, 2)
    ]


NO_QUERIES = [
    ("status=odd", "request_invalid"),
    ("limit=0", "request_invalid"),
    ("limit=1001", "request_invalid"),
    ("statu=draft", "request_invalid"),
    ("cursor=x", "bad_cursor"),
    ("cursor=%00", "request_invalid"),
    ("cursor=" + "x" * 3000, "request_invalid"),
]
"""Invalid queries for a list."""


async def test_a_query_that_is_none_is_refused(service: served.Served) -> None:
    """Unknown filters, values out of range and invalid cursors are a 400."""
    for query, code in NO_QUERIES:
        problem(await service.http.get(f"/api/sessions?{query}"), 400, code)

    assert (await service.http.get("/api/sessions")).json() == []


NO_PLANS: list[tuple[Any, str]] = [
    ({}, "$.intent"),
    ({"tasks": []}, "$.intent"),
    ({"intent": ""}, "$.intent"),
    ({"intent": " \n"}, "$.intent"),
    ({"intent": "x" * 20_001}, "$.intent"),
    ({"intent": ["x"]}, "$.intent"),
    ({"tasks": "look around"}, "$.tasks"),
    ({"tasks": {"1": LOOK}}, "$.tasks"),
    ({"tasks": [LOOK] * 201}, "$.tasks"),
    ({"tasks": [LOOK] * 2_000}, "$.tasks"),
    ({"tasks": ["look around"]}, "$.tasks[0]"),
    ({"tasks": [LOOK, None]}, "$.tasks[1]"),
    ({"tasks": [{}]}, "$.tasks[0].description"),
    ({"tasks": [{"description": ""}]}, "$.tasks[0].description"),
    ({"tasks": [{"description": "   "}]}, "$.tasks[0].description"),
    ({"tasks": [{"description": 7}]}, "$.tasks[0].description"),
    ({"tasks": [{"description": "x" * 4_001}]}, "$.tasks[0].description"),
    ({"tasks": [LOOK | {"id": 0}]}, "$.tasks[0].id"),
    ({"tasks": [LOOK | {"id": -1}]}, "$.tasks[0].id"),
    ({"tasks": [LOOK | {"id": HUGE}]}, "$.tasks[0].id"),
    ({"tasks": [LOOK | {"id": "1"}]}, "$.tasks[0].id"),
    ({"tasks": [LOOK | {"id": True}]}, "$.tasks[0].id"),
    ({"tasks": [LOOK | {"id": 1.5}]}, "$.tasks[0].id"),
    ({"tasks": [LOOK | {"id": 1}, LOOK | {"id": 1}]}, "$.tasks[1].id"),
    ({"tasks": [LOOK | {"recipe_id": ""}]}, "$.tasks[0].recipe_id"),
    ({"tasks": [LOOK | {"recipe_id": 1}]}, "$.tasks[0].recipe_id"),
    ({"tasks": [LOOK | {"args": []}]}, "$.tasks[0].args"),
    ({"tasks": [LOOK | {"args": None}]}, "$.tasks[0].args"),
    ({"tasks": [LOOK | {"args": {"none": 1}}]}, "$.tasks[0].args.none"),
    ({"tasks": [LOOK | {"deps": 1}]}, "$.tasks[0].deps"),
    ({"tasks": [LOOK | {"deps": [0]}]}, "$.tasks[0].deps[0]"),
    ({"tasks": [LOOK | {"deps": [HUGE]}]}, "$.tasks[0].deps[0]"),
    ({"tasks": [LOOK | {"deps": ["1"]}]}, "$.tasks[0].deps[0]"),
    ({"tasks": [LOOK | {"deps": [1]}]}, "$.tasks[0].deps[0]"),
    ({"tasks": [LOOK | {"deps": [9]}]}, "$.tasks[0].deps[0]"),
    ({"tasks": [LOOK, LOOK | {"deps": [1, 1]}]}, "$.tasks[1].deps[1]"),
    ({"tasks": [LOOK | {"deps": [2]}, LOOK | {"deps": [3]}, LOOK | {"deps": [1]}]}, "$.tasks[0].deps[0]"),
    ({"tasks": [LOOK | {"deps": [1] * 201}]}, "$.tasks[0].deps"),
    ({"tasks": [LOOK | {"dod": "x" * 4_001}]}, "$.tasks[0].dod"),
    ({"tasks": [LOOK | {"dod": None}]}, "$.tasks[0].dod"),
    ({"tasks": [LOOK | {"scoping_question": ""}]}, "$.tasks[0].scoping_question"),
    ({"tasks": [LOOK | {"scoping_question": "x" * 4_001}]}, "$.tasks[0].scoping_question"),
    ({"tasks": [LOOK | {"status": "done"}]}, "$.tasks[0].status"),
    ({"tasks": [LOOK | {"run_id": "x"}]}, "$.tasks[0].run_id"),
    ({"tasks": [LOOK | {"dep": [1]}]}, "$.tasks[0].dep"),
    ({"tasks": [LOOK], "session_id": "sp_mine"}, "$.session_id"),
    ({"tasks": [LOOK], "status": "running"}, "$.status"),
    ({"tasks": [LOOK], "labels": {"a:b": "c"}}, '$.labels["a:b"]'),
    ({"tasks": [LOOK], "labels": {"a": "x" * 257}}, "$.labels.a"),
    ({"tasks": [LOOK], "labels": {str(n): "x" for n in range(33)}}, "$.labels"),
    ({"tasks": [LOOK], "priority": 101}, "$.priority"),
    ({"tasks": [LOOK], "priority": "1"}, "$.priority"),
    ({"tasks": [LOOK], "working_dir": 5}, "$.working_dir"),
    ({"tasks": [LOOK], "parent_run_id": "none"}, "$.parent_run_id"),
]
"""Bodies that are not plans, and the place of the fault."""


async def test_an_invalid_session_plan_is_refused(service: served.Served) -> None:
    """Each wrong, unknown or impossible field is a 400 with its place, and no plan is stored."""
    for body, path in NO_PLANS:
        answer = await service.http.post("/api/sessions", json=body)

        assert answer.status_code == 400, (str(body)[:200], answer.text)
        assert path in [flaw["path"] for flaw in answer.json()["flaws"]], (str(body)[:200], answer.text)
        assert "should" not in answer.json()["detail"]
    assert (await service.http.get("/api/sessions")).json() == []
    assert not list(service.project.data.glob("sessions/*/plan.json"))


NO_JSON = [
    b'{"intent": "a\\u0000b"}',
    b'{"tasks": [{"description": "x", "description": "y"}]}',
    b'{"intent": "a\\ud800"}',
    b'{"intent": "a"',
    b"\xff",
    b'{"tasks": [{"description": "x", "args": ' + b"[" * 70 + b"]" * 70 + b"}]}",
]
"""Bodies that are not strict JSON."""


async def test_a_malformed_plan_is_refused(service: served.Served) -> None:
    """A body that is not strict JSON is a 400 `malformed_body` at every address."""
    plan, headers = await make(service), {"Content-Type": "application/json"}
    for content in NO_JSON:
        for method, address in (("POST", "/api/sessions"), ("PATCH", at(plan)), ("POST", at(plan, "tasks"))):
            answer = await service.http.request(method, address, content=content, headers=headers)

            problem(answer, 400, "malformed_body")
    assert (await service.http.get(at(plan))).json() == plan


NO_NUMBERS = ["0", "-1", str(HUGE), "1.0", "+1", "01", "1_0", "x", "%201", "१", "1000000", "1" * 5000]
"""Values that are not task numbers."""


async def test_an_invalid_task_number_is_refused(service: served.Served) -> None:
    """A task number in an address must have its plain form; other forms are a 400 with the place."""
    plan = await make(service)
    for method, verb, body in (
        ("PATCH", "", {"dod": "x"}),
        ("DELETE", "", None),
        ("POST", "/answer", {"answer": "x"}),
        ("POST", "/force-start", {}),
        ("POST", "/retry", {}),
    ):
        for task_id in NO_NUMBERS:
            answer = await service.http.request(method, at(plan, "tasks", task_id) + verb, json=body)

            assert problem(answer, 400, "request_invalid")["flaws"][0]["path"] == "path.task_id"


async def test_a_task_that_is_not_there_is_not_found(service: served.Served) -> None:
    """An unknown task number is a 404 at every address of a task."""
    plan = await make(service)
    for method, verb, body in (
        ("PATCH", "", {"dod": "x"}),
        ("DELETE", "", None),
        ("POST", "answer", {"answer": "x"}),
        ("POST", "retry", {}),
    ):
        answer = await service.http.request(method, at(plan, "tasks", 9, verb).rstrip("/"), json=body)

        problem(answer, 404, "task_not_found")


NOWHERE = ["sp_none", "%2e%2e", "..%5c..", "a%00b", "x" * 5000, "%F0%9F%98%80", " ", ".tmp", "-"]
"""Values that are not plan ids."""

ADDRESSES: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("PATCH", "", {"order": [1]}),
    ("POST", "/approve", {}),
    ("POST", "/start", None),
    ("POST", "/pause", None),
    ("POST", "/resume", None),
    ("POST", "/tasks", LOOK),
    ("PATCH", "/tasks/1", {"dod": "x"}),
    ("DELETE", "/tasks/1", None),
    ("POST", "/tasks/1/answer", {"answer": "x"}),
    ("POST", "/tasks/1/retry", None),
    ("POST", "/tasks/1/force-start", None),
]
"""Every address below a plan."""


async def test_a_plan_that_is_not_there_is_not_found(service: served.Served) -> None:
    """An unknown or malformed plan id is a 404 at every address, and no plan is created."""
    before = sorted(service.project.data.rglob("*"))
    for session_id in NOWHERE:
        for method, verb, body in ADDRESSES:
            answer = await service.http.request(method, f"/api/sessions/{session_id}{verb}", json=body)

            assert answer.status_code == 404, (method, session_id[:80], verb, answer.text)
            assert answer.json()["code"] in ("plan_not_found", "not_found")
    assert sorted(service.project.data.rglob("*")) == before


SEEN: list[tuple[dict[str, str], Any, int, str | None]] = [
    ({"If-Match": '"1"'}, {}, 200, None),
    ({"If-Match": "*"}, {}, 200, None),
    ({}, {"revision": 1}, 200, None),
    ({"If-Match": '"1"'}, {"revision": 1}, 200, None),
    ({"If-Match": '"2"'}, {}, 409, "plan_changed"),
    ({}, {"revision": 2}, 409, "plan_changed"),
    ({"If-Match": '"2"'}, {"revision": 1}, 400, "request_invalid"),
    ({"If-Match": "1"}, {}, 400, "request_invalid"),
    ({"If-Match": 'W/"1"'}, {}, 400, "request_invalid"),
    ({"If-Match": "x" * 200}, {}, 400, "request_invalid"),
    ({}, {"revision": 0}, 400, "request_invalid"),
    ({}, {"revision": "1"}, 400, "request_invalid"),
    ({}, {"revision": None}, 200, None),
    ({}, {"reason": "x"}, 400, "request_invalid"),
]
"""Headers and bodies that name a revision of a new plan, with the status and code of the answer."""


async def test_a_change_with_another_revision_is_refused(service: served.Served) -> None:
    """Another revision than the present one is a 409 with the plan, an invalid one a 400, and the plan stays."""
    for headers, body, status, code in SEEN:
        plan = await make(service)
        answer = await service.http.post(at(plan, "approve"), json=body, headers=headers)

        assert answer.status_code == status, (headers, body, answer.text)
        if code is not None:
            told = problem(answer, status, code)
            assert code != "plan_changed" or told["facts"]["plan"] == plan
            assert (await service.http.get(at(plan))).json() == plan


async def test_a_removal_takes_its_revision_from_header_or_query(service: served.Served) -> None:
    """A request without a body names the revision in the header or in the query."""
    plan = await make(service, LOOK, LOOK, LOOK)
    stale = await service.http.delete(at(plan, "tasks", 1), params={"revision": 7})
    wrong = await service.http.delete(at(plan, "tasks", 1), params={"revision": 1}, headers={"If-Match": '"2"'})
    queried = await service.http.delete(at(plan, "tasks", 1), params={"revision": 1})
    matched = await service.http.delete(at(plan, "tasks", 2), headers={"If-Match": '"2"'})

    problem(stale, 409, "plan_changed")
    problem(wrong, 400, "request_invalid")
    assert [queried.status_code, matched.status_code] == [200, 200]
    assert [task["id"] for task in matched.json()["tasks"]] == [3]


NO_CHANGES: list[tuple[str, Any, str]] = [
    ("", {}, "$.order"),
    ("", {"order": []}, "$.order"),
    ("", {"order": "1"}, "$.order"),
    ("", {"order": [0]}, "$.order[0]"),
    ("", {"order": [HUGE]}, "$.order[0]"),
    ("", {"order": [1]}, "$.order"),
    ("", {"order": [1, 1]}, "$.order[1]"),
    ("", {"order": [1, 2, 3]}, "$.order[2]"),
    ("", {"order": [2, 1]}, "$.order[0]"),
    ("", {"order": [1] * 201}, "$.order"),
    ("", {"order": [1, 2], "status": "done"}, "$.status"),
    ("tasks", {"description": "x", "deps": [9]}, "$.deps[0]"),
    ("tasks", {"description": "x", "id": 1}, "$.id"),
    ("tasks", {"description": "x", "id": 0}, "$.id"),
    ("tasks", {"id": 7}, "$.description"),
    ("tasks", {"description": "look around", "args": {"none": 1}}, "$.args.none"),
    ("tasks/1", {}, "$"),
    ("tasks/1", {"revision": 1}, "$"),
    ("tasks/1", {"description": None}, "$.description"),
    ("tasks/1", {"description": ""}, "$.description"),
    ("tasks/1", {"args": None}, "$.args"),
    ("tasks/1", {"deps": None}, "$.deps"),
    ("tasks/1", {"deps": [1]}, "$.deps[0]"),
    ("tasks/1", {"deps": [2]}, "$.deps[0]"),
    ("tasks/1", {"dod": 1}, "$.dod"),
    ("tasks/1", {"scoping_question": ""}, "$.scoping_question"),
    ("tasks/1", {"id": 3}, "$.id"),
    ("tasks/1", {"args": {"none": 1}}, "$.args.none"),
    ("tasks/1/answer", {}, "$.answer"),
    ("tasks/1/answer", {"answer": ""}, "$.answer"),
    ("tasks/1/answer", {"answer": " "}, "$.answer"),
    ("tasks/1/answer", {"answer": "x" * 4_001}, "$.answer"),
    ("tasks/1/answer", {"answer": "x", "args": []}, "$.args"),
    ("tasks/1/answer", {"answer": "x", "recipe_id": ""}, "$.recipe_id"),
    ("tasks/1/retry", {"fresh": 1}, "$.fresh"),
    ("tasks/1/retry", {"frech": True}, "$.frech"),
    ("tasks/1/force-start", {"fresh": True}, "$.fresh"),
    ("start", {"now": True}, "$.now"),
    ("start", [], "$"),
]
"""Bodies that are not valid changes of a plan of two tasks, and the place of the fault."""


async def test_an_invalid_plan_change_is_refused(service: served.Served) -> None:
    """Each wrong, unknown or impossible field of a change is a 400 with its place, and the plan stays."""
    plan = await make(service, LOOK | {"scoping_question": "Where?"}, LOOK | {"deps": [1]})
    for place, body, path in NO_CHANGES:
        posted = place in ("tasks", "start") or place.count("/") == 2
        answer = await service.http.request("POST" if posted else "PATCH", at(plan, place).rstrip("/"), json=body)

        assert answer.status_code == 400, (place, str(body)[:200], answer.text)
        assert path in [flaw["path"] for flaw in answer.json()["flaws"]], (place, str(body)[:200], answer.text)
    assert (await service.http.get(at(plan))).json() == plan


async def test_unknown_recipes_are_refused_with_their_place(service: served.Served) -> None:
    """An unknown recipe is a 400 `unknown_recipe`, in a new plan, a new task and an edit."""
    plan, task = await make(service), LOOK | {"recipe_id": "quik"}
    new = await service.http.post("/api/sessions", json={"tasks": [LOOK, task]})
    added = await service.http.post(at(plan, "tasks"), json=task)
    edited = await service.http.patch(at(plan, "tasks", 1), json={"recipe_id": "quik"})

    for answer, path in ((new, "$.tasks[1].recipe_id"), (added, "$.recipe_id"), (edited, "$.recipe_id")):
        told = problem(answer, 400, "unknown_recipe")
        assert [flaw["path"] for flaw in told["flaws"]] == [path]


async def test_workspaces_are_checked_at_once(service: served.Served) -> None:
    """A workspace that is missing, or outside the allowed folders, is refused when the plan is created."""
    outside = await service.http.post("/api/sessions", json={"tasks": [LOOK], "working_dir": "/etc"})
    missing = await service.http.post("/api/sessions", json={"tasks": [LOOK], "working_dir": "none"})

    problem(outside, 400, "working_dir_refused")
    problem(missing, 400, "working_dir_missing")


async def test_an_intent_is_the_chiefs_to_split(project: Project) -> None:
    """A plan of an intent exists at once, and cannot be changed until the chief has answered."""
    agents = json.loads((project.data / "agents.json").read_text(encoding="utf-8"))
    chief = {"id": "chief-1", "archetype": "chief", "tier": "t3", "backend": "said", "role": "You split work."}
    project.write(".control-room/agents.json", json.dumps(agents | {"agents": [*agents["agents"], chief]}))
    tasks = [
        {"id": number, "description": "look around", "deps": deps, "dod": "Files are listed."}
        for number, deps in ((4, []), (7, [4]))
    ]
    project.say("chief", hang=True)
    async with served.in_process(project) as service:
        made = await service.http.post("/api/sessions", json={"intent": "Look everywhere"})
        plan = made.json()
        early = [
            await service.http.post(at(plan, "approve")),
            await service.http.post(at(plan, "start")),
            await service.http.post(at(plan, "tasks"), json=LOOK),
        ]
        await service.http.post(f"/api/runs/{plan['chief_run_id']}/cancel")
        await until(service, plan, lambda shown: shown["status"] == "failed")
        project.say("chief", text=json.dumps({"tasks": tasks}))
        await service.http.post(at(plan, "start"))
        drafted = await until(service, plan, lambda shown: shown["tasks"])
        run = await service.show(plan["chief_run_id"])

    fits(made, "POST /api/sessions", "201")
    assert (plan["status"], plan["created_by"], plan["awaits_chief"], plan["tasks"]) == ("draft", "chief", True, [])
    assert [(answer.status_code, answer.json()["code"]) for answer in early] == [(409, "wrong_state")] * 3
    assert [(task["id"], task["deps"], task["status"]) for task in drafted["tasks"]] == [
        (4, [], "pending"),
        (7, [4], "blocked"),
    ]
    assert (run["recipe_id"], run["session_id"]) == ("decompose", plan["session_id"])


METHODS = [
    ("PUT", "/api/sessions", {"GET", "HEAD", "POST"}),
    ("POST", "/api/sessions/sp_x", {"GET", "HEAD", "PATCH", "DELETE"}),
    ("GET", "/api/sessions/sp_x/start", {"POST"}),
    ("GET", "/api/sessions/sp_x/tasks", {"POST"}),
    ("GET", "/api/sessions/sp_x/tasks/1", {"DELETE", "PATCH"}),
    ("PATCH", "/api/sessions/sp_x/tasks/1/answer", {"POST"}),
]
"""Methods that an address does not have, and the methods it has."""


async def test_another_method_is_not_allowed(service: served.Served) -> None:
    """A method that an address of a plan does not have is a 405 that names the allowed methods."""
    for method, path, allowed in METHODS:
        answer = await service.http.request(method, path)

        problem(answer, 405, "method_not_allowed")
        assert {name.strip() for name in answer.headers["allow"].split(",")} == allowed


async def test_a_stopping_service_lets_polls_go(service: served.Served, project: Project) -> None:
    """A poll that waits for a running plan is answered when the service stops."""
    project.say("draft", hang=True)
    plan = await make(service, {"description": "jot down", "args": {"scene_path": "Story/Scenes/SCN-the-arrival.md"}})
    await service.http.post(at(plan, "approve"))
    await service.http.post(at(plan, "start"))
    shown = await until(service, plan, lambda shown: shown["tasks"][0]["run_id"])
    known = {"If-None-Match": f'"{shown["revision"]}"'}
    waiting = asyncio.create_task(service.http.get(at(plan), params={"wait": 60}, headers=known))
    await asyncio.wait({waiting}, timeout=0.2)
    service.release()
    answer = await asyncio.wait_for(waiting, served.WAIT_SECONDS)

    assert answer.status_code in (200, 304)
