"""Jobs: the limits of a command, and its end."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.processes import jobs, launcher_protocol, output_files

LATE = 1000.0


@pytest.fixture
def job(tmp_path: Path) -> Iterator[jobs.Job]:
    """Return a command that has started at 0, with a limit of each kind."""
    request = launcher_protocol.Start(
        number=1,
        run_id="r",
        argv=[b"true"],
        cwd=None,
        env={},
        inherits=True,
        stdin=None,
        reads_from_file=False,
        timeout_seconds=10.0,
        idle_seconds=5.0,
        cap_bytes=0,
        contained=False,
        writes_to_file=False,
        passes_output=False,
    )
    outputs = [output_files.create(str(tmp_path)) for _ in range(2)]
    made = jobs.Job(request, 1, jobs.Child(0, None, None), outputs, now=0.0)
    yield made
    made.close()


def test_a_running_command_exceeds_its_limits(job: jobs.Job) -> None:
    """A command that runs is ended at the first limit that it exceeds."""
    assert [job.exceeded(at, checks_output=True) for at in (4.0, 6.0, 11.0)] == ["", "idle", "timeout"]
    assert [job.exceeded(at, checks_output=False) for at in (4.0, 6.0, 11.0)] == ["", "", "timeout"]


def test_a_command_that_has_ended_exceeds_no_limit(job: jobs.Job) -> None:
    """A command that ended by itself keeps its result, however late a starved launcher learns of its end."""
    job.record_exit(0, resource.getrusage(resource.RUSAGE_SELF))

    assert job.exceeded(LATE, checks_output=True) == ""
    ended, _ = job.reply(0)
    assert isinstance(ended, launcher_protocol.Ended)
    assert (ended.status, ended.cause) == (0, "")


def test_a_command_that_is_being_ended_exceeds_no_limit(job: jobs.Job) -> None:
    """The first cause of an end counts."""
    job.end("asked", 0.0)

    assert job.exceeded(LATE, checks_output=True) == ""
    assert job.cause == "asked"
