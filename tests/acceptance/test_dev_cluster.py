"""`control-room dev-cluster`: one command starts a cluster, and leaves no process behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app import clock, errors
from app.cli import terminal
from app.cli.demo import address
from app.cli.dev_cluster import command, members
from app.processes import process_tree
from app.storage import data_directory
from tests import ports, postgres_server
from tests.acceptance import programs

ROOT = Path(__file__).parents[2]
RECIPE = {
    "recipe_id": "look",
    "label": "Look",
    "phase_a": [{"step_id": "find", "tool": "file_locator", "args": {"search_criteria": "story"}, "output_slot": "f"}],
    "dod": [],
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a project folder that every user may enter, with a path longer than that of a socket may be."""
    with tempfile.TemporaryDirectory(prefix="cluster-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        project = Path(made) / f"My%20 book {'of many words ' * 8}"
        recipes = project / ".control-room" / "recipes"
        recipes.mkdir(parents=True)
        (recipes / "look.json").write_text(json.dumps(RECIPE))
        yield project


def begun(folder: Path, port: int, *options: str, **environ: str) -> subprocess.Popen[str]:
    """Start the command."""
    return subprocess.Popen(
        [sys.executable, "-m", "app", "dev-cluster", str(folder), "--port", str(port), *options],
        cwd=ROOT,
        env=os.environ | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(cluster: subprocess.Popen[str]) -> list[str]:
    """Return its output until it is ready, or has ended."""
    assert cluster.stdout is not None
    lines = []
    for line in cluster.stdout:
        lines.append(line.rstrip())
        if "Ctrl-C" in line:
            break
    return lines


def left(folder: Path, seconds: float) -> list[str]:
    """Return the command lines that still name the folder; wait at most so many seconds until there are none."""
    found: list[str] = []
    for _ in range(round(seconds / 0.1)):
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if str(folder).encode() in words and int(entry.name) != os.getpid():
                        found.append((entry / "cmdline").read_bytes().decode().replace("\0", " "))
        if not found:
            break
        threading.Event().wait(0.1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("store", ["folders", "postgres"])
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_cluster_executes_runs_and_leaves_no_process(folder: Path, store: str, ending: signal.Signals) -> None:
    """Workers execute a run, and all processes end with the command, even if it is killed."""
    for name in ("temporalio", "obstore", *(["psycopg"] if store == "postgres" else [])):
        pytest.importorskip(name)
    if store == "postgres" and postgres_server.programs() is None:
        pytest.skip("Postgres is not installed")
    port = ports.free_port()
    cluster = begun(folder, port, "--store", store)
    try:
        lines = said(cluster)
        assert f"service    http://127.0.0.1:{port}/" in lines, lines
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as http:
            run_id = http.post("/api/runs", json={"recipe_id": "look"}).json()["run_id"]
            for _ in range(20):
                run = http.get(f"/api/runs/{run_id}", params={"wait": 10}).json()
                if run["status"] in ("done", "failed"):
                    break
        logged = {file: file.read_bytes() for file in (folder / ".dev-cluster").glob("*.log")}
        second = begun(folder, ports.free_port(), "--store", store)
        refused, _ = second.communicate(timeout=60)
        assert (second.returncode, "[cluster_running]" in refused, f":{port}/" in refused) == (5, True, True), refused
        assert all(file.read_bytes().startswith(content) for file, content in logged.items())
        cluster.send_signal(ending)
        code = cluster.wait(120)
    finally:
        cluster.kill()
        cluster.communicate()

    assert run["status"] == "done"
    assert code == (0 if ending is signal.SIGTERM else -signal.SIGKILL)
    assert left(folder, 60) == []
    assert (folder / ".dev-cluster" / "blobs" / "control-room.json").is_file()
    other = begun(folder, port, "--store", "folders" if store == "postgres" else "postgres")
    refused, _ = other.communicate(timeout=60)
    cure = "add --store postgres" if store == "postgres" else "leave out --store postgres"
    assert (other.returncode, "[store_differs]" in refused, cure in refused) == (5, True, True), refused


def test_a_taken_port_is_refused_if_it_was_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named port that another program has ends the command; the default port makes way, and that is printed."""
    for name in ("temporalio", "obstore"):
        pytest.importorskip(name)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = programs.control_room("dev-cluster", folder, "--port", str(port), code=5)
        monkeypatch.setattr(address, "PORT", port)
        monkeypatch.setattr(
            command, "_start", lambda members, folder, port, workers, store: terminal.say(f"got {port}")
        )
        moved = programs.control_room("dev-cluster", folder, code=None).stdout.splitlines()

    assert f"127.0.0.1:{port} cannot be listened on: another program has this port" in refused.stderr
    assert refused.stdout == ""
    assert moved[0].startswith(f"port {port} is taken: the service gets port ")
    assert moved[0].split("gets port ")[1].startswith(moved[1].removeprefix("got "))


def test_a_service_of_the_project_keeps_a_cluster_away(folder: Path) -> None:
    """While a service runs on the project, no cluster starts there, and no file of a cluster is made."""
    for name in ("temporalio", "obstore"):
        pytest.importorskip(name)
    held = data_directory.DataDirectory(folder / ".control-room", clock=clock.SystemClock(), ids=clock.RandomIds())
    lock = held.lock_service()
    try:
        refused = programs.control_room("dev-cluster", folder, "--port", "0", code=5)
    finally:
        lock.release()

    assert str(os.getpid()) in refused.stderr
    assert not (folder / ".dev-cluster").exists()


def test_a_missing_package_is_reported_with_its_install_command(folder: Path, tmp_path: Path) -> None:
    """A missing package prevents the start, and the message contains the command that installs it."""
    (tmp_path / "temporalio.py").touch()
    hidden = (
        "import importlib.util as u\nf = u.find_spec\nu.find_spec = lambda n, *a: None if n == 'obstore' else f(n, *a)"
    )
    (tmp_path / "sitecustomize.py").write_text(hidden)
    cluster = begun(folder, 0, PYTHONPATH=str(tmp_path))
    output, _ = cluster.communicate(timeout=60)

    assert cluster.returncode == 5
    assert "obstore" in output
    assert 'pip install "control-room[cluster]"' in output
    assert not (folder / ".dev-cluster").exists()


@pytest.mark.skipif(not process_tree.LINUX, reason="the kernel of Linux is asked")
def test_a_member_ends_with_its_parent() -> None:
    """A process with a parent-death signal ends when its parent is killed."""
    script = (
        "import signal, subprocess, sys; from app.processes import process_tree as t\n"
        "p = subprocess.Popen(['sleep', '600'], preexec_fn=t.ended_with_parent(signal.SIGTERM))\n"
        "sys.stdout.write(f'{p.pid}\\n'); sys.stdout.flush(); signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(child)
        assert select.select([handle], [], [], 60)[0]


def test_a_killed_member_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each restart is printed with the new process, and a member that ends too often ends the cluster."""
    monkeypatch.setattr(members, "_MOST_RESTARTS", 2)
    monkeypatch.setattr(members, "_RESTART_SECONDS", 0)
    script = f"echo started >> {tmp_path}/starts; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; kill -9 $$"
    said: list[str] = []
    cluster = members.Members(tmp_path)
    cluster.start(members.Program(name="one", command=["sh", "-c", script], environ={}), (tmp_path / "starts").exists)
    (tmp_path / "go").touch()
    with pytest.raises(errors.ConfigurationError, match="after 2 restarts") as ended:
        cluster.watch(said.append)

    assert ended.value.code == "member_ended"
    assert said[::2] == ["one was killed by SIGKILL; starting it again"] * 2
    assert len(said) == 4
    assert all(re.fullmatch(r"one is process [1-9]\d*", line) for line in said[1::2])
    assert (tmp_path / "starts").read_text() == "started\n" * 3
