"""Checks of tasks: compare the run of a task with a definition of done in the form that recipes use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from app import errors
from app.dialects import control_room
from app.dialects.control_room import done, prompts, refs
from app.domain import json_schemas, operations, plain, plan_operations, records, runs, slots, views
from app.engine import ports
from app.services.plans import run_outputs

MOST_CHECKS = 50  # Most checks of a task.


def flaws(checks: Sequence[Any], path: str) -> Iterator[errors.Flaw]:
    """Yield the flaws of a task's checks, each at its position below `path`."""
    if len(checks) > MOST_CHECKS:
        yield errors.Flaw(path=f"{path}.dod", message=f"has more than {MOST_CHECKS} checks")
        return
    document: Any = control_room.schema.json_schema()
    schema = {"type": "array", "items": {"$ref": "#/$defs/check"}, "$defs": document["$defs"]}
    found = json_schemas.flaws(schema, plain.plain(list(checks)), ("dod",))
    yield from (dataclasses.replace(flaw, path=f"{path}{flaw.path[1:]}") for flaw in found)
    for index, check in enumerate(checks) if not found else ():
        try:
            _ = prompts.named_in_path(check["path"]) if "path" in check else None
            _ = refs.read(done.field_path(check["slot"], check["field"])) if "field" in check else None
        except ValueError as error:
            yield errors.Flaw(path=f"{path}.dod[{index}]", message=f"names a value that cannot be: {error}")


class TaskChecks:
    """Applies the checks of a task to its run."""

    def __init__(
        self, *, outputs: run_outputs.RunOutputs, performers: Callable[[], Mapping[str, ports.Performer]]
    ) -> None:
        self._outputs = outputs
        self._performers = performers

    async def perform(self, call: ports.Call, asked: plan_operations.CheckTask) -> records.Result:
        """Return `{"checks", "failed"}`: the number of checks, and the failed ones in the form of a run's `dod_failed`.

        Raises:
            errors.StepError: the run is gone or damaged, or a check has the wrong form.
        """
        wrong = next(flaws(asked.checks, "$"), None)
        if wrong is not None:
            raise errors.StepError(f"{wrong.path}: {wrong.message}; correct the task, and retry it", code="dod_invalid")
        try:
            ended = await _Ended.of(await self._outputs.view(asked.run_id), self._outputs, call, self._performers())
        except (errors.NotFound, errors.JournalCorrupt) as error:
            raise errors.StepError(f"its run cannot be checked: {error.message}", code=error.code) from error
        results = [await ended.checked(index, check) for index, check in enumerate(asked.checks)]
        failed: list[plain.Json] = [
            {"key": each.key, "check": plain.plain(each.check), "message": each.problem}
            for each in results
            if each.problem is not None
        ]
        message = "; ".join(each.message for each in results if each.problem is not None)
        return records.Result(
            output={"checks": len(results), "failed": failed, "message": message},
            summary=plain.preview(message or "all hold"),
        )


class _Ended:
    """An ended run in the form that the checks of a recipe use: they read its slots, and request looks at files."""

    def __init__(self, call: ports.Call, start: runs.RunStart, performers: Mapping[str, ports.Performer]) -> None:
        self.run = start
        self._call = call
        self._performers = performers
        self._ctx = cast(ports.Context, self)
        self._values = refs.Values(self._ctx)
        self._slots: frozenset[str] = frozenset()

    @classmethod
    async def of(
        cls,
        view: views.RunView,
        outputs: run_outputs.RunOutputs,
        call: ports.Call,
        performers: Mapping[str, ports.Performer],
    ) -> _Ended:
        ended = cls(call, view.start, performers)
        for name, slot in view.board.slots.items():
            ended._values.fill(name, refs.Filled(slot=slot, value=await outputs.content(view, slot)))
        for name, path in run_outputs.paths(view).items():
            ended._values.wrote(name, path)
        ended._slots = frozenset(view.board.slots)
        return ended

    async def checked(self, index: int, check: plain.Object) -> done.CheckResult:
        named = [check["slot"]] if "slot" in check else [each.root for each in prompts.named_in_path(check["path"])]
        missing = [name for name in named if name not in self._slots and name != refs.TASK]
        if missing:
            there = ", ".join(sorted(self._slots)) or "none"
            return done.CheckResult(
                index=index, check=check, problem=f"the run has no slot {missing[0]}; there are: {there}"
            )
        return await done.checked(self._ctx, self._values, index, check)

    def fill(self, name: str, slot: slots.Slot) -> None:
        """Do nothing: the run has ended."""

    async def perform(self, key: str, operation: operations.Operation, place: records.Place) -> records.Record:
        """Look at a file like a step of the run; a refusal is returned unchanged."""
        if isinstance(operation, operations.Refusal):
            result = records.Result(error=records.StepError(code=operation.code, message=operation.message))
        else:
            looked = dataclasses.replace(self._call, run=self.run, key=key, operation=operation, place=place)
            try:
                result = await self._performers[operation.kind].perform(looked)
            except errors.StepError as error:
                result = records.Result(error=records.StepError(code=error.code, message=error.message))
        # The checks read only the result and the error of a record.
        return cast(records.Record, result)
