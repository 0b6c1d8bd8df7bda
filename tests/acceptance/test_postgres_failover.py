"""The service on a Postgres with a replica: the server is killed while runs execute, and the replica promoted."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from tests.acceptance import programs
from tests.acceptance.test_postgres_kills import executed, finished, lines
from tests.postgres_server import Postgres

STEPS = ("one", "two", "held", "three", "four")
RUNS = 6


@pytest.fixture
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    """Yield a server and its replica."""
    with postgres_server.replicated() as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> programs.Project:
    """Create a project whose recipe records each execution of a step, and waits in one of them."""
    made = programs.make_project(tmp_path / "project")
    wait = {"held": f"until [ -e {made.path}/go ]; do sleep 0.05; done;"}
    steps = [
        {"id": name, "type": "bash"}
        | {"command": f"{wait.get(name, '')} echo $CONTROL_ROOM_RUN_ID {name} >> {made.path}/executed.txt"}
        for name in STEPS
    ]
    recipe: dict[str, Any] = {"schema": "1.7", "name": "counted", "description": "Steps.", "version": "1.0.0"}
    made.write("recipes/amplifier/counted.yaml", json.dumps(recipe | {"steps": steps}))
    return made


@pytest.mark.slow
def test_runs_continue_on_the_promoted_replica(project: programs.Project, pair: tuple[Postgres, Postgres]) -> None:
    """Every accepted run ends on the replica without a restart of the service, with each step executed once."""
    primary, replica = pair
    primary.execute("CREATE DATABASE moved")
    given: dict[str, Any] = {"CONTROL_ROOM_STORE_URL": postgres_server.address_of(pair, "moved")}
    with programs.service(project, **given) as service:
        with service.http() as http:
            asked = [http.post("/api/runs", json={"recipe_id": "counted"}).json()["run_id"] for _ in range(RUNS)]
        service.wait_for_step(asked[0], "held")
        recorded = lines(primary.url_of("moved"))
        primary.stop(signal.SIGKILL)
        (project.path / "go").touch()
        replica.execute("SELECT pg_promote()")
        ended = [service.wait(run_id)["status"] for run_id in asked]
        service.stop()
    final = lines(replica.url_of("moved"))

    assert ended == ["done"] * RUNS
    assert {place: final.get(place) for place in recorded} == recorded
    assert finished(final) == executed(project) == Counter({(run_id, step): 1 for run_id in asked for step in STEPS})
    programs.control_room("runs", "verify", "--all", project=project, code=0, **given)
