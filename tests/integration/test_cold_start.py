"""What commands load: one that only reads, or shows its help, imports nothing that executes or serves."""

from __future__ import annotations

import json
import os
import subprocess
import sys

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

# Each command is asked in a process that has loaded only what the ones before it needed, lightest first.
ASKING = """
import json, sys
from app.cli import root
loaded = {}
for words in json.loads(sys.argv[1]):
    code = root.execute(words)
    loaded[" ".join(words)] = [code, sorted({name.split(".")[0] for name in sys.modules} | set(sys.modules))]
print("LOADED" + json.dumps(loaded))
"""


def loaded_by(project: Project, *commands: list[str]) -> dict[str, set[str]]:
    """Return the modules that are loaded after each of some commands, which all succeed."""
    environ = {**os.environ, "CONTROL_ROOM_PROJECT": str(project.root), "PYTHONPATH": str(sources.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", ASKING, json.dumps(commands)], capture_output=True, text=True, env=environ, check=True
    )
    told = json.loads(done.stdout.rpartition("LOADED")[2])

    assert {name: code for name, (code, _) in told.items() if code != 0} == {}, done.stderr
    return {name: set(modules) for name, (_, modules) in told.items()}


async def test_help_loads_no_layer_below_the_command_line(project: Project) -> None:
    """Help is shown without services, storage, engine or event loop."""
    [modules] = loaded_by(project, ["--help"]).values()

    assert (
        modules & {*HEAVY, "jsonschema", "asyncio", "app.services", "app.storage", "app.engine", "app.bootstrap"}
        == set()
    )


async def test_commands_that_read_load_nothing_that_executes_or_serves(project: Project) -> None:
    """Lists and details of runs, receipts, issues, gates and recipes need neither SQLAlchemy nor the web framework."""
    async with folder_client.connect(served.chosen(project), Access.CHANGE) as folder:
        started = await folder.call(use_cases.start_run, requests.StartRequest(recipe_id="quick"))
        run_id = started["run_id"]
        async for _ in folder.follow(run_id):
            pass
        opened = await folder.call(use_cases.open_issue, issue_requests.NewIssue(title="Lost lantern"))
    runs = [["runs", verb, run_id] for verb in ("show", "steps", "slot", "logs")]
    commands = [
        ["runs", "list"],
        *runs,
        ["receipts", "list"],
        ["issues", "list"],
        ["issues", "show", opened["issue_id"]],
    ]
    loaded = loaded_by(project, *commands, ["gates"], ["recipes", "list"])

    assert {name: sorted(modules & HEAVY) for name, modules in loaded.items() if modules & HEAVY} == {}
    assert {name for name, modules in loaded.items() if "jsonschema" in modules} <= {"gates", "recipes list"}
    assert not any(name.startswith(("app.worker", "app.api", "app.crash_lab")) for name in loaded["recipes list"])
