"""Creation: a run's folder, built aside and put in place in one move, and held until the run is opened."""

# Why: docs/decisions/0075.

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from app import errors
from app.domain import events, plain, runs, states, views
from app.engine import stores
from app.storage import layout
from app.storage.committer import Commit
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk, Lock
from app.storage.journal import chain
from app.storage.runs import authority, deletion, events_file, inheritance
from app.storage.runs.events_file import Written
from app.storage.runs.opened_run import OpenedRun
from app.storage.storage_context import StorageContext

_FILES = (layout.START, layout.STEPS, layout.CONTROL)
_MOST_COMMITTED_BYTES = 256 * 1024
_MOST_HELD = 256
"""Runs that are kept held between their creation and their opening; each costs a file descriptor."""

_CREATED = Written(last=1, counts={events.EventType.RUN_CREATED.value: 1})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Born:
    """A run's new folder, built aside."""

    lock: Lock | None  # The folder, held.
    content: bytes  # start.json.
    durable: bool  # Whether it was synced, and its projections written; otherwise it is to be committed.

    def release(self) -> None:
        """Let go of the folder."""
        if self.lock is not None:
            self.lock.release()


def build(context: StorageContext, start: runs.RunStart, taken_over: stores.TakenOver | None = None) -> Born:
    """Build a run's folder aside.

    Both journals are made here, empty, so that their names are synced with the folder and never again.

    Raises:
        FileExistsError: there is a run of that id.
        errors.JournalCorrupt: a blob of the steps that it takes over is missing or damaged.
        OSError: the disk refused.
    """
    files, reach = context.disk, context.probes.reach
    folder, final = layout.new_folder(start.run_id), layout.run_folder(start.run_id)
    reach("storage.create.before_folder")
    lock = _held(files, folder)
    try:
        # Another creator of this run has given up or put its folder in place by now.
        if files.has_folder(final):
            raise FileExistsError(final)
        content = plain.encode(start.to_json()) + b"\n"
        large = taken_over is not None or len(content) > _MOST_COMMITTED_BYTES
        durable = large or not context.committer.shares
        if taken_over is not None:
            inheritance.write(files, folder, content, taken_over, reach)
        _fill(context, folder, start, content, sync=durable, empty=taken_over is None)
    except BaseException as error:
        if isinstance(error, OSError | errors.StorageFault | errors.JournalCorrupt):
            with contextlib.suppress(OSError, errors.StorageFault):
                files.remove_tree(folder)
        if lock is not None:
            lock.release()
        raise
    return Born(lock=lock, content=content, durable=durable)


def commit(context: StorageContext, run_id: str, born: Born) -> Commit:
    """Return what makes a folder that was not synced durable."""
    folder = layout.run_folder(run_id)
    context.committer.mention(*[f"{folder}/{name}" for name in _FILES])
    return Commit(
        run_id=run_id,
        path=f"{folder}/{layout.START}",
        file=_Folder(context.disk, layout.new_folder(run_id)),
        offset=0,
        content=born.content,
        points="storage.create",
    )


def put_in_place(context: StorageContext, run_id: str) -> None:
    """Give a folder its name; the run exists from here on, and its lines in the log were durable before.

    Raises:
        OSError: the disk refused.
    """
    context.probes.reach("storage.create.before_rename")
    context.disk.rename(layout.new_folder(run_id), layout.run_folder(run_id))


def make_durable(context: StorageContext, run_id: str, born: Born) -> None:
    """Sync a folder that is in place and not in the log.

    Raises:
        OSError: the disk refused.
    """
    context.probes.reach("storage.create.before_runs_sync")
    if not born.durable:
        _Folder(context.disk, layout.run_folder(run_id)).sync()
    context.disk.sync_folder(layout.RUNS)


def created(start: runs.RunStart) -> events.Event:
    """Return the first event of a run."""
    return events.Event(
        seq=1,
        at=start.created_at,
        type=events.EventType.RUN_CREATED.value,
        run_id=start.run_id,
        data={"recipe_id": start.recipe_id},
    )


def manifest(start: runs.RunStart) -> dict[str, plain.Json]:
    """Return the run.json of a run that is not begun yet."""
    return views.manifest(views.RunView(start=start, status=states.RunState.PENDING, updated_at=start.created_at))


def show(context: StorageContext, start: runs.RunStart, folder: str) -> None:
    """Write the projections of a run that is not opened yet.

    Raises:
        OSError: the disk refused.
    """
    shown, lines = plain.encode(manifest(start)) + b"\n", events_file.encoded(created(start))
    for name, content in ((layout.MANIFEST, shown), (layout.EVENTS, lines)):
        context.disk.write(f"{folder}/{name}", content, sync=False)
        context.committer.mention(f"{layout.run_folder(start.run_id)}/{name}")


