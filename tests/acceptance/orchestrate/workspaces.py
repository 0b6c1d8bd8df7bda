"""Workspaces with a workflow, and the results of running it: by the program `orchestrate`, or through the service."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.acceptance import processes, programs

MODULE = "app.cli.orchestrate"
FLOW = "flow.yaml"
PYTHON = "python3"


@dataclass(frozen=True)
class Finished:
    """The result of a workflow."""

    code: int
    """Exit code of the program; for a run of the service 0 for done, 1 for failed, 2 for refused."""
    stdout: str
    """The standard output; for the service, its most detailed answer."""
    stderr: str = ""
    """The error output."""
    root: Path | None = None
    """Folder of the run; None if there is none."""

    @property
    def state(self) -> dict[str, Any]:
        """Return the state file."""
        assert self.root is not None, self.output
        state: dict[str, Any] = json.loads((self.root / "state.json").read_text())
        return state

    @property
    def steps(self) -> dict[str, Any]:
        """Return the results of the steps."""
        steps: dict[str, Any] = self.state["steps"]
        return steps

    @property
    def run_id(self) -> str:
        """Return the run's id."""
        run_id: str = self.state["run_id"]
        return run_id

    @property
    def output(self) -> str:
        """Return the whole output."""
        return f"{self.stdout}\n{self.stderr}"

    def log(self, name: str) -> str:
        """Return a log of the run."""
        assert self.root is not None, self.output
        return (self.root / "logs" / name).read_text()

    def logs(self) -> set[str]:
        """Return the names of the run's logs."""
        assert self.root is not None, self.output
        return {path.name for path in (self.root / "logs").iterdir()}

    def context(self, step: str) -> dict[str, Any]:
        """Return the error context of a failed step."""
        context: dict[str, Any] = self.steps[step]["error"]["context"]
        return context


@dataclass(frozen=True)
class Workspace:
    """A folder that a workflow works in."""

    path: Path
    """The folder."""
    env: dict[str, str] = field(default_factory=dict)
    """Additional environment of the program."""

    def write(self, name: str, content: Any = "") -> Path:
        """Write a file: text or bytes unchanged, any other value as JSON."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def read(self, name: str) -> str:
        """Return the text of a file."""
        return (self.path / name).read_text()

    def program(self, name: str, source: str) -> None:
        """Put a Python program first on PATH."""
        file = self.write(f"bin/{name}", f"#!{sys.executable}\n{source}")
        file.chmod(0o755)

    def flow(self, *steps: Mapping[str, Any], version: str = "1.1.1", **top: Any) -> None:
        """Write the workflow as JSON, which is also YAML."""
        self.write(FLOW, {"version": version, **top, "steps": list(steps)})

    def environment(self) -> dict[str, str]:
        """Return the environment of the program."""
        path = f"{self.path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATE_", "CONTROL_"))}
        return plain | {"PATH": path, "PYTHONPATH": str(programs.ROOT)} | self.env

    @property
    def runs(self) -> Path:
        """Return the folder of the runs."""
        return self.path / ".orchestrate" / "runs"

    def run_ids(self) -> list[str]:
        """Return the ids of the runs, oldest first."""
        return sorted(path.name for path in self.runs.glob("[0-9]*")) if self.runs.is_dir() else []

    def snapshot(self) -> dict[str, bytes]:
        """Return every file of the workspace by its path, without the state folder."""
        files = (path for path in self.path.rglob("*") if path.is_file() and ".orchestrate" not in path.parts)
        return {path.relative_to(self.path).as_posix(): path.read_bytes() for path in files}


class Door(Protocol):
    """A way to execute a workspace's workflow."""

    def __call__(self, workspace: Workspace, *, code: int = 0, **context: Any) -> Finished:
        """Execute the workflow to its end; `code` is the expected exit code."""


def step(name: str, *command: str, **fields: Any) -> dict[str, Any]:
    """Return a step; `success`, `failure` and `always` name its next steps."""
    named = [event for event in ("success", "failure", "always") if event in fields]
    branches = {event: {"goto": fields.pop(event)} for event in named}
    made: dict[str, Any] = {"name": name, **({"command": list(command)} if command else {}), **fields}
    return made | ({"on": branches} if branches else {})


