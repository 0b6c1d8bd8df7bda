"""
Refusals: steps that fail before anybody could be asked, put on record like every other failure.
"""

from __future__ import annotations

from typing import cast

from app.engine import operations, ports, verdicts
from app.engine.records import Result


class RefusalPerformer:
    """
    Perform `refusal`: fail as the operation says.
    """

    async def perform(self, call: ports.Call) -> Result:
        """
        Return the failure.
        """
        refusal = cast("operations.Refusal", call.operation)
        return verdicts.failed(refusal.code, refusal.message, refusal.detail)
