"""A service whose runs are in a real Postgres, if its programs and its driver are installed."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import sys
from pathlib import Path

import psycopg
import pytest

from app.domain.states import RunState
from app.storage.index import index_port
from app.storage.index.sql import sessions, writes
from app.storage.index.sql.index import SqlIndex
from tests import postgres_server
from tests.acceptance import processes, programs
from tests.conformance import store_harness
from tests.integration import served, temporal_server
from tests.integration.project import Project
from tests.integration.test_start_put_off import until_ready
from tests.postgres_server import Postgres


@pytest.fixture
def url(postgres: Postgres, request: pytest.FixtureRequest) -> str:
    """Return the address of a new database."""
    return postgres.new_database(request.node.nodeid)


def command(project: Project, *words: str, url: str | None, **given: str) -> programs.Ended:
    """Execute a command on a project.

    Args:
        given: Further variables of the environment.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CONTROL_ROOM_")}
    if url is not None:
        environ["CONTROL_ROOM_STORE_URL"] = url
    done = processes.run("app", *words, environ=environ | given, folder=project.root)
    return programs.Ended(*done)


async def test_runs_outlive_the_service_in_the_database(project: Project, url: str) -> None:
    """A done run is shown again after a restart with its steps and events, and does not have a folder."""
    async with served.in_process(project, store_url=url) as service:
        run_id = (await service.run("quick"))["run_id"]
        before = [(await service.http.get(f"/api/runs/{run_id}{path}")).text for path in ("/steps", "/events")]
    async with served.in_process(project, store_url=url) as service:
        shown = await service.show(run_id)
        after = [(await service.http.get(f"/api/runs/{run_id}{path}")).text for path in ("/steps", "/events")]

    assert shown["status"] == "done"
    assert after == before
    assert not list((project.data / "runs").glob("2*"))


async def test_a_row_that_another_process_writes_meanwhile_is_replaced(url: str) -> None:
    """The process that creates a run replaces the row of a service that found the run's folder first."""
    index = SqlIndex(url)
    await index.start()
    start = store_harness.start("r1")
    theirs, ours = (
        index_port.row_of(start, RunState.PENDING, "2026-02-10T14:30:00.000Z", name="r1", owner=owner)
        for owner in ("process", "service")
    )
    other = sessions.connect(url)
    try:
        with sessions.writing(other) as session:
            writes.add_missing(session, [theirs])
            putting = asyncio.create_task(index.put_run(ours))
            await temporal_server.until(functools.partial(_one_waits, url))
        await putting
        found = await index.get_run("r1")
    finally:
        other.dispose()
        await index.close()

    assert found is not None
    assert found.summary.owner == "service"


async def _one_waits(url: str) -> bool:
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with await psycopg.AsyncConnection.connect(url) as connection:
        return await (await connection.execute(waits)).fetchone() == (1,)


async def test_commands_look_into_the_database(project: Project, url: str) -> None:
    """Lists, details and checks need neither a service nor ownership; a command can start a run without one."""
    async with served.in_process(project, store_url=url) as service:
        run_id = (await service.run("quick"))["run_id"]
        listed = command(project, "runs", "list", "--json", url=url)
        verified = command(project, "runs", "verify", run_id, "--json", url=url)
    begun = command(project, "run", "quick", "--json", url=url)

    assert [run["run_id"] for run in json.loads(listed.stdout)] == [run_id]
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert begun.returncode == 0, begun.stderr


async def test_another_machine_knows_that_a_service_executes(project: Project, url: str) -> None:
    """From a data directory of its own, `runs why` finds no service, but a process that owns the store."""
    project.say("draft", hang=True)
    there = {"url": url, "CONTROL_ROOM_DATA_DIRECTORY": ".machine-other"}
    async with served.in_process(project, store_url=url, stop_grace_seconds=0) as service:
        run_id = await service.start("draft", args={"scene_path": "Story/Scenes/SCN-the-arrival.md"})
        await service.until(run_id, step="draft")
        during = command(project, "runs", "why", run_id, **there)
    after = command(project, "runs", "why", run_id, **there)

    assert during.stdout.startswith(
        "Step draft: agent writer-1 (backend said) has been at work, or in the queue of its backend, for "
    ), during
    assert after.stdout.startswith("Nothing executes it, because no service runs; "), after


