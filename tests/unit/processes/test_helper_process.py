"""Helper processes: real child processes, asked, killed and orphaned."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.processes import helper_process
from tests.unit.agents import living

ECHO = "tests.unit.processes.echo"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def helper() -> AsyncIterator[helper_process.HelperProcess]:
    started = await helper_process.HelperProcess.start(ECHO, "one", "two words")
    yield started
    await started.end()


async def test_a_helper_answers_one_question_after_another(helper: helper_process.HelperProcess) -> None:
    """Each question gets its own answer, for any characters in it."""
    answers = [await helper.ask({"say": text}) for text in ("hello", "zwei\nZeilen", "\x00 ☃", "x" * 300_000)]

    assert [answer["heard"]["say"] for answer in answers] == ["hello", "zwei\nZeilen", "\x00 ☃", "x" * 300_000]


async def test_a_helper_gets_its_arguments_and_hardly_any_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A helper gets no secret of the service's environment, and does not hold a folder of the project open."""
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    helper = await helper_process.HelperProcess.start(ECHO, "one", "two words")
    told = await helper.ask({"do": "tell"})
    await helper.end()

    assert told["arguments"] == ["one", "two words"]
    assert "sk-secret" not in told["environment"].values()
    assert told["cwd"] == "/"


async def test_a_helper_that_ends_is_an_error_with_its_exit_code(helper: helper_process.HelperProcess) -> None:
    """A helper that ends instead of answering is an error with its exit code and its last output."""
    with pytest.raises(helper_process.HelperProcessLost) as lost:
        await helper.ask({"do": "complain and leave"})

    assert lost.value.detail == {"exit_code": 3, "stderr": "something is wrong"}
    assert not helper.alive


async def test_a_question_to_a_dead_helper_fails(helper: helper_process.HelperProcess) -> None:
    """A helper killed from outside is noticed at the next question at the latest."""
    os.kill(helper.pid, signal.SIGKILL)

    with pytest.raises(helper_process.HelperProcessLost) as lost:
        await helper.ask({"say": "hello"})
    assert lost.value.detail["exit_code"] == -signal.SIGKILL


async def test_end_kills_a_helper_that_hangs(helper: helper_process.HelperProcess) -> None:
    """A helper that never answers is gone when `end` returns, and a second `end` has no effect."""
    asking = asyncio.ensure_future(helper.ask({"do": "hang"}))
    await helper.end()
    await helper.end()

    assert helper.pid not in living.children()
    assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], helper_process.HelperProcessLost)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signals_that_end_a_service_are_not_for_helpers(
    helper: helper_process.HelperProcess, ending: signal.Signals
) -> None:
    """A helper ignores the signals that end a service, and is in a process group of its own."""
    await helper.ask({"say": "I am here"})
    os.kill(helper.pid, ending)

    assert (await helper.ask({"say": "still"}))["heard"] == {"say": "still"}
    assert os.getpgid(helper.pid) != os.getpgid(0)


SERVICE = """
import asyncio, sys
from app.processes import helper_process

async def main():
    helper = await helper_process.HelperProcess.start("tests.unit.processes.echo")
    await helper.ask({"say": "hello"})
    print(helper.pid, flush=True)
    await helper.ask({"do": "hang"})

asyncio.run(main())
"""


def test_a_helper_dies_with_a_service_that_is_killed() -> None:
    """SIGKILL of the service ends its helper, hanging or not."""
    service = subprocess.Popen([sys.executable, "-c", SERVICE], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    handle = os.pidfd_open(int(service.stdout.readline()))
    service.kill()
    service.communicate()

    assert living.ended_within(handle, 30)
    os.close(handle)


def test_a_helper_whose_parent_is_gone_already_ends_at_once() -> None:
    """A helper whose parent is not the process that started it ends at once."""
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
