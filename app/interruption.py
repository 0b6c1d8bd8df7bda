"""Interruption: SIGINT, SIGTERM and SIGHUP, from the first lines of a program to its exit code."""

# Python's own handler raises KeyboardInterrupt between any two instructions. In an import this prints a traceback, or a
# callback of the import system swallows it. If it passes through `exec` of a text, which `dataclasses` calls, CPython
# finally ends the process by SIGINT, although the program has caught it and has chosen another exit code. While an
# event loop cleans up, it leaves tasks behind. So it is raised only where nothing of this can happen.

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # A signal before this module is loaded prints a traceback, so it imports little.
    import asyncio
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType
    from typing import Any, NoReturn, TypeVar

    Result = TypeVar("Result")
    Receive = Callable[[signal.Signals], object]  # Receives a signal in the main thread, between two instructions.

EXIT_CODE = 130  # Exit code of an interrupted program.

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HANDLED = 2  # Signals that a program handles; the next one ends it at once.


class _Process:
    name = ""  # Name of the program; empty: it is part of another one, such as a test.
    code = EXIT_CODE  # Exit code of the program if a signal ends it at once.
    explained = False  # Whether the program has printed why it ends.
    raises = False  # Whether a signal raises KeyboardInterrupt.
    received = 0  # Signals so far; a SIGHUP after another signal does not count.
    pending = False  # Whether a signal asks to end work, or the next work if this one has its result.
    blocks = 0  # Open blocks of `caught`.
    cancelling: _Cancelling | None = None  # The work of `run`.


_process = _Process()


def begin(name: str) -> None:
    """From here on, let a signal end the program with one line and 130; one that was ignored is still ignored."""
    _process.name = name
    atexit.register(_finish)
    for number in _NUMBERS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _interrupt)


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Raise KeyboardInterrupt for the first signal within the block, unless a module is being imported."""
    _process.raises = True
    try:
        yield
    finally:
        _process.raises = False


def received() -> bool:
    """Return whether a signal was received, whatever it has caused."""
    return _process.received > 0


def explain() -> None:
    """Note that the program has printed why it ends."""
    _process.explained = True


def end(code: int) -> NoReturn:
    """Exit with a code, which no further signal changes."""
    _process.code, _process.explained = code, True
    sys.exit(code)


@contextlib.contextmanager
def caught(receive: Receive, *, ignored: bool = True) -> Iterator[None]:
    """Call a function for the first two signals within the block; the third ends the process; only in the main thread.

    Args:
        ignored: Whether to handle SIGINT and SIGTERM even if they were ignored: a shell starts background commands so.
            An ignored SIGHUP stays ignored, since a program that `nohup` started outlives its terminal.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if _counts(number):
            if _process.received > _HANDLED:
                # Like a kill: everything that was answered is durable, and the next start continues.
                _leave()
            receive(signal.Signals(number))

    before = {}
    _process.blocks += 1
    try:
        for number in _NUMBERS:
            if signal.getsignal(number) != signal.SIG_IGN or (ignored and number != signal.SIGHUP):
                before[number] = signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _process.blocks -= 1
        if not _process.blocks and not _process.name:
            _process.received, _process.pending = 0, False


def run(
    work: Coroutine[Any, Any, Result], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> Result:
    """Run a coroutine in a new event loop and return its result; the first signal cancels it.

    Raises:
        KeyboardInterrupt: a signal has cancelled it, or has come too late to cancel the work before it.
    """
    import asyncio
    import threading

    if threading.current_thread() is not threading.main_thread():
        return _complete(work, loop_factory)
    cancelling = _process.cancelling = _Cancelling()

    async def interruptible() -> Result:
        with cancelling.of(asyncio.current_task()):
            return await work

    with caught(cancelling.receive, ignored=False):
        try:
            if _process.pending:
                raise asyncio.CancelledError
            return _complete(interruptible(), loop_factory)
        except asyncio.CancelledError:
            if not _process.pending:
                raise
            _process.pending = False
            raise KeyboardInterrupt from None
        finally:
            work.close()


def _complete(
    work: Coroutine[Any, Any, Result], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None
) -> Result:
    import asyncio

    with asyncio.Runner(loop_factory=loop_factory) as runner:  # noqa: TID251 - the only one that `run` needs
        return runner.run(work)


def settle() -> None:
    """Note that the work of `run` has its result, so that no signal cancels what it still cleans up."""
    if _process.cancelling is not None:
        _process.cancelling.settle()


class _Cancelling:
    """Cancels a task at the first signal, even at one that comes before the task begins."""

    def __init__(self) -> None:
        self._before = _process.received
        self._task: asyncio.Task[Any] | None = None

    @contextlib.contextmanager
    def of(self, task: asyncio.Task[Any] | None) -> Iterator[None]:
        self._task = task
        if _process.pending:
            self._cancel()
        try:
            yield
        finally:
            self.settle()

    def settle(self) -> None:
        self._task = None

    def receive(self, number: signal.Signals) -> None:
        # Work that has handled an earlier signal by itself is cleaning up.
        if _process.received == self._before + 1:
            _process.pending = True
            self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            # The loop may be waiting for files, so that it must be woken.
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)


def _counts(number: int) -> bool:
    # Kernel and shell both send SIGHUP when a terminal is closed: a second one does not mean that a person asked twice.
    if number == signal.SIGHUP and _process.received:
        return False
    _process.received += 1
    return True


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _counts(number):
        if not _process.raises or _imports(frame):
            _leave()
        _process.raises = False
        raise KeyboardInterrupt


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _leave() -> NoReturn:
    if _process.name and not _process.explained:
        with contextlib.suppress(OSError):
            os.write(2, f"\n{_process.name}: interrupted\n".encode())
    os._exit(_process.code)


def _finish() -> None:
    # The last function at exit. After it, the interpreter gives handled signals back their default, which ends the
    # process by the signal; and it does so itself if a KeyboardInterrupt has passed through `exec`.
    for number in _NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    if _process.received:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(_process.code)
