"""The program as users run it: projects on disk, commands as processes, the service on a free port."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import httpx

from app.cli import root
from tests.acceptance import processes

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 60.0

RECIPE: dict[str, Any] = {
    "recipe_id": "small",
    "label": "Find a scene, outline it and write it",
    "task_patterns": ["small task"],
    "phase_a": [
        {
            "step_id": "find",
            "tool": "file_locator",
            "args": {"search_criteria": {"$ref": "task.args.words"}},
            "output_slot": "found",
        }
    ],
    "phase_b": [
        {
            "step_id": "brief",
            "agent_archetype": "planner",
            "input_slots": ["found"],
            "output_slot": "plan",
            "prompt_type": "small_brief",
        },
        {
            "step_id": "draft",
            "agent_archetype": "writer",
            "input_slots": ["plan"],
            "output_slot": "text",
            "prompt_type": "small_draft",
        },
    ],
    "dod": [{"check": "slot_not_null", "slot": "text"}],
}
PROMPTS = {
    "pipeline_templates": {
        "small_brief": {"label": "Outline", "variants": {"t3": "templates/small_brief.md"}},
        "small_draft": {"label": "Write", "variants": {"t3": "templates/small_draft.md"}},
    }
}
AGENTS = {
    "agents": [
        {"id": "planner-test", "archetype": "planner", "tier": "t3", "backend": "script", "role": "You plan."},
        {"id": "writer-test", "archetype": "writer", "tier": "t3", "backend": "script", "role": "You write."},
    ],
    "backends": {"script": {"type": "scripted", "file": "replies.json"}},
}
REPLIES: dict[str, Any] = {"brief": "Kael arrives at dusk.", "draft": "Kael walked through the gate."}


@dataclass(frozen=True)
class Project:
    """A project with one scene, one small recipe, and agents that answer from a script."""

    path: Path

    @property
    def data(self) -> Path:
        """Return the data directory."""
        return self.path / ".control-room"

    def write(self, name: str, content: Any) -> Path:
        """Write a file below the data directory: text unchanged, any other value as JSON."""
        file = self.data / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return file

    def say(self, **replies: Any) -> None:
        """Change replies of the agents."""
        self.write("replies.json", REPLIES | replies)


def make_project(folder: Path) -> Project:
    """Create the project."""
    (folder / "Story").mkdir(parents=True)
    (folder / "Story" / "SCN-gate.md").write_text("# Scene 1: The gate\n\nKael stands before the gate.\n")
    project = Project(folder)
    project.write("recipes/small.json", RECIPE)
    project.write("prompts/prompts.json", PROMPTS)
    project.write("prompts/templates/small_brief.md", "Outline it.\n\n{{found}}\n")
    project.write("prompts/templates/small_draft.md", "Write it.\n\n{{plan}}\n")
    project.write("agents.json", AGENTS)
    project.say()
    return project


def environment(project: Project | None, **given: str) -> dict[str, str]:
    """Return an environment with only the given settings."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CONTROL_ROOM_")}
    if project is not None:
        plain |= {"CONTROL_ROOM_PROJECT": str(project.path), "CONTROL_ROOM_HOME": str(project.path / "nobody")}
    return plain | {"PYTHONPATH": str(ROOT)} | given


@dataclass(frozen=True)
class Ended:
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


