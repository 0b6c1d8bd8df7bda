"""
All workloads, in the order of the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench import workload
from bench.workloads import w01_one_run

_ALL: tuple[workload.Workload, ...] = (w01_one_run.WORKLOAD,)
"""One line for each."""

WORKLOADS: Mapping[str, workload.Workload] = {each.key: each for each in _ALL}
"""Workloads by key."""
