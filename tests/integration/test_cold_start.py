"""Imports of commands: one that only reads, or shows its help, imports no module that executes or serves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.cli import folder_client, use_cases
from app.cli.client import Access
from app.services import issues as issue_requests
from app.services import requests
from tests.architecture import sources
from tests.integration import served
from tests.integration.project import Project

HEAVY = {
    "alembic", "fastapi", "httpx", "prometheus_client", "pydantic", "sqlalchemy", "sqlmodel", "starlette", "tenacity",
    "uvicorn",
}  # fmt: skip
"""Libraries of the service."""

# Each command runs in a process that has loaded only the modules of the ones before it, lightest first.
ASKING = """
import json, sys
from app.cli import root
loaded = {}
for words in json.loads(sys.argv[1]):
    code = root.execute(words)
    loaded[" ".join(words)] = [code, sorted({name.split(".")[0] for name in sys.modules} | set(sys.modules))]
print("LOADED" + json.dumps(loaded))
"""

# A service that is ready prints its loaded modules, and ends without a shutdown.
SERVING = """
import json, os, sys
from app import main, settings
def ready(address):
    print("LOADED" + json.dumps(sorted({name.split(".")[0] for name in sys.modules} | set(sys.modules))), flush=True)
    os._exit(0)
main.serve(settings.load(port=0), print, ready=ready)
"""


def loaded_by(project: Project, *commands: list[str]) -> dict[str, set[str]]:
    """Return the modules that are loaded after each of some commands, and check that all succeed."""
    environ = {**os.environ, "CONTROL_ROOM_PROJECT": str(project.root), "PYTHONPATH": str(sources.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", ASKING, json.dumps(commands)], capture_output=True, text=True, env=environ, check=True
    )
    told = json.loads(done.stdout.rpartition("LOADED")[2])

    assert {name: code for name, (code, _) in told.items() if code != 0} == {}, done.stderr
    return {name: set(modules) for name, (_, modules) in told.items()}


async def test_help_loads_no_layer_below_the_command_line(project: Project) -> None:
    """Help is shown without loading services, storage, engine or event loop."""
    [modules] = loaded_by(project, ["--help"]).values()

    assert (
        modules & {*HEAVY, "jsonschema", "asyncio", "app.services", "app.storage", "app.engine", "app.bootstrap"}
        == set()
    )


async def test_commands_that_read_load_nothing_that_executes_or_serves(project: Project) -> None:
    """Lists and details of stored data need neither SQLAlchemy nor the web framework."""
    run_id, issue_id = await filled(project)
    lists = [["runs", "list"], ["receipts", "list"], ["issues", "list"], ["issues", "show", issue_id]]
    runs = [["runs", verb, run_id] for verb in ("show", "steps", "slot", "logs")]
    loaded = loaded_by(project, *lists, ["plan", "list"], *runs, ["gates"], ["recipes", "show", "quick"])

    assert {name: sorted(modules & HEAVY) for name, modules in loaded.items() if modules & HEAVY} == {}
    validated = {name for name, modules in loaded.items() if "jsonschema" in modules}
    assert validated <= {"gates", "recipes show quick"}
    assert not any(name.startswith(("app.worker", "app.api", "app.crash_lab")) for name in loaded["recipes show quick"])


async def test_lists_load_few_modules(project: Project) -> None:
    """Lists of runs, receipts and issues load no language, flow or pattern library; a list of plans loads few more."""
    await filled(project)
    lists = [["runs", "list"], ["receipts", "list"], ["issues", "list"]]
    loaded = loaded_by(project, *lists, ["plan", "list"])

    own = {name: sorted(each for each in modules if each.startswith("app.")) for name, modules in loaded.items()}
    needless = ("app.dialects.", "app.tools", "app.agents", "app.processes", "re2", "yaml", "jsonschema")
    assert {name for modules in loaded.values() for name in modules if name.startswith(needless)} == set()
    assert not any(
        name.startswith(("app.flows", "app.engine.ports", "app.storage.plans")) for name in own["issues list"]
    )
    assert len(own["issues list"]) <= 116, own["issues list"]
    assert len(own["plan list"]) <= 140, own["plan list"]


def test_a_list_of_recipes_that_have_not_changed_loads_nothing_that_reads_them(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second list of unchanged recipes comes from the user's cache, and loads no dialect."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    [first] = loaded_by(project, ["recipes", "list"]).values()
    until = time.monotonic() + 60
    while not list(tmp_path.glob("caches/control-room/recipes-*.json")):
        assert time.monotonic() < until
        loaded_by(project, ["recipes", "list"])
    [second] = loaded_by(project, ["recipes", "list"]).values()

    assert "app.dialects.control_room" in first
    needless = ("app.dialects", "app.services", "app.engine.ports", "app.tools", "asyncio", "sqlite3")
    assert {name for name in second if name.startswith(needless)} == set()


def test_a_service_is_ready_before_its_routes_are_loaded(project: Project) -> None:
    """A service that answers polls has not loaded routes, forms, or modules that only some services need."""
    environ = {**os.environ, "CONTROL_ROOM_PROJECT": str(project.root), "PYTHONPATH": str(sources.ROOT)}
    done = subprocess.run([sys.executable, "-c", SERVING], capture_output=True, text=True, env=environ, check=True)
    loaded = set(json.loads(done.stdout.rpartition("LOADED")[2]))

    needed = {"prometheus_client", "starlette", "uvicorn"}
    assert loaded & (HEAVY - needed | {"psycopg", "temporalio", "obstore"}) == set()
    own = sorted(each for each in loaded if each.startswith("app."))
    needless = ("app.crash_lab", "app.temporal.", "app.storage.postgres", "app.tools.story", "app.agents.local")
    assert not any(each.startswith((*needless, "app.dialects.control_room")) for each in own)
    assert len(own) <= 455, own


async def filled(project: Project) -> tuple[str, str]:
    """Add a run and an issue to a project, and return their ids."""
    async with folder_client.connect(served.chosen(project), Access.CHANGE) as folder:
        started = await folder.call(use_cases.start_run, requests.StartRequest(recipe_id="quick"))
        async for _ in folder.follow(started["run_id"]):
            pass
        opened = await folder.call(use_cases.open_issue, issue_requests.NewIssue(title="Lost lantern"))
    return started["run_id"], opened["issue_id"]
