"""Checks of tasks: compare the run of a task with a definition of done in the form that recipes use."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from app import errors
from app.dialects import control_room
from app.dialects.control_room import done, paths, prompts, refs
from app.domain import json_schemas, library, operations, plain, plan_operations, records, runs, slots, views
from app.engine import ports
from app.services import arguments
from app.services.plans import run_outputs
from app.services.recipes import PROJECT_DIALECT

MOST_CHECKS = 50  # Most checks of a task.

_ITERATION = re.compile(r"(#[0-9]+)?\[[0-9]+\]")


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
            problems = [*_problems(check)]
        except ValueError as error:
            problems = [f"names a value that cannot be: {error}"]
        yield from (errors.Flaw(path=f"{path}.dod[{index}]", message=problem) for problem in problems)


def unmet_flaws(
    dod: str | Sequence[Mapping[str, Any]], recipe: library.Recipe, language: object, path: str
) -> Iterator[errors.Flaw]:
    """Yield the flaws of a task's checks that no run of its recipe can pass: unknown slots, outputs and arguments.

    Args:
        dod: The task's definition of done, well-formed.
        language: The recipe's language; one that names no slots in its recipes leaves them to the run.
    """
    args = arguments.declared(recipe.args_schema)
    fills = language.slots(recipe.document) if isinstance(language, ports.SlotNamingDialect) else None
    is_open = recipe.args_schema.get("additionalProperties", False) is not False
    for index, check in enumerate(() if isinstance(dod, str) else dod):
        references = prompts.named_in_path(check["path"]) if "path" in check else ()
        names = [] if is_open else [reference.arg for reference in references if reference.arg not in (None, *args)]
        problems = [f"names the argument {name}, which the recipe {recipe.recipe_id} does not have" for name in names]
        problems += _unfilled(check, references, recipe, fills)
        yield from (errors.Flaw(path=f"{path}.dod[{index}]", message=problem) for problem in problems)


def _problems(check: plain.Object) -> Iterator[str]:
    if check.get("slot") == refs.TASK:
        yield f"{refs.TASK} is the root of the task's facts, and not a slot"
    if "field" in check:
        refs.read(done.field_path(check["slot"], check["field"]))
    if "path" not in check:
        return
    yield from (flaw.message for flaw in paths.flaws(check["path"], (), {}))
    for reference in prompts.named_in_path(check["path"]):
        if reference.root == refs.TASK:
            problem = refs.task_problem(reference, (reference.arg or "",))
            if problem is not None:
                yield problem[1]
            elif reference.steps[0] == refs.OUTPUTS and len(reference.steps) > 2:
                yield f"{reference.text} names a part of a path, which has none"


def _slots(check: plain.Object) -> list[str]:
    if "slot" in check:
        return [check["slot"]]
    return [each.root for each in prompts.named_in_path(check["path"]) if each.root != refs.TASK]


def _unfilled(
    check: plain.Object, references: Sequence[refs.Reference], recipe: library.Recipe, fills: Sequence[str] | None
) -> Iterator[str]:
    document: Any = recipe.document
    # Only pipelines write slots to files.
    written = [output["slot"] for output in document.get("outputs", ())] if recipe.dialect == PROJECT_DIALECT else []
    asked = [] if fills is None else [name for name in _slots(check) if _ITERATION.sub("[*]", name) not in fills]
    there = f"it fills {', '.join(fills)}" if fills else "it fills none"
    for name in dict.fromkeys(asked):
        yield f"names the slot {name}, which the recipe {recipe.recipe_id} does not fill; {there}"
    for reference in references:
        if reference.root == refs.TASK and reference.steps[0] == refs.OUTPUTS and reference.steps[1] not in written:
            there = f"it writes {', '.join(written)}" if written else "it writes none"
            yield f"names the file of {reference.steps[1]}, which the recipe {recipe.recipe_id} does not write; {there}"


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
        missing = [name for name in _slots(check) if name not in self._slots]
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
