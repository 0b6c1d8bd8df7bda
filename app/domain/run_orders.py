"""Run orders: who started, stopped, changed or answered a run, according to the lines of its journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app import clock
from app.domain import authors, gates, inputs, plain, runs
from app.domain.authors import RunOrder
from app.domain.decisions import DecisionKind
from app.domain.records import Record

CONTROL, STEPS = "control.jsonl", "steps.jsonl"  # Journals of a run that contain orders.

_ACTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    DecisionKind.LIMITED: ("run.limited", ("limits",)),
    DecisionKind.CANCEL_REQUESTED: ("run.cancelled", ("superseded_by",)),
    DecisionKind.PAUSED: ("run.paused", ()),
    DecisionKind.UNPAUSED: ("run.unpaused", ()),
    DecisionKind.RESUMED: ("run.resumed", ()),
    DecisionKind.LABELLED: ("run.labelled", ("labels", "pinned")),
    DecisionKind.VOTED: ("gate.voted", ("gate_id", "decision")),
}


def of_decision(run_id: str, start: runs.RunStart, line: int, fields: Mapping[str, Any]) -> RunOrder | None:
    """Return the order that a control line records; None if it records none."""
    author, known = authors.in_line(fields), _ACTIONS.get(fields["kind"])
    if author is None or known is None:
        return None
    action, names = known
    details = {name: fields[name] for name in names if name in fields}
    return _order(run_id, start, CONTROL, line, fields["at"], action, author, details)


def may_be_order(output: Mapping[str, plain.Json]) -> bool:
    """Return whether a journal line with this output may record an order; `of_record` decides once it is durable."""
    return "author" in output


def of_record(run_id: str, start: runs.RunStart, record: Record) -> RunOrder | None:
    """Return the order that a journal line records: a gate's answer, or an input from outside; None for others."""
    # Lines that a fork took over record orders to its source.
    if not isinstance(record.output, dict) or not may_be_order(record.output) or record.line.get("taken_over"):
        return None
    author, details = authors.in_line(record.output), {"key": record.key}
    if gates.answer_in(record) is not None:
        action = "gate.answered"
        details |= {name: record.output[name] for name in ("gate_id", "decision")}
    elif not inputs.is_delivered(record):
        return None
    elif not clock.is_internal(run_id):
        action = "input.delivered"
    elif (plan := _changed_plan(record.output.get("value"))) is not None:
        action = "plan.changed"
        details |= {name: plan[name] for name in ("status", "revision") if name in plan}
    else:
        # The deletion of the plan is in the audit log.
        return None
    at = str(record.line.get("completed_at") or record.started_at)
    return None if author is None else _order(run_id, start, STEPS, record.position, at, action, author, details)


def of_lines(
    run_id: str, start: runs.RunStart, control: Iterable[Mapping[str, Any]], records: Iterable[Record]
) -> Iterator[RunOrder]:
    """Yield the orders in both journals of a run."""
    yield from filter(None, (of_decision(run_id, start, line, fields) for line, fields in enumerate(control)))
    yield from filter(None, (of_record(run_id, start, record) for record in records))


def _changed_plan(value: Any) -> Mapping[str, Any] | None:
    plan = value.get("plan") if isinstance(value, dict) else None
    return plan if isinstance(plan, dict) else None


def _order(
    run_id: str,
    start: runs.RunStart,
    file: str,
    line: int,
    at: str,
    action: str,
    author: Mapping[str, plain.Json],
    details: Mapping[str, plain.Json],
) -> RunOrder:
    # A plan is identified by its session, not by the run that carries it out.
    target = start.session_id if clock.is_internal(run_id) else run_id
    return RunOrder(
        run_id=run_id, target=target, file=file, line=line, at=at, action=action, author=author, details=details
    )
