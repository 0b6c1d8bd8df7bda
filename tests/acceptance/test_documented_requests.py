"""Requests of the OpenAPI document and of the pages, sent to a service on the example project."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.acceptance import programs, scripted_example

ROOT = Path(__file__).resolve().parents[2]
ARCHETYPES = ("planner", "writer", "editor", "continuity", "critic", "librarian", "chief")
REPLIES = {"continuity": '{"pass": true, "findings": []}', "*": "Kael stepped onto the wet stone."}
TASKS = {"intent": "x", "tasks": [{"description": f"Draft scene {number}"} for number in (22, 23, 24)]}
NEEDS_KEYS = "approvals_need_keys"
"""The request is readable, but this service has too few keys for its approvals."""
UNREADABLE = {400, 413, 415, 422}


class Shown(NamedTuple):
    """A request in a document."""

    place: str
    method: str
    path: str
    body: Any


def in_openapi() -> Iterator[Shown]:
    """Yield the examples of all bodies."""
    document = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            named = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(content.get("schema", {})))
            for name in named:
                for body in document["components"]["schemas"][name].get("examples", ()):
                    yield Shown("openapi.json", method.upper(), path, body)


def in_pages() -> Iterator[Shown]:
    """Yield the curl commands of the README and of docs."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            for start in re.finditer(r"^curl ", block, re.MULTILINE):
                words = _words(block[start.start() :])
                url = next(word for word in words if word.startswith("http://"))
                method = words[words.index("-X") + 1] if "-X" in words else "GET"
                body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
                yield Shown(page.name, method, url.removeprefix("http://127.0.0.1:8000"), body)


def _words(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    for end in range(1, len(lines) + 1):
        if lines[end - 1].rstrip().endswith("\\"):
            continue
        try:
            return shlex.split("".join(lines[:end]))
        except ValueError:
            continue
    raise AssertionError(f"a quote is left open: {text[:80]}")


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Copy the example project and give it scripted agents, and the recipe that pages use as their example."""
    project = scripted_example.make(tmp_path / "example", ARCHETYPES, REPLIES, "001")
    page = (ROOT / "docs" / "how-to" / "find-out-why-a-run-waits.md").read_text(encoding="utf-8")
    recipe = page.partition("```yaml\n")[2].partition("```")[0]
    project.write("recipes/amplifier/publish.yaml", recipe)
    return project


def test_every_documented_request_works(project: programs.Project) -> None:
    """Documented runs end as done, tasks and routes need no question, recipes are valid, other bodies are readable."""
    shown = [*in_openapi(), *in_pages()]
    # One of the requests adds a key, and the first key closes a service that has no token.
    with programs.service(project, CONTROL_ROOM_API_TOKEN="0123456789abcdef") as service, service.http() as http:
        known = {"run_id": http.post("/api/runs", json={"description": "Draft scene 24"}).json()["run_id"]}
        service.wait(known["run_id"])
        problems = [problem for one in shown for problem in _problems(service, http, one, known)]

    assert problems == []
    assert {one.place for one in shown} >= {"openapi.json", "README.md", "plans.md", "conference.md", "gates.md"}
    assert len(shown) > 30


def _problems(service: programs.Service, http: httpx.Client, one: Shown, known: dict[str, str]) -> Iterator[str]:
    path = _filled(http, one.path, known)
    answer = http.request(one.method, path, json=one.body) if one.body is not None else http.request(one.method, path)
    found = answer.json() if answer.content else {}
    if answer.status_code in UNREADABLE or answer.status_code >= 500:
        yield f"{one}: {answer.status_code} {answer.text}"
    elif path == "/api/runs" and one.method == "POST" and found.get("code") != NEEDS_KEYS:
        run = service.wait(found["run_id"])
        if run["status"] != "done":
            yield f"{one}: {run['error']}"
    elif path == "/api/route" and (not found["routable"] or found["questions"]):
        yield f"{one}: {found}"
    elif path == "/api/recipes/validate" and not found["valid"]:
        yield f"{one}: {found['flaws']}"
    elif path == "/api/sessions" and one.method == "POST":
        given = {task["description"]: task.get("scoping_question") for task in one.body.get("tasks", ())}
        for task in found["tasks"]:
            if task["scoping_question"] != given.get(task["description"]):
                yield f"{one}: {task['scoping_question']}"


def _filled(http: httpx.Client, path: str, known: dict[str, str]) -> str:
    """Return a path with existing ids in place of the names of ids."""
    path = path.replace("{run_id}", known["run_id"]).replace("RUN_ID", known["run_id"])
    if "{session_id}" in path or "SESSION_ID" in path:
        plan = http.post("/api/sessions", json=TASKS).json()["session_id"]
        path = path.replace("{session_id}", plan).replace("SESSION_ID", plan).replace("{task_id}", "2")
    if "{issue_id}" in path:
        path = path.replace("{issue_id}", http.post("/api/issues", json={"title": "x"}).json()["issue_id"])
    path = (
        path.replace("{name}", "drafts")
        .replace("{proposal_id}", "1")
        .replace("{trigger_id}", "none")
        .replace("{endpoint_id}", "none")
    )
    return path.replace("{gate_id}", "none").replace("GATE_ID", "none")
