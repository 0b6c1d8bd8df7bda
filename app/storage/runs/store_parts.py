"""The parts of an open run store that writes."""

from __future__ import annotations

from dataclasses import dataclass

from app.storage.runs.admission import Admission
from app.storage.runs.opener import Opener
from app.storage.runs.resting_runs import Maintenance
from app.storage.runs.stored_runs import ReadParts


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreParts(ReadParts):
    """What an open store works with that takes runs in."""

    admission: Admission  # Takes new runs in.
    opener: Opener  # Opens runs for writing.
    maintenance: Maintenance  # Checks and repairs runs.
