"""Reading the index: plain SQL that both SQLite and Postgres execute, for a connection of either kind.

Files are read over the standard library's `sqlite3`, without the cost of importing SQLAlchemy. Postgres is read over
SQLAlchemy's engine. No statement contains a caller's value.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from app import clock
from app.domain import gates, issues, receipts, states
from app.domain.access import Scope
from app.domain.authors import RunOrder
from app.engine import stores
from app.storage import layout
from app.storage.index import index_port, rows, scopes
from app.storage.index.index_port import IndexedRun, ReceiptPlace
from app.storage.index.scopes import Condition

if TYPE_CHECKING:
    from app.domain import audit

_CHUNK = 500
_NOTHING: Mapping[str, Any] = {}

# As literals: only with them can a database use the partial index of unfinished runs.
_FINISHED = ", ".join(f"'{state.value}'" for state in states.RunState if state.finished)
_UNFINISHED = f"runs.status NOT IN ({_FINISHED})"
_UNFINISHED_STATES = frozenset(state.value for state in states.RunState if not state.finished)

SHOWN = f"runs.run_id NOT LIKE '{clock.INTERNAL_PREFIX.replace('_', '/_')}%' ESCAPE '/'"
"""Condition for the runs that lists and counts show."""

FAILED = f"runs.status = 'failed' AND runs.completed_at >= :failed AND COALESCE(runs.reason, '') <> '{gates.DENIED}'"
"""Condition for the runs that failed at or after an instant; one that a person's denial ended did not."""

_RUN = ", ".join(f"runs.{name}" for name in rows.RUN)
_FILTERS = ("session_id", "status", "recipe_id", "parent_run_id", "concurrency_key")
_ISSUE_FILTERS = ("status", "run_id", "session_id", "kind", "severity", "recipe_id")
_RECEIPT_FILTERS = ("run_id", "session_id")
_STARTS = f"run_orders.file = '{layout.START}' AND run_orders.line = 0 AND run_orders.action = 'run.started'"
_WILD = re.compile("[%_/]")


class Connection(Protocol):
    """A connection that runs queries."""

    def rows(self, sql: str, values: Mapping[str, Any] = _NOTHING) -> Sequence[Any]:
        """Return the rows of a query whose `:name` parameters have these values."""


def get_run(index: Connection, run_id: str) -> IndexedRun | None:
    """Return a run's row."""
    return _first(_runs(index, f"SELECT {_RUN} FROM runs WHERE run_id = :run_id", {"run_id": run_id}))


def find_key(index: Connection, idempotency_key: str) -> IndexedRun | None:
    """Return the run that a request with this key started; the column is unique, so there is at most one."""
    return _first(_runs(index, f"SELECT {_RUN} FROM runs WHERE idempotency_key = :key", {"key": idempotency_key}))


def find_busy(index: Connection, recipe_id: str) -> str | None:
    """Return the oldest unfinished run of a recipe.

    The recipe is compared as an expression, so that the database uses the index of unfinished runs: it has few rows,
    while the index of recipes contains all runs that ever ended.
    """
    found = index.rows(
        f"SELECT run_id FROM runs WHERE COALESCE(recipe_id, '') = :recipe_id AND {_UNFINISHED} AND owner <> 'foreign'"
        " ORDER BY created_at, run_id LIMIT 1",
        {"recipe_id": recipe_id},
    )
    return str(found[0][0]) if found else None


def run_ids(index: Connection) -> set[str]:
    """Return the ids of all rows; a start compares them with the names of the folders."""
    return {row[0] for row in index.rows("SELECT run_id FROM runs")}


def count_by_status(index: Connection, scope: Scope | None = None) -> dict[str, int]:
    """Return how many runs are in each state."""
    conditions, values = where([(SHOWN, {}), *scopes.of_runs(scope)])
    return {
        row[0]: row[1] for row in index.rows(f"SELECT status, COUNT(*) FROM runs {conditions} GROUP BY status", values)
    }


