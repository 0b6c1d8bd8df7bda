"""The driver scheduler: steps a driver's branches, one at a time and always in the same order, until all are blocked.

The scheduler does not use journals, performers or event loops. A driver's awaitables yield requests; the scheduler
collects them, and its owner supplies the answers. The same answers in the same order give the same execution.
"""

# Why: docs/decisions/0006.

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app import errors
from app.domain import operations, plain
from app.domain.records import BlobRef, Place, Record

_log = logging.getLogger(__name__)

_KEY = re.compile(r"[^\x00-\x1f\x7f]{1,300}")
STEPS_AT_ONCE = 64  # Branch steps after which the owner gets control, so that it can yield to other runs.

_NONE: frozenset[str] = frozenset()
_NO_BODY: Mapping[str, plain.Json] = {}

Running = Coroutine[Any, Any, Any]


class _Request:
    def __await__(self) -> Generator[_Request, Any, Any]:
        return (yield self)


@dataclass(slots=True, kw_only=True, eq=False)
class Ask(_Request):
    """A driver's request for an operation."""

    key: str  # Name of the step.
    operation: operations.Operation  # The requested operation.
    place: Place  # Position of the step in the recipe.
    body: Mapping[str, plain.Json] = field(init=False)  # The operation as plain JSON.
    encoded: bytes = field(init=False)  # The encoded body, which is hashed.
    fingerprint: str = field(init=False)  # Hash of the body.
    branch: str = ""  # Path of the branch that makes the request.
    asker: _Branch | None = None  # The branch itself.

    def forget_body(self) -> None:
        """Keep only the hash that identifies a repeated request."""
        self.body = _NO_BODY
        self.encoded = b""

    def __post_init__(self) -> None:
        self.body = operations.body(self.operation)
        self.encoded = plain.canonical(self.body)
        self.fingerprint = operations.fingerprint(self.encoded)


@dataclass(slots=True, kw_only=True, eq=False)
class Read(_Request):
    """A driver's request for the content behind a handle."""

    blob: BlobRef  # The handle.
    branch: _Branch | None = None  # Branch that makes the request.


@dataclass(slots=True, kw_only=True, eq=False)
class Fork(_Request):
    """A driver's request to run branches in parallel."""

    branches: Mapping[str, Running]  # Coroutines by name.
    limit: int | None  # Most branches that run at the same time.
    fail_fast: bool  # Whether the first failure cancels the others.


@dataclass(slots=True, eq=False)
class _Branch:
    path: str
    coroutine: Running
    parent: _Join | None = None
    name: str = ""
    forks: int = 0
    join: _Join | None = None
    ask: Ask | None = None
    over: bool = False


@dataclass(slots=True, eq=False)
class _Join:
    owner: _Branch
    request: Fork
    waiting: deque[_Branch]
    # Cleared at the end: each child refers to its join, and the cycle would keep all results until a collection.
    children: dict[str, _Branch] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)

    def has_space(self) -> bool:
        limit = self.request.limit
        return limit is None or len(self.children) - len(self.waiting) - len(self.results) < limit


