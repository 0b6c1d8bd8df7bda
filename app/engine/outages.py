"""Outages in the log: one line when something begins to fail, and one when it works again."""

from __future__ import annotations

import logging


class Outage:
    """Logs the begin and the end of an outage, however often what failed is tried in between.

    Args:
        began: Line of the begin, with one `%s` for the error.
        ended: Line of the end.
        facts: Fields of both lines, e.g. the run.
    """

    def __init__(self, log: logging.Logger, began: str, ended: str, **facts: str) -> None:
        self._log = log
        self._facts = facts
        self._began = began
        self._ended = ended
        self.is_on = False
        """Whether the last try failed."""

    def failed(self, error: object) -> None:
        """Note that a try failed."""
        if not self.is_on:
            self._log.warning(self._began, str(error).strip() or repr(error), extra=self._facts)
        self.is_on = True

    def worked(self) -> None:
        """Note that a try worked."""
        if self.is_on:
            self._log.warning(self._ended, extra=self._facts)
        self.is_on = False
