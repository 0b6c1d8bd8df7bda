"""
Perform the opening of issues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app import clock
from app.engine import issues, operations, plain, ports, records

OpenIssue = Callable[[issues.Issue], Awaitable[None]]
"""Keep an issue record; kept again, what a person has made of it meanwhile stays."""


class IssuePerformer:
    """
    Write one issue record. Its id comes from run and key, so that a repetition finds its own.
    """

    def __init__(self, open_issue: OpenIssue, clock: clock.Clock) -> None:
        self._open_issue = open_issue
        self._clock = clock

    async def perform(self, call: ports.Call) -> records.Result:
        """
        Perform one try of an `operations.OpenIssue`; the output is `{"issue_id"}`.
        """
        operation = call.operation
        assert isinstance(operation, operations.OpenIssue)
        name = issue_id(call.run.run_id, call.key)
        facts = plain.plain(operation.facts)
        await self._open_issue(
            issues.made(
                name,
                clock.stamp(self._clock.now()),
                title=operation.title,
                body=operation.body,
                kind=str(facts.get("kind") or issues.KIND),
                run_id=call.run.run_id,
                session_id=call.run.session_id,
                receipts=list(operation.receipts),
                facts=facts,
                key=call.key,
            )
        )
        return records.Result(output={"issue_id": name}, summary=plain.preview(operation.title))


def issue_id(run_id: str, key: str) -> str:
    """
    Return `iss_` and twenty hexadecimal digits.
    """
    return f"iss_{plain.sha256(f'{run_id}:{key}'.encode())[:20]}"
