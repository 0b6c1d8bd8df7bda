"""The effect of SIGINT, SIGTERM and SIGHUP on a command, on both event loops."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
import uvloop

from app.worker import stop_signals


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    """Give the signals their default handlers for the test: under `nohup` SIGHUP is ignored, and is not caught."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_last_turn_of_the_loop_is_noted(loop_factory, number: signal.Signals) -> None:
    """A signal in the last turn of the loop is recorded, but the loop does not handle it and starts no stop."""
    before = signal.getsignal(number)
    stops: list[bool] = []

    async def stop(hurried: bool) -> None:
        stops.append(hurried)

    async def work() -> bool:
        signals = stop_signals.StopSignals(stop)
        with signals.caught():
            os.kill(os.getpid(), number)
        return signals.received

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            assert runner.run(work())
    finally:
        signal.signal(number, before)
    assert stops == []


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    "sent", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM)], ids=["asked", "closed"]
)
def test_each_signal_stops_once_more(loop_factory, sent: tuple[signal.Signals, ...]) -> None:
    """The second signal hurries the stop, but not the second SIGHUP of a closed terminal.

    Kernel and shell both send SIGHUP. After the block the signals have their former handlers.
    """
    stops: list[bool] = []
    begun = asyncio.Semaphore(0)

    async def stop(hurried: bool) -> None:
        stops.append(hurried)
        begun.release()

    async def work() -> int:
        signals = stop_signals.StopSignals(stop)
        with signals.caught():
            for numbers in (sent[:1], sent[1:]):
                for number in numbers:
                    os.kill(os.getpid(), number)
                await begun.acquire()
        await signals.stopped()
        return signals.asked

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(work()) == 2
    assert stops == [False, True]
    assert {signal.getsignal(number) for number in sent} == {signal.SIG_DFL}


def test_an_ignored_sighup_remains_ignored() -> None:
    """A SIGHUP that was ignored before stays ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def stop(hurried: bool) -> None:
        raise AssertionError(hurried)

    async def work() -> bool:
        signals = stop_signals.StopSignals(stop)
        with signals.caught():
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
        return signals.received

    try:
        assert asyncio.run(work()) is False
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
