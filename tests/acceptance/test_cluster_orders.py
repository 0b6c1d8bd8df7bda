"""A cluster with orders in random order, while workers and services are killed: every run ends as ordered last.

List, detail and journals agree about each run, and no step is performed more often than it has attempts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_cluster_kills import NOTE, Laboratory, cluster_of, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CLIENTS = 3
ORDERS_OF_A_CLIENT = 80
KILLS = ("worker", "service", "worker", "worker")
WEIGHTS = {"start": 8, "cancel": 3, "pause": 2, "interrupt": 1, "unpause": 4, "answer": 6, "resume": 2, "fork": 1}
APPROVAL = {"required": True, "prompt": "Go on?", "timeout": 0, "default": "deny"}


def step(root: Path, key: str, more: str = "true", **options: Any) -> dict[str, Any]:
    """Return a step whose executions are counted on disk."""
    return {"id": key, "type": "bash", "command": f"{NOTE.format(root=root, key=key)}; {more}", **options}


def recipes(root: Path) -> dict[str, dict[str, Any]]:
    """Return recipes that work, retry, and wait for a person, for time, or for another run."""
    first, last = step(root, "first"), step(root, "last", "sleep 0.3")
    mark = f"{root}/failed-$CONTROL_ROOM_RUN_ID"
    fails_once = f"test -e {mark} || {{ touch {mark}; exit 1; }}"
    retry = {"max_attempts": 9, "initial_delay": 1}
    child = {"id": "child", "type": "recipe", "recipe": "gated", "timeout": 900}
    return {
        "plain": {"steps": [step(root, key, "sleep 0.2") for key in "abcde"]},
        "flaky": {"steps": [step(root, "first", fails_once, retry=retry), last]},
        "gated": {
            "stages": [{"name": "one", "steps": [first], "approval": APPROVAL}, {"name": "two", "steps": [last]}]
        },
        "timed": {"stages": [{"name": "one", "steps": [first], "approval": {**APPROVAL, "timeout": 2}}]},
        "parent": {"steps": [first, child, last]},
        "long": {"steps": [step(root, "first", "sleep 5"), last]},
    }


class Client:
    """Gives orders to runs that it has started, and remembers the confirmed ones."""

    def __init__(self, laboratory: Laboratory, name: str) -> None:
        self._laboratory = laboratory
        self._name = name
        self._random = random.Random(name)
        self.given = 0
        self.started: list[str] = []
        self.cancelled: set[str] = set()

    def work(self) -> None:
        """Give all orders, one after another."""
        names = list(recipes(self._laboratory.root))
        for self.given in range(1, ORDERS_OF_A_CLIENT + 1):
            [order] = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))
            if order == "start" or not self.started:
                self._start("/api/runs", {"recipe_id": self._random.choice(names)})
            elif order == "answer":
                answer_gates(self._laboratory, most=1)
            elif order == "fork":
                self._start(f"/api/runs/{self._random.choice(self.started)}/fork", {})
            else:
                self._order(order, self._random.choice(self.started))

    def _start(self, address: str, body: dict[str, Any]) -> None:
        answer = self._laboratory.request("POST", address, key=f"{self._name}-{self.given}", json=body)
        if "run_id" in answer:
            self.started.append(answer["run_id"])

    def _order(self, order: str, run_id: str) -> None:
        body = {"interrupt": order == "interrupt"} if order in ("pause", "interrupt") else {}
        verb = "pause" if order == "interrupt" else order
        answer = self._laboratory.request("POST", f"/api/runs/{run_id}/{verb}", json=body)
        if "run_id" in answer and order == "cancel":
            self.cancelled.add(run_id)
        elif "run_id" in answer and order == "resume":
            self.cancelled.discard(run_id)


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    """Run a cluster."""
    for name in ("temporalio", "obstore"):
        pytest.importorskip(name)
    with cluster_of(write_project) as made:
        yield made


def write_project(root: Path) -> None:
    """Write the recipes."""
    folder = root / ".control-room" / "recipes" / "amplifier"
    folder.mkdir(parents=True)
    for name, body in recipes(root).items():
        head = {"schema": "1.7", "version": "1.0.0", "name": name, "description": name}
        # JSON is also YAML.
        (folder / f"{name}.yaml").write_text(json.dumps({**head, **body}))


@pytest.mark.parametrize("name", ["ada", "grace"])
def test_every_run_ends_according_to_its_orders(laboratory: Laboratory, name: str) -> None:
    """No order is lost, every run ends, and list, detail and journal of a run agree."""
    clients = [Client(laboratory, f"{name}-{number}") for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as threads:
        working = [threads.submit(client.work) for client in clients]
        for number, kind in enumerate(KILLS, start=1):
            due = CLIENTS * ORDERS_OF_A_CLIENT * number // (len(KILLS) + 1)
            until(lambda due=due: sum(client.given for client in clients) >= due, f"{due} orders", 300)  # type: ignore[misc]
            laboratory.kill(kind)
        for each in working:
            each.result()
    until(lambda: not unfinished(laboratory), "end of every run", 300)

    rows = {row["run_id"]: row for row in listed(laboratory)}
    performed = laboratory.performed()
    for run_id, row in rows.items():
        shown = laboratory.request("GET", f"/api/runs/{run_id}")
        assert shown["status"] == row["status"]
        tries = {line["key"]: line["attempt"] for line in shown["steps"]}
        assert all(performed[f"{run_id} {key}"] <= count for key, count in tries.items()), (run_id, performed, tries)
    for client in clients:
        assert rows.keys() >= set(client.started)
        assert [run_id for run_id in client.cancelled if rows[run_id]["status"] != "cancelled"] == []
    assert not laboratory.request("GET", "/api/gates")
    assert all(each["ok"] for each in laboratory.request("GET", "/api/verification?limit=200"))


def unfinished(laboratory: Laboratory) -> list[str]:
    """Unpause paused runs, answer open gates, and return the runs that have not ended."""
    answer_gates(laboratory)
    found = [row for row in listed(laboratory) if row["completed_at"] is None]
    for row in found:
        if row["status"] == "paused":
            laboratory.request("POST", f"/api/runs/{row['run_id']}/unpause")
    return [row["run_id"] for row in found]


def answer_gates(laboratory: Laboratory, most: int = 200) -> None:
    """Answer open gates."""
    for gate in laboratory.request("GET", "/api/gates?limit=200")[:most]:
        laboratory.request("POST", f"/api/gates/{gate['gate_id']}", json={"decision": "approve"})


def listed(laboratory: Laboratory) -> list[dict[str, Any]]:
    """Return all runs in the list."""
    found: list[dict[str, Any]] = []
    address: str | None = "/api/runs?limit=200"
    while address:
        page = laboratory.http.get(address)
        found += page.json()
        address = page.links.get("next", {}).get("url")
    return found
