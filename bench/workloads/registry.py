"""All workloads, in the order of the table."""

from __future__ import annotations

from collections.abc import Mapping

from bench import workload
from bench.workloads import (
    w01_one_run,
    w02_many_runs,
    w03_long_runs,
    w04_over_http,
    w05_waiting,
    w06_polls,
    w07_lists,
    w08_restart,
    w09_commands,
    w10_followers,
    w11_examples,
    w12_stalls,
    w13_cold,
    w14_growth,
)

_ALL: tuple[workload.Workload, ...] = (
    w01_one_run.WORKLOAD,
    w02_many_runs.WORKLOAD,
    w03_long_runs.WORKLOAD,
    w04_over_http.WORKLOAD,
    w05_waiting.AT_GATE,
    w05_waiting.AT_AGENT,
    w06_polls.WORKLOAD,
    w07_lists.WORKLOAD,
    w08_restart.WORKLOAD,
    w09_commands.WORKLOAD,
    w10_followers.WORKLOAD,
    w11_examples.WORKLOAD,
    w12_stalls.WORKLOAD,
    w13_cold.WORKLOAD,
    w14_growth.WORKLOAD,
)
"""All workloads, in order."""

WORKLOADS: Mapping[str, workload.Workload] = {each.key: each for each in _ALL}
"""Workloads by key."""
