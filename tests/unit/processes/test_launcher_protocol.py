"""The launcher's protocol: messages arrive as they were sent, however they are cut up on the way."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.processes import launcher_protocol

TEXTS = st.binary(max_size=200)
STARTS = st.builds(
    launcher_protocol.Start,
    number=st.integers(0, 2**40),
    run_id=st.text(max_size=64),
    argv=st.lists(TEXTS, max_size=5),
    cwd=st.none() | TEXTS,
    env=st.dictionaries(TEXTS, st.none() | TEXTS, max_size=5),
    inherits=st.booleans(),
    stdin=st.none() | TEXTS,
    reads_from_file=st.booleans(),
    timeout_seconds=st.none() | st.floats(allow_nan=False),
    idle_seconds=st.none() | st.floats(allow_nan=False),
    cap_bytes=st.integers(0, 2**40),
    contained=st.booleans(),
    writes_to_file=st.booleans(),
)
MESSAGES = (
    STARTS
    | st.builds(launcher_protocol.End, number=st.integers())
    | st.builds(launcher_protocol.Refused, st.integers(), st.text(), st.integers())
)


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    yield ends
    for end in ends:
        end.close()


@given(frames=st.lists(st.lists(MESSAGES, min_size=1, max_size=4), min_size=1, max_size=4), cut=st.integers(1, 400))
def test_messages_survive_any_cutting(frames: list[list[launcher_protocol.Message]], cut: int) -> None:
    """Each message is received once, whole and in order, for any division of its frame into parts."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        receiver = launcher_protocol.Receiver(theirs)
        received: list[launcher_protocol.Received] = []
        content = b"".join(launcher_protocol.frame(frame) for frame in frames)
        for begin in range(0, len(content), cut):
            launcher_protocol.send(ours, content[begin : begin + cut])
            received += receiver.receive() or []

    assert [message for message, _ in received] == [message for frame in frames for message in frame]
    assert all(files == [] for _, files in received)


def test_open_files_come_with_their_message(line: tuple[socket.socket, socket.socket]) -> None:
    """A message comes with the files that were sent with it, closed on exec, and with no other files."""
    readers = []
    for number in range(3):
        reader, writer = os.pipe()
        os.write(writer, str(number).encode())
        os.close(writer)
        launcher_protocol.send(
            line[0],
            launcher_protocol.frame([launcher_protocol.End(100), launcher_protocol.End(number)], files=1),
            [reader],
        )
        os.close(reader)
    received = launcher_protocol.Receiver(line[1]).receive() or []
    for message, files in received:
        for file in files:
            readers.append((message.number, os.read(file, 9), os.get_inheritable(file)))
            os.close(file)

    assert [message.number for message, _ in received] == [100, 0]
    assert readers == [(0, b"0", False)]


def test_a_broken_frame_leaves_no_file_open(line: tuple[socket.socket, socket.socket]) -> None:
    """A frame that breaks off leaves no file open."""
    reader, writer = os.pipe()
    launcher_protocol.send(line[0], launcher_protocol.frame([launcher_protocol.End(1)], files=1)[:-1], [writer])
    os.close(writer)
    receiver = launcher_protocol.Receiver(line[1])
    received = receiver.receive()
    receiver.close()
    left = os.read(reader, 1)
    os.close(reader)

    assert received == []
    assert left == b""


def test_a_closed_connection_is_detected(line: tuple[socket.socket, socket.socket]) -> None:
    """Silence is not an end; a close of the other side is."""
    receiver = launcher_protocol.Receiver(line[1])
    silence = receiver.receive()
    line[0].close()

    assert silence == []
    assert receiver.receive() is None
