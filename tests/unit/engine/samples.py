"""Small values for tests of the engine."""

from __future__ import annotations

from typing import Any

from app.domain import operations, plain, records, runs
from app.domain.decisions import Decisions
from app.engine.driver_context import DriverContext
from app.engine.driver_scheduler import Ask, DriverScheduler
from app.engine.stores import Loaded

AT = "2026-02-10T14:30:00.000Z"


def start(**facts: Any) -> runs.RunStart:
    """Return the facts of a run."""
    given: dict[str, Any] = {
        "run_id": "20260210T143000Z-abcdef",
        "recipe_id": "sample",
        "dialect": "sample",
        "driver_version": 1,
        "created_at": AT,
        "recipe": {},
        "recipe_sha256": "",
    }
    return runs.RunStart(**(given | facts))


def tool(name: str, **args: plain.Json) -> operations.ToolCall:
    """Return a tool call."""
    return operations.ToolCall(tool=name, args=args)


def record(key: str, operation: operations.Operation, position: int = 0, /, **fields: Any) -> records.Record:
    """Return the record of an operation."""
    body = operations.body(operation)
    line: dict[str, Any] = {
        "key": key,
        "step_id": key,
        "attempt": 1,
        "status": "done",
        "operation": {"hash": operations.fingerprint(plain.canonical(body)), "body": body},
        "branch": "",
        "output": f"{key} done",
        "final": True,
        "started_at": AT,
        "completed_at": AT,
    }
    return records.read(position, line | fields)


def loaded(*lines: records.Record, dead: set[int] | None = None, **facts: Any) -> Loaded:
    """Return a run as a store reads it."""
    decisions = Decisions(dead=frozenset(dead or ()))
    return Loaded(start=start(**facts), records=lines, decisions=decisions, emitted=frozenset())


def scheduler(drive: Any) -> tuple[DriverScheduler, DriverContext]:
    """Return a driver scheduler for a driver function, and the driver's context."""
    context = DriverContext(start(), lambda key, facts: None)
    return DriverScheduler(lambda: drive(context)), context


def answer(scheduler: DriverScheduler, key: str, position: int = 0, **fields: Any) -> None:
    """Deliver a record to the request of a key."""
    ask: Ask = scheduler.asks[key]
    scheduler.deliver(record(key, ask.operation, position, branch=ask.branch, **fields))
