"""Perform `move_file`: put a file of the workspace into another folder."""

from __future__ import annotations

from app.domain import file_operations, plain, records
from app.engine import ports
from app.tools import moves, threads
from app.tools.workspaces import Workspaces


class MoveFilePerformer:
    """Move a file once, however often the step is tried."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def perform(self, call: ports.Call) -> records.Result:
        """Perform one try of a `file_operations.MoveFile`; a later one finds what an earlier one has done.

        A move that has begun is finished before a cancellation goes on.

        Raises:
            errors.ToolFailed: as `moves.carry_out`, or `not_a_file` for the workspace itself.
        """
        operation = call.operation
        assert isinstance(operation, file_operations.MoveFile)
        root = self._workspaces.of(call.run).place
        move = moves.Move.of(operation.source, operation.folder)
        await threads.finished(lambda: moves.carry_out(root, move, is_again=call.attempt > 1))
        return records.Result(
            output={"from": move.source, "to": move.target}, summary=plain.preview(f"{move.source} to {move.target}")
        )
