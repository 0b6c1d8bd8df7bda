"""The Temporal server: why a process cannot use it is reported in a few words."""

from __future__ import annotations

import atexit
import socket
from typing import Any

import pytest

pytest.importorskip("temporalio")

from temporalio.client import Client

from app import errors
from app.temporal import server


@pytest.mark.parametrize(
    ("address", "code", "says"),
    [
        (
            "127.0.0.1:1",
            "temporal_away",
            "127.0.0.1:1 cannot be reached: Connection refused; start it, or name another one with --temporal",
        ),
        ("127.0.0.1:99999", "temporal_address", "write HOST:PORT"),
        ("http://127.0.0.1:7233", "temporal_address", "write HOST:PORT"),
    ],
)
async def test_the_reason_is_named(address: str, code: str, says: str) -> None:
    """The message contains the reason and the remedy, without what the library puts around the reason."""
    with pytest.raises(errors.ConfigurationError) as refused:
        await server.connect(server.Target(address=address))

    assert refused.value.code == code
    assert says in refused.value.message


async def test_a_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to another program that never answers is given up after a while."""
    monkeypatch.setattr(server, "CONNECT_SECONDS", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        pytest.raises(errors.ConfigurationError, match=r"cannot be reached: no answer in 0\.1 s"),
    ):
        await server.connect(server.Target(address=f"127.0.0.1:{listening.getsockname()[1]}"))


@pytest.mark.parametrize("said", ["h2 protocol error: http2 error", "stream closed because of a broken pipe"])
async def test_another_kind_of_server_is_not_called_away(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message distinguishes a web server or database at the address from an absent server.

    The words are the library's. Which of them it uses for one server differs from try to try, so they are given here.
    """

    async def connect(*_: Any, **__: Any) -> Client:
        raise RuntimeError(f'Failed client connect: Status {{ code: Unknown, message: "{said}" }}')

    monkeypatch.setattr(Client, "connect", connect)
    with pytest.raises(errors.ConfigurationError, match="does not answer as a Temporal server does") as refused:
        await server.connect(server.Target(address="127.0.0.1:5432"))
    assert (refused.value.code, said in refused.value.message) == ("temporal_away", True)


async def test_threads_of_the_library_end_before_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's threads end once before the process, however often it connects: one at work would abort Python."""
    calls: list[object] = []
    monkeypatch.setattr(atexit, "register", calls.append)
    monkeypatch.setattr(atexit, "unregister", calls.remove)
    calls.append(server._let_threads_end)
    for _ in range(2):
        with pytest.raises(errors.ConfigurationError):
            await server.connect(server.Target(address="127.0.0.1:1"))

    assert calls == [server._let_threads_end]
