"""
Workers: real child processes, asked, killed and left alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.processes import workers
from tests.unit.agents import living

ECHO = "tests.unit.processes.echo"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def worker() -> AsyncIterator[workers.Worker]:
    started = await workers.Worker.start(ECHO, "one", "two words")
    yield started
    await started.end()


async def test_a_worker_answers_one_question_after_another(worker: workers.Worker) -> None:
    """Each question gets its own answer, whatever characters it holds."""
    answers = [await worker.ask({"say": text}) for text in ("hello", "zwei\nZeilen", "\x00 ☃", "x" * 300_000)]

    assert [answer["heard"]["say"] for answer in answers] == ["hello", "zwei\nZeilen", "\x00 ☃", "x" * 300_000]


async def test_a_worker_gets_its_arguments_and_hardly_any_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Secrets of the service's environment do not reach a worker, and it holds no folder of the project."""
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    worker = await workers.Worker.start(ECHO, "one", "two words")
    told = await worker.ask({"do": "tell"})
    await worker.end()

    assert told["arguments"] == ["one", "two words"]
    assert "sk-secret" not in told["environment"].values()
    assert told["cwd"] == "/"


async def test_a_worker_that_ends_tells_why(worker: workers.Worker) -> None:
    """A worker that ends in place of an answer is an error with its exit code and its last words."""
    with pytest.raises(workers.WorkerLost) as lost:
        await worker.ask({"do": "complain and leave"})

    assert lost.value.detail == {"exit_code": 3, "stderr": "something is wrong"}
    assert not worker.alive


async def test_a_question_to_a_dead_worker_fails(worker: workers.Worker) -> None:
    """A worker killed from outside is noticed at the next question at the latest."""
    os.kill(worker.pid, signal.SIGKILL)

    with pytest.raises(workers.WorkerLost) as lost:
        await worker.ask({"say": "hello"})
    assert lost.value.detail["exit_code"] == -signal.SIGKILL


async def test_end_kills_a_worker_that_hangs(worker: workers.Worker) -> None:
    """A worker that never answers is gone when `end` returns, and ending it again does nothing."""
    asking = asyncio.ensure_future(worker.ask({"do": "hang"}))
    await worker.end()
    await worker.end()

    assert worker.pid not in living.children()
    assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], workers.WorkerLost)


async def test_an_interrupt_at_the_terminal_is_not_for_workers(worker: workers.Worker) -> None:
    """A worker is in no process group of the service's, so a Ctrl-C does not reach it."""
    assert os.getpgid(worker.pid) != os.getpgid(0)


SERVICE = """
import asyncio, sys
from app.processes import workers

async def main():
    worker = await workers.Worker.start("tests.unit.processes.echo")
    await worker.ask({"say": "hello"})
    print(worker.pid, flush=True)
    await worker.ask({"do": "hang"})

asyncio.run(main())
"""


def test_a_worker_dies_with_a_service_that_is_killed() -> None:
    """SIGKILL of the service, which no code of it sees, ends its worker too, hanging or not."""
    service = subprocess.Popen([sys.executable, "-c", SERVICE], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    handle = os.pidfd_open(int(service.stdout.readline()))
    service.kill()
    service.communicate()

    assert living.ended_within(handle, 5)
    os.close(handle)


def test_a_worker_whose_parent_is_gone_already_ends_at_once() -> None:
    """A worker that finds another parent than the one it was started by does nothing."""
    orphan = subprocess.run(
        [sys.executable, "-m", ECHO, "1"],
        cwd=ROOT,
        input="{}\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (orphan.returncode, orphan.stdout) == (0, "")
