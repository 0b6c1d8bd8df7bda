"""What SIGINT, SIGTERM and SIGHUP do to a command, on both event loops."""

import asyncio
import os
import signal

import pytest
import uvloop

from app.worker import stop_signals


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_last_turn_of_the_loop_is_noted(loop_factory, number: signal.Signals) -> None:
    """The loop itself never handles it, and starts no stop."""
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
def test_each_signal_stops_once_more(loop_factory) -> None:
    """The second hurries the stop; after the block the signals are what they were."""
    stops: list[bool] = []
    begun = asyncio.Semaphore(0)

    async def stop(hurried: bool) -> None:
        stops.append(hurried)
        begun.release()

    async def work() -> int:
        signals = stop_signals.StopSignals(stop)
        with signals.caught():
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
                await begun.acquire()
        await signals.stopped()
        return signals.asked

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(work()) == 2
    assert stops == [False, True]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_closed_terminal_stops_and_hurries_nothing(loop_factory) -> None:
    """Its SIGHUP may come twice, from the kernel and from the shell; a signal of a person hurries."""
    stops: list[bool] = []
    begun = asyncio.Semaphore(0)

    async def stop(hurried: bool) -> None:
        stops.append(hurried)
        begun.release()

    async def work() -> None:
        signals = stop_signals.StopSignals(stop)
        with signals.caught():
            for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
                os.kill(os.getpid(), number)
                if number == signal.SIGHUP and stops:
                    continue
                await begun.acquire()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(work())
    assert stops == [False, True]


def test_what_nohup_has_started_outlives_its_terminal() -> None:
    """SIGHUP stays ignored where it was."""
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
