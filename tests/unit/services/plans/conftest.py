"""The harness of plans as a fixture."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.services.plans import plan_harness


@pytest.fixture
async def harness(place: plan_harness.Place) -> AsyncIterator[plan_harness.Harness]:
    """Return an open harness."""
    opened = await plan_harness.Harness(place).open()
    yield opened
    await opened.close()
