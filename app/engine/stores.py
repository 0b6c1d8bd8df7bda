"""The storage port: the log of one run, and all runs of a data directory."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Protocol

from app import errors
from app.domain import plain, shapes
from app.domain.access import Scope
from app.domain.authors import Shown
from app.domain.decisions import DecisionKind, Decisions
from app.domain.events import Event, EventType
from app.domain.limits import RunLimits
from app.domain.receipts import ListedReceipt, ReceiptQuery
from app.domain.records import BlobRef, Record, Usage
from app.domain.runs import RunStart, Transition
from app.domain.states import RunState
from app.domain.unreadable import Readable, Unreadable, Waiting
from app.engine.maintenance_port import KeptUp
from app.engine.missing_lines import MissingLines

if TYPE_CHECKING:
    from app.domain import audit

PAGE = 1000  # Most runs on a page.


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A part of a log."""

    content: bytes  # The bytes.
    offset: int  # Offset of the first byte.
    size_bytes: int  # Size of the whole log.
    version: str  # Version of the log, which changes when it grows or is replaced.


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A run's authority, after reading and repair."""

    start: RunStart  # start.json, with the overrides of the last resume.
    records: Sequence[Record]  # All lines of steps.jsonl in order, including dead and non-final ones.
    decisions: Decisions  # The state that results from control.jsonl; kept current by the log.
    emitted: frozenset[str]  # Keys of the `recipe.note` events written so far.
    missing: MissingLines | None = None
    """Journal lines that are known to be gone; the run does not execute until a person decides."""

    @property
    def limits(self) -> RunLimits:
        """Return the present limits of the run."""
        return self.start.limits if self.decisions.limits is None else self.decisions.limits