def uncounted(index: Connection, behind: tuple[str, str] | None, limit: int) -> list[tuple[str, str]]:
    """Return creation time and id of rows that the previous release wrote; the partial index contains only these."""
    conditions, values = where([("NOT counted", {}), *_behind(behind, "(created_at, run_id) <")])
    sql = f"SELECT created_at, run_id FROM runs {conditions} ORDER BY created_at DESC, run_id DESC LIMIT :most"
    return [(row[0], row[1]) for row in index.rows(sql, values | {"most": limit})]


def list_unfinished(index: Connection, key_prefix: str = "") -> list[stores.RunSummary]:
    """Return every unfinished run, oldest first; the partial index contains only these.

    The prefix of the key is compared as an expression, so that the database uses this index: the index of keys contains
    all runs that ever had one, and databases sort its texts differently.
    """
    begins: Condition = ("substr(idempotency_key, 1, length(:begin)) = :begin", {"begin": key_prefix})
    conditions, values = where([(_UNFINISHED, {}), *([begins] if key_prefix else [])])
    found = _runs(index, f"SELECT {_RUN} FROM runs {conditions} ORDER BY created_at, run_id", values)
    return [run.summary for run in found]


def list_runs(index: Connection, query: stores.RunQuery) -> list[stores.RunSummary]:
    """Return a page, newest first.

    A page begins after the last run of the previous page, not at an offset: new runs shift no rows, and a late page
    costs as much as the first. Each filter has an index in the order of the list, so that no page sorts rows. With
    several filters, `_leader` decides which index the database uses.
    """
    states = query.states
    if len(states) > 1:
        # One state after the other: no index contains the runs of several states in the order of the list.
        pages = [list_runs(index, dataclasses.replace(query, status=state)) for state in states]
        found = sorted((run for page in pages for run in page), key=index_port.age, reverse=True)
        return found[: query.limit]
    return _page_of_runs(index, dataclasses.replace(query, status=states[0] if states else None))


def _page_of_runs(index: Connection, query: stores.RunQuery) -> list[stores.RunSummary]:
    leader = _leader(query)
    leading, source = "runs", "runs"
    if leader == "label":
        leading, source = "run_labels", "run_labels JOIN runs ON runs.run_id = run_labels.run_id"
    conditions, values = where([*_filters(query, leader), *_span(query, leading), (_shown(query), {})])
    order = f"ORDER BY {leading}.created_at DESC, {leading}.run_id DESC LIMIT :most"
    found = _runs(index, f"SELECT {_RUN} FROM {source} {conditions} {order}", values | {"most": query.limit})
    return [run.summary for run in found]


def has_session(index: Connection, session_id: str) -> bool:
    """Return whether a run belongs to a work session."""
    return bool(index.rows("SELECT run_id FROM runs WHERE session_id = :session LIMIT 1", {"session": session_id}))


def find_receipt(index: Connection, receipt_id: str) -> ReceiptPlace | None:
    """Return the position of a receipt."""
    columns = ", ".join(rows.RECEIPT)
    found = index.rows(f"SELECT {columns} FROM receipts WHERE receipt_id = :receipt_id", {"receipt_id": receipt_id})
    return rows.receipt_of(found[0]) if found else None


def list_receipts(index: Connection, query: receipts.ReceiptQuery) -> list[ReceiptPlace]:
    """Return the positions of a page of receipts; each filter has an index in the order of the list."""
    conditions, values = where(
        [
            *_equal(query, _RECEIPT_FILTERS, "receipts"),
            *_behind(query.cursor, "(session_id, offset_bytes) >"),
            *scopes.of_things("receipts", query.scope),
        ]
    )
    sql = f"SELECT {', '.join(rows.RECEIPT)} FROM receipts {conditions} ORDER BY session_id, offset_bytes LIMIT :most"
    return [rows.receipt_of(row) for row in index.rows(sql, values | {"most": query.limit})]


def issue_rows(index: Connection) -> dict[str, bool]:
    """Return the ids of all issues with rows, each with whether its row is marked."""
    return {row[0]: bool(row[1]) for row in index.rows("SELECT issue_id, marked FROM issues")}