async def test_another_store_than_the_last_is_refused_by_name(project: Project, url: str, postgres: Postgres) -> None:
    """A data directory records the store of its runs: neither folders nor another database can be used beside it."""
    async with served.in_process(project, store_url=url) as service:
        await service.run("quick")
    postgres.execute("CREATE DATABASE other_store")
    folders = command(project, "runs", "repair", "20260210T143000Z-abc123", url=None)
    looks = command(project, "runs", "list", url=None)
    other = command(project, "run", "quick", url=postgres.url_of("other_store"))

    for answer in (folders, looks, other):
        assert answer.returncode == 5, answer.stdout
        assert f"the store {url.replace(':pass%20word', '')}" in answer.stderr
    assert "is another one" in other.stderr


async def test_a_database_is_not_begun_beside_folders(project: Project, url: str) -> None:
    """A project with runs in folders refuses a database, names the remedy, and keeps the runs."""
    async with served.in_process(project) as service:
        run_id = (await service.run("quick"))["run_id"]
    refused = command(project, "run", "quick", url=url)
    listed = command(project, "runs", "list", "--json", url=None)

    assert refused.returncode == 5
    assert "holds 1 runs in folders" in refused.stderr
    assert [run["run_id"] for run in json.loads(listed.stdout)] == [run_id]


@pytest.mark.slow
async def test_a_store_has_one_owner(project: Project, url: str) -> None:
    """A second process that would write is refused with the name of the store's owner."""
    async with served.in_process(project, store_url=url):
        second = command(project, "run", "quick", url=url)

    assert second.returncode == 5
    assert f"process {os.getpid()}" in second.stderr


async def test_a_server_that_comes_later_is_waited_for(project: Project, tmp_path: Path) -> None:
    """Before the server starts, the service answers and names the store; then it accepts runs."""
    with postgres_server.installed() as late:
        async with served.in_process(project, store_url=late.url) as service:
            away = await service.http.get("/api/runs")
            late.start()
            await until_ready(service)
            shown = await service.run("quick")

    assert (away.status_code, away.json()["code"]) == (503, "starting")
    assert "the store postgresql://writer@127.0.0.1" in away.json()["detail"]
    assert shown["status"] == "done"


@pytest.mark.slow
async def test_a_server_that_goes_away_is_named_as_the_cause(project: Project) -> None:
    """No answer blames a disk or a failed write; once the server is back, the service accepts runs again."""
    with postgres_server.running() as server:
        async with served.in_process(project, store_url=server.url) as service:
            run_id = (await service.run("quick"))["run_id"]
            before = await service.http.get("/metrics")
            server.stop()
            known = await service.show(run_id)
            answers = [await service.http.get(f"/api/{path}") for path in ("audit", "sessions")]
            answers.append(await service.http.post("/api/runs", json={"recipe_id": "quick"}))
            answers.append(await service.http.post("/api/issues", json={"title": "x", "kind": "bug"}))
            answers.append(await service.http.get("/readyz"))
            metrics = await service.http.get("/metrics")
            server.start()
            await until_ready(service)
            shown = await service.run("quick")

    for answer in answers:
        problem = answer.json()
        assert (answer.status_code, problem["code"] in ("database_away", "unreadable")) == (503, True), problem
        assert "postgresql://writer" in problem["detail"]
        assert "disk" not in f"{problem['title']} {problem['detail']}"
    assert known["status"] == shown["status"] == "done"
    assert 'control_room_up{what="store"} 1.0' in before.text
    assert 'control_room_up{what="temporal"}' not in before.text
    assert metrics.status_code == 200
    assert 'control_room_up{what="store"} 0.0' in metrics.text


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda url: url.replace("pass%20word", "wrong"), "password authentication failed"),
        (lambda url: f"{url}_not_there", "does not exist"),
        (lambda url: url.replace("postgresql", "mysql"), "must be an address like postgresql://"),
    ],
    ids=["password", "database", "scheme"],
)
async def test_a_permanently_wrong_address_is_reported_at_once(
    project: Project, url: str, change: object, code: str
) -> None:
    """A permanent fault of the address is reported at once with its reason, and without the password."""
    assert callable(change)
    answer = command(project, "run", "quick", url=change(url))

    assert answer.returncode == 5
    assert code in answer.stderr
    assert "pass%20word" not in answer.stderr + answer.stdout
    assert "Traceback" not in answer.stderr