class RunLog(Waiting, Protocol):
    """One run's folder, held by its only writer."""

    @property
    def loaded(self) -> Loaded:
        """Return the content of the folder when it was opened; `decisions` is kept current."""

    def append_step(self, line: Mapping[str, plain.Json]) -> Awaitable[Record]:
        """Append a journal line and return its record once it is synced.

        The log adds `prev` and `batch`. Concurrent callers share a sync; their futures are resolved in line order.

        Raises:
            errors.StorageFault: the line could not be made durable; the same line may be appended again later.
        """

    async def decide(
        self, kind: DecisionKind, facts: Mapping[str, plain.Json], *, sync: bool = True, at: str | None = None
    ) -> bool:
        """Append a control line and fold it into `loaded.decisions`.

        The log adds `prev`, `at` if it is None, and to `ended` the number of step lines and the hash of the last one
        (`lines`, `head`). Of `cancel_requested` and `ended` the first wins: after a cancel only an ending as
        `cancelled` is written, after an ending no cancel. An unsynced `taken` is durable before its events are shown.

        Returns:
            Whether the line was written.

        Raises:
            errors.StorageFault: the line could not be made durable.
        """

    async def put_blob(self, content: bytes, *, text: bool) -> BlobRef:
        """Store an output in `blobs/`, and sync it and its folder."""

    async def get_blob(self, blob: BlobRef) -> plain.Json:
        """Return a blob's text or JSON.

        Raises:
            errors.JournalCorrupt: the blob is missing or does not match its hash.
        """

    async def add_receipt(self, record: Record) -> None:
        """Write the receipt of a tool execution once, completed from its record."""

    async def write_log(self, name: str, text: str) -> None:
        """Write a text to `logs/`."""

    async def append_log(self, name: str, text: str) -> None:
        """Append to a text in `logs/`."""

    def add_event(
        self,
        type: EventType,
        key: str | None = None,
        data: Mapping[str, plain.Json] | None = None,
        at: str | None = None,
    ) -> Event:
        """Number an event and queue it for events.jsonl; the event is streamed once it is written.

        Args:
            at: When it happened; None: now.
        """

    def refresh(self, files: Callable[[], Mapping[str, plain.Json]]) -> None:
        """Mark the snapshots (run.json, cache.json, projections) as outdated, and register what makes them."""

    async def flush(self) -> None:
        """Write pending snapshots and events now."""

    async def move(self, transition: Transition) -> None:
        """Apply a transition to the index, possibly with a delay; it has an effect only from an expected state."""

    @property
    def has_pending_move(self) -> bool:
        """Return whether the row still lacks a transition that could not be written."""

    async def heal(self) -> None:
        """Continue each failed file from a fresh copy of its confirmed prefix.

        Raises:
            errors.StorageFault: there is still no space.
        """

    async def close(self) -> None:
        """Write all pending data and close the files."""

    async def set_aside(self) -> None:
        """Close a run that this process owns and will continue; when reopened, the run is as if it had stayed open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """Steps that a new run takes over from another one."""

    source: str  # Run that performed them.
    lines: Sequence[Mapping[str, plain.Json]]  # Their journal lines, without the fields of the chain.
    blobs: Sequence[BlobRef]  # Outputs that the lines refer to.


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """Result of a request for a new run."""

    run_id: str  # The new run, or the one that the idempotency key found.
    existed: bool  # Whether the run existed before the request.
    summary: RunSummary | None = field(default=None, compare=False)
    """The new run as lists show it; None for a run that existed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary(shapes.Shape):
    """A run as lists show it."""

    run_id: shapes.RunId  # Id of the run.
    recipe_id: str  # Recipe it executes.
    dialect: str  # Language of the recipe.
    status: Annotated[str, RunState]  # State of the run, as far as the index knows.
    created_at: shapes.Instant  # When it was accepted.
    updated_at: shapes.Instant  # When its state last changed.
    completed_at: shapes.Instant | None  # When it ended.
    description: str  # Its task, as text.
    labels: Mapping[str, str]  # Labels by which the run is found again.
    priority: int  # -100 to 100; higher starts first.
    session_id: str  # Work session that its receipts belong to.
    parent_run_id: str | None  # Run that started it.
    error_code: str | None  # Code of the error of a failed or parked run.
    owner: str
    """`service`, `process`, or `foreign` for a folder that is listed but never started automatically."""
    working_dir: str = ""  # Workspace, as an absolute path.
    exclusive_workspace: bool = False  # Whether it holds its workspace alone from start to end.
    concurrency_key: str | None = shapes.omitted()  # Key that limits how many runs of it are under way.
    concurrency_limit: int | None = shapes.omitted()
    """Most runs of the key that may be under way when it begins."""
    concurrency_policy: str | None = shapes.omitted()  # What happens at that limit.
    started_at: shapes.Instant | None = None  # When a process first took the run up.
    reason: str | None = None
    """Why it is in this state, e.g. `paused_by_person`; `denied` for a failed run whose approval a person denied,
    `partial` for a run that is only partly done.
    """
    usage: Usage = field(default_factory=Usage)  # What its steps cost, including repeated attempts.
    pinned: bool = False  # Whether it is never pruned.
    started_by: Shown | None = shapes.omitted()  # Who started it; absent if Control Room started it for another run.
    unreadable: Unreadable | None = None
    """File that cannot be read now, None if all can; meanwhile the last known state is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress of a run according to its manifest."""

    finished_steps: int  # Number of finished steps.
    total_steps: int | None  # Number of steps of the recipe; None if its flow can loop.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Selects the runs of a list, newest first."""

    status: str | tuple[str, ...] | None = None  # Only this state, or one of these.
    recipe_id: str | None = None  # Only runs of this recipe.
    label: tuple[str, str] | None = None  # Only runs with this label.
    created_after: str | None = None  # Only runs created at or after this instant.
    created_before: str | None = None  # Only runs created before this instant.
    updated_after: str | None = None  # Only runs whose state changed at or after this instant.
    failed_after: str | None = None  # Only runs that failed at or after this instant; denied ones did not.
    parent_run_id: str | None = None  # Only runs that this run started.
    concurrency_key: str | None = None  # Only runs with this concurrency key.
    session_id: str | None = None  # Only runs of this work session.
    started_by: str | None = None  # Only runs started by this author: a name or, without a name, the way in.
    q: str | None = None
    """Only runs with this text in their id, recipe, description, session or the value of a label, whatever its case."""
    scope: Scope | None = None  # Only runs of this scope; None: of any.
    internal: bool = False  # Whether to show only the runs that are session plans, which are hidden otherwise.
    limit: int = 100  # Most runs to return, 1 to 1,000.
    cursor: tuple[str, str] | None = None  # `(created_at, run_id)` of the last run of the previous page.

    @property
    def states(self) -> tuple[str, ...]:
        """Return the requested states; empty: all."""
        if self.status is None:
            return ()
        return (self.status,) if isinstance(self.status, str) else tuple(dict.fromkeys(self.status))


