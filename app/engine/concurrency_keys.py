"""Concurrency keys: track which runs are under way under a key, from their first step to their end."""

# A run holds its key through waits, pauses and restarts, as it holds its workspace. Each run obeys its own limit.
# A child does not wait for its ancestors: they wait for it, so both would wait forever.

from __future__ import annotations

from collections.abc import Collection

CONCURRENCY = "concurrency"  # Reason shown for a run that waits for its concurrency key.

Age = tuple[str, str]  # When a run was created, and its id.


class ConcurrencyKeys:
    """Tracks which runs hold which key."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[str, Age]] = {}
        self._held: dict[str, str] = {}

    def hold(self, key: str, run_id: str, age: Age) -> None:
        """Give a key to a run until `release` is called."""
        self._held[run_id] = key
        self._holders.setdefault(key, {})[run_id] = age

    def release(self, run_id: str) -> str | None:
        """Release a run's key and return it; None if the run held none."""
        key = self._held.pop(run_id, None)
        if key is not None:
            del self._holders[key][run_id]
            if not self._holders[key]:
                del self._holders[key]
        return key

    def obstacle(self, key: str, limit: int, run_id: str, ancestors: Collection[str]) -> str | None:
        """Return a run whose hold on the key keeps another run from beginning; None if that run may begin now."""
        holders = self._holders.get(key, {})
        others = [holder for holder in holders if holder not in ancestors]
        return others[0] if run_id not in holders and len(others) >= limit else None

    def holds(self, run_id: str) -> bool:
        """Return whether a run holds a key."""
        return run_id in self._held

    def superseded(self, key: str, age: Age, waiting: Collection[str], *, running: bool) -> set[str]:
        """Return the runs under a key that a newer run of this age cancels.

        Args:
            waiting: Runs that were created earlier and may not have begun.
            running: Whether the newer run also cancels the holders that were created earlier.
        """
        begun = {run_id for run_id, holder_age in self._holders.get(key, {}).items() if holder_age < age}
        return {*waiting, *begun} if running else set(waiting) - begun