async def test_a_database_of_a_later_version_is_left_alone(project: Project, url: str, postgres: Postgres) -> None:
    """Tables of a later version are not changed, and the message names the version."""
    async with served.in_process(project, store_url=url) as service:
        await service.run("quick")
    database = url.rpartition("/")[2]
    postgres.execute("UPDATE control_room.alembic_version SET version_num = '20990101_later'", database=database)
    answers = [command(project, *words, url=url) for words in (("run", "quick"), ("runs", "list"))]

    assert [answer.returncode for answer in answers] == [5, 5]
    assert all("20990101_later" in answer.stderr for answer in answers)


async def test_a_missing_driver_is_named_with_its_command(
    project: Project, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the extra a store on Postgres is refused with the command that installs it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Exception, match=r'pip install "control-room\[postgres\]"'):
        async with served.in_process(project, store_url=url):
            pass


def put_aside(project: Project, kept: Path) -> None:
    """Move the runs and receipts of a project to another folder."""
    kept.mkdir()
    for name in ("runs", "audit"):
        (project.data / name).rename(kept / name)


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_runs_move_between_folders_and_database_byte_for_byte(project: Project, url: str, tmp_path: Path) -> None:
    """A run that is imported from folders, exported and imported again keeps its files, receipts and state."""
    async with served.in_process(project) as service:
        shown = await service.run("draft", args={"scene_path": "Story/Scenes/SCN-the-arrival.md"})
        run_id = shown["run_id"]
        receipts = (await service.http.get("/api/receipts", params={"run_id": run_id})).json()
    kept, out = tmp_path / "kept", tmp_path / "out"
    put_aside(project, kept)
    imports = [command(project, "runs", "import", str(kept), "--json", url=url) for _ in range(2)]
    async with served.in_process(project, store_url=url) as service:
        again = await service.show(run_id)
        proven = (await service.http.get("/api/receipts", params={"run_id": run_id})).json()
        busy = command(project, "runs", "export", "--to", str(out), url=url)
    exported = command(project, "runs", "export", run_id, "--to", str(out), "--json", url=url)

    assert [json.loads(answer.stdout) for answer in imports] == [
        [{"run_id": run_id, "copied": True}],
        [{"run_id": run_id, "copied": False}],
    ]
    assert (again["status"], again["steps"]) == (shown["status"], shown["steps"])
    assert receipts
    assert proven == receipts
    assert busy.returncode == 5
    assert exported.returncode == 0, exported.stderr
    assert tree(out / "runs" / run_id) == tree(kept / "runs" / run_id)
    assert tree(out / "audit") == tree(kept / "audit")


