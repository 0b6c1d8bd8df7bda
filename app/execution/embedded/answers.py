"""
Answers: a person's decision about a gate, accepted once its line is durable.
"""

from __future__ import annotations

from collections.abc import Sequence

from app import errors
from app.engine import records, stores
from app.execution.embedded.gates import Gates, decided
from app.execution.embedded.house import House


class Answers:
    """
    Pass answers on to the gates of runs.
    """

    def __init__(self, gates: Gates, store: stores.RunStore, house: House) -> None:
        self._gates = gates
        self._store = store
        self._house = house

    async def give(self, run_id: str, key: str, decision: str, message: str) -> None:
        """
        Answer a gate, and wait for the line that makes the answer count.

        Raises:
            errors.NotFound, errors.Conflict, errors.RequestInvalid: as `RunEngine.decide`; also `not_recorded`, the run
                came to rest before the line was written.
        """
        if not self._gates.answer(run_id, key, decision, message):
            if _is_recorded((await self._store.read(run_id)).records, key):
                raise decided(key)
            raise errors.NotFound(f"the run {run_id} has no open gate {key!r}", code="unknown_gate", key=key)
        while not await self._is_written(run_id, key):
            pass

    async def _is_written(self, run_id: str, key: str) -> bool:
        number = self._house.changes.number(run_id)
        stay = self._house.stays.get(run_id)
        if stay is None or stay.runner is None:
            asleep = stay is not None and stay.asleep is not None
            if _is_recorded((await self._store.read(run_id)).records, key):
                return True
            if not asleep:
                told = "the run came to rest before the answer was written"
                raise errors.Conflict(told, code="not_recorded", key=key)
        elif _is_recorded(stay.runner.view().records, key):
            return True
        await self._house.changes.differs(run_id, number)
        return False


def _is_recorded(lines: Sequence[records.Record], key: str) -> bool:
    return any(line.key == key and isinstance(line.output, dict) and "by_default" in line.output for line in lines)
