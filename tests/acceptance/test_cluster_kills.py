"""The laboratory of a cluster: each member is killed, or frozen for longer than a lease, while runs are in progress.

Confirmed data is not lost, recorded steps are not performed again, and every run ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import ports, postgres_server
from tests.acceptance.test_dev_cluster import begun, said

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FROZEN_SECONDS = 12
"""Longer than a lease (10 s) and than the silence after which Temporal gives a step to another worker (5 s)."""

HOLD = "while [ ! -e {root}/free.{point} ]; do sleep 0.05; done"
NOTE = 'echo "$CONTROL_ROOM_RUN_ID {key}" >> {root}/performed'
POINTS = ("first", "asked", "inner", "gate", "last")
MEMBERS = {"worker": "app worker", "service": "app serve", "temporal": "start-dev", "postgres": "bin/postgres -D"}


class Laboratory:
    """A cluster, and runs that wait at a point until the test frees them."""

    def __init__(self, root: Path, pid: int, http: httpx.Client) -> None:
        self.root = root
        self.pid = pid
        self.http = http

    def start(self, key: str) -> str:
        """Start a run, or find it."""
        return str(self.request("POST", "/api/runs", json={"recipe_id": "outer"}, key=key)["run_id"])

    def request(self, method: str, address: str, key: str = "", **given: Any) -> Any:
        """Send a request until an answer arrives."""
        found: list[Any] = []

        def answered() -> bool:
            with contextlib.suppress(httpx.TransportError):
                answer = self.http.request(method, address, headers={"Idempotency-Key": key} if key else {}, **given)
                if answer.status_code < 500:
                    found.append((answer.status_code, answer.json()))
            return bool(found)

        until(answered, f"{method} {address}")
        status, body = found[0]
        assert status < 400 or status == 409, body
        return body

    def hold(self, point: str) -> None:
        """Let runs pass all points but one."""
        for each in POINTS:
            self.free(each)
        (self.root / f"free.{point}").unlink()

    def free(self, point: str) -> None:
        """Let runs pass a point."""
        (self.root / f"free.{point}").touch()

    def performed(self) -> Counter[str]:
        """Return how often each step of each run was performed."""
        path = self.root / "performed"
        return Counter(path.read_text().splitlines() if path.exists() else ())

    def is_at(self, run_id: str, point: str) -> bool:
        """Return whether a run has reached a point."""
        shown = self.request("GET", f"/api/runs/{run_id}")
        if point == "gate":
            return bool(shown["status"] == "waiting")
        return any(line.endswith(f" {point}") for line in self.performed() if self._is_of(run_id, line))

    def _is_of(self, run_id: str, line: str) -> bool:
        owner = line.split()[0]
        return owner == run_id or self.request("GET", f"/api/runs/{owner}")["parent_run_id"] == run_id

    def members(self, kind: str) -> list[int]:
        """Return the processes of a member; for Postgres, with the processes that they started."""
        found = [pid for pid in children(self.pid) if MEMBERS[kind] in command_line(pid)]
        return [*found, *(below for pid in found for below in children(pid))] if kind == "postgres" else found[:1]

    def kill(self, kind: str) -> None:
        """Kill a member, and wait until the cluster has started it again."""
        before = self.members(kind)[0]
        os.kill(before, signal.SIGKILL)
        until(lambda: self.members(kind) != [] and before not in self.members(kind), f"restart of {kind}")

    def freeze(self, kind: str) -> None:
        """Stop a member for longer than a lease."""
        frozen = self.members(kind)
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        # The elapsed time itself is the fault.
        threading.Event().wait(FROZEN_SECONDS)
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def until(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait until a condition is true, by polling."""
    for _ in range(round(seconds / 0.1)):
        if holds():
            return
        threading.Event().wait(0.1)
    raise TimeoutError(f"not within {seconds:g} s: {what}")


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(entry.name))
    return sorted(found)


def command_line(pid: int) -> str:
    """Return the command line of a process."""
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def step(root: Path, key: str) -> dict[str, Any]:
    """Return a step that is counted, and waits at its point."""
    return {
        "id": key,
        "type": "bash",
        "command": f"{NOTE.format(root=root, key=key)}; {HOLD.format(root=root, point=key)}",
    }


