"""The driver: execute steps in order, with their conditions, loops, failures and approvals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeAlias

from app.dialects.amplifier import asking, conditions, declarations, failures, loops, schema, showing, templates, walk
from app.dialects.amplifier.asking import Frame
from app.domain import plain, records, runs
from app.engine import ports

_Coroutine: TypeAlias = Coroutine[Any, Any, templates.Value]


async def drive(ctx: ports.Context) -> runs.Ending:
    """Execute the recipe frozen in the run."""
    flow = _Flow(ctx)
    for index, (place, stage) in enumerate(walk.stages(ctx.run.recipe)):
        if place:
            flow.enter(stage["name"], index)
        await flow.ask(stage, schema.BEFORE)
        for step in stage["steps"]:
            await flow.execute(step)
        await flow.ask(stage, schema.AFTER)
    return flow.end()


class _Flow:
    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._recipe = ctx.run.recipe
        self._version = self._recipe.get("schema", schema.FIRST)
        self._facts = templates.Scope(own=showing.facts(ctx.run), listed=False)
        # Runs that the first version of this driver began keep its rules to the end; otherwise, their journals
        # would not replay.
        self._first = ctx.run.driver_version == 1
        self._clears = ctx.run.driver_version > 3
        context = self._recipe.get("context", {})
        own = context if self._first else declarations.values(context, self._version)
        self._scope = templates.Scope(
            own={**own, **ctx.run.args}, around=self._facts, keeps_outputs=ctx.run.driver_version > 2
        )
        self._lanes = self._recipe.get("rate_limiting", {}).get("max_concurrent_llm")
        self._shown = showing.Shown(ctx)
        self._asker = asking.Asker(ctx, self._shown)
        self._index = 0
        self._prompts = asking.Prompts()
        self._over = False
        self._lost = set[str]()

    def enter(self, stage: str, index: int) -> None:
        """Make `stage` refer to a stage from now on."""
        self._facts.set(templates.STAGE, {"name": stage, "index": index})

    async def execute(self, step: plain.Object) -> None:
        """Execute a step of the recipe, or skip it if an earlier one has skipped the remaining steps."""
        frame = Frame(key=step["id"], scope=self._scope, lanes=self._lanes, prompts=self._prompts)
        try:
            if self._over:
                await self._asker.skip(step, frame, "an earlier step has skipped the remaining ones")
            else:
                await self._execute(step, frame)
        except failures.Remaining:
            self._over = True
        except failures.StepFailed as failure:
            raise failure.run_failed() from failure
        self._index += 1
        self._shown.fill(step, self._scope)
        self._shown.progress(self._index)

    async def ask(self, stage: plain.Object, when: str) -> None:
        """Ask for the approval of a stage, if it is required before or after its steps."""
        approval = stage.get("approval") or {}
        if self._over or not approval.get("required") or schema.when(approval) != when:
            return
        key = f"approval:{stage['name']}"
        try:
            gate = failures.gate(approval, self._scope)
        except templates.Undefined as gap:
            raise (await self._asker.refuse(key, "undefined_variable", gap.message("approval"))).run_failed() from gap
        record = await self._ctx.gate(key, gate, records.Place(step_id=key, output_slot=approval.get("output")))
        answer = failures.answer(stage["name"], record)
        self._facts.set(templates.APPROVAL, answer)
        self._facts.set(templates.APPROVAL_MESSAGE, answer["message"])
        if "output" in approval:
            self._scope.set(approval["output"], answer)
            self._shown.fill_one(approval["output"], answer, key)
        if answer["decision"] != schema.APPROVE:
            raise failures.denied(key, answer)

    def end(self) -> runs.Ending:
        """Publish the result, and return the ending."""
        self._shown.result(schema.final(self._recipe), self._scope)
        return self._shown.ending(skipped=self._over)

    # -- one step

    async def _execute(self, step: plain.Object, frame: Frame) -> templates.Value:
        inner = frame.scope.inside(step={"id": step["id"], "index": self._index})
        here = frame.inside(frame.key, inner, wanted=frame.wanted or "output" in step or "collect" in step)
        if "condition" in step and not await self._holds(step, "condition", frame.key, inner):
            await self._asker.skip(step, frame, "condition evaluated to false", condition=step["condition"])
            return None
        try:
            value = await self._repeated(step, here)
        except failures.StepFailed as failure:
            follows = step.get("on_error", schema.FAIL)
            if follows == schema.FAIL:
                raise
            self._shown.went_past(failure)
            value = None
            if follows == schema.CONTINUE and not self._first:
                value = self._left(step, failure.printed, here)
            frame.scope.leave(inner)
            if follows == schema.SKIP_REMAINING:
                raise failures.Remaining from failure
            return value
        except failures.Remaining:
            frame.scope.leave(inner)
            raise
        frame.scope.leave(inner)
        return value

    def _left(self, step: plain.Object, printed: templates.Value, frame: Frame) -> templates.Value:
        """Set the variables of a failed step, and return its result: null, or the output of a command."""
        for name in walk.SETTING:
            asking.set_variable(step, name, printed if name == "output" else None, frame)
        return printed

    async def _repeated(self, step: plain.Object, frame: Frame) -> templates.Value:
        if "foreach" not in step and "while_condition" not in step:
            value = await self._body(step, step, frame)
            asking.set_variable(step, "output", value, frame)
            return value
        results = await (self._each(step, step, frame) if "foreach" in step else self._while(step, frame))
        if not results:
            why = "the list is empty" if "foreach" in step else "while_condition evaluated to false"
            await self._asker.skip(step, frame, why)
        asking.set_variable(step, "collect", results, frame)
        return results

    async def _body(self, loop: plain.Object, step: plain.Object, frame: Frame) -> templates.Value:
        if "nested_foreach" in loop:
            return await self._each(loop["nested_foreach"], step, frame)
        body = schema.body_of(step)
        if body is not None:
            return await self._group(step, body, frame)
        return await self._asker.act(step, frame)

    async def _group(self, step: plain.Object, body: str, frame: Frame) -> templates.Value:
        substeps: Mapping[str, plain.Object] = {one["id"]: one for one in step[body]}
        width = None if "foreach" in step else loops.width(step.get("parallel"), len(substeps), frame.lanes)
        # In a loop, the setting applies to the other iterations.
        continues_after_errors = (
            "foreach" not in step and "while_condition" not in step and step.get("continue_on_error", False)
        )
        # The value of `steps` is that of the last one; `substeps` have a value each.
        wanted = list(substeps)[-1:] if body == schema.STEPS else list(substeps)
        values: Mapping[str, templates.Value]
        if width is None:
            frames = {name: frame.inside(f"{frame.key}.{name}", frame.scope) for name in substeps}
            values = {
                name: await self._substep(continues_after_errors, substeps[name], one, wanted)
                for name, one in frames.items()
            }
        else:
            frames = frame.beside({f".{name}": frame.scope.inside() for name in substeps}, width)
            taken = {
                name: self._substep(continues_after_errors, substeps[name], one, wanted) for name, one in frames.items()
            }
            values = await self._at_once(frame, frames, taken, width)
        if body == schema.STEPS:
            return values[wanted[0]]
        return {name: templates.spoken(value) for name, value in values.items()}

    async def _substep(
        self, continues_after_errors: bool, step: plain.Object, frame: Frame, wanted: Collection[str]
    ) -> templates.Value:
        here = frame.inside(frame.key, frame.scope, wanted=frame.wanted and step["id"] in wanted)
        value = await self._past(continues_after_errors, self._execute, here, step)
        return self._left(step, value, frame) if self._clears and frame.key in self._lost else value

    async def _at_once(
        self, around: Frame, frames: Mapping[str, Frame], taken: Mapping[str, _Coroutine], width: int
    ) -> dict[str, templates.Value]:
        try:
            values = await self._ctx.gather(taken, limit=width)
        except (failures.StepFailed, failures.Remaining):
            # Variables of finished branches remain, as in a sequence.
            if not self._first:
                _leave(around, frames)
            raise
        _leave(around, frames)
        return values

    async def _past(
        self, continues_after_errors: bool, take: Callable[..., _Coroutine], frame: Frame, *params: plain.Object
    ) -> templates.Value:
        try:
            return await take(*params, frame)
        except failures.StepFailed as failure:
            if not continues_after_errors:
                raise
            self._shown.went_past(failure)
            self._lost.add(frame.key)
            return None if self._first else failure.printed

    # -- loops

    async def _each(self, loop: plain.Object, step: plain.Object, frame: Frame) -> list[plain.Json]:
        try:
            items = loops.items(loop, frame.scope)
        except (templates.Undefined, loops.Unfit) as failure:
            raise await self._asker.undecided(step, "foreach", frame.key, failure) from failure
        width = loops.width(loop.get("parallel"), len(items), frame.lanes)
        if width is not None and items:
            return await self._each_at_once(loop, step, frame, items, width)
        results: list[plain.Json] = []
        for number, item in enumerate(items):
            inner = frame.scope.inside(**loops.variables(loop, item, number))
            there = frame.inside(f"{frame.key}[{number}]", inner)
            results.append(await self._iteration(loop, step, there))
            # A failed iteration has no result to examine.
            breaks = schema.break_of(loop)
            requested = breaks if there.key not in self._lost else None
            over = requested is not None and await self._holds(loop, requested, f"{there.key}:{requested}", inner, step)
            frame.scope.leave(inner)
            if over:
                break
        return results

    async def _each_at_once(
        self, loop: plain.Object, step: plain.Object, frame: Frame, items: list[plain.Json], width: int
    ) -> list[plain.Json]:
        scopes = {
            f"[{number}]": frame.scope.inside(**loops.variables(loop, item, number))
            for number, item in enumerate(items)
        }
        frames = frame.beside(scopes, width)
        taken = {name: self._iteration(loop, step, one) for name, one in frames.items()}
        return list((await self._at_once(frame, frames, taken, width)).values())

    async def _iteration(self, loop: plain.Object, step: plain.Object, frame: Frame) -> plain.Json:
        continues_after_errors = loop.get("continue_on_error", False)
        if not self._first:
            continues_after_errors = continues_after_errors or step.get("on_error") == schema.CONTINUE
        try:
            value = await self._past(continues_after_errors, self._body, frame, loop, step)
        except (failures.StepFailed, failures.Remaining):
            # The run may still continue or end as done: what the iteration has set remains.
            if self._clears and frame.scope.around is not None:
                frame.scope.around.leave(frame.scope)
            raise
        asking.set_variable(step, "output", value, frame)
        if self._clears and frame.key in self._lost:
            asking.set_variable(step, "output_exit_code", None, frame)
        return templates.spoken(value)

    async def _while(self, step: plain.Object, frame: Frame) -> list[plain.Json]:
        results: list[plain.Json] = []
        while True:
            key = f"{frame.key}[{len(results)}]"
            if not await self._holds(step, "while_condition", f"{key}:while_condition", frame.scope):
                return results
            # The limit is checked only here: a loop whose condition is false after its last iteration is within it.
            if len(results) == loops.limit(step):
                message = f"while_condition is still true after {len(results)} iterations, which max_iterations allows"
                failure = loops.Unfit("too_many_iterations", message)
                raise await self._asker.undecided(step, "while_condition", f"{key}:while_condition", failure)
            own = loops.variables(step, None, len(results))
            inner = frame.scope.inside(**own, **({} if self._first else loops.counters(len(results))))
            results.append(await self._iteration(step, step, frame.inside(key, inner)))
            await self._update(step, key, inner)
            over = "break_when" in step and not (self._clears and key in self._lost)
            over = over and await self._holds(step, "break_when", f"{key}:break_when", inner)
            frame.scope.leave(inner)
            if over:
                return results

    async def _update(self, step: plain.Object, key: str, scope: templates.Scope) -> None:
        changed: dict[str, plain.Json] = {}
        for name, value in step.get("update_context", {}).items():
            try:
                changed[name] = templates.filled(value, scope)
            except templates.Undefined as gap:
                # A failed iteration has no result; what would need it stays as it is.
                if not (self._clears and key in self._lost):
                    raise await self._asker.undecided(step, "update_context", f"{key}:update_context", gap) from gap
        for name, value in changed.items():
            scope.set(name, value)

    async def _holds(
        self, holder: plain.Object, name: str, key: str, scope: templates.Scope, step: plain.Object | None = None
    ) -> bool:
        condition = conditions.parse(holder[name], self._version)
        try:
            return conditions.holds(condition, lambda variable: templates.written(scope.find(variable)))
        except (templates.Undefined, conditions.Undecidable) as failure:
            raise await self._asker.undecided(step or holder, name, key, failure) from failure


def _leave(around: Frame, frames: Mapping[str, Frame]) -> None:
    # The variables of branches take effect after all branches, in the order of the recipe, not of their completion.
    for frame in frames.values():
        around.scope.leave(frame.scope)