def shell(name: str, script: str, *arguments: str, **fields: Any) -> dict[str, Any]:
    """Return a step that runs a shell script; its arguments begin with `$0`."""
    return step(name, "sh", "-c", script, *arguments, **fields)


def python(name: str, source: str, *arguments: str, **fields: Any) -> dict[str, Any]:
    """Return a step that runs a Python program."""
    return step(name, PYTHON, "-c", source, *arguments, **fields)


def loop(name: str, *steps: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a loop."""
    of_step: dict[str, Any] = {key: fields.pop(key) for key in ("when", "on", "depends_on") if key in fields}
    return {"name": name, "for_each": {**fields, "steps": list(steps)}, **of_step}


def orchestrate(
    *arguments: str | Path,
    workspace: Workspace,
    code: int | None = 0,
    cwd: Path | None = None,
    cold: bool = False,
    **given: str,
) -> Finished:
    """Run the program in its own process.

    The folder of the run is that of the newest one, if a new one was created.
    """
    before = workspace.run_ids()
    environ, folder = workspace.environment() | given, cwd or workspace.path
    done = processes.run(MODULE, *map(str, arguments), environ=environ, folder=folder)
    has_run = arguments[0] == "resume" or workspace.run_ids() != before
    root = (workspace.runs / "latest").resolve() if has_run else None
    finished = Finished(*done, root)
    told = f"{arguments} ended with {finished.code}\n{finished.output}"
    assert code is None or finished.code == code, told
    assert "Traceback" not in finished.output, told
    return finished


def through_cli(workspace: Workspace, *, code: int = 0, **context: Any) -> Finished:
    """Execute the workflow by the program; a refusal is printed as JSON as well, with its codes."""
    told = [part for name, value in context.items() for part in ("--context", f"{name}={value}")]
    flags = ("--json",) if code == 2 else ()
    return orchestrate("run", FLOW, *told, *flags, workspace=workspace, code=code)


@dataclass(frozen=True)
class Serving:
    """A service whose project contains the workspaces."""

    project: programs.Project
    service: programs.Service

    def __call__(self, workspace: Workspace, *, code: int = 0, **context: Any) -> Finished:
        """Execute the workspace's workflow through the service."""
        name = workspace.path.name
        source = (workspace.path / FLOW).read_text()
        self.project.write(f"recipes/orchestrate/{name}.yaml", source)
        with self.service.http() as http:
            body = {"recipe_id": name, "working_dir": name, "args": context}
            answer = http.post("/api/runs", json=body)
        if answer.status_code != 201:
            assert answer.status_code == 400, answer.text
            assert code == 2, answer.text
            return Finished(2, answer.text)
        run = self.service.wait(answer.json()["run_id"])
        ended = {"done": 0, "failed": 1}[run["status"]]
        root = self.project.data / "runs" / run["run_id"]
        finished = Finished(ended, json.dumps(run), "", root)
        assert ended == code, finished.output
        return finished

    def answers(self, run_id: str) -> Iterator[str]:
        """Yield all other answers of the service about a run, and the service's log."""
        with self.service.http() as http:
            yield http.get(f"/api/runs/{run_id}/steps").text
            for name in http.get(f"/api/runs/{run_id}/logs").json():
                yield http.get(f"/api/runs/{run_id}/logs/{name}").text
            yield http.get("/api/runs").text
        yield from list(self.service.logged)


@contextlib.contextmanager
def serving(folder: Path, **given: str) -> Iterator[Serving]:
    """Serve a folder of workspaces for the length of the block."""
    project = programs.Project(folder)
    project.data.mkdir(parents=True)
    with programs.service(project, ready=True, module="app", **given) as service:
        yield Serving(project, service)


@contextlib.contextmanager
def going(*arguments: str, workspace: Workspace, **given: str) -> Iterator[processes.Started]:
    """Run the program for the length of the block."""
    environ = workspace.environment() | given
    process = processes.start(MODULE, *arguments, environ=environ, folder=workspace.path)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        with process:
            process.wait()
