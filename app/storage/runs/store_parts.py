"""The parts of an open run store."""

from __future__ import annotations

from dataclasses import dataclass

from app.storage.audit import AuditLog
from app.storage.issues import Issues
from app.storage.runs.admission import Admission
from app.storage.runs.archive import Archive
from app.storage.runs.maintenance import Maintenance
from app.storage.runs.opener import Opener
from app.storage.runs.reconciliation import Reconciliation
from app.storage.storage_context import StorageContext


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreParts:
    """What an open store works with."""

    context: StorageContext
    """What logs share."""
    identity: str
    """Identity of the data directory."""
    reconciliation: Reconciliation
    """Brings rows in line with folders."""
    admission: Admission
    """Takes new runs in."""
    opener: Opener
    """Opens runs for writing."""
    archive: Archive
    """Reads the folders of runs."""
    maintenance: Maintenance
    """Checks and repairs runs."""
    issues: Issues
    """The issues."""
    audit: AuditLog
    """Who changed what has no run."""
