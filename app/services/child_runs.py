"""Children: runs that a run starts, by the same door as every run."""

from __future__ import annotations

from app.domain import operations, plain
from app.engine import ports, run_engine
from app.services.requests import StartRequest
from app.services.runs import Runs


class Children:
    """Start the run that a `ChildRun` asks for, or find the one that an earlier try of the same step started."""

    def __init__(self, *, runs: Runs, engine: run_engine.RunEngine) -> None:
        self._runs = runs
        self._engine = engine

    async def start(self, call: ports.Call) -> str:
        """Return the child's id; an unfinished one that was found goes on.

        Raises:
            errors.ControlRoomError: the child cannot be started.
        """
        started = await self._runs.start(_request(call))
        if started.existed and not started.status.finished:
            await self._engine.submit(started.run_id)
        return started.run_id


def _request(call: ports.Call) -> StartRequest:
    operation, parent = call.operation, call.run
    assert isinstance(operation, operations.ChildRun)
    return StartRequest(
        recipe_id=operation.recipe_id,
        args=operation.args,
        description=operation.description or None,
        working_dir=parent.working_dir,
        priority=parent.priority,
        parent_run_id=parent.run_id,
        owner=parent.owner,
        idempotency_key=f"child:{parent.run_id}:{plain.sha256(call.key.encode())[:32]}",
    )