def write_project(root: Path) -> None:
    """Write recipes with commands, an agent, a child and a gate; every execution is counted on disk."""
    data = root / ".control-room"
    (data / "recipes" / "amplifier").mkdir(parents=True)
    agent = (
        f"cat > /dev/null; {NOTE.format(root=root, key='asked')}; {HOLD.format(root=root, point='asked')}; echo Yes."
    )
    (root / "agent.sh").write_text(agent)
    backend = {"type": "template", "command": ["sh", str(root / "agent.sh")], "tools_off": []}
    (data / "agents.json").write_text(json.dumps({"default_backend": "counted", "backends": {"counted": backend}}))
    head = {"schema": "1.7", "version": "1.0.0"}
    asked = {"id": "asked", "agent": "writer", "prompt": "Go on?"}
    child = {"id": "child", "type": "recipe", "recipe": "inner", "timeout": 600}
    approval = {"required": True, "prompt": "Go on?", "timeout": 0, "default": "deny"}
    stages = [
        {"name": "one", "steps": [step(root, "first"), asked, child], "approval": approval},
        {"name": "two", "steps": [step(root, "last")]},
    ]
    for recipe in (
        {**head, "name": "outer", "description": "Outer", "stages": stages},
        {**head, "name": "inner", "description": "Inner", "steps": [step(root, "inner")]},
    ):
        # JSON is also YAML.
        (data / "recipes" / "amplifier" / f"{recipe['name']}.yaml").write_text(json.dumps(recipe))


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    """Run a cluster with Postgres."""
    for name in ("temporalio", "obstore", "psycopg"):
        pytest.importorskip(name)
    if postgres_server.programs() is None:
        pytest.skip("Postgres is not installed")
    with cluster_of(write_project, "--store", "postgres") as made:
        yield made


@contextlib.contextmanager
def cluster_of(write: Callable[[Path], None], *options: str) -> Iterator[Laboratory]:
    """Run a cluster for a new project."""
    with tempfile.TemporaryDirectory(prefix="cluster-", dir="/tmp") as made:
        root, port = Path(made), ports.free_port()
        root.chmod(0o755)
        write(root)
        cluster = begun(root, port, *options)
        try:
            lines = said(cluster)
            assert f"service    http://127.0.0.1:{port}/" in lines, lines
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as http:
                yield Laboratory(root, cluster.pid, http)
        finally:
            cluster.send_signal(signal.SIGTERM)
            cluster.communicate(timeout=180)


@pytest.mark.parametrize(
    ("kind", "fault", "point"),
    [
        ("worker", "freeze", "asked"),
        ("temporal", "kill", "inner"),
        ("postgres", "kill", "gate"),
    ],
)
def test_runs_survive_a_fault_of_each_member(laboratory: Laboratory, kind: str, fault: str, point: str) -> None:
    """Runs end as without the fault, and no step is performed more often than it has attempts."""
    laboratory.hold(point)
    names = [f"{kind}-{fault}-{point}-{number}" for number in range(2)]
    runs = [laboratory.start(name) for name in names]
    for run_id in runs:
        until(lambda run_id=run_id: laboratory.is_at(run_id, point), f"{run_id} at {point}")  # type: ignore[misc]
    getattr(laboratory, fault)(kind)
    laboratory.free(point)
    # The order is repeated, as by a client that got no answer.
    assert [laboratory.start(name) for name in names] == runs
    for run_id in runs:
        until(lambda run_id=run_id: is_through(laboratory, run_id), f"end of {run_id}")  # type: ignore[misc]

    performed = laboratory.performed()
    for run_id in runs:
        shown = laboratory.request("GET", f"/api/runs/{run_id}")
        assert shown["status"] == "done", shown["error"]
        for each in (shown, inner_of(laboratory, run_id)):
            tries = {line["key"]: line["attempt"] for line in each["steps"]}
            counted = {key: performed[f"{each['run_id']} {key}"] for key in tries if key in POINTS}
            assert all(1 <= count <= tries[key] for key, count in counted.items()), (counted, tries)
        assert [line["key"] for line in shown["steps"]] == ["first", "asked", "child", "approval:one", "last"]


def is_through(laboratory: Laboratory, run_id: str) -> bool:
    """Answer the gate of a run if it is open, and return whether the run has ended."""
    for gate in laboratory.request("GET", f"/api/gates?run_id={run_id}"):
        if gate["run_id"] == run_id:
            laboratory.request("POST", f"/api/gates/{gate['gate_id']}", json={"decision": "approve"})
    return laboratory.request("GET", f"/api/runs/{run_id}")["status"] in ("done", "failed", "cancelled", "paused")


def inner_of(laboratory: Laboratory, run_id: str) -> Any:
    """Return the single run that a run has started."""
    [found] = laboratory.request("GET", f"/api/runs?parent_run_id={run_id}")
    return laboratory.request("GET", f"/api/runs/{found['run_id']}")
