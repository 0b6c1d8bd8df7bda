"""Gates: questions that wait for a person, and what answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from app import clock, errors
from app.domain import gates, operations, records
from app.engine import ports


@dataclass(slots=True, kw_only=True, eq=False)
class _Question:
    asked: gates.OpenGate
    answer: asyncio.Future[gates.Answer]


class GateRegister:
    """Perform `Gate`: ask, and wait for the first answer or for the time to run out."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._questions: dict[str, dict[str, _Question]] = {}

    async def perform(self, call: ports.Call) -> records.Result:
        """Wait for the answer; its record is what makes it count."""
        question = _question(call)
        of_run = self._questions.setdefault(call.run.run_id, {})
        of_run[call.key] = question
        expiry = asyncio.create_task(self._expire(question))
        try:
            answer = await question.answer
            return records.Result(output=answer.on(question.asked), summary=_summary(answer))
        finally:
            expiry.cancel()
            del of_run[call.key]
            if not of_run and self._questions.get(call.run.run_id) is of_run:
                del self._questions[call.run.run_id]

    def open_gates(self, run_id: str | None = None) -> list[gates.OpenGate]:
        """Return the questions of a run, or of all, that nobody has answered, in the order of asking."""
        asking: Mapping[str, Mapping[str, _Question]] = self._questions
        if run_id is not None:
            asking = {run_id: asking.get(run_id, {})}
        return [
            question.asked for of_run in asking.values() for question in of_run.values() if not question.answer.done()
        ]

    def answer(
        self, run_id: str, key: str, answer: gates.Answer, attempt: int | None = None
    ) -> tuple[int, bool] | None:
        """Give the answer to a question; return which try it is and whether this was its first answer, or None if
        nothing is asked there.

        Raises:
            errors.Conflict: `gate_lapsed`, that try of the step is not the present one.
            errors.RequestInvalid: `unknown_decision`.
        """
        question = self._questions.get(run_id, {}).get(key)
        if question is None:
            return None
        if attempt not in (None, question.asked.attempt):
            raise errors.Conflict(f"the gate {key!r} was asked anew since", code="gate_lapsed", key=key)
        _refuse_unknown(answer.decision, question.asked)
        if self._left_seconds(question.asked) <= 0:
            self._take_default(question)
        if question.answer.done():
            return question.asked.attempt, False
        question.answer.set_result(answer)
        return question.asked.attempt, True

    async def _expire(self, question: _Question) -> None:
        if question.asked.expires_at is not None:
            await self._clock.sleep(self._left_seconds(question.asked))
            self._take_default(question)

    def _left_seconds(self, asked: gates.OpenGate) -> float:
        if asked.expires_at is None:
            return float("inf")
        return (clock.instant(asked.expires_at) - self._clock.now()).total_seconds()

    def _take_default(self, question: _Question) -> None:
        default = question.asked.gate.default
        if default is not None and not question.answer.done():
            question.answer.set_result(gates.Answer(decision=default, by_default=True))


def _question(call: ports.Call) -> _Question:
    assert isinstance(call.operation, operations.Gate)
    asked = gates.OpenGate(
        start=call.run,
        key=call.key,
        attempt=call.attempt,
        gate=call.operation,
        asked_at=call.asked_at,
        expires_at=call.due_at if call.operation.default is not None else None,
    )
    return _Question(asked=asked, answer=asyncio.get_running_loop().create_future())


def _refuse_unknown(decision: str, asked: gates.OpenGate) -> None:
    options = asked.gate.options
    if decision not in options:
        told = f"{decision!r:.80} is none of the gate's options: {', '.join(options)}"
        raise errors.RequestInvalid(told, code="unknown_decision", key=asked.key, detail={"options": list(options)})


def _summary(answer: gates.Answer) -> str:
    return f"{answer.decision}: {answer.message}" if answer.message else answer.decision