class RunStore(Readable, KeptUp, Protocol):
    """All runs of a data directory."""

    @property
    def audit(self) -> audit.AuditLog:
        """Return the log of changes outside of runs."""

    async def create(self, start: RunStart, *, exclusive: bool = False, taken_over: TakenOver | None = None) -> Created:
        """Make an accepted run durable: key look-up, `exclusive` and creation are one critical section.

        Args:
            taken_over: Steps that the run begins with; they become durable together with it, or not at all.

        Raises:
            errors.Conflict: `idempotency_conflict`, or `recipe_busy` with the unfinished run's id.
            errors.RunExists: another run has its id.
            errors.WriteFailed: the disk is full or failing.
        """

    async def find_repeated(self, idempotency_key: str, request_sha256: str) -> str | None:
        """Return the run that an earlier request with this key made, or None; `create` looks again, in its turn.

        A repetition is found this way even if its recipe could not be started any more, or the disk is full.

        Raises:
            errors.Conflict: `idempotency_conflict`, the key belongs to another request.
        """

    async def unfinished_under(self, key_prefix: str) -> list[str]:
        """Return the unfinished runs whose idempotency keys begin with this prefix, oldest first.

        Raises:
            errors.Unreadable: a run cannot be read now.
        """

    async def open(self, run_id: str) -> RunLog:
        """Open a run for writing: verify the chains, cut a torn tail, adopt a folder written by hand.

        Raises:
            errors.NotFound: there is no such run.
            errors.JournalCorrupt: the journal is damaged before its end.
            errors.Conflict: `run_busy`, another process writes it.
        """

    async def read(self, run_id: str) -> Loaded:
        """Read a run without locking or changing it.

        Raises:
            errors.NotFound, errors.JournalCorrupt: as `open`.
        """

    async def read_lines(self, run_id: str, first: int, count: int) -> list[Record]:
        """Return lines of a run's steps by their position; fewer if they cannot be read without the others."""

    async def read_sound(self, run_ids: Sequence[str]) -> list[Loaded]:
        """Read several runs; omit those that are affected by a repair, a person's order or a lost event of a gate."""

    async def read_blob(self, run_id: str, blob: BlobRef) -> plain.Json:
        """Return a blob of a run that is not open."""

    async def read_events(self, run_id: str, after: int = 0, most: int | None = None) -> list[Event]:
        """Return the written events with numbers above `after`, at most `most`; earlier ones are not read."""

    async def read_log(self, run_id: str, name: str) -> bytes:
        """Return the content of a file in `logs/`."""

    async def read_log_part(self, run_id: str, name: str, offset: int, most: int) -> LogPart:
        """Return a part of a file in `logs/`.

        Args:
            offset: Where it begins; negative: this many bytes before the end.
            most: Most bytes.

        Raises:
            errors.NotFound: there is no such run or log.
        """

    async def list_logs(self, run_id: str) -> list[str]:
        """Return the names of the files in `logs/`."""

    async def read_snapshots(self, run_id: str) -> dict[str, plain.Json]:
        """Return run.json and cache.json without verification; unreadable ones are omitted."""

    async def read_progress(self, run_ids: Sequence[str]) -> dict[str, RunProgress]:
        """Return the progress of runs from their run.json, without verification; unreadable ones are omitted."""

    async def summary(self, run_id: str) -> RunSummary:
        """Return a run's row.

        Raises:
            errors.NotFound: there is no such run.
        """

    async def list_runs(self, query: RunQuery) -> list[RunSummary]:
        """Return runs, newest first."""

    async def count_by_status(self) -> dict[str, int]:
        """Return the number of runs in each state; states without a run may be omitted."""

    async def list_unfinished(self) -> list[RunSummary]:
        """Return the runs that this service must continue, oldest first, after comparing rows with folders."""

    async def delete(self, run_id: str, *, spare_pinned: bool = False) -> None:
        """Move a finished run to the trash.

        Args:
            spare_pinned: Whether to refuse a pinned run.

        Raises:
            errors.Conflict: `run_pinned`.
            errors.WrongState: the run has not ended.
        """

    async def find_receipt(self, receipt_id: str) -> dict[str, plain.Json]:
        """Return a receipt; raise `errors.NotFound` if no receipt has that id."""

    async def list_receipts(self, query: ReceiptQuery) -> list[ListedReceipt]:
        """Return receipts in the order of their sessions' files."""

    async def prove_receipt(self, receipt_id: str) -> dict[str, plain.Json]:
        """Return a receipt after verifying it against its run's journal, or against its hash if the run is gone.

        Raises:
            errors.NotFound: no receipt has that id.
            errors.Conflict: `receipt_altered`, its line was changed.
        """

    async def write_fault(self) -> errors.StorageFault | None:
        """Return why new runs are refused, after another attempt to write; None if they are accepted."""


async def ancestors(store: RunStore, run_id: str | None) -> frozenset[str]:
    """Return a run, the run that started it, and so on; the chain ends at a run that was deleted."""
    above: set[str] = set()
    while run_id is not None and run_id not in above:
        above.add(run_id)
        try:
            run_id = (await store.summary(run_id)).parent_run_id
        except errors.NotFound:
            break
    return frozenset(above)


async def every_run(store: RunStore, query: RunQuery) -> AsyncIterator[RunSummary]:
    """Yield all runs that match a query, newest first, page by page; the query's limit is ignored."""
    page_query = dataclasses.replace(query, limit=PAGE)
    while True:
        page = await store.list_runs(page_query)
        for row in page:
            yield row
        if len(page) < PAGE:
            return
        page_query = dataclasses.replace(page_query, cursor=(page[-1].created_at, page[-1].run_id))
