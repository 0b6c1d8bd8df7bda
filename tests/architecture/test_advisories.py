"""The check for advisories: a known advisory fails it, and an unreachable source passes it with a message."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.architecture import sources


def asked(source: str) -> tuple[int, str]:
    """Return the exit code and the output of the script."""
    environ = {**os.environ, "ADVISORIES_SOURCE": source, "ADVISORIES_SECONDS": "3"}
    command = [sys.executable, str(sources.ROOT / "scripts" / "advisories.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


@contextmanager
def answering(status: int, known: dict[str, list[str]] | str) -> Iterator[tuple[str, list[str]]]:
    """Answer with advisories by package, or with a text; yield the address and the packages asked for."""
    names: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            names.extend(query["package"]["name"] for query in queries)
            found = [] if isinstance(known, str) else [known.get(query["package"]["name"], []) for query in queries]
            results = [{"vulns": [{"id": each} for each in ids]} if ids else {} for ids in found]
            self.send_response(status)
            self.end_headers()
            self.wfile.write((known if isinstance(known, str) else json.dumps({"results": results})).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", names
        finally:
            server.shutdown()
            thread.join()


def test_an_advisory_fails_the_check() -> None:
    """The script asks for the locked packages, and names the advisories of one that has some."""
    with answering(200, {"starlette": ["GHSA-x", "PYSEC-y"]}) as (source, names):
        code, told = asked(source)

    assert code == 1
    assert "GHSA-x" in told
    assert "PYSEC-y" in told
    assert {"fastapi", "starlette", "schemathesis", "xllamacpp"} <= set(names)


def test_no_advisory_passes() -> None:
    """Without advisories, the script passes and prints how many packages it checked."""
    with answering(200, {}) as (source, names):
        assert asked(source) == (0, f"{len(names)} packages: 0 advisories, 0 accepted\n")


@pytest.mark.parametrize(("status", "text"), [(500, "{}"), (200, "<html>"), (200, "{}"), (200, '{"results": [{}]}')])
def test_a_malformed_answer_counts_as_a_missing_source(status: int, text: str) -> None:
    """An answer of another form counts as a missing source of advisories: the script passes and reports it."""
    with answering(status, text) as (source, _):
        code, told = asked(source)

    assert code == 0
    assert told.startswith("not checked: there is no source of advisories here (")


def test_without_an_answer_the_script_reports_no_check() -> None:
    """With a closed port or a silent source, the script passes and reports that it did not check."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = [asked(f"http://127.0.0.1:{port}/") for port in (silent.getsockname()[1], _closed_port())]

    assert all(code == 0 and told.startswith("not checked: ") for code, told in found)


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
