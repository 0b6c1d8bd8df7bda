"""Growing runs: reads only the new lines of a run that was read before and that another process writes.

Each new line is sealed to the one before. A run is read as a whole if its start has changed, a journal was cut off or
rewritten, or it is paused, has ended or was resumed.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from app.domain import decisions, plain
from app.storage import layout
from app.storage.disk.disk_port import Disk, Signature
from app.storage.journal import chain
from app.storage.journal.chain import Integrity, Reading
from app.storage.runs import authority, events_file, missing_lines
from app.storage.runs.authority import Authority
from app.storage.runs.events_file import Written

_MOST_BYTES = 32 * 2**20  # Most bytes of the journals of all cached runs, as on the disk.
_AUTHORITY = (layout.START, layout.STEPS, layout.CONTROL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    authority: Authority
    marks: tuple[Signature, ...] | None  # Signatures of its files as they were read; None: changed since.
    written: Written = field(default_factory=Written)  # Events that were read.
    events_end: int = 0  # Offset after them.
    last_event: bytes = b""  # Last of their lines.


class GrowingRuns:
    """Reads runs that other processes execute."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()  # For worker threads, which read.

    def read(self, run_id: str) -> Authority:
        """Read a run's authority like `missing_lines.read`.

        Raises:
            errors.NotFound, errors.JournalCorrupt: as for `missing_lines.read`.
        """
        # Another thread that reads the same run meanwhile reads it as a whole.
        with self._lock:
            known = self._known.pop(run_id, None)
        marks = self._marks(run_id)
        if known is None or known.marks is None or known.marks != marks:
            known = (known and self._grown(known)) or self._whole(run_id)
            known = dataclasses.replace(known, marks=marks if marks == self._marks(run_id) else None)
        found = known.authority
        if _is_growing(found):
            self._keep(known)
        return dataclasses.replace(found, decisions=found.decisions.copy())

    def _whole(self, run_id: str) -> _Known:
        return _Known(authority=missing_lines.read(self._disk, run_id), marks=None)

    def _grown(self, known: _Known) -> _Known | None:
        former, folder = known.authority, layout.run_folder(known.authority.run_id)
        try:
            if plain.labelled_sha256(self._disk.read(f"{folder}/{layout.START}")) != former.anchor:
                return None
            steps = self._read_on(f"{folder}/{layout.STEPS}", former.steps)
            control = self._read_on(f"{folder}/{layout.CONTROL}", former.control)
        except OSError:
            return None
        folded = len(former.control.lines)
        is_longer = steps and control and (len(steps.lines) > len(former.steps.lines) or len(control.lines) > folded)
        # A journal that has changed without a new line may be damaged.
        if steps is None or control is None or not (is_longer or known.marks is None):
            return None
        if any(line.fields["kind"] == decisions.DecisionKind.RESUMED for line in control.lines[folded:]):
            return None
        found = authority.continued(former, steps, control, folded)
        if found is None or not _is_growing(found):
            return None
        return self._with_events(known, found)

    def _read_on(self, path: str, former: Reading) -> Reading | None:
        # The last known line is read again: if the journal was rewritten, it differs.
        count = len(former.lines)
        before = former.first(max(0, count - 1), Integrity.WHOLE, "")
        reading = chain.read(self._disk.read(path, before.end), former.anchor, before)
        fits = len(reading.lines) >= count and (not count or reading.lines[count - 1].digest == former.head)
        return reading if fits and reading.integrity is not Integrity.DAMAGED else None

    def _with_events(self, known: _Known, found: Authority) -> _Known | None:
        path = f"{layout.run_folder(found.run_id)}/{layout.EVENTS}"
        begin = known.events_end - len(known.last_event)
        content = self._disk.read(path, begin) if self._disk.has_file(path) else b""
        if not content.startswith(known.last_event):
            return None
        lines = content[: content.rfind(b"\n") + 1]
        written = known.written.followed_by(events_file.written(lines[len(known.last_event) :]))
        if missing_lines.find(self._disk, found, written) is not None:
            return None
        last = lines[lines.rfind(b"\n", 0, -1) + 1 :]
        return _Known(authority=found, marks=None, written=written, events_end=begin + len(lines), last_event=last)

    def _keep(self, known: _Known) -> None:
        with self._lock:
            self._known[known.authority.run_id] = known
            while len(self._known) > 1 and sum(map(_size, self._known.values())) > _MOST_BYTES:
                self._known.popitem(last=False)

    def _marks(self, run_id: str) -> tuple[Signature, ...] | None:
        folder = layout.run_folder(run_id)
        try:
            return tuple(self._disk.signature(f"{folder}/{name}") for name in _AUTHORITY)
        except OSError:
            return None


def _is_growing(found: Authority) -> bool:
    decided = found.decisions
    return not (found.damages or decided.ended or decided.paused or decided.given_up)


def _size(known: _Known) -> int:
    return known.authority.steps.end + known.authority.control.end
