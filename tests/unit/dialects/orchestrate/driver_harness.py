"""A workflow in a harness: the real dialect and runner, with a stub of files and programs that are tables."""

from __future__ import annotations

import asyncio
import fnmatch
import json
from collections.abc import Callable, Mapping
from typing import Any

from app import clock, errors
from app.dialects.orchestrate import Orchestrate
from app.domain import file_operations, library, operations, plain, records
from app.domain.states import RunState, StepState
from app.engine import probes, refusal_performers, runner
from app.engine.run_equipment import Equipment
from app.tools import captures
from tests.unit.dialects.orchestrate import workflow_harness
from tests.unit.engine import logs, samples

Program = Callable[[operations.Command], tuple[int, str]]


TIMES = (
    "started_at",
    "completed_at",
    "duration_ms",
    "updated_at",
    "prev",
    "attempt",
    "attempts",
    "retry_at",
    "earlier",
)
"""Fields that differ between two runs of the same workflow."""


class Died(BaseException):
    """The process has died."""


class StubWork:
    """Files by path and programs by name; records the operations."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.programs: dict[str, Program] = {
            "echo": lambda command: (0, " ".join(command.argv[1:]) + "\n"),
            "true": lambda command: (0, ""),
            "false": lambda command: (1, ""),
            "exit": lambda command: (int(command.argv[1]), ""),
            "cat": lambda command: (0, str(command.stdin or "")),
        }
        self.results: dict[str, list[int]] = {}
        self.asked: list[tuple[str, operations.Operation]] = []
        self.dying: tuple[str, int] | None = None
        self.unreadable = False

    async def perform(self, call: Any) -> records.Result:
        """Perform one attempt."""
        self.asked.append((call.key, call.operation))
        if self.dying is not None and (call.key, call.attempt) == self.dying:
            raise Died
        match call.operation:
            case operations.Command() as command:
                return self._command(call.key, command)
            case file_operations.FindFiles() if self.unreadable:
                raise errors.StepError("the folder cannot be read", code="not_found")
            case file_operations.FindFiles(patterns=patterns):
                return records.Result(output={"found": {pattern: self._fitting(pattern) for pattern in patterns}})
            case file_operations.ReadFiles() as read:
                return self._read(read)
            case file_operations.WaitForFiles() as wait:
                return self._wait(wait)
            case file_operations.MoveFile() as move:
                return self._move(move)
        raise AssertionError(call.operation)

    def order(self) -> list[str]:
        """Return the requested keys, in order."""
        return [key for key, _ in self.asked]

    def _command(self, key: str, command: operations.Command) -> records.Result:
        code, said = self.programs[command.argv[0]](command)
        if self.results.get(key):
            code = self.results[key].pop(0)
        assert command.capture is not None
        output = captures.StandardOutput(text=said, size_bytes=len(said.encode()), complete=True)
        rules = captures.Rules(
            mode=command.capture.mode,
            allow_parse_error=command.capture.allow_parse_error,
            require=command.capture.require,
        )
        made = captures.captured(output, code, rules)
        facts = {"exit_code": code, "captured": dict(made.fields), "env_count": 3}
        if code == 0 and made.exit_code == 0:
            return records.Result(output=facts)
        error = records.StepError(code="exit_code", message=f"exit code {code}", detail={"exit_code": code})
        if code == 0:
            detail = {"exit_code": made.exit_code, "context": dict(made.context)}
            error = records.StepError(code="output_invalid", message=made.message or "", detail=detail)
        tails = {"stdout_tail": captures.tail(said), "stderr_tail": []}
        return records.Result(status=StepState.FAILED, output=facts | tails, error=error)

    def _fitting(self, pattern: str) -> list[str]:
        return sorted(path for path in self.files if fnmatch.fnmatchcase(path, pattern))

    def _read(self, read: file_operations.ReadFiles) -> records.Result:
        for path in read.paths:
            if path not in self.files:
                raise errors.StepError(f"{path} is not there", code="file_not_found", detail={"path": path})
        told = {
            path: {"text": self.files.get(path), "size_bytes": len(self.files.get(path, "")), "folder": False}
            for path in (*read.paths, *read.excerpts)
        }
        return records.Result(output={"files": told})

    def _wait(self, wait: file_operations.WaitForFiles) -> records.Result:
        found = (wait.literal and self._fitting(wait.literal)) or self._fitting(wait.pattern)
        timed_out = len(found) < wait.min_count
        output = {"files": found, "wait_duration_ms": 7, "poll_count": 1, "timed_out": timed_out}
        if not timed_out:
            return records.Result(output=output)
        detail = {"timeout_seconds": wait.timeout_seconds}
        error = records.StepError(code="timeout", message="no files came", detail=detail)
        return records.Result(status=StepState.FAILED, output=output, error=error)

    def _move(self, move: file_operations.MoveFile) -> records.Result:
        if move.source not in self.files:
            raise errors.StepError(f"{move.source} is not there", code="file_not_found")
        target = f"{move.folder}/{move.source.rpartition('/')[2]}"
        self.files[target] = self.files.pop(move.source)
        return records.Result(output={"from": move.source, "to": target})


class Skipping:
    """A performer of `skip`."""

    async def perform(self, call: Any) -> records.Result:
        """Return the result that the operation contains."""
        return records.Result(
            status=StepState.SKIPPED, output=plain.plain(call.operation.detail), summary=call.operation.reason
        )


class Play:
    """One run of a workflow, which can be taken up again and again."""

    def __init__(self, *steps: Any, document: Any = None, **facts: Any) -> None:
        more = {name: facts.pop(name) for name in ("strict_flow", "context", "version") if name in facts}
        text = document or json.dumps(workflow_harness.workflow(*steps, **more))
        self.dialect = Orchestrate()
        self.recipe = self.dialect.parse(text, "flow")
        frozen = self.dialect.freeze(self.recipe, library.Library())
        given = {
            "args": self.recipe.document.get("context", {}),
            "working_dir": "/workspace",
            "folder": "/workspace/.o/runs/r",
        }
        self.disk = logs.Disk(
            samples.start(
                dialect="orchestrate",
                recipe_id="flow",
                recipe=plain.plain(self.recipe.document),
                frozen=plain.plain(frozen),
                **(given | facts),
            )
        )
        self.stub = StubWork()
        self.clock = clock.FakeClock()
        self.last: Any = None

    async def run(self) -> RunState:
        """Take the run up and continue until it rests."""
        kinds = ("command", "find_files", "read_files", "wait_for_files", "move_file")
        performers: dict[str, Any] = {
            **dict.fromkeys(kinds, self.stub),
            "refusal": refusal_performers.RefusalPerformer(),
            "skip": Skipping(),
        }
        equipment = Equipment(performers=performers, clock=self.clock, masker=plain.Masker(), probes=probes.NoProbes())
        log: Any = logs.ListLog(self.disk)
        self.last = runner.Runner(log, self.dialect, equipment, logs.CountedSlots(), lambda: None)
        state: RunState = await asyncio.wait_for(self.last.run(), 60)
        return state

    @property
    def state(self) -> Mapping[str, Any]:
        """Return state.json."""
        told: Mapping[str, Any] = self.disk.files["state.json"]
        return told

    @property
    def ended(self) -> Mapping[str, Any]:
        """Return the run's ending."""
        return next(line for line in map(json.loads, reversed(self.disk.control)) if line["kind"] == "ended")


def comparable(value: Any) -> Any:
    """Return a value without the fields that differ between two runs of the same workflow."""
    match value:
        case dict():
            return {name: comparable(item) for name, item in value.items() if name not in TIMES}
        case list():
            return [comparable(item) for item in value]
    return value


def lines(play: Play) -> list[Any]:
    """Return the lines of a run's journal without those fields."""
    return [comparable(json.loads(line)) for line in play.disk.steps]
