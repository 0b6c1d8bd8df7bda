"""Live output of steps: masked, bounded, buffered while the log cannot be written, and never blocking the step."""

from __future__ import annotations

import asyncio
import random

import pytest

from app import errors
from app.domain import plain
from app.engine import live_output
from app.engine.live_steps import BackendQueue, LiveStep

SECRET = "hunter2-and-a-half"


class Kept:
    """A log that can be full or unavailable."""

    def __init__(self) -> None:
        self.text = ""
        self.is_away = False
        self.fault: BaseException | None = None
        self.written = asyncio.Event()

    async def append(self, _: str, text: str, anew: bool) -> bool:
        """Append to the log, or replace it."""
        if self.fault is not None:
            raise self.fault
        if self.is_away:
            return False
        self.text = text if anew else self.text + text
        self.written.set()
        return True


@pytest.fixture
def kept() -> Kept:
    """Return an empty log."""
    return Kept()


def output(kept: Kept, step: LiveStep | None = None) -> live_output.LiveOutput:
    """Return a live output to a log."""
    return live_output.LiveOutput(step or LiveStep(), kept.append, "a.txt", plain.Masker([SECRET]))


async def test_output_is_written_before_its_end(kept: Kept) -> None:
    """Whole lines are in the log while the step runs, and the step has the time of its last output."""
    step = LiveStep()
    heard = output(kept, step)
    heard.hear("one\ntw")
    await kept.written.wait()

    assert kept.text == "one\n"
    assert step.output_at is not None

    heard.hear("o")
    await heard.close()

    assert kept.text == "one\ntwo"


async def test_a_later_attempt_replaces_the_log(kept: Kept) -> None:
    """The output of a later attempt does not follow that of an earlier one, and replaces it only once it is there."""
    for text in ("first\n", "", "second\n"):
        heard = output(kept)
        heard.hear(text)
        if text:
            kept.written.clear()
            await kept.written.wait()
        heard.hear(text and "rest\n")
        await heard.close()
        if not text:
            assert kept.text == "first\nrest\n"

    assert kept.text == "second\nrest\n"


@pytest.mark.parametrize("seed", range(20))
async def test_no_cut_shows_a_part_of_a_secret(kept: Kept, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever an output is cut into pieces, the log equals the whole text masked at once."""
    monkeypatch.setattr(live_output, "_MOST_HELD", 64)
    monkeypatch.setattr(live_output, "PAUSE_SECONDS", 0)
    chance = random.Random(seed)
    words = [SECRET, "hunter2", "x" * chance.randint(1, 90), "ü", " ", *(["\n"] if seed % 2 else [])]
    text = "".join(chance.choice(words) for _ in range(300))
    heard, rest = output(kept), text.encode()
    while rest:
        length = chance.randint(1, 40)
        heard.hear_bytes(rest[:length])
        rest = rest[length:]
        await asyncio.sleep(0)
    await heard.close()

    assert SECRET not in kept.text
    assert kept.text == text.replace(SECRET, "***")


async def test_a_gap_leaves_no_part_of_a_secret(kept: Kept) -> None:
    """Only whole lines are kept before and after a gap, because the gap may cut a secret."""
    heard = output(kept)
    heard.hear_bytes(f"first\nbegin {SECRET[:6]}".encode())
    heard.hear_bytes(f"{SECRET[6:]} end".encode(), 10)
    heard.hear_bytes(b" of it\nlast\n")
    await heard.close()

    assert kept.text.splitlines()[0] == "first"
    assert kept.text.splitlines()[-1] == "last"
    assert "left out" in kept.text
    assert SECRET[:6] not in kept.text
    assert SECRET[6:] not in kept.text


async def test_too_much_is_left_out(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is limited in size and ends with a notice."""
    monkeypatch.setattr(live_output, "MOST_CHARACTERS", 1000)
    heard = output(kept)
    for _ in range(300):
        heard.hear("x" * 9_999 + "\n")
    await heard.close()
    heard.hear("more\n")
    await heard.close()

    assert len(kept.text) < 1100
    assert kept.text.endswith("[the rest of the output is left out]\n")


async def test_pending_output_is_bounded(kept: Kept) -> None:
    """While the log cannot be written, a bounded part of the output is buffered and written later."""
    kept.is_away = True
    heard = output(kept)
    heard.hear("first\n")
    for _ in range(300):
        heard.hear("x" * 99_999 + "\n")
        await asyncio.sleep(0)
    kept.is_away = False
    heard.hear("last\n")
    await heard.close()

    assert kept.text.startswith("first\n")
    assert len(kept.text) < 3 * 1024 * 1024
    assert "left out" in kept.text


async def test_a_log_that_cannot_be_written_is_given_up(kept: Kept) -> None:
    """A log that cannot be written is given up, and the step continues."""
    kept.fault = errors.StorageFault("no room")
    heard = output(kept)
    heard.hear("one\n")
    await heard.close()
    kept.fault = None
    heard.hear("two\n")
    await heard.close()

    assert kept.text == ""


async def test_bytes_that_are_not_utf8_are_replaced(kept: Kept) -> None:
    """Bytes that are not UTF-8 are replaced, and a character cut between two pieces is whole."""
    heard = output(kept)
    heard.hear_bytes(b"\xff\x00ok \xc3")
    heard.hear_bytes(b"\xbc\n")
    await heard.close()

    assert kept.text == "\ufffd\x00ok ü\n"


async def test_a_step_reports_its_place_in_the_queue() -> None:
    """A step waiting for a backend has its place in the queue, which moves up, and the one at work has none."""
    queue, steps = BackendQueue("local"), [LiveStep() for _ in range(3)]
    leave = [asyncio.Event() for _ in steps]

    async def take(number: int) -> None:
        async with queue.turn(steps[number]):
            await leave[number].wait()

    tasks = [asyncio.create_task(take(number)) for number in range(3)]
    await asyncio.sleep(0)

    assert [step.queue for step in steps] == [None, queue, queue]
    assert [queue.place_of(step) for step in steps[1:]] == [(1, 2), (2, 2)]

    tasks[1].cancel()
    await asyncio.wait([tasks[1]])

    assert queue.place_of(steps[2]) == (1, 1)

    leave[0].set()
    leave[2].set()
    await tasks[2]

    assert [step.queue for step in steps] == [None, None, None]
