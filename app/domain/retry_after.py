"""Retry-After: reads how long a server asks its callers to wait."""

from __future__ import annotations

import email.utils
import math
from datetime import datetime


def seconds(reported: str, now: datetime) -> float:
    """Return the seconds that a `Retry-After` value requests, as a number or a date; 0 if it is neither."""
    try:
        found = float(reported)
    except ValueError:
        pass
    else:
        return 0.0 if math.isnan(found) else max(0.0, found)
    try:
        return max(0.0, (email.utils.parsedate_to_datetime(reported) - now).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return 0.0
