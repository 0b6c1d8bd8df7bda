"""The OpenAPI document: equal to the code, complete, and correct."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.api import document, problems, refusals, routes

PUBLISHED = Path(__file__).parents[2] / "openapi" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return every operation with its name."""
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


def test_the_published_document_is_the_codes() -> None:
    """`openapi/openapi.json` equals the document of the code; `scripts/publish_openapi.py` writes it."""
    assert PUBLISHED.read_text(encoding="utf-8") == routes.openapi_text()


def test_a_405_lists_the_methods_without_composing_the_document() -> None:
    """A 405 lists the methods of the document without composing the document, which would delay all other answers."""
    app = routes.create()
    told = {path: set(document.methods_at(app, path)) - {"HEAD"} for path in DOCUMENT["paths"]}

    assert told == {path: {verb.upper() for verb in item} for path, item in DOCUMENT["paths"].items()}
    assert app.openapi_schema is None


def test_every_address_of_the_contract_is_documented() -> None:
    """The document contains exactly the six addresses of appendix D and the listed others."""
    assert {name for name, _ in operations()} == {
        "POST /api/runs",
        "GET /api/runs",
        "POST /api/preflight",
        "GET /api/stats",
        "GET /api/usage",
        "POST /api/runs/bulk",
        "PATCH /api/runs/{run_id}",
        "POST /api/runs/prune",
        "POST /api/runs/collect",
        "GET /api/retention",
        "PUT /api/retention",
        "POST /api/runs/{run_id}/fork",
        "POST /api/runs/{run_id}/preview",
        "GET /api/events",
        "GET /api/runs/{run_id}/graph",
        "GET /api/runs/{run_id}/why",
        "GET /api/runs/{run_id}/request",
        "GET /api/recipes/{recipe_id}/graph",
        "GET /api/runs/{run_id}",
        "DELETE /api/runs/{run_id}",
        "GET /api/runs/{run_id}/steps",
        "GET /api/runs/{run_id}/cache/{slot}",
        "GET /api/runs/{run_id}/events",
        "GET /api/runs/{run_id}/logs",
        "GET /api/runs/{run_id}/logs/{name}",
        "GET /api/runs/{run_id}/logs/{name}/stream",
        "POST /api/runs/{run_id}/cancel",
        "POST /api/runs/{run_id}/pause",
        "POST /api/runs/{run_id}/unpause",
        "POST /api/runs/{run_id}/resume",
        "GET /api/runs/{run_id}/verification",
        "POST /api/runs/{run_id}/repair",
        "GET /api/verification",
        "GET /api/gates",
        "GET /api/gates/{gate_id}",
        "POST /api/gates/{gate_id}",
        "GET /api/issues",
        "POST /api/issues",
        "GET /api/issues/{issue_id}",
        "PATCH /api/issues/{issue_id}",
        "POST /api/sessions",
        "GET /api/sessions",
        "GET /api/sessions/{session_id}",
        "PATCH /api/sessions/{session_id}",
        "DELETE /api/sessions/{session_id}",
        "POST /api/sessions/{session_id}/approve",
        "POST /api/sessions/{session_id}/start",
        "POST /api/sessions/{session_id}/pause",
        "POST /api/sessions/{session_id}/resume",
        "POST /api/sessions/{session_id}/proposals/{proposal_id}/accept",
        "POST /api/sessions/{session_id}/proposals/{proposal_id}/dismiss",
        "POST /api/sessions/{session_id}/tasks",
        "PATCH /api/sessions/{session_id}/tasks/{task_id}",
        "DELETE /api/sessions/{session_id}/tasks/{task_id}",
        "POST /api/sessions/{session_id}/tasks/{task_id}/answer",
        "POST /api/sessions/{session_id}/tasks/{task_id}/force-start",
        "POST /api/sessions/{session_id}/tasks/{task_id}/retry",
        "POST /api/conferences",
        "GET /api/recipes",
        "POST /api/recipes/validate",
        "GET /api/recipes/{recipe_id}",
        "POST /api/route",
        "GET /api/tools",
        "GET /api/agents",
        "GET /api/files",
        "GET /api/audit",
        "GET /api/keys",
        "POST /api/keys",
        "DELETE /api/keys/{name}",
        "POST /api/keys/{name}/rotate",
        "GET /api/budgets",
        "PUT /api/budgets/{name}",
        "DELETE /api/budgets/{name}",
        "PATCH /api/runs/{run_id}/limits",
        "GET /api/audit/receipts",
        "GET /api/audit/receipts/{receipt_id}",
        "POST /api/tickets",
        "GET /api/session",
        "GET /api/triggers",
        "POST /api/triggers",
        "GET /api/triggers/{trigger_id}",
        "PATCH /api/triggers/{trigger_id}",
        "DELETE /api/triggers/{trigger_id}",
        "POST /api/triggers/{trigger_id}/fire",
        "POST /hooks/{trigger_id}/{secret}",
        "GET /api/notifications/endpoints",
        "POST /api/notifications/endpoints",
        "PATCH /api/notifications/endpoints/{endpoint_id}",
        "DELETE /api/notifications/endpoints/{endpoint_id}",
        "POST /api/notifications/endpoints/{endpoint_id}/test",
        "GET /api/notifications/endpoints/{endpoint_id}/dead",
        "GET /api/notifications/endpoints/{endpoint_id}/failing",
        "POST /api/notifications/endpoints/{endpoint_id}/give-up",
        "POST /api/notifications/endpoints/{endpoint_id}/replay",
        "POST /api/session",
        "DELETE /api/session",
        "GET /healthz",
        "GET /readyz",
        "GET /api/prices",
        "PUT /api/prices",
        "GET /api/policies",
        "PUT /api/policies",
        "GET /metrics",
    }


