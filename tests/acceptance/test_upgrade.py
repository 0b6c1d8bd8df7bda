"""Upgrades: today's service on a data directory of an earlier version.

`upgrade/layout-1.json` is a whole project as version 0.1.0 left it. A service was started in it, and killed (`kill -9`)
and started again several times while HTTP requests put runs into every state; the last kill found runs in flight. Its
index is kept as SQL, and its commit log contains the last service's confirmed data, under the boot of that machine.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import programs

KEPT = json.loads((Path(__file__).parent / "upgrade" / "layout-1.json").read_text(encoding="utf-8"))
RUNS: dict[str, str] = KEPT["runs"]
FOR_EVER: Any = {"CONTROL_ROOM_KEEP_CONVERSATIONS_DAYS": "0"}
"""However old the recorded data directory is, its conversations are kept."""

IN_FLIGHT = ("interrupted", "parent", "child", "conferring", "task", "mending", "pending")
"""Runs that the service continues automatically."""

ORDERS = {"paused": "unpause", "parked": "unpause", "command": "resume"}
"""The orders that continue the other runs."""


@pytest.fixture
def kept(tmp_path: Path) -> programs.Project:
    """Return a copy of the project of version 0.1.0."""
    project = programs.Project(tmp_path / "project")
    for folder in KEPT["folders"]:
        (project.path / folder).mkdir(parents=True)
    for path, content in KEPT["files"].items():
        file = project.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode())
    dump = project.data / "index.sql"
    index = sqlite3.connect(project.data / "index.db")
    index.executescript(dump.read_text(encoding="utf-8"))
    index.close()
    dump.unlink()
    return project


def test_unfinished_runs_are_finished(kept: programs.Project) -> None:
    """Runs have their earlier states, those in flight end, waiting ones continue, and no recorded step is repeated."""
    with programs.service(kept, **FOR_EVER) as service, service.http() as http:
        rows = {row["run_id"]: row for row in _got(http, "/api/runs?limit=1000")}
        receipts = {row["receipt_id"] for row in _got(http, "/api/audit/receipts?limit=1000")}
        issue = _got(http, f"/api/issues/{KEPT['issue']}")
        body = {"recipe_id": "quick", "labels": {"book": "one"}}
        repeated = http.post("/api/runs", json=body, headers={"Idempotency-Key": "done-1"})
        continued = {name: service.wait(RUNS[name])["status"] for name in IN_FLIGHT}
        resting = {name: _got(http, f"/api/runs/{RUNS[name]}")["status"] for name in ("waiting", "paused", "parked")}
        orders = [http.post(f"/api/runs/{RUNS[name]}/{order}") for name, order in ORDERS.items()]
        (gate,) = _got(http, f"/api/gates?run_id={RUNS['waiting']}")
        orders.append(http.post(f"/api/gates/{gate['gate_id']}", json={"decision": "approve"}))

        assert [answer.status_code for answer in orders] == [200] * 4, [answer.text for answer in orders]

        sent_on = {name: service.wait(RUNS[name])["status"] for name in (*ORDERS, "waiting")}
        plan = _plan_ended(http)
        journals = [_got(http, f"/api/runs/{run_id}/steps") for run_id in rows]

    left = {run_id: status for run_id, status in KEPT["statuses"].items() if status in ("done", "failed", "cancelled")}

    assert rows.keys() >= KEPT["statuses"].keys()
    # The plan may have begun its next task by then.
    assert {rows[run_id]["session_id"] for run_id in rows.keys() - KEPT["statuses"].keys()} <= {KEPT["plan"]}
    assert {run_id: rows[run_id]["status"] for run_id in left} == left
    assert receipts >= set(KEPT["receipts"])
    assert (issue["title"], len(issue["notes"])) == ("The lantern", 1)
    assert (repeated.status_code, repeated.json()["run_id"]) == (200, RUNS["done"])
    assert resting == {"waiting": "waiting", "paused": "paused", "parked": "paused"}
    assert continued | sent_on == dict.fromkeys(continued | sent_on, "done")
    assert [task["status"] for task in plan["tasks"]] == ["done"] * 3
    assert all(len({line["key"] for line in lines}) == len(lines) for lines in journals)
    _nothing_changed(kept)


def test_a_newer_data_directory_is_refused(kept: programs.Project) -> None:
    """Service and command line refuse a newer data directory with code 5, and name the version to use."""
    kept.write("layout.json", {"layout": 9, "written_by": "9.0.0"})
    for words in (("serve", "--port", "0"), ("runs", "list"), ("run", "quick")):
        ended = programs.control_room(*words, project=kept, code=5)

        assert "Use Control Room 9.0.0 or later" in ended.stderr


def _nothing_changed(kept: programs.Project) -> None:
    for path, content in KEPT["files"].items():
        if path.endswith(("/steps.jsonl", "/control.jsonl", "/start.json")):
            assert (kept.path / path).read_bytes().startswith(content.encode()), path
    for run_id in KEPT["statuses"]:
        assert programs.asked("runs", "verify", run_id, project=kept, **FOR_EVER)["ok"]


def _got(http: Any, address: str) -> Any:
    answer = http.get(address)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _plan_ended(http: Any) -> dict[str, Any]:
    etag, plan = "", {}
    for _ in range(50):
        # The first request does not wait: if the plan has already ended, no further change may come.
        wait = {"wait": 5 if etag else 0}
        answer = http.get(f"/api/sessions/{KEPT['plan']}", params=wait, headers={"If-None-Match": etag})
        if answer.status_code == 200:
            etag, plan = answer.headers["ETag"], answer.json()
            if plan["status"] in ("done", "failed"):
                return dict(plan)
    raise AssertionError(f"the plan does not end: {plan}")
