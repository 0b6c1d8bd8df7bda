"""The desk at which plans are tried."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.services.plans import desks


@pytest.fixture
async def desk(place: desks.Place) -> AsyncIterator[desks.Desk]:
    """Return an open desk."""
    opened = await desks.Desk(place).open()
    yield opened
    await opened.close()
