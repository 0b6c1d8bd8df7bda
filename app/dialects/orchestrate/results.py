"""Results: convert the records of a step into its state (workflow-dsl, state file schema and error context)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TypeAlias

from app.dialects.orchestrate import frames
from app.domain import plain, records, runs, slots, states

_OF_CODES: Mapping[str, int] = {
    "timeout": frames.TIMED_OUT,
    "idle": frames.TIMED_OUT,
    "program_missing": 127,
    "program_not_executable": 126,
    "output_too_large": 1,
    "not_started": 1,
    "internal_error": 1,
}
_SIGNALLED = 128
_ARGUMENT_CHARACTERS = 1000
_WAITED = ("files", "wait_duration_ms", "poll_count", "timed_out")

Result: TypeAlias = dict[str, plain.Json]


def exit_code(record: records.Record) -> int:
    """Return the exit code of a step from its last record."""
    error = record.error
    if error is None:
        return 0
    if error.code == "signal":
        # The exit code that a shell reports for a program that a signal has ended.
        return _SIGNALLED + int(error.detail["number"])
    reported = error.detail.get("exit_code")
    return reported if isinstance(reported, int) else _OF_CODES.get(error.code, frames.INVALID)


def skipped() -> Result:
    """Return the result of a step whose condition does not hold."""
    return {"status": "skipped", "exit_code": 0}


def of_command(taken: Sequence[records.Record], output: plain.Object, argv: Sequence[str], *, provides: bool) -> Result:
    """Return the result of a command or a provider."""
    record, captured = taken[-1], dict(output.get("captured") or {})
    result = _measured(taken) | left_behind(output) | captured
    if provides:
        result["metrics"] = {
            "provider_execution_ms": _milliseconds(taken[-1:]),
            "file_io_ms": _milliseconds(taken[:-1]),
        }
    if record.error is not None:
        context = dict(record.error.detail.get("context") or _context(record.error))
        context["substituted_command"] = shown(argv)
        result["error"] = _error(record, output, context)
    return result


def left_behind(output: plain.Object) -> Result:
    """Return the number of processes that were left at the end of a command, and of those that survived."""
    counts = {name: output.get(name, 0) for name in ("leftovers", "survivors")}
    return counts if any(counts.values()) else {}


def shown(argv: Iterable[str]) -> list[plain.Json]:
    """Return a command for display: long arguments, such as prompts, are cut."""
    return [argument[:_ARGUMENT_CHARACTERS] for argument in argv]


def of_wait(taken: Sequence[records.Record], output: plain.Object) -> Result:
    """Return the result of a wait for files."""
    result = _measured(taken) | {name: output[name] for name in _WAITED if name in output}
    result["metrics"] = {"queue_wait_ms": output.get("wait_duration_ms", 0)}
    if taken[-1].error is not None:
        result["error"] = _error(taken[-1], {}, _context(taken[-1].error))
    return result


def of_refusal(taken: Sequence[records.Record]) -> Result:
    """Return the result of a step that could not begin."""
    error = taken[-1].error
    context = dict(error.detail) if error is not None else {}
    return _measured(taken) | {"error": _error(taken[-1], {}, context)}


def slot(result: plain.Object, record: records.Record) -> slots.Slot | None:
    """Return the slot for a step's result; None if the result has no text."""
    text = _text(result)
    if text is None:
        return None
    large = len(text) > records.BLOB_BYTES
    return slots.Slot(
        type="artifact",
        text=None if large else text,
        blob=record.blob if large else None,
        sha256=plain.sha256(text.encode()),
        summary=record.summary,
        key=record.key,
    )


def _text(result: plain.Object) -> str | None:
    if "output" in result:
        output: str = result["output"]
        return output
    if "json" in result:
        return plain.encode(result["json"]).decode()
    lines = result.get("lines", result.get("files"))
    return None if lines is None else "".join(f"{line}\n" for line in lines)


def _measured(taken: Sequence[records.Record]) -> Result:
    code = exit_code(taken[-1])
    return {
        "status": "failed" if code else "completed",
        "exit_code": code,
        "attempts": taken[-1].attempt,
        "started_at": (taken[0].line.get("earlier") or {}).get("started_at", taken[0].started_at),
        "completed_at": taken[-1].completed_at,
        "duration_ms": _milliseconds(taken),
    }


def _milliseconds(taken: Iterable[records.Record]) -> int:
    return round(sum(float(part.get("duration_ms") or 0) for record in taken for part in _tries(record)))


def _tries(record: records.Record) -> tuple[plain.Object, ...]:
    return (record.line, record.line.get("earlier") or {})


def _context(error: records.StepError) -> Result:
    if error.code == "timeout":
        return {"timed_out": True, "timeout_sec": error.detail.get("timeout_seconds")}
    if error.code == "idle":
        return {"timed_out": True, "idle_seconds": error.detail.get("idle_seconds")}
    return {name: value for name, value in error.detail.items() if name != "exit_code"}


def _error(record: records.Record, output: plain.Object, context: plain.Object) -> Result:
    message = record.error.message if record.error is not None else ""
    return {
        "message": message,
        "exit_code": exit_code(record),
        "stdout_tail": output.get("stdout_tail", []),
        "stderr_tail": output.get("stderr_tail", []),
        "context": dict(context),
    }


FILE = "state.json"  # Name of the file in the run's folder.
SCHEMA_VERSION = "1.1.1"  # Version of its schema, independent of the language's versions.

_STATUS: Mapping[states.RunState, str] = {
    states.RunState.DONE: "completed",
    states.RunState.FAILED: "failed",
    states.RunState.CANCELLED: "failed",
}
_RUNNING = "running"
_SECONDS = 19


class State:
    """The content of state.json."""

    def __init__(self, run: runs.RunStart, outermost: frames.Frame) -> None:
        frozen = run.frozen
        self._head: plain.Object = {
            "schema_version": SCHEMA_VERSION,
            "run_id": run.run_id,
            "workflow_file": run.options.get("workflow_file") or f"{run.recipe_id}.yaml",
            "workflow_checksum": frozen.get("workflow_checksum") or f"sha256:{run.recipe_sha256}",
            "started_at": run.created_at,
            "run_root": _root(run),
        }
        self._context = run.args
        self._outermost = outermost

    def files(self, standing: slots.ShownState) -> dict[str, plain.Json]:
        """Return the file by its name."""
        loops = {entered.key: entered.to_json() for entered in _loops(self._outermost)}
        return {
            FILE: {
                **self._head,
                "updated_at": standing.updated_at,
                "status": _STATUS.get(standing.status, _RUNNING),
                "context": self._context,
                "steps": self._outermost.shown(ended=standing.status in _STATUS),
                "for_each": loops,
            }
        }


def facts(run: runs.RunStart) -> dict[str, str]:
    """Return the values of `${run.…}`."""
    stamp = run.root_at[:_SECONDS].replace("-", "").replace(":", "")
    return {"id": run.root_id, "root": _root(run), "timestamp_utc": f"{stamp}Z"}


def _root(run: runs.RunStart) -> str:
    """Return the run's folder relative to the workspace; absolute if it is outside the workspace."""
    if run.folder is None:
        return run.root_id
    folder, workspace = PurePosixPath(run.folder), PurePosixPath(run.working_dir)
    return str(folder.relative_to(workspace) if folder.is_relative_to(workspace) else folder)


def _loops(frame: frames.Frame) -> Iterator[frames.Iterations]:
    for entered in frame.inside.values():
        yield entered
        if entered.current is not None:
            yield from _loops(entered.current)