@pytest.mark.parametrize(("name", "operation"), list(operations()))
def test_an_operation_is_documented_whole(name: str, operation: dict[str, Any]) -> None:
    """Every operation describes itself and each answer; refusals are problem documents with examples."""
    refused = {status: answer for status, answer in operation["responses"].items() if int(status) >= 400}

    assert operation["summary"]
    assert operation["description"]
    assert all(parameter.get("description") for parameter in operation.get("parameters", []))
    assert all(answer["description"] for answer in operation["responses"].values())
    assert {"400", "401", "403", "500", "503"} <= set(refused)
    for answer in refused.values():
        content = answer["content"][problems.MEDIA_TYPE]
        assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
        assert content["examples"]


def test_only_unroutable_tasks_are_a_422() -> None:
    """Only the start of a run answers 422, and FastAPI's own form of a 422 is never used."""
    assert [name for name, operation in operations() if "422" in operation["responses"]] == ["POST /api/runs"]
    assert "HTTPValidationError" not in DOCUMENT["components"]["schemas"]


@pytest.mark.parametrize("code", sorted(refusals.EXAMPLES))
def test_an_example_is_a_problem_document(code: str) -> None:
    """Every example of a refusal has the documented form; an operation uses it, unless it is of none."""
    example = DOCUMENT["components"]["examples"][code]["value"]
    jsonschema.validate(example, DOCUMENT["components"]["schemas"]["Problem"])

    is_used = f'"#/components/examples/{code}"' in json.dumps(DOCUMENT["paths"])
    assert is_used != (code in refusals.UNADDRESSED)


@pytest.mark.parametrize("code", ["options_invalid", "unknown_backend", "session_locked", "too_many_values"])
def test_a_start_declares_its_refusals(code: str) -> None:
    """A start of a run declares what its options, backend, conversation and number of values are refused with."""
    answers = DOCUMENT["paths"]["/api/runs"]["post"]["responses"].values()

    assert any(code in answer.get("content", {}).get(problems.MEDIA_TYPE, {}).get("examples", {}) for answer in answers)


def test_references_lead_somewhere() -> None:
    """Every reference in the document names an existing component."""
    text = json.dumps(DOCUMENT)
    for kind, named in DOCUMENT["components"].items():
        for reference in _references(text, kind):
            assert reference in named


def _references(text: str, kind: str) -> set[str]:
    return {part.split('"')[0] for part in text.split(f"#/components/{kind}/")[1:]}