def list_issues(index: Connection, query: issues.IssueQuery) -> list[issues.IssueSummary]:
    """Return a page, newest first; each filter has an index in the order of the list."""
    conditions, values = where(
        [
            *_equal(query, _ISSUE_FILTERS, "issues"),
            *_behind(query.cursor, "(created_at, issue_id) <"),
            *scopes.of_things("issues", query.scope),
        ]
    )
    order = "ORDER BY created_at DESC, issue_id DESC LIMIT :most"
    sql = f"SELECT {', '.join(rows.ISSUE)} FROM issues {conditions} {order}"
    return [rows.issue_of(row) for row in index.rows(sql, values | {"most": query.limit})]


def list_orders(index: Connection, query: audit.AuditQuery) -> list[RunOrder]:
    """Return a page of orders to runs, newest first."""
    conditions = [*_equal(query, ("target",), "run_orders")]
    if query.author is not None:
        conditions.append(("author_name = :author", {"author": query.author}))
    if query.action is not None:
        # Also the actions of a group: `run` matches all that begin with `run.`.
        within = _WILD.sub(r"/\g<0>", query.action) + ".%"
        conditions.append(
            ("(action = :action OR action LIKE :within ESCAPE '/')", {"action": query.action, "within": within})
        )
    for bound, compared in (("created_after", ">="), ("created_before", "<")):
        if (value := getattr(query, bound)) is not None:
            conditions.append((f"at {compared} :{bound}", {bound: index_port.instant(value)}))
    if query.cursor is not None and query.cursor.order is not None:
        place = dict(zip(("of_at", "of_run", "of_file", "of_line"), query.cursor.order, strict=True))
        # Compared as a row, since several orders may have the same time.
        conditions.append(("(at, run_id, file, line) < (:of_at, :of_run, :of_file, :of_line)", place))
    clause, values = where(conditions)
    order = "ORDER BY at DESC, run_id DESC, file DESC, line DESC LIMIT :most"
    sql = f"SELECT {', '.join(rows.ORDER)} FROM run_orders {clause} {order}"
    return [rows.order_of(row) for row in index.rows(sql, values | {"most": query.limit})]


def sound_issues(index: Connection, issue_ids: Iterable[str]) -> set[str]:
    """Return those issue ids whose rows are not marked."""
    return present(index, "issues", "issue_id", issue_ids, "NOT marked")


def present(index: Connection, table: str, column: str, wanted: Iterable[str | None], also: str = "TRUE") -> set[str]:
    """Return those of the values that a column contains."""
    found: set[str] = set()
    for names, values in _chunks([value for value in wanted if value is not None]):
        sql = f"SELECT {column} FROM {table} WHERE {column} IN ({names}) AND {also}"
        found |= {row[0] for row in index.rows(sql, values)}
    return found


def conditions_of(query: stores.RunQuery) -> Iterator[Condition]:
    """Yield the conditions of a query, without its limit and cursor."""
    named = {f"state{number}": state for number, state in enumerate(query.states)}
    if named:
        yield f"runs.status IN ({', '.join(f':{name}' for name in named)})", named
    yield from _filters(dataclasses.replace(query, status=None), None)
    yield from _span(dataclasses.replace(query, cursor=None), "runs")


def _leader(query: stores.RunQuery) -> str | None:
    # Few runs are unfinished, few belong to one session, and any number may have a label; otherwise the database
    # chooses.
    if query.session_id is None and (query.label is None or query.status in _UNFINISHED_STATES):
        return None
    if query.status in _UNFINISHED_STATES:
        return "status"
    return "label" if query.session_id is None else "session_id"