async def test_a_damaged_run_is_not_imported(project: Project, url: str, tmp_path: Path) -> None:
    """A damaged run is not imported, and the message names the place of the damage."""
    async with served.in_process(project) as service:
        run_id = (await service.run("quick"))["run_id"]
    kept = tmp_path / "kept"
    put_aside(project, kept)
    steps = kept / "runs" / run_id / "steps.jsonl"
    steps.write_bytes(steps.read_bytes().replace(b"done", b"gone", 1))
    refused = command(project, "runs", "import", str(kept), url=url)
    nothing = command(project, "runs", "import", str(tmp_path), url=url)
    listed = command(project, "runs", "list", "--json", url=url)

    assert refused.returncode != 0
    assert "steps.jsonl line 1" in refused.stderr
    assert "has no folder 'runs'" in nothing.stderr
    assert json.loads(listed.stdout) == []


async def test_a_dump_and_a_backup_are_restored_and_verified(
    project: Project, url: str, postgres: Postgres, tmp_path: Path
) -> None:
    """A dump of a working service, its bucket and a backup of the data directory restore a project that is sound."""
    pytest.importorskip("obstore", reason="the extra objects is not installed")
    dump, file, other = tmp_path / "runs.sql", tmp_path / "data.tar.gz", Project(tmp_path / "other")
    shutil.rmtree(other.data)
    bucket, bucket_again = tmp_path / "bucket", tmp_path / "bucket_again"
    bucket.mkdir()
    blobs = {"CONTROL_ROOM_BLOBS_URL": f"file://{bucket}"}
    async with served.in_process(project, store_url=url, blobs_url=f"file://{bucket}") as service:
        run_id = (await service.run("quick"))["run_id"]
        dumped = postgres.program("pg_dump", f"--dbname={url}", "--schema=control_room", f"--file={dump}")
        copied = command(project, "backup", str(file), url=url, **blobs)
    shutil.copytree(bucket, bucket_again)
    again, blobs = postgres.new_database("restored"), {"CONTROL_ROOM_BLOBS_URL": f"file://{bucket_again}"}
    loaded = postgres.program("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={again}", f"--file={dump}")
    restored = command(other, "restore", str(file), "--json", url=again, **blobs)
    shown = command(other, "runs", "show", run_id, "--json", url=again, **blobs)
    third = Project(tmp_path / "third")
    shutil.rmtree(third.data)
    without = command(third, "restore", str(file), url=None)
    listed = command(third, "runs", "list", url=None)

    assert (dumped.returncode, loaded.returncode) == (0, 0), dumped.stderr + loaded.stderr
    assert copied.returncode == 0, copied.stderr
    assert "pg_dump --schema=control_room" in copied.stdout
    assert f"Their blobs are in file://{bucket}" in copied.stdout
    assert restored.returncode == 0, restored.stderr + restored.stdout
    assert json.loads(restored.stdout)["verification"]["ok"]
    assert json.loads(shown.stdout)["status"] == "done"
    # Keys are in the database, too: without it a service would accept every local client.
    assert [(ended.returncode, "store_differs" in ended.stderr) for ended in (without, listed)] == [(5, True)] * 2


async def test_files_of_a_machine_are_taken_over_by_the_store(project: Project, url: str) -> None:
    """Budgets of a project with folders move into the database; a machine with other budgets is refused by name."""
    limits = {"limits": {"calls": 3}}
    async with served.in_process(project) as service:
        await service.http.put("/api/budgets/all", json=limits)
    file = project.data / "budgets.json"
    content = file.read_text()
    async with served.in_process(project, store_url=url) as service:
        (taken,) = (await service.http.get("/api/budgets")).json()
        gone = file.exists()
    file.write_text(content)
    async with served.in_process(project, store_url=url) as service:
        await service.http.put("/api/budgets/all", json={"limits": {"calls": 4}})
    file.write_text(content)
    refused = command(project, "run", "quick", url=url)
    looked = command(project, "budgets", "list", "--json", url=url)

    assert (taken["name"], taken["limits"], gone) == ("all", {"calls": 3}, False)
    assert refused.returncode == 5
    assert "budgets.json of this data directory differs" in refused.stderr
    assert json.loads(looked.stdout)[0]["limits"] == {"calls": 4}
