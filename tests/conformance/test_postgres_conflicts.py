"""Transactions that the database aborts: the store repeats each kind of write, and writes no row twice."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app import errors
from app.domain import runs
from app.domain.agent_sessions import AgentSession
from app.domain.decisions import DecisionKind
from app.domain.states import RunState
from app.storage import agent_sessions, layout
from app.storage.index import index_port
from app.storage.index.sql.index import SqlIndex
from app.storage.postgres import database
from tests.conformance import store_harness, test_store_issues, test_store_plans
from tests.conformance.store_harness import RUN, PostgresStoreHarness, close_all

AT = "2026-02-10T14:31:00.000Z"
SERIALIZATION, DEADLOCK = "40001", "40P01"
BROKEN_OFF = 2
"""Number of writes of each kind that are aborted before one succeeds."""

# A sequence keeps its number when a transaction is rolled back.
_ARM = """
CREATE SEQUENCE public.writes;
CREATE FUNCTION public.break_off() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN
  IF nextval('public.writes') <= (SELECT broken_off FROM public.faults) THEN
    RAISE EXCEPTION 'broken off by a test' USING ERRCODE = '{code}';
  END IF;
  RETURN NULL;
END $body$;
CREATE TABLE public.faults AS SELECT 0 AS broken_off;
"""
_AT_ONCE = (
    "CREATE TRIGGER break_off AFTER INSERT OR UPDATE OR DELETE ON {table}"
    " FOR EACH ROW EXECUTE FUNCTION public.break_off()"
)
_AT_COMMIT = (
    "CREATE CONSTRAINT TRIGGER break_off AFTER INSERT OR UPDATE OR DELETE ON {table}"
    " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.break_off()"
)
_TABLES = """
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
WHERE schemaname IN ('control_room', 'public') AND tablename NOT IN ('alembic_version', 'faults')
AND (schemaname, tablename) <> ('control_room', 'store')
"""
_RUNS = "JOIN control_room.runs r ON r.id = run ORDER BY"
_ROWS = (
    f"SELECT r.place, journal, position, line FROM control_room.lines {_RUNS} 1, 2, 3",
    f"SELECT r.place, folder, name, begins_at, content FROM control_room.chunks {_RUNS} 1, 2, 3, 4",
    "SELECT place FROM control_room.runs ORDER BY 1",
    "SELECT run_id, status FROM public.runs ORDER BY 1",
)


class Faults:
    """Writes that the database aborts from now on."""

    def __init__(self, url: str, code: str, trigger: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self.execute(_ARM.format(code=code))
        for (table,) in self.execute(_TABLES):
            self.execute(trigger.format(table=table))

    def execute(self, statement: str) -> list[Any]:
        """Execute a statement, and return its rows."""
        found = self._connection.execute(statement)
        return found.fetchall() if found.description else []

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def break_off(self, writes: int) -> None:
        """Abort the given number of next writes."""
        self.execute("ALTER SEQUENCE public.writes RESTART")
        self.execute(f"UPDATE public.faults SET broken_off = {writes}")

    @contextlib.contextmanager
    def around(self, kind: str) -> Any:
        """Abort the first writes of a kind, and verify that the kind makes further writes."""
        self.break_off(BROKEN_OFF)
        yield
        ((number,),) = self.execute("SELECT last_value FROM public.writes")
        assert number > BROKEN_OFF, f"{kind} was not broken off {BROKEN_OFF} times, and done then"


@pytest.fixture
async def make(
    tmp_path: Path, migrated: bytes, databases: Callable[[], str]
) -> AsyncIterator[Callable[..., PostgresStoreHarness]]:
    """Yield a function that creates a store over its own database, with the index, and close all of them at the end."""
    made: list[PostgresStoreHarness] = []

    def make(*, shared: bool = False) -> PostgresStoreHarness:
        (folder := tmp_path / str(len(made))).mkdir()
        url = databases()
        made.append(PostgresStoreHarness(folder, migrated, url, shared=shared, index_url=url))
        return made[-1]

    yield make
    await close_all(made)


async def written(harness: PostgresStoreHarness, around: Callable[[str], Any]) -> None:
    """Perform each kind of write once, inside the given context."""
    store = harness.store
    with around("a creation"):
        await store.create(store_harness.start())
    log = await store.open(RUN)
    with around("a decision"):
        await log.decide(DecisionKind.TAKEN, {})
    with around("an append"):
        record = await log.append_step(store_harness.proven("a"))
    with around("a receipt"):
        await log.add_receipt(record)
        await log.flush()
    with around("projections"):
        log.refresh(lambda: {"cache.json": {"slots": {}}})
        await log.flush()
    with around("an ending"):
        await log.decide(DecisionKind.ENDED, {"status": "done", "causes": [], "error": None, "ending": None})
    with around("rows of the index"):
        await log.move(runs.Transition.begin(RUN, AT))
        await log.move(runs.Transition.end(RUN, RunState.DONE, AT))
        await harness.settle()
    await log.close()
    with around("the head of a run"):
        log = await store.open(RUN)
    with around("a plan"):
        await store.plans.put(test_store_plans.made())
    with around("an issue"):
        await store.issues.open(test_store_issues.made())
    with around("an order"):
        await store.audit.append(None, "issue.edited", "iss_1")
    with around("a conversation"):
        await agent_sessions.on_disk(harness.files()).keep(
            AgentSession(agent_session_id="talk", backend="said", working_dir="/")
        )
    with around("keys"):
        assert store.common is not None
        store.common.put("keys.json", b"{}")
    with around("a removed conversation"):
        harness.files().remove_tree(f"{layout.AGENT_SESSIONS}/talk")
    await log.close()
    with around("a deletion"):
        await store.delete(RUN)
    await store.create(store_harness.start("kept"))
    # The trash is emptied in the background, at another moment than in the store that this one is compared with.
    await store.sweep()
    await harness.settle()


@pytest.mark.parametrize(
    ("code", "trigger", "shared"),
    [
        pytest.param(SERIALIZATION, _AT_ONCE, False, id="serialization, at once"),
        pytest.param(SERIALIZATION, _AT_COMMIT, False, id="serialization, at commit", marks=pytest.mark.slow),
        pytest.param(DEADLOCK, _AT_ONCE, False, id="deadlock", marks=pytest.mark.slow),
        pytest.param(SERIALIZATION, _AT_COMMIT, True, id="shared, serialization", marks=pytest.mark.slow),
        pytest.param(DEADLOCK, _AT_ONCE, True, id="shared, deadlock", marks=pytest.mark.slow),
    ],
)
async def test_each_kind_of_write_is_repeated(
    make: Callable[..., PostgresStoreHarness], code: str, trigger: str, shared: bool
) -> None:
    """A store whose writes of every kind are aborted ends with the same rows as a store without faults."""
    calm, broken = make(shared=shared), make(shared=shared)
    for harness in (calm, broken):
        await harness.open()
    await written(calm, contextlib.nullcontext)
    with closing(Faults(broken.url, code, trigger)) as faults, psycopg.connect(calm.url) as connection:
        await written(broken, faults.around)

        for query in _ROWS:
            assert faults.execute(query) == connection.execute(query).fetchall()


@pytest.mark.parametrize("trigger", [_AT_ONCE, _AT_COMMIT], ids=["at once", "at commit"])
async def test_writes_of_the_index_are_repeated(databases: Callable[[], str], trigger: str) -> None:
    """A row, its moves and its removal are written once, even if the server aborts the first tries."""
    index = SqlIndex(url := databases())
    await index.start()
    with closing(Faults(url, SERIALIZATION, trigger)) as faults:
        with faults.around("a row"):
            await index.put_run(
                index_port.row_of(store_harness.start(), RunState.PENDING, AT, name=RUN, owner="service")
            )
        with faults.around("a move"):
            assert await index.move(runs.Transition.begin(RUN, AT))
        with faults.around("labels"):
            await index.relabel(RUN, {"team": "blue"}, pinned=True)
        row = await index.get_run(RUN)
        with faults.around("a removal"):
            await index.remove_run(RUN)
    left = await index.get_run(RUN)
    await index.close()

    assert row is not None
    assert (row.summary.status, row.summary.labels) == (RunState.RUNNING, {"team": "blue"})
    assert left is None


async def test_a_write_that_is_never_let_through_is_refused(
    make: Callable[..., PostgresStoreHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that the server always aborts fails with the reason, leaves no rows, and later writes succeed."""
    harness = make()
    log = await store_harness.begun(harness)
    await log.append_step(store_harness.step("a"))
    monkeypatch.setattr(database, "REPEAT_SECONDS", 0.05)
    ownership = harness.store._ownership
    assert ownership is not None
    ownership._reconnect_seconds = 0.05
    with closing(Faults(harness.url, SERIALIZATION, _AT_ONCE)) as faults:
        faults.break_off(1_000_000)
        with pytest.raises(errors.StorageFault, match="broke off every try"):
            await log.append_step(store_harness.step("b"))
        with pytest.raises(errors.WriteFailed):
            await harness.store.create(store_harness.start("other"))
        faults.break_off(0)
    await log.heal()
    await log.append_step(store_harness.step("c"))
    await harness.store.create(store_harness.start("other"))

    assert [record.key for record in (await harness.store.read(RUN)).records] == ["a", "c"]
    assert (await harness.store.maintenance.verify(RUN))["ok"]
