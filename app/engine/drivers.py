"""Drivers of runs: which one executes a run here, if one can."""

from __future__ import annotations

from collections.abc import Mapping

from app import errors
from app.domain import runs
from app.engine import ports


def of(drivers: Mapping[str, ports.Driver], start: runs.RunStart) -> ports.Driver:
    """Return the driver of a run; a driver executes runs of its earlier versions, too.

    Raises:
        errors.DriverFault: `unknown_dialect`, `driver_newer`.
    """
    driver, dialect = drivers.get(start.dialect), start.dialect
    if driver is None:
        message = f"this version does not know the language {dialect!r}; one that does continues the run"
        raise errors.DriverFault(message, code="unknown_dialect", detail={"dialect": dialect})
    if start.driver_version > driver.driver_version:
        message = (
            f"the run was begun by version {start.driver_version} of the driver of {dialect}, and this process has "
            f"version {driver.driver_version}; one that is up to date continues the run"
        )
        facts = {"dialect": dialect, "driver_version": start.driver_version, "known": driver.driver_version}
        raise errors.DriverFault(message, code="driver_newer", detail=facts)
    return driver
