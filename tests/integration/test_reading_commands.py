"""Commands that read a folder without a service: counts, sums, and the dependencies of each reading use case."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.bootstrap import reading
from app.cli import http_client, use_cases
from tests.integration.project import Project

COMMANDS = Path(__file__).parents[2] / "app" / "cli"
ASKS = """\
schema: "1.7"
name: "asks"
description: "Ask"
version: "1.0.0"
stages:
  - name: "look"
    steps:
      - id: "look"
        type: "bash"
        command: "true"
    approval: {required: true, prompt: "Go on?"}
  - name: "act"
    steps:
      - id: "act"
        type: "bash"
        command: "true"
"""


def test_counts_and_sums_of_a_folder(tmp_path: Path, cli: Any) -> None:
    """Without a service, `stats` counts waiting runs from the files and `usage` adds up the costs of runs."""
    made = Project(tmp_path)
    made.write(".control-room/recipes/amplifier/asks.yaml", ASKS)
    project = ("--project", str(made.root))
    cli("run", "asks", *project)
    stats, usage = cli("stats", *project), cli("usage", *project)

    assert (stats[0], usage[0]) == (0, 0), stats[2] + usage[2]
    assert [line.split() for line in stats[1].splitlines()][1:3] == [
        ["waiting", "1"],
        ["waiting", "for", "you:", "gates", "1"],
    ]
    assert "COST_ESTIMATED_USD" in usage[1]


def test_a_command_that_reads_needs_no_index(tmp_path: Path, cli: Any) -> None:
    """Without an index, or with that of an earlier release, each command shows the same as with one."""
    made = Project(tmp_path)
    project = ("--project", str(made.root), "--json")
    assert cli("run", "quick", *project)[0] == 0
    (run_id,) = [each["run_id"] for each in json.loads(cli("runs", "list", *project)[1])]
    (receipt_id,) = [each["receipt_id"] for each in json.loads(cli("receipts", "list", *project)[1])]
    reading: list[tuple[str, ...]] = [("receipts", "list"), ("receipts", "show", receipt_id), ("runs", "list")]
    reading += [("receipts", "list", "--run", run_id), ("usage",), ("audit", "list"), ("runs", "why", run_id)]
    known = [cli(*words, *project) for words in reading]
    unknown = []
    for words in reading:
        for file in made.data.glob("index.db*"):
            file.unlink()
        unknown.append(cli(*words, *project))

    assert [code for code, *_ in known] == [0] * len(reading)
    assert unknown == known


def test_a_run_that_failed_names_its_resume(tmp_path: Path, cli: Any) -> None:
    """After the reason of a failed run, the command prints how to continue it and how to replace an argument."""
    project = ("--project", str(Project(tmp_path).root))
    code, _, err = cli("run", "picky", "--arg", "scene_path=a.md", "--arg", "other_path=b.md", *project)

    assert code == 1
    assert re.search(
        rf"continue with: control-room runs resume \S+ --project {re.escape(project[1])}$", err, re.MULTILINE
    )
    assert "--arg NAME=TEXT replaces an argument" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "lists"),
    [
        (["run", "nothing"], "recipes list"),
        (["recipes", "show", "nothing"], "recipes list"),
        (["runs", "show", "20260210T143000Z-k3x9af"], "runs list"),
        (["runs", "resume", "20260210T143000Z-k3x9af"], "runs list"),
        (["gates", "answer", "GATE_ID", "approve"], "gates"),
        (["triggers", "show", "TRIGGER_ID"], "triggers list"),
        (["notifications", "dead", "ENDPOINT_ID"], "notifications list"),
        (["plan", "show", "sp_5h2m9q0x7c1v8b3n"], "plan list"),
        (["issues", "show", "iss_00000000000000000000"], "issues list"),
        (["receipts", "show", "rcpt_00000000000000000000"], "receipts list"),
        (["keys", "revoke", "ada"], "keys list"),
    ],
)
def test_an_unknown_id_names_the_list(tmp_path: Path, cli: Any, words: list[str], lists: str) -> None:
    """After the error about an unknown id, a command prints the one that lists the ids, with its project."""
    project = ("--project", str(Project(tmp_path).root))
    code, _, err = cli(*words, *project)

    assert code == 4
    assert err.splitlines()[-1] == f"  list them with: control-room {lists} --project {project[1]}"


def test_a_folder_without_project_is_named(tmp_path: Path, cli: Any) -> None:
    """In a folder without runs, an empty list names this, and no file is created."""
    code, out, err = cli("gates", "--project", str(tmp_path))

    assert (code, out) == (0, "nothing waits for an answer\n")
    assert f"{tmp_path / '.control-room'} does not exist" in err
    assert list(tmp_path.iterdir()) == []


async def test_a_service_that_dies_is_named() -> None:
    """When a stream breaks off, the error states that the service stopped, and how to continue."""

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(die, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with http_client.HttpClient(f"http://127.0.0.1:{port}", None) as client:
            with pytest.raises(errors.ConfigurationError, match="closed the connection") as caught:
                await anext(client.follow("x"))

    assert caught.value.code == "server_unreachable"


@pytest.mark.parametrize("is_over", [True, False])
async def test_a_log_that_a_stopping_service_cuts_off_is_not_whole(is_over: bool) -> None:
    """A stream of a log that ends in order, but before its run, is an error of the service."""
    events = 'event: text\ndata: {"offset": 0, "text": "one"}\n\n' + is_over * 'event: end\ndata: {"offset": 3}\n\n'

    async def stop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(events)}\r\n\r\n{events}".encode())
        writer.close()

    read = []
    async with await asyncio.start_server(stop, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with http_client.HttpClient(f"http://127.0.0.1:{port}", None) as client:
            with contextlib.nullcontext() if is_over else pytest.raises(errors.ConfigurationError, match="stopped"):
                async for text in client.follow_log("x", "a.txt"):
                    read.append(text)

    assert "".join(text or "" for text in read) == "one"


async def test_a_stopped_service_is_reported_with_its_start_command() -> None:
    """An address without a listener is refused with the command that starts a service."""
    # Bound but not listening, so that no other process can take the port meanwhile.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with http_client.HttpClient(f"http://127.0.0.1:{bound.getsockname()[1]}", None) as client:
            with pytest.raises(errors.ConfigurationError, match="control-room serve starts it"):
                await client.call(use_cases.show_run, "x")


def test_a_reading_use_case_uses_no_part_of_a_service() -> None:
    """A use case that only reads a folder uses no part that only a service has."""
    lacking = [
        (path.name, function.name, name)
        for path in COMMANDS.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.AsyncFunctionDef) and any(map(_reads, function.decorator_list))
        for name in _services(function)
        if not hasattr(reading.Reading, name)
    ]

    assert lacking == []


def _reads(decorator: ast.expr) -> bool:
    called = ast.unparse(decorator)
    return called.startswith("use_case(") and (
        "Access." not in called or "Access.READ" in called or "Access.RECIPES" in called
    )


def _services(function: ast.AsyncFunctionDef) -> set[str]:
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "folder.application"
    }


@pytest.mark.parametrize(
    "command",
    [
        ("recipes", "list"),
        ("recipes", "list", "--json"),
        ("recipes", "show", "asks"),
        ("recipes", "validate", "asks"),
        ("recipes", "validate", "asks.yaml"),
        ("route", "draft scene 22"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("setting", ["STORE_URL", "DATABASE_URL"])
def test_recipes_need_no_store(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, setting: str, command: tuple[str, ...]
) -> None:
    """Commands that show recipes work while the database of the runs cannot be reached."""
    made = Project(tmp_path)
    made.write(".control-room/recipes/amplifier/asks.yaml", ASKS)
    monkeypatch.chdir(made.write("asks.yaml", ASKS).parent)
    with socket.socket() as bound:
        # Bound but not listening, so that the connection is refused.
        bound.bind(("127.0.0.1", 0))
        address = f"postgresql://127.0.0.1:{bound.getsockname()[1]}/absent"
        monkeypatch.setenv(f"CONTROL_ROOM_{setting}", address)
        code, out, err = cli(*command, "--project", str(made.root))

    assert (code, err) == (0, ""), out
    assert ("creative_draft_scene" if command[0] == "route" else "asks") in out


def test_a_preview_needs_no_store(tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run works while the database cannot be reached, and says what it does not know; a start is refused."""
    made = Project(tmp_path)
    made.write(".control-room/recipes/amplifier/asks.yaml", ASKS)
    # The copy that this machine has of a file in the store.
    policy = {"policies": [{"recipe_id": "*", "limits": {"calls": 3}}]}
    made.write(".control-room/common/policies.json", json.dumps(policy))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"postgresql://127.0.0.1:{bound.getsockname()[1]}/absent"
        monkeypatch.setenv("CONTROL_ROOM_STORE_URL", address)
        code, out, err = cli("run", "asks", "--dry-run", "--json", "--project", str(made.root))
        refused = cli("run", "asks", "--project", str(made.root))

    assert code == 0, err
    assert "previewed without it" in err
    assert json.loads(out)["ok"]
    assert json.loads(out)["limits"] == {"calls": 3}
    assert refused[0] == 5
