"""The driver: execute steps in order, with jumps between them, and loops over lists."""

from __future__ import annotations

from app import errors
from app.dialects.orchestrate import dependencies, frames, results, step_flow, variables
from app.domain import file_operations, plain, records, runs, slots
from app.engine import ports

STEP_FAILED = "step_failed"  # Code and reason of runs that end with a failed step.
MOST_VISITS = 100_000
"""Most visits of the flow to a step of one scope. A run that exceeds this limit is in an endless loop and fails."""


async def drive(ctx: ports.Context) -> runs.Ending:
    """Execute the workflow frozen in the run."""
    return await _Workflow(ctx).execute()


class _Workflow:
    def __init__(self, ctx: ports.Context) -> None:
        self._ctx = ctx
        self._document = ctx.run.recipe
        self._facts = results.facts(ctx.run)
        self._outermost = frames.Frame(steps=self._document["steps"])
        self._unhandled: list[str] = []
        self._finished = 0
        self._total = ctx.run.frozen.get("total_steps")

    async def execute(self) -> runs.Ending:
        self._ctx.project(results.State(self._ctx.run, self._outermost).files)
        self._show()
        await self._pass(self._outermost)
        return runs.Ending(partial=bool(self._unhandled), failed_steps=tuple(self._unhandled))

    async def _pass(self, frame: frames.Frame) -> str | None:
        """Execute the steps of a frame, and return the step outside of it that the flow jumps to; None at its end."""
        index = 0
        while index < len(frame.steps):
            target = await self._step(frame, frame.steps[index])
            if target is not None and target not in frame.positions:
                # A jump from the last step, if it succeeded, ends an iteration in the same way as its end.
                frame.left_early = index < len(frame.steps) - 1 or frame.exit_code != 0
                return target
            index = index + 1 if target is None else frame.positions[target]
        return None

    async def _step(self, frame: frames.Frame, step: plain.Object) -> str | None:
        name: str = step["name"]
        visit = frame.visit(name)
        if visit > MOST_VISITS:
            message = f"the flow reached the step {name} more than {MOST_VISITS} times"
            raise errors.RunFailed(message, code="runs_in_circles", key=frame.key(name, visit))
        frame.running = name
        frame.running_facts = {}
        spot = self._spot(frame, step, frame.key(name, visit), visit)
        return await (self._loop if "for_each" in step else self._execute)(frame, step, spot)

    async def _execute(self, frame: frames.Frame, step: plain.Object, spot: step_flow.Spot) -> str | None:
        step_result = await step_flow.execute(self._ctx, step, spot)
        frame.results[step["name"]] = step_result.result
        if (slot := results.slot(step_result.result, step_result.records[-1])) is not None:
            self._ctx.fill(f"{frame.prefix}{step['name']}", slot)
        self._finished += 1
        return self._follow(frame, step, spot, step_result)

    def _follow(
        self, frame: frames.Frame, step: plain.Object, spot: step_flow.Spot, step_result: step_flow.StepResult
    ) -> str | None:
        frame.exit_code = step_result.exit_code
        frame.running = None
        self._show()
        strict, on_error = self._document["strict_flow"], self._ctx.run.options.get("on_error")
        after = frames.continuation(step, step_result.exit_code, strict_flow=strict, on_error=on_error)
        if after.unhandled:
            self._unhandled.append(spot.key)
        if after.stops or after.unhandled:
            frame.failed = True
        if after.stops:
            raise _failure(spot, step_result)
        return after.target

    # -- loops

    async def _loop(self, frame: frames.Frame, step: plain.Object, spot: step_flow.Spot) -> str | None:
        entered, items = await step_flow.enter(self._ctx, step, spot)
        if items is None:
            return self._passed_by(frame, step, spot, entered)
        over = frames.Iterations(key=spot.key, items=items)
        frame.inside[step["name"]], frame.results[step["name"]] = over, over.passed
        failed = False
        while len(over.passed) < len(items):
            inner = over.begin(step["for_each"], frame)
            target = await self._iterate(inner, step, spot)
            over.end()
            failed = failed or inner.failed
            if target is not None:
                frame.failed = frame.failed or failed
                # A loop that was left by a jump has neither succeeded nor failed.
                frame.exit_code = None
                return target
        return self._follow_loop(frame, step, failed=failed)

    async def _iterate(self, inner: frames.Frame, step: plain.Object, spot: step_flow.Spot) -> str | None:
        try:
            target = await self._pass(inner)
        except errors.RunFailed:
            await self._complete(inner, step, spot, success=False)
            raise
        await self._complete(inner, step, spot, success=not (inner.failed or inner.left_early))
        return target

    async def _complete(self, inner: frames.Frame, step: plain.Object, spot: step_flow.Spot, *, success: bool) -> None:
        scope = self._scope(inner)
        key = f"{spot.key}.moved[{scope.loops[0].index}]"
        inner.lifecycle = await apply(self._ctx, step["for_each"], key, spot.place, scope, success=success)

    def _passed_by(
        self, frame: frames.Frame, step: plain.Object, spot: step_flow.Spot, step_result: step_flow.StepResult
    ) -> str | None:
        frame.inside.pop(step["name"], None)
        frame.results[step["name"]] = step_result.result
        return self._follow(frame, step, spot, step_result)

    def _follow_loop(self, frame: frames.Frame, step: plain.Object, *, failed: bool) -> str | None:
        # A failure inside was already reported there; the loop's own handlers may still lead to another step.
        target = frames.continuation(step, int(failed), strict_flow=False).target
        is_late = self._ctx.run.driver_version >= step_flow.CURRENT_VERSION
        handled = target is not None if is_late else "failure" in step.get("on", {})
        frame.failed = frame.failed or (failed and not handled)
        frame.exit_code = int(failed)
        return target

    # -- place and scope

    def _spot(self, frame: frames.Frame, step: plain.Object, key: str, visit: int) -> step_flow.Spot:
        index = None if frame.outer is not None else frame.positions[step["name"]]
        slot = f"{frame.prefix}{step['name']}"
        place = records.Place(step_id=step["name"], step_index=index, output_slot=slot, visit=visit)
        return step_flow.Spot(key=key, place=place, scope=self._scope(frame), running=frame.running_facts)

    def _scope(self, frame: frames.Frame) -> variables.Scope:
        return variables.Scope(run=self._facts, context=self._ctx.run.args, loops=frame.loops, steps=frame.seen())

    def _show(self) -> None:
        self._ctx.show(slots.Progress(finished_steps=self._finished, total_steps=self._total))


