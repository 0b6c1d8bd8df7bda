"""Sheets: a run's consolidated answer as bytes, of which only what is new is encoded."""

# The ETag is the hash of the whole response, so that the same response has the same tag after a restart; encoding
# is therefore the part worth saving.

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from app.domain import plain, records, slots, views


class RunResponseCache:
    """The answer of one run, from view to view: encoding costs what has changed since the last, however long the run
    is.
    """

    def __init__(self) -> None:
        self._steps: deque[bytes] = deque(maxlen=views.NEWEST_STEPS)
        self._counted = 0
        self._newest: records.Record | None = None
        self._slots: dict[str, tuple[slots.Slot, bytes]] = {}

    def written(self, view: views.RunView, holder: str | None) -> bytes:
        """Return the consolidated answer as JSON (execution-modes, appendix D): the newest steps, and how many there
        are.

        Args:
            holder: Run that holds the workspace which this one waits for.
        """
        living = view.living()
        self._catch_up(living)
        opened = [plain.encode(views.open_step(step, view.start.run_id)) for step in view.open]
        shown = [*self._steps, *opened][-views.NEWEST_STEPS :]
        return b'%b,"steps":[%b],"steps_total":%d,"cache_summary":{%b},"holder":%b,"unreadable":%b}' % (
            plain.encode(views.manifest(view))[:-1],
            b",".join(shown),
            len(living) + len(opened),
            b",".join(self._summary(name, slot) for name, slot in view.board.slots.items()),
            plain.encode(holder),
            plain.encode(view.unreadable.to_json() if view.unreadable else None),
        )

    def _catch_up(self, living: Sequence[records.Record]) -> None:
        # Records only come in behind the others, except where a run was read anew: then they are others.
        if self._counted and (len(living) < self._counted or living[self._counted - 1] is not self._newest):
            self._steps.clear()
            self._counted = 0
        fresh = living[max(self._counted, len(living) - views.NEWEST_STEPS) :]
        self._steps.extend(plain.encode(views.finished_step(record)) for record in fresh)
        self._counted = len(living)
        self._newest = living[-1] if living else None

    def _summary(self, name: str, slot: slots.Slot) -> bytes:
        known, encoded = self._slots.get(name, (None, b""))
        if known is not slot:
            encoded = plain.encode({name: views.slot_summary(slot)})[1:-1]
            self._slots[name] = slot, encoded
        return encoded
