"""The sieve of the WebSocket: it passes the same frames of a stream, wherever the stream is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from app.api import ws_protocol
from tests.integration.listening import frame

MOST = 64

CONTROL = some.builds(frame, some.binary(max_size=20), opcode=some.sampled_from([8, 9, 10]))


@some.composite
def messages(draw: some.DrawFn) -> tuple[list[bytes], bool, bool]:
    """Return the frames of a message mixed with control frames, whether it is too large, and whether it is text."""
    opcode = draw(some.sampled_from([1, 2]))
    text = some.text(max_size=30).map(str.encode) | some.binary(max_size=60)
    parts = draw(some.lists(text, min_size=1, max_size=4))
    frames: list[bytes] = []
    for place, part in enumerate(parts):
        frames += draw(some.lists(CONTROL, max_size=1))
        frames.append(frame(part, opcode=opcode if place == 0 else 0, fin=place == len(parts) - 1))
    held, too_large = 0, False
    for part in parts:
        too_large = too_large or held + len(part) > MOST
        held += len(part) + 6
    return frames, too_large, opcode == 2 or _is_text(b"".join(parts))


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _instead(said: str) -> bytes:
    return bytes([0x81, 0x80 | len(said)]) + bytes(4) + said.encode()


def _expected(frames: list[bytes], too_large: bool, sound: bool) -> bytes:
    control = b"".join(one for one in frames if one[0] & 0x08)
    if too_large:
        return control + _instead("\0too large")
    if not sound:
        return control + _instead("\0not text")
    return control + b"".join(one for one in frames if not one[0] & 0x08)


@given(some.lists(messages(), max_size=5), some.lists(some.integers(min_value=1, max_value=40), min_size=1))
def test_any_stream_cut_anywhere(told: list[tuple[list[bytes], bool, bool]], cuts: list[int]) -> None:
    """Small messages pass unchanged, others are replaced, control frames go first, and cuts make no difference."""
    stream = b"".join(one for frames, _, _ in told for one in frames)
    sieve, passed, place, turn = ws_protocol.Sieve(MOST), b"", 0, 0
    while place < len(stream):
        size = cuts[turn % len(cuts)]
        passed += sieve.pass_on(stream[place : place + size])
        place, turn = place + size, turn + 1

    assert passed == b"".join(_expected(*one) for one in told)


@given(some.binary(max_size=300), some.integers(min_value=1, max_value=300))
def test_any_bytes(content: bytes, size: int) -> None:
    """No bytes of a client break the sieve, or make it buffer more than a message and a header."""
    sieve = ws_protocol.Sieve(MOST)
    for place in range(0, len(content), size):
        sieve.pass_on(content[place : place + size])

        assert len(sieve._pending) <= MOST + 14
