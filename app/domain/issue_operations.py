"""Operations that close issues whose cause is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from app.domain.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseFindings(Operation):
    """Close the issues of findings that the run's recipe has not found again; the output is `{"closed": [issue_id,
    …]}`.
    """

    kind: ClassVar[str] = "close_findings"

    found: tuple[str, ...]  # Issues of what was found.
    looked_at: tuple[str, ...]
    """Files and folders of the workspace that were looked at; other files were not checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseFailedChecks(Operation):
    """Close the issues that steps of the run have opened for checks that are met now; the output is
    that of the other.
    """

    kind: ClassVar[str] = "close_failed_checks"

    keys: tuple[str, ...]  # Steps that opened them, if they did.
