"""The service on a real Postgres, killed by SIGKILL while several runs execute, and started again."""

from __future__ import annotations

import contextlib
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import smoke
from tests.acceptance import programs
from tests.postgres_server import Postgres

STEPS = ("one", "two", "three", "four")
KEYS = [f"key-{number}" for number in range(6)]
POINTS = (
    ("storage.create.before_rename", 4),
    ("storage.commit.before_sync", 12),
    ("storage.commit.after_sync", 12),
    ("step.performed", 9),
    ("step.after_append", 11),
    ("run.before_ended", 2),
    ("storage.move.before_row", 8),
)


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project whose recipe records each execution of a step."""
    made = programs.make_project(tmp_path / "project")
    steps = [
        {"id": name, "type": "bash", "command": f"echo $CONTROL_ROOM_RUN_ID {name} >> {made.path}/executed.txt"}
        for name in STEPS
    ]
    recipe = {
        "schema": "1.7",
        "name": "counted",
        "description": "Steps that are counted.",
        "version": "1.0.0",
        "steps": steps,
    }
    made.write("recipes/amplifier/counted.yaml", json.dumps(recipe))
    return made


def lines(url: str) -> dict[tuple[str, str, int], bytes]:
    """Return every journal line in the database of runs in their final place."""
    import psycopg

    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT r.place, l.journal, l.position, l.line FROM control_room.lines l"
            " JOIN control_room.runs r ON r.id = l.run WHERE r.parent = 'runs' AND r.place NOT LIKE '%/.new-%'"
        ).fetchall()
    return {(place.rpartition("/")[2], journal, position): bytes(line) for place, journal, position, line in rows}


def finished(found: dict[tuple[str, str, int], bytes]) -> Counter[tuple[str, str]]:
    """Return how often each step of each run has a final line."""
    steps = [(run, json.loads(line)) for (run, journal, _), line in found.items() if journal == "steps.jsonl"]
    return Counter((run, line["key"]) for run, line in steps if line["final"])


def executed(project: programs.Project) -> Counter[tuple[str, str]]:
    """Return how often each step of each run was executed."""
    content = (project.path / "executed.txt").read_text() if (project.path / "executed.txt").exists() else ""
    return Counter((run, step) for run, step in (line.split() for line in content.splitlines()))


def post(http: httpx.Client, key: str) -> str:
    """Request a run under a key."""
    answer = http.post("/api/runs", json={"recipe_id": "counted"}, headers={"Idempotency-Key": key})
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["run_id"])


@pytest.mark.parametrize(("point", "nth"), smoke.only(("storage.commit.after_sync", 12), POINTS))
def test_a_kill_loses_no_run_and_repeats_no_recorded_step(
    project: programs.Project, postgres: Postgres, point: str, nth: int
) -> None:
    """After a kill at a point every accepted run ends, and recorded steps stay and are not executed again."""
    name = f"kills_{POINTS.index((point, nth))}"
    postgres.execute(f"CREATE DATABASE {name}")
    given: dict[str, Any] = {"CONTROL_ROOM_STORE_URL": postgres.url_of(name)}
    accepted: dict[str, str] = {}
    with programs.service(project, CONTROL_ROOM_CRASH_AT=f"{point}:{nth}", **given) as service:
        with service.http() as http, contextlib.suppress(httpx.TransportError):
            accepted.update((key, post(http, key)) for key in KEYS)
        killed = service.ended()
    recorded = lines(postgres.url_of(name))
    with programs.service(project, **given) as service:
        with service.http() as http:
            repeated = {key: post(http, key) for key in KEYS}
        ended = [service.wait(run_id)["status"] for run_id in repeated.values()]
        service.stop()
    final = lines(postgres.url_of(name))

    assert killed == -signal.SIGKILL
    assert {key: repeated[key] for key in accepted} == accepted
    assert ended == ["done"] * len(KEYS)
    assert {place: final.get(place) for place in recorded} == recorded
    assert finished(final) == Counter({(run_id, step): 1 for run_id in repeated.values() for step in STEPS})
    once = {step: count for step, count in executed(project).items() if step in finished(recorded)}
    assert set(once.values()) <= {1}
    assert set(executed(project)) == set(finished(final))
    programs.control_room("runs", "verify", "--all", project=project, code=0, **given)
