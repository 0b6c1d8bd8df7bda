"""An index in a real Postgres, if its programs and its driver are installed."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests import postgres_server
from tests.integration import served
from tests.integration.project import Project
from tests.integration.test_start_put_off import until_ready
from tests.postgres_server import Postgres


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """Return a server that is not started yet."""
    with postgres_server.installed() as server:
        yield server


async def test_a_database_that_comes_later_is_waited_for(project: Project, postgres: Postgres) -> None:
    """Before the database starts, the service answers and names it; then it accepts runs that outlive a restart."""
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


async def test_a_role_named_like_the_schema_of_the_store(project: Project, postgres: Postgres) -> None:
    """Index and store work together for a role named like the store's schema, which Postgres searches first."""
    postgres.start()
    postgres.wait()
    postgres.execute("CREATE ROLE control_room LOGIN SUPERUSER PASSWORD 'secret'")
    url = postgres.url.replace(urlsplit(postgres.url).netloc.rpartition("@")[0], "control_room:secret")
    async with served.in_process(project, store_url=url, database_url=url) as service:
        await until_ready(service)
        run_id = (await service.run("quick"))["run_id"]
        listed = (await service.http.get("/api/runs")).json()

    assert [(run["run_id"], run["status"]) for run in listed] == [(run_id, "done")]
