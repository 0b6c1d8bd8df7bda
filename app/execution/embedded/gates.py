"""
Gates: questions that wait for a person, and what answers them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app import clock, errors
from app.engine import operations, plain, pool_port, ports, records

Answer = dict[str, plain.Json]


@dataclass(slots=True, kw_only=True, eq=False)
class _Question:
    asked: pool_port.OpenGate
    answer: asyncio.Future[Answer]


class Gates:
    """
    Perform `Gate`: ask, and wait for the first answer or for the time to run out.
    """

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._questions: dict[str, dict[str, _Question]] = {}

    async def perform(self, call: ports.Call) -> records.Result:
        """
        Wait for the answer; its record is what makes it count.
        """
        question = _question(call)
        of_run = self._questions.setdefault(call.run.run_id, {})
        of_run[call.key] = question
        expiry = asyncio.create_task(self._expire(question))
        try:
            return records.Result(output=await question.answer)
        finally:
            expiry.cancel()
            del of_run[call.key]
            if not of_run and self._questions.get(call.run.run_id) is of_run:
                del self._questions[call.run.run_id]

    def open_gates(self, run_id: str) -> list[pool_port.OpenGate]:
        """
        Return the questions of a run that nobody has answered, in the order of asking.
        """
        return [question.asked for question in self._questions.get(run_id, {}).values() if not question.answer.done()]

    def answer(self, run_id: str, key: str, decision: str, message: str) -> bool:
        """
        Give the answer to an open question; tell whether there is one.

        Raises:
            errors.Conflict: `gate_decided`, it has its answer.
            errors.RequestInvalid: `unknown_decision`.
        """
        question = self._questions.get(run_id, {}).get(key)
        if question is None:
            return False
        options = question.asked.gate.options
        if decision not in options:
            told = f"{decision!r} is none of the gate's options: {', '.join(options)}"
            raise errors.RequestInvalid(told, code="unknown_decision", key=key, detail={"options": list(options)})
        if question.answer.done():
            raise decided(key)
        question.answer.set_result({"decision": decision, "message": message, "by_default": False})
        return True

    async def _expire(self, question: _Question) -> None:
        gate, expires_at = question.asked.gate, question.asked.expires_at
        if expires_at is None or gate.default is None:
            return
        await self._clock.sleep((clock.instant(expires_at) - self._clock.now()).total_seconds())
        if not question.answer.done():
            question.answer.set_result({"decision": gate.default, "message": "", "by_default": True})


def decided(key: str) -> errors.Conflict:
    """
    Make the error of an answer that comes second.
    """
    return errors.Conflict(f"the gate {key!r} is decided", code="gate_decided", key=key)


def _question(call: ports.Call) -> _Question:
    assert isinstance(call.operation, operations.Gate)
    asked = pool_port.OpenGate(
        run_id=call.run.run_id,
        key=call.key,
        attempt=call.attempt,
        gate=call.operation,
        expires_at=call.due_at,
    )
    return _Question(asked=asked, answer=asyncio.get_running_loop().create_future())
