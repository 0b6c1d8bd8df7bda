"""A fuzzer with the OpenAPI document and the running service: no answer is a 5xx, and every answer is as documented."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import HealthCheck, settings

from tests.examples import SEARCHING
from tests.integration import conferring, served

if TYPE_CHECKING:
    import schemathesis

KNOWN: dict[str, list[Any]] = {
    "run_id": [],
    "slot": ["discovery", "draft"],
    "name": ["draft.1.prompt.md"],
    "session_id": [],
    "task_id": [1, 2, 3, 9],
}
"""Existing values, so that some generated paths have a target."""

KNOWN_VARIABLE = "FUZZED_IDS"
"""Variable that passes the existing values to the program that tries every phase."""

TOKEN = "a-token-of-the-fuzzer"
PHASES = ("Examples", "Coverage", "Fuzzing", "Stateful")

PUBLISHED = Path(__file__).parents[2] / "openapi" / "openapi.json"

ENDLESS = "/api/events"
"""Left out: this stream has no end, so a client that reads whole answers would wait for ever."""

UNCHECKED = "positive_data_acceptance"
"""Left out: the document does not list valid recipes, arguments and cursors, so a well-formed request may be a 400."""

BOUNDS = settings(
    max_examples=60 if SEARCHING else 2,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
"""A sample that is the same each time; `scripts/check.py --long` takes a larger one."""

EVERY = 1 if SEARCHING else 16
"""The test tries one in this many operations."""


# The test generates its cases when it runs: as separate tests, each worker would generate all of them to collect them.
@pytest.mark.timeout(1800)
def test_every_answer_is_as_documented(address: str, subtests: pytest.Subtests) -> None:
    """Every answer has a documented status, type and form, and invalid requests are refused."""
    # Not at the top: each worker collects this file, and importing the fuzzer takes a second.
    import schemathesis
    from schemathesis.core import result
    from schemathesis.pytest import lazy
    from schemathesis.specs.openapi import checks

    unchecked: list[Any] = [getattr(checks, UNCHECKED)]
    document = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    paths = [item for path, item in document["paths"].items() if path != ENDLESS]
    named = [operation["operationId"] for item in paths for operation in item.values()][::EVERY]
    # Chosen first, since generating the cases of an operation takes longer than trying them.
    schema = schemathesis.openapi.from_dict(document).include(operation_id=named)
    schema.hook(map_path_parameters)
    schema.hook(map_query)

    def answered(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=address, excluded_checks=unchecked)

    tests = list(lazy.get_all_tests(schema=schema, test_func=answered, settings=BOUNDS, given_kwargs=None))
    assert len(tests) == len(named)
    for made in tests:
        assert isinstance(made, result.Ok)
        operation, tried = made.ok()
        with subtests.test(operation.label):
            tried()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("token", [None, TOKEN])
def test_every_phase(tmp_path: Path, token: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """Examples, boundary values, random values and chains of requests find no fault, with and without a token."""
    environ = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "tests.integration.fuzz_hooks",
        "PYTHONPATH": str(PUBLISHED.parents[1]),
    }
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", str(PUBLISHED), "--no-color", "--seed", "1",
        "--max-examples", "20", "--phases", ",".join(PHASES).lower(), "--exclude-checks", UNCHECKED,
        "--suppress-health-check", "all", "--continue-on-failure", "--request-timeout", "90",
        "--exclude-path", ENDLESS,
        "--generation-database", "none",
        *(["--header", f"Authorization: Bearer {token}"] if token else []),
    ]  # fmt: skip
    with _served(tmp_path, token) as address:
        known = {KNOWN_VARIABLE: json.dumps(KNOWN)}
        done = subprocess.run(
            [*command, "--url", address], env=environ | known, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert all(re.search(rf"{phase} \(in ", done.stdout) for phase in PHASES)
    assert [record for record in caplog.records if record.exc_info] == []


def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Replace half of the generated path parameters with existing values, except in deletions."""
    chance = random.Random(json.dumps(path_parameters, sort_keys=True, default=str))
    if context.operation.method == "delete":
        return path_parameters
    for name in path_parameters or {}:
        if KNOWN.get(name) and chance.random() < 0.5:
            assert path_parameters is not None
            path_parameters[name] = chance.choice(KNOWN[name])
    return path_parameters


def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """Shorten long waits for a list that does not change."""
    wait = (query or {}).get("wait")
    if query is not None and isinstance(wait, int | float) and 0.1 < wait <= 60:
        query["wait"] = 0.1
    return query


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a service with some runs in several states."""
    with _served(tmp_path_factory.mktemp("fuzzed")) as address:
        yield address


@contextmanager
def _served(folder: Path, token: str | None = None) -> Iterator[str]:
    project = conferring.made(folder / "project")
    headers = {"Authorization": f"Bearer {token}"}
    given = {"api_token": token} if token else {}
    with (
        served.in_a_thread(project, **given) as address,
        httpx.Client(base_url=address, headers=headers, timeout=served.WAIT_SECONDS) as http,
    ):
        KNOWN["run_id"] = [_run(http, body) for body in _bodies()]
        KNOWN["receipt_id"] = [_receipt(http, KNOWN["run_id"][0])]
        KNOWN["session_id"] = [_plan(http, *moves) for moves in ((), ("approve",), ("approve", "start"))]
        yield address


def _bodies() -> list[dict[str, Any]]:
    scene = {"scene_path": "Story/Scenes/SCN-the-arrival.md"}
    return [{"recipe_id": "draft", "args": scene}, {"recipe_id": "draft", "args": {"scene_path": "none.md"}}]


def _run(http: httpx.Client, body: dict[str, Any]) -> str:
    run_id = str(http.post("/api/runs", json=body).json()["run_id"])
    while http.get(f"/api/runs/{run_id}?wait=5").json()["status"] not in ("done", "failed"):
        pass
    return run_id


def _receipt(http: httpx.Client, run_id: str) -> str:
    return str(http.get(f"/api/runs/{run_id}/cache/discovery").json()["receipt_id"])


def _plan(http: httpx.Client, *moves: str) -> str:
    tasks = [{"description": "look around"}, {"description": "nothing fits", "deps": [1]}, {"description": "compare"}]
    session_id = str(http.post("/api/sessions", json={"tasks": tasks}).json()["session_id"])
    for move in moves:
        http.post(f"/api/sessions/{session_id}/{move}")
    return session_id