def take_back(context: StorageContext, run_id: str) -> None:
    """Put a folder away that could not be made durable: a caller that got the refusal must not find
    the run later.
    """
    for folder in (layout.new_folder(run_id), layout.run_folder(run_id)):
        try:
            if context.disk.has_folder(folder):
                deletion.discard(context, run_id, folder)
        except OSError as error:
            _log.error("a refused run may come back: %s", error, extra={"run_id": run_id})


def sweep(files: Disk) -> None:
    """Remove what was being built when a process died; what cannot be read now waits for the next start."""
    names: list[str] = []
    with contextlib.suppress(errors.Unreadable):
        names = files.names(layout.RUNS)
    for folder in layout.unfinished_folders(names):
        with contextlib.suppress(OSError, errors.Unreadable):
            lock = files.lock(folder)
            if lock is not None:
                files.remove_tree(folder)
                lock.release()


@dataclass(slots=True)
class _NewRun:
    start: runs.RunStart
    anchor: str
    lock: Lock
    shown: bool

    def opened(self) -> OpenedRun:
        empty = chain.read(b"", self.anchor)
        return OpenedRun(
            authority=authority.judge(self.start.run_id, self.start, empty, empty),
            lock=self.lock,
            written=_CREATED,
            proven=frozenset(),
            unwritten=() if self.shown else (created(self.start),),
        )


class NewRuns:
    """Keep new runs held and known, since as a rule each is opened at once."""

    def __init__(self) -> None:
        self._births: dict[str, asyncio.Future[None]] = {}
        self._held: dict[str, _NewRun] = {}

    @contextlib.contextmanager
    def birth(self, run_id: str) -> Iterator[None]:
        """Let openers of the run wait until the block is over."""
        birth: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._births[run_id] = birth
        try:
            yield
        finally:
            del self._births[run_id]
            birth.set_result(None)

    def keep(self, start: runs.RunStart, born: Born) -> bool:
        """Keep a run as it was made; one too many is let go of.

        Returns:
            Whether its projections need not be written now.
        """
        if born.lock is None:
            return born.durable
        if len(self._held) >= _MOST_HELD:
            born.lock.release()
            return born.durable
        self._held[start.run_id] = _NewRun(start, plain.labelled_sha256(born.content), born.lock, shown=born.durable)
        return True

    async def show(self, write: Callable[[runs.RunStart], Awaitable[bool]], run_ids: Iterable[str] | None) -> None:
        """Write the projections of runs that are not opened yet, each once.

        Args:
            write: Writes those of one, and returns whether it could.
            run_ids: None: all.
        """
        for run_id in list(self._held) if run_ids is None else run_ids:
            held = await self._of(run_id)
            if held is not None and not held.shown:
                with self.birth(run_id):
                    held.shown = await write(held.start)

    async def take(self, run_id: str) -> OpenedRun | None:
        """Hand a new run out; None if it must be read from its folder."""
        held = await self._of(run_id)
        self._held.pop(run_id, None)
        return None if held is None else held.opened()

    def let_go(self, run_id: str | None = None) -> None:
        """Let go of a run that was not opened, or of all of them."""
        for name in [run_id] if run_id is not None else list(self._held):
            if (held := self._held.pop(name, None)) is not None:
                held.lock.release()

    async def _of(self, run_id: str) -> _NewRun | None:
        while (birth := self._births.get(run_id)) is not None:
            await asyncio.shield(birth)
        return self._held.get(run_id)


class _Folder:
    def __init__(self, files: Disk, folder: str) -> None:
        self._files = files
        self._folder = folder

    def sync(self) -> None:
        for name in _FILES:
            disk_port.sync_file(self._files, f"{self._folder}/{name}")
        self._files.sync_folder(self._folder)


def _held(files: Disk, folder: str) -> Lock | None:
    # Held, so that the start of a service does not sweep what another process is building; it may before that.
    # A folder that exists and is not held was left by a failed attempt, and is reused.
    while True:
        is_new = files.add_folder(folder)
        with contextlib.suppress(FileNotFoundError):
            lock = files.lock(folder, wait=is_new)
            if lock is None and not is_new:
                raise FileExistsError(folder)
            if _is_there(files, folder, lock):
                return lock


def _is_there(files: Disk, folder: str, lock: Lock | None) -> bool:
    there = False
    try:
        there = files.has_folder(folder)
    finally:
        if lock is not None and not there:
            lock.release()
    return there


def _fill(
    context: StorageContext, folder: str, start: runs.RunStart, content: bytes, *, sync: bool, empty: bool
) -> None:
    files, reach = context.disk, context.probes.reach
    reach("storage.create.before_start")
    files.write(f"{folder}/{layout.START}", content, sync=sync)
    for name in (layout.STEPS, layout.CONTROL) if empty else (layout.CONTROL,):
        files.write(f"{folder}/{name}", b"", sync=False)
    if sync:
        show(context, start, folder)
        reach("storage.create.before_folder_sync")
        files.sync_folder(folder)