def _failure(spot: step_flow.Spot, step_result: step_flow.StepResult) -> errors.RunFailed:
    error = step_result.result.get("error", {})
    detail = {"step": spot.place.step_id, "exit_code": step_result.exit_code, "context": error.get("context", {})}
    message = f"the step {spot.key} failed: {error.get('message') or f'exit code {step_result.exit_code}'}"
    return errors.RunFailed(
        message, code=STEP_FAILED, reason=STEP_FAILED, key=spot.key, detail=detail, causes=step_result.causes()
    )


async def apply(
    ctx: ports.Context, loop: plain.Object, key: str, place: records.Place, scope: variables.Scope, *, success: bool
) -> plain.Object | None:
    """Move an item's file, and return its entry in the state; None without a move. Errors only appear there."""
    action = loop.get("on_item_complete", {}).get("success" if success else "failure")
    if action is None:
        return None
    item, filler = scope.loops[0].item, variables.Filler(scope)
    folder = filler.text(action["move_to"])
    reported: dict[str, plain.Json] = {
        "result": "success" if success else "failure",
        "action": "move",
        "from": item,
        "to": None,
        "action_applied": False,
        "error": _problem(item, folder, filler, scope.run["root"]),
    }
    if reported["error"] is None:
        record = await ctx.perform(key, file_operations.MoveFile(source=item, folder=folder), place)
        error = record.error
        moved = {"to": record.output["to"], "action_applied": True} if error is None else {"error": error.message}
        reported.update(moved)
    if reported["error"] is not None:
        ctx.emit(f"{key}.{step_flow.UNMOVED}", {"index": scope.loops[0].index, "error": reported["error"]})
    return reported


def _problem(item: plain.Json, folder: str, filler: variables.Filler, run_root: str) -> str | None:
    if filler.gaps:
        return f"${{{filler.gaps[0].name}}} is undefined: {filler.gaps[0].reason}"
    if not isinstance(item, str):
        return "the item is not a text, so it cannot name a file"
    for path, problem in (
        (item, dependencies.problem(item)),
        (folder, dependencies.problem_of_target(folder, run_root)),
    ):
        if problem is not None:
            return f"the path {path!r:.200} {problem}"
    return None