def control_room(*arguments: str | Path, project: Project | None = None, code: int | None = 0, **given: str) -> Ended:
    """Execute a command line in this process, which saves a second of imports.

    `code` is the expected exit code, None for any.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    surroundings = mock.patch.dict(os.environ, environment(project, **given), clear=True)
    with surroundings, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        returned = root.execute([*map(str, arguments)])
    ended = Ended(int(returned), *(stream.buffer.getvalue().decode() for stream in (out, err)))
    return _checked(ended, arguments, code)


def program(
    *arguments: str | Path,
    project: Project | None = None,
    code: int | None = 0,
    module: str = "app",
    **given: str,
) -> Ended:
    """Run a command as a process of its own."""
    folder, words = project.path if project else ROOT, map(str, arguments)
    done = processes.run(module, *words, environ=environment(project, **given), folder=folder)
    return _checked(Ended(*done), arguments, code)


def asked(*arguments: str | Path, project: Project | None = None, code: int | None = 0, **given: str) -> Any:
    """Run a command with `--json` and return its parsed output."""
    return json.loads(control_room(*arguments, "--json", project=project, code=code, **given).stdout)


@dataclass
class Service:
    """A service as a process."""

    process: processes.Started
    said: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    url: str = ""
    token: str | None = None

    def http(self) -> httpx.Client:
        """Return a client of the service."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False, verify=False)

    def start_run(self, **body: Any) -> str:
        """Post a run and return its id."""
        with self.http() as http:
            answer = http.post("/api/runs", json={"recipe_id": "small", "args": {"words": "gate"}} | body)
        assert answer.status_code == 201, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id

    def wait(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """Wait until a run has one of the states, by default an end, and return its detail."""
        return self.wait_until(run_id, lambda run: run["status"] in (statuses or ("done", "failed", "cancelled")))

    def wait_for_step(self, run_id: str, step_id: str, status: str = "running") -> dict[str, Any]:
        """Wait until a step of a run has a state."""
        return self.wait_until(
            run_id,
            lambda run: any(step["step_id"] == step_id and step["status"] == status for step in run["steps"]),
        )

    def wait_until(self, run_id: str, holds: Any) -> dict[str, Any]:
        """Wait until a condition on a run's detail is true, with long polls."""
        etag = ""
        with self.http() as http:
            for _ in range(1000):
                # The first request does not wait: if the condition is already true, no further change may come.
                wait = {"wait": 10 if etag else 0}
                answer = http.get(f"/api/runs/{run_id}", params=wait, headers={"If-None-Match": etag})
                if answer.status_code == 304:
                    continue
                assert answer.status_code == 200, answer.text
                run: dict[str, Any] = answer.json()
                if holds(run):
                    return run
                etag = answer.headers["ETag"]
        raise AssertionError(f"it did not come to hold: {run}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the service."""
        self.process.send_signal(number)

    def hurry(self) -> None:
        """Ask the service twice to stop, so that it does not wait for steps in progress."""
        self.signal(signal.SIGTERM)
        # Two signals that are pending at the same time count as one, which waits for the grace period.
        with self.http() as http:
            while http.get("/readyz").status_code == 200:
                pass
        self.signal(signal.SIGINT)

    def ended(self) -> int:
        """Wait for the end of the service and return its exit code."""
        return self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """Stop the service gracefully."""
        self.signal(signal.SIGTERM)
        return self.ended()


@contextlib.contextmanager
def service(
    project: Project, *options: str, ready: bool = True, module: str = "app", **given: str
) -> Iterator[Service]:
    """Serve a project on a free port for the length of the block, cold if the environment requests it."""
    words = ("serve", "--port", "0", *options)
    process = processes.start(module, *words, environ=environment(project, **given), folder=project.path)
    served = Service(process, token=given.get("CONTROL_ROOM_API_TOKEN"))
    listening = threading.Event()
    readers = [
        threading.Thread(target=_hear, args=(served, listening), daemon=True),
        threading.Thread(target=_read_log, args=(served,), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        if ready:
            listening.wait(START_SECONDS)
            assert served.url, f"it does not listen:\n{served.said}\n{served.logged}"
        yield served
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for reader in readers:
            reader.join(60)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def lines_of(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return key and status of each step of a detail."""
    return [(step["key"], step["status"]) for step in run["steps"]]


def _checked(ended: Ended, arguments: tuple[str | Path, ...], code: int | None) -> Ended:
    told = f"{' '.join(map(str, arguments))} ended with {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    assert code is None or ended.returncode == code, told
    assert "Traceback" not in ended.stderr, told
    return ended


def _hear(served: Service, listening: threading.Event) -> None:
    assert served.process.stdout is not None
    for line in served.process.stdout:
        served.said.append(line.rstrip("\n"))
        if " listens on " in line:
            served.url = line.split(" listens on ")[1].strip()
            listening.set()
    listening.set()


def _read_log(served: Service) -> None:
    assert served.process.stderr is not None
    for line in served.process.stderr:
        served.logged.append(line.rstrip("\n"))