class DriverScheduler:
    """Steps a driver and the branches that the driver forks."""

    def __init__(self, drive: Callable[[], Running], delivered: Callable[[Ask, Record], None] | None = None) -> None:
        self._drive = drive
        self._delivered = delivered
        self._main: _Branch | None = None
        self.ready: deque[tuple[_Branch, Any, BaseException | None]] = deque()
        """Branches that can continue, with their answers; the owner delivers no record until they have continued."""
        self._used: set[str] = set()
        self._cancelled: frozenset[str] = _NONE
        self.asks: dict[str, Ask] = {}
        """Open requests by key, in the order in which they were made."""
        self.unopened: dict[str, Ask] = {}
        """The open requests that the owner has not opened yet."""
        self.dropped: list[str] = []
        """Keys of requests whose branch was cancelled since the owner last looked."""
        self.reads: list[Read] = []
        """Open requests for contents; they are answered before the next record is delivered."""
        self.finished = False
        """Whether the driver has finished."""
        self.result: Any = None
        """The value that the driver returned."""
        self.failure: Exception | None = None
        """The error that the driver raised."""

    def start(self) -> None:
        """Start the driver, and advance it toward its first requests."""
        self._main = _Branch("", self._drive())
        self.ready.append((self._main, None, None))
        self.advance()

    def deliver(self, record: Record) -> None:
        """Deliver a record to the branch that requested its key, and advance."""
        ask = self.asks.pop(record.key)
        self.unopened.pop(record.key, None)
        assert ask.asker is not None
        ask.asker.ask = None
        if self._delivered is not None:
            self._delivered(ask, record)
        self.ready.append((ask.asker, record, None))
        self.advance()

    def answer(self, request: Read, content: plain.Json) -> None:
        """Deliver the content behind a handle to the branch that requested it, unless the branch was cancelled."""
        if request in self.reads:
            self.reads.remove(request)
        if request.branch is not None and not request.branch.over:
            self.ready.append((request.branch, content, None))
            self.advance()

    def start_waiting(self, path: str) -> bool:
        """Start a branch that waits for its turn, and those queued before it, though other branches have not ended.

        Returns:
            Whether that branch, or a branch above it, was waiting.
        """
        join = self._waiting_at(path)
        if join is None:
            return False
        while not _holds(join.waiting[0].path, path):
            self.ready.append((join.waiting.popleft(), None, None))
        self.ready.append((join.waiting.popleft(), None, None))
        self.advance()
        return True

    def advance(self) -> None:
        """Step the ready branches in order until all are blocked or the portion is used up."""
        # A driver may loop for long without a request. Each portion returns control to the owner's event loop,
        # so that one recipe with thousands of branches cannot delay other runs. Replay uses the same portions; they do
        # not change the order of branches.
        for _ in range(STEPS_AT_ONCE):
            if not self.ready:
                return
            branch, value, error = self.ready.popleft()
            if not (branch.over or self.finished):
                self._step(branch, value, error)

    def was_cancelled(self, branch: str) -> bool:
        """Return whether a branch, or one above it, was cancelled by a failing sibling."""
        return any(_holds(path, branch) for path in self._cancelled)

    def close(self) -> None:
        """Close the driver, wherever it is blocked."""
        if self._main is not None:
            try:
                self._drop(self._main)
            except errors.DriverFault as fault:
                # The result of the run is already decided, and an error during the close must not replace it.
                _log.warning("%s", fault.message)

    def _step(self, branch: _Branch, value: Any, error: BaseException | None) -> None:
        try:
            request = branch.coroutine.send(value) if error is None else branch.coroutine.throw(error)
        except StopIteration as stop:
            self._finish(branch, stop.value)
        except Exception as failure:  # noqa: BLE001 - whatever a driver raises ends its branch
            # Storage faults and cancellations derive from BaseException: they pass through here and never become a
            # failure that a driver could handle. This frame is removed from the traceback: it refers to this scheduler,
            # which keeps the failure.
            self._fail(branch, failure.with_traceback(failure.__traceback__ and failure.__traceback__.tb_next))
        else:
            if isinstance(request, Ask):
                self._ask(branch, request)
            else:
                self._request(branch, request)

    def _request(self, branch: _Branch, request: object) -> None:
        match request:
            case Read():
                request.branch = branch
                self.reads.append(request)
            case Fork():
                self._fork(branch, request)
            case _:
                raise errors.DriverFault(f"a driver awaited {request!r:.80}, which is not from its context")

    def _ask(self, branch: _Branch, ask: Ask) -> None:
        if not _KEY.fullmatch(ask.key):
            raise errors.DriverFault(f"{ask.key!r:.80} is not a key", code="bad_key", key=ask.key[:300])
        # A key names one step of the whole run. With two requests under one key, replay could not decide which of them
        # a journal line answers.
        if ask.key in self._used:
            raise errors.DriverFault(f"the key {ask.key!r} was asked for twice", code="key_repeated", key=ask.key)
        self._used.add(ask.key)
        ask.branch = branch.path
        ask.asker = branch
        branch.ask = ask
        self.asks[ask.key] = self.unopened[ask.key] = ask

    def _fork(self, branch: _Branch, fork: Fork) -> None:
        branch.forks += 1
        join = branch.join = _Join(branch, fork, deque())
        for name, coroutine in fork.branches.items():
            child = _Branch(f"{branch.path}/{branch.forks}.{name}", coroutine, join, name)
            join.children[name] = child
            join.waiting.append(child)
        for _ in range(min(fork.limit or len(join.waiting), len(join.waiting))):
            # A fork without branches skips this loop, and is complete at once.
            self.ready.append((join.waiting.popleft(), None, None))
        self._close_if_complete(join)

    def _waiting_at(self, path: str) -> _Join | None:
        join = self._main.join if self._main is not None else None
        while join is not None:
            if any(_holds(child.path, path) for child in join.waiting):
                return join
            above = next((child for child in join.children.values() if _holds(child.path, path)), None)
            join = above.join if above is not None else None
        return None

    def _finish(self, branch: _Branch, value: Any) -> None:
        branch.over = True
        if branch.parent is None:
            self.finished = True
            self.result = value
        else:
            self._collect(branch.parent, branch, value)

    def _fail(self, branch: _Branch, failure: Exception) -> None:
        branch.over = True
        join = branch.parent
        if join is None:
            self.finished = True
            self.failure = failure
            if isinstance(failure, errors.ControlRoomError):
                _drop_frames(failure)
        elif join.request.fail_fast:
            self._cancel_siblings(join)
            join.owner.join = None
            self.ready.append((join.owner, None, failure))
        else:
            self._collect(join, branch, failure)

    def _collect(self, join: _Join, branch: _Branch, value: Any) -> None:
        join.results[branch.name] = value
        if join.waiting and join.has_space():
            self.ready.append((join.waiting.popleft(), None, None))
        self._close_if_complete(join)

    def _close_if_complete(self, join: _Join) -> None:
        if len(join.results) == len(join.children):
            join.owner.join = None
            # The results keep the order of the branches, not the order in which these ended.
            self.ready.append((join.owner, {name: join.results[name] for name in join.children}, None))
            join.children.clear()

    def _cancel_siblings(self, join: _Join) -> None:
        # The paths are kept: the journal may contain later lines of a cancelled branch, written before the failure
        # reached it. Replay skips them instead of reporting nondeterminism.
        self._cancelled |= {child.path for child in join.children.values() if not child.over}
        self._drop_all(join)

    def _drop(self, branch: _Branch) -> None:
        branch.over = True
        if branch.ask is not None:
            del self.asks[branch.ask.key]
            # A request that the owner has not opened has no performer to stop.
            if self.unopened.pop(branch.ask.key, None) is None:
                self.dropped.append(branch.ask.key)
            branch.ask.asker = None
            branch.ask = None
        self.reads = [request for request in self.reads if request.branch is not branch]
        join, branch.join = branch.join, None
        if join is not None:
            self._drop_all(join)
        _close(branch.coroutine)

    def _drop_all(self, join: _Join) -> None:
        for child in join.children.values():
            if not child.over:
                self._drop(child)
        join.children.clear()


def _holds(path: str, inner: str) -> bool:
    return inner == path or inner.startswith(path + "/")


def _drop_frames(failure: BaseException) -> None:
    # Since Python 3.12, frames of coroutines in a traceback refer to their callers, and so to the scheduler that keeps
    # the failure: the cycle would hold the whole journal of an ended run until a collection.
    found: list[BaseException | None] = [failure]
    while found:
        if (error := found.pop()) is not None and error.__traceback__ is not None:
            error.__traceback__ = None
            found += [error.__context__, error.__cause__]


def _close(coroutine: Running) -> None:
    try:
        coroutine.close()
    except RuntimeError as error:
        raise errors.DriverFault("a driver awaited its context while it was being closed") from error