def _filters(query: stores.RunQuery, leader: str | None) -> Iterator[Condition]:
    for name in _FILTERS:
        if (value := getattr(query, name)) is not None:
            # A column compared as an expression leaves the choice of the index to another column.
            aside = leader in _FILTERS and name != leader
            yield f"{f'''COALESCE(runs.{name}, '')''' if aside else f'runs.{name}'} = :{name}", {name: value}
    if query.label is not None:
        carries = "run_labels.name = :label_name AND run_labels.value = :label_value"
        if leader != "label":
            carries = f"EXISTS (SELECT 1 FROM run_labels WHERE run_labels.run_id = runs.run_id AND {carries})"
        yield carries, dict(zip(("label_name", "label_value"), query.label, strict=True))
    if query.started_by is not None:
        of_run = f"run_orders.run_id = runs.run_id AND {_STARTS}"
        named = "run_orders.author_name = :starter"
        unnamed = "run_orders.author_name IS NULL AND run_orders.author LIKE :starter_via ESCAPE '/'"
        yield (
            f"EXISTS (SELECT 1 FROM run_orders WHERE {of_run} AND ({named} OR ({unnamed})))",
            # Orders without a named author name the way by which they came.
            {"starter": query.started_by, "starter_via": _containing(f'"via":{json.dumps(query.started_by)}')},
        )
    if query.failed_after is not None:
        yield FAILED, {"failed": index_port.instant(query.failed_after)}
    yield from scopes.of_runs(query.scope)
    if query.q is not None:
        yield "runs.search LIKE :q ESCAPE '/'", {"q": _containing(query.q.casefold())}


def _containing(words: str) -> str:
    literal = _WILD.sub(r"/\g<0>", words)
    return f"%{literal}%"


def _shown(query: stores.RunQuery) -> str:
    return f"NOT ({SHOWN})" if query.internal else SHOWN


def _span(query: stores.RunQuery, leading: str) -> Iterator[Condition]:
    if query.created_after is not None:
        yield f"{leading}.created_at >= :after", {"after": index_port.instant(query.created_after)}
    if query.updated_after is not None:
        # Queried once, at a start, so it has no index.
        yield "runs.updated_at >= :moved", {"moved": index_port.instant(query.updated_after)}
    yield from _behind(query.cursor, f"({leading}.created_at, {leading}.run_id) <")
    before = index_port.instant(query.created_before) if query.created_before is not None else None
    # After a cursor of its own list this limit excludes nothing more, and a database might start its scan there.
    if before is not None and (query.cursor is None or query.cursor[0] >= before):
        yield f"{leading}.created_at < :before", {"before": before}


def _equal(query: Any, names: Iterable[str], table: str) -> Iterator[Condition]:
    for name in names:
        if (value := getattr(query, name)) is not None:
            yield f"{table}.{name} = :{name}", {name: value}


def _behind(cursor: tuple[Any, Any] | None, compared: str) -> Iterator[Condition]:
    if cursor is not None:
        yield f"{compared} (:cursor_first, :cursor_second)", {"cursor_first": cursor[0], "cursor_second": cursor[1]}


def where(conditions: Sequence[Condition]) -> tuple[str, dict[str, Any]]:
    """Return the WHERE clause of some conditions, and all their values."""
    values = {name: value for _, given in conditions for name, value in given.items()}
    return f"WHERE {' AND '.join(sql for sql, _ in conditions)}" if conditions else "", values


def _runs(index: Connection, sql: str, values: Mapping[str, Any] = _NOTHING) -> list[IndexedRun]:
    found = index.rows(sql, values)
    labels: dict[str, dict[str, str]] = {}
    starters: dict[str, str] = {}
    for names, wanted in _chunks([row[0] for row in found]):
        statement = f"SELECT run_id, name, value FROM run_labels WHERE run_id IN ({names})"
        for run_id, name, value in index.rows(statement, wanted):
            labels.setdefault(run_id, {})[name] = value
        statement = f"SELECT run_id, author FROM run_orders WHERE run_id IN ({names}) AND {_STARTS}"
        starters |= {row[0]: row[1] for row in index.rows(statement, wanted)}
    return [rows.run_of(row, labels.get(row[0], {}), starters.get(row[0])) for row in found]


def _chunks(values: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    for begin in range(0, len(values), _CHUNK):
        named = {f"v{number}": value for number, value in enumerate(values[begin : begin + _CHUNK])}
        yield ", ".join(f":{name}" for name in named), named


def _first(found: Sequence[IndexedRun]) -> IndexedRun | None:
    return found[0] if found else None
