"""Activities: failures that Temporal repeats take one line in the log, without a traceback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("temporalio")

from temporalio import testing
from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from app import errors
from app.temporal import activities


async def cut_off(**why: bool) -> BaseException:
    """Cancel an activity, and return the error with which it ends."""
    unused: Any = None
    made = activities.Activities(unused, unused, unused, unused, unused)
    begun = asyncio.Event()

    async def wait() -> None:
        async with made._reported("run"):
            begun.set()
            await asyncio.Event().wait()

    environment = testing.ActivityEnvironment()
    running = asyncio.ensure_future(environment.run(wait))
    await begun.wait()
    environment.cancel(ActivityCancellationDetails(**why))
    (ended,) = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(ended, BaseException)
    return ended


@pytest.mark.parametrize("why", ["timed_out", "not_found"])
async def test_a_try_that_the_server_has_given_up_is_logged_in_one_line(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that was frozen ends the try as an expected failure, which Temporal may repeat."""
    with caplog.at_level("INFO"):
        ended = await cut_off(**{why: True})

    assert isinstance(ended, ApplicationError)
    assert (ended.category, ended.non_retryable) == (ApplicationErrorCategory.BENIGN, False)
    assert [(line.levelname, line.exc_info) for line in caplog.records if line.name == "app.temporal.activities"] == [
        ("WARNING", None)
    ]


@pytest.mark.parametrize("why", ["cancel_requested", "worker_shutdown"])
async def test_a_cancel_remains_a_cancel(why: str) -> None:
    """An order of the workflow, or a stop of the worker, ends the try as cancelled."""
    assert isinstance(await cut_off(**{why: True}), asyncio.CancelledError)


async def test_an_outage_of_the_database_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many tries fail meanwhile, the log has one line when it begins and one when it ends, without traces."""
    unused: Any = None
    made = activities.Activities(unused, unused, unused, unused, unused)

    async def attempt(fault: errors.StorageFault | None) -> None:
        async with made._reported("run"):
            if fault is not None:
                raise fault

    async def fails(fault: errors.StorageFault) -> ApplicationError:
        with pytest.raises(ApplicationError) as caught:
            await testing.ActivityEnvironment().run(attempt, fault)
        return caught.value

    ended = [await fails(errors.DatabaseAway("the store is away")) for _ in range(3)]
    await testing.ActivityEnvironment().run(attempt, None)
    ended.append(await fails(errors.StorageFault("no room")))

    assert {(each.category, each.non_retryable) for each in ended} == {(ApplicationErrorCategory.BENIGN, False)}
    assert [(line.getMessage(), line.exc_info) for line in caplog.records] == [
        ("runs wait for the database: the store is away", None),
        ("runs no longer wait for the database", None),
        ("the run waits for a repetition: no room", None),
    ]
