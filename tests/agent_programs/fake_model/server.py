"""A fake model server on loopback: it speaks the four dialects, gives scripted answers, and records its requests."""

from __future__ import annotations

import contextlib
import gzip
import json
import select
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType, TracebackType
from typing import Any

from tests.agent_programs.fake_model import (
    anthropic_messages,
    chat_completions,
    gemini_contents,
    openai_responses,
    tools,
)
from tests.agent_programs.fake_model.asked import Asked
from tests.agent_programs.fake_model.replies import Answer, Fault, Hang, Reply

DIALECTS: tuple[ModuleType, ...] = (anthropic_messages, openai_responses, chat_completions, gemini_contents)
PONG = Reply(text="PONG")
_SIDE = "You are a title generator"
_TITLE = Reply(text="A title")
_LOOK_SECONDS = 0.05

Script = Callable[[Asked], Answer]
"""Decides the answer to a request."""


class Queue:
    """Give the answers in turn; the last one is repeated forever."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Answer:
        with self._lock:
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request that did not ask for a reply."""

    method: str
    """Its method."""
    path: str
    """Its path."""
    status: int
    """Status of the answer."""


class FakeModel:
    """The server, for the length of a `with` block.

    It answers requests for the title of a conversation separately, and records them separately.
    """

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or Queue(PONG)
        """Decides the answers; a test may replace it at any time."""
        self.asked: list[Asked] = []
        """Requests for replies, in order of arrival."""
        self.aside: list[Asked] = []
        """Requests for titles."""
        self.seen: list[Seen] = []
        """All other requests."""
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._server = _Server(self)

    @property
    def port(self) -> int:
        """Return its port on 127.0.0.1."""
        return self._server.server_address[1]

    @property
    def address(self) -> str:
        """Return its address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FakeModel:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK_SECONDS,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def say(self, *answers: Answer) -> None:
        """Give these answers from now on; the last one is repeated forever."""
        self.script = Queue(*answers)

    def wait(self, holds: Callable[[list[Asked]], Any], seconds: float = 60.0) -> bool:
        """Wait until a condition on the requests so far is true; return False after the time-out."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: holds(self.asked), seconds))

    def take(self, asked: Asked) -> tuple[Answer, int]:
        """Record a request, and return its answer and its number."""
        is_side = _SIDE in asked.system
        with self._changed:
            (self.aside if is_side else self.asked).append(asked)
            number = len(self.asked) + len(self.aside)
            self._changed.notify_all()
        return (_TITLE if is_side else self.script(asked)), number

    def hang(self, connection: socket.socket) -> None:
        """Wait until the client disconnects or the server ends."""
        while not self._ending.is_set():
            readable, _, _ = select.select([connection], [], [], _LOOK_SECONDS)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                return
            if readable:
                self._ending.wait(_LOOK_SECONDS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, model: FakeModel) -> None:
        self.model = model
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server for the machine's name."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name = "127.0.0.1"
        self.server_port = self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no errors of clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        """Answer a request that does not ask for a reply."""
        self._answer_aside()

    def do_HEAD(self) -> None:
        """Answer like GET."""
        self._answer_aside()

    def do_POST(self) -> None:
        """Answer as the script decides."""
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        dialect = next((one for one in DIALECTS if one.is_meant(self.path)), None)
        if dialect is None:
            return self._answer_aside()
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked: Asked = dialect.asked(self.path, headers, json.loads(content))
        answer, number = self.server.model.take(asked)
        self._answer(dialect, asked, answer, number)
        return None

    def log_message(self, *_: Any) -> None:
        """Print no log, because the server records its requests."""

    def _answer(self, dialect: ModuleType, asked: Asked, answer: Answer, number: int) -> None:
        if isinstance(answer, Fault):
            self._send(answer.status, dialect.fault(answer), answer.headers)
        elif isinstance(answer, Hang):
            if answer.begin is not None:
                self._stream(dialect.begin(answer.begin, asked, number), is_whole=False)
            self.server.model.hang(self.connection)
            self.close_connection = True
        else:
            said = tools.said(answer, asked)
            if asked.streaming:
                self._stream(dialect.streamed(said, asked, number))
            else:
                self._send(200, dialect.whole(said, asked, number))

    def _answer_aside(self) -> None:
        found = next((found for dialect in DIALECTS if (found := dialect.other(self.path)) is not None), None)
        status = 404 if found is None else 200
        self.server.model.seen.append(Seen(method=self.command, path=self.path, status=status))
        self._send(status, found if found is not None else {"error": {"message": "there is nothing here"}})

    def _send(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _stream(self, events: Iterable[bytes], *, is_whole: bool = True) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in events:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            if is_whole:
                self.wfile.write(b"0\r\n\r\n")
