"""The lock of the commit log: decides which process recovers from the log, and which one writes to it."""

from __future__ import annotations

from functools import partial

from app import clock, errors
from app.storage import layout
from app.storage.disk import disk_health
from app.storage.disk.disk_port import Disk, Lock
from app.storage.journal import commit_records
from app.storage.runs import commit_recovery
from app.storage.storage_context import StorageContext


class CommitLogLock:
    """Locks the log while this process may write to it, and the runs until it has recovered from the log."""

    def __init__(self, files: Disk, *, serves: bool) -> None:
        self._serves = serves
        # No process reads runs, or writes to the log, while another one recovers from it.
        self._runs = files.lock(layout.RUNS, wait=True)
        try:
            self._log = files.lock(layout.COMMITS)
        except BaseException:
            _release(self._runs)
            raise

    @property
    def writes(self) -> bool:
        """Return whether this process writes to the log; a process for a single run beside the service does not."""
        return self._serves and self._log is not None

    async def recover(self, context: StorageContext) -> commit_recovery.Recovered:
        """Complete the runs' files, unless another process holds the log.

        Raises:
            errors.ConfigurationError: `commit_log_unusable`.
        """
        if self._log is None:
            return commit_recovery.Recovered()
        try:
            now = clock.stamp(context.clock.now())
            recovered = await context.workers.run(
                lambda: commit_recovery.recover(context.disk, context.probes.reach, now)
            )
        except OSError as error:
            raise _unrecovered(error) from error
        for run_id, fault in recovered.unread.items():
            restore = partial(commit_recovery.restore, context.disk, run_id, now)
            context.read_faults.hold_back(run_id, fault, restore)
        return recovered

    async def drop(self, context: StorageContext, recovered: commit_recovery.Recovered) -> None:
        """Drop the segments that recovery has applied.

        Raises:
            errors.ConfigurationError: `commit_log_unusable`.
        """
        if not recovered.segments:
            return
        try:
            await context.workers.run(
                lambda: commit_recovery.drop(context.disk, recovered.segments, context.probes.reach)
            )
        except OSError as error:
            raise _unrecovered(error) from error

    def let_others_in(self) -> None:
        """Release the locks that only recovery needs."""
        if not self._serves:
            # First, because a process that is let in checks it only once.
            _release(self._log)
            self._log = None
        _release(self._runs)
        self._runs = None

    def release(self) -> None:
        """Release all locks."""
        _release(self._runs)
        _release(self._log)
        self._runs = self._log = None


def refuse_unrecovered(files: Disk, folder: str) -> None:
    """Refuse to copy runs whose files may lack lines of the log, because no process has recovered from it yet.

    Raises:
        errors.Conflict: `source_in_use`.
    """
    if _is_recovery_due(files):
        message = (
            f"the machine went down while a service worked on {folder}, and lines of its runs may be only in its"
            " commit log; start the service once, then repeat the command, or copy the folder as it is"
        )
        raise errors.Conflict(message, code="source_in_use", detail={"folder": folder})


def _is_recovery_due(files: Disk) -> bool:
    if not files.has_folder(layout.COMMITS):
        return False
    # While the runs are locked, no process that starts meets the lock of the log, which it tries only once.
    runs = files.lock(layout.RUNS, wait=True)
    try:
        log = files.lock(layout.COMMITS)
        if log is None:
            return False
        log.release()
        contents = {segment: files.read(segment) for segment in commit_recovery.segments_of(files)}
        boots = (commit_records.read(content)[0] for content in contents.values() if content)
        return any(map(commit_records.is_kept, contents)) or any(boot != files.boot_id() for boot in boots)
    finally:
        _release(runs)


def _release(lock: Lock | None) -> None:
    if lock is not None:
        lock.release()


def _unrecovered(error: OSError) -> errors.ConfigurationError:
    message = f"what a power cut may have taken cannot be put back from the commit log: {error}"
    return errors.ConfigurationError(
        message, code="commit_log_unusable", detail=disk_health.facts(layout.COMMITS, error)
    )
