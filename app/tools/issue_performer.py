"""
Perform the opening of issues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from app import clock
from app.engine import operations, plain, ports, records

PutIssue = Callable[[Mapping[str, plain.Json]], Awaitable[None]]
"""Keep an issue record; keeping it again replaces it."""


class IssuePerformer:
    """
    Write one issue record. Its id comes from run and key, so that a repetition finds its own.
    """

    def __init__(self, put_issue: PutIssue, clock: clock.Clock) -> None:
        self._put_issue = put_issue
        self._clock = clock

    async def perform(self, call: ports.Call) -> records.Result:
        """
        Perform one try of an `operations.OpenIssue`; the output is `{"issue_id"}`.
        """
        operation = call.operation
        assert isinstance(operation, operations.OpenIssue)
        name = issue_id(call.run.run_id, call.key)
        await self._put_issue(
            {
                "issue_id": name,
                "title": operation.title,
                "body": operation.body,
                "facts": plain.plain(operation.facts),
                "status": "open",
                "run_id": call.run.run_id,
                "session_id": call.run.session_id,
                "key": call.key,
                "receipts": list(operation.receipts),
                "created_at": clock.stamp(self._clock.now()),
            }
        )
        return records.Result(output={"issue_id": name}, summary=plain.preview(operation.title))


def issue_id(run_id: str, key: str) -> str:
    """
    Return `iss_` and twenty hexadecimal digits.
    """
    return f"iss_{plain.sha256(f'{run_id}:{key}'.encode())[:20]}"
