"""Performers of the operations that the driver of session plans requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from app import errors, printable
from app.domain import plain, plan_files, plan_operations, plans, records, states
from app.engine import ports
from app.services.plans import tasks
from app.services.plans.adopt_tasks import Chief
from app.services.plans.drafts import Drafts
from app.services.plans.reviews import Reviews
from app.services.plans.run_outputs import RunOutputs
from app.services.runs import Runs

if TYPE_CHECKING:
    from app.services.plans.task_checks import TaskChecks


class PlanPerformer:
    """Starts the runs of tasks and of the chief, and reads the chief's results."""

    def __init__(
        self,
        *,
        runs: Runs,
        chief: Chief,
        outputs: RunOutputs,
        drafts: Drafts,
        checks: Callable[[], TaskChecks],
        reviews: Reviews,
    ) -> None:
        self._checks = checks
        self._reviews = reviews
        self._runs = runs
        self._drafts = drafts
        self._outputs = outputs
        self._chief = chief

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one operation; a run that was started before is found by its key."""
        operation: Any = call.operation
        if isinstance(operation, plan_operations.ReadOutputs):
            return await self._read(operation)
        if isinstance(operation, plan_operations.CheckTask):
            return await self._checks().perform(call, operation)
        if isinstance(operation, plan_operations.ReadReview):
            return await self._verdict(operation)
        plan = plan_files.from_json(operation.plan)
        match operation:
            case plan_operations.StartTask():
                return await _started(lambda: self._start(plan))
            case plan_operations.StartReview():
                return await _started(lambda: self._reviews.start(plan))
            case plan_operations.AskChief():
                return await _started(lambda: self._chief.start(plan))
            case plan_operations.TakeTasks():
                return await self._chief_tasks(plan, operation.run_id)
        raise TypeError(f"{operation.kind} is not an operation of plans")

    async def _start(self, plan: plans.Plan) -> str:
        request = await self._drafts.seen(tasks.run_request(plan, plan.tasks[0]))
        return (await self._runs.start(request)).run_id

    async def _read(self, asked: plan_operations.ReadOutputs) -> records.Result:
        values = [await self._outputs.wanted(each) for each in asked.wanted]
        return records.Result(
            output={"values": values}, summary=f"{printable.counted(len(values), 'output')} of earlier tasks"
        )

    async def _verdict(self, asked: plan_operations.ReadReview) -> records.Result:
        try:
            decision = await self._reviews.read(asked.session_id, asked.run_id)
        except errors.InputRefused as error:
            return _failed(error)
        return records.Result(output=decision, summary=f"review {asked.run_id}")

    async def _chief_tasks(self, plan: plans.Plan, run_id: str) -> records.Result:
        try:
            taken = await self._chief.tasks(plan, run_id)
        except errors.InputRefused as error:
            return _failed(error)
        made: list[plain.Json] = [task.to_json() for task in taken]
        return records.Result(output={"tasks": made}, summary=printable.counted(len(taken), "task"))


async def _started(start: Callable[[], Awaitable[str]]) -> records.Result:
    try:
        run_id = await start()
    except (errors.WriteFailed, errors.Unavailable) as error:
        # The engine waits until the disk has room, as for its own writes.
        raise errors.StorageFault(error.message, detail=error.detail) from error
    except errors.ControlRoomError as error:
        # A person may have edited the values that a run was started with; the run is found despite that.
        made_before = error.detail.get("run_id") if error.code == "idempotency_conflict" else None
        if not isinstance(made_before, str):
            return _failed(error)
        run_id = made_before
    return records.Result(output={"run_id": run_id}, summary=run_id)


def _failed(error: errors.ControlRoomError) -> records.Result:
    refusal: Any = tasks.refusal(error)
    failure = records.StepError(code=error.code, message=error.message, detail=refusal["detail"])
    return records.Result(status=states.StepState.FAILED, error=failure)
