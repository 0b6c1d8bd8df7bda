"""The part of the Agent Client Protocol's package that `acp_program.py` uses, under the same names and without models.

Loading the package takes half a second of CPU time, and each test starts the program at least once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
from types import SimpleNamespace
from typing import Any

LONGEST_LINE = 2**24
METHODS = {
    "initialize": "initialize",
    "session/new": "new_session",
    "session/load": "load_session",
    "session/resume": "resume_session",
    "session/set_mode": "set_session_mode",
    "session/set_config_option": "set_config_option",
    "session/prompt": "prompt",
    "session/cancel": "cancel",
}


class RequestError(Exception):
    """The error with which an agent refuses a request."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.fields = {"code": code, "message": message, "data": data}

    @classmethod
    def auth_required(cls) -> RequestError:
        """Return the error of an agent that requires authentication."""
        return cls(-32000, "Authentication required")

    @classmethod
    def invalid_params(cls, data: Any) -> RequestError:
        """Return the error of a request with a wrong value."""
        return cls(-32602, "Invalid params", data)

    @classmethod
    def resource_not_found(cls, uri: str) -> RequestError:
        """Return the error of a conversation that does not exist."""
        return cls(-32002, "Resource not found", {"uri": uri})


class Model(SimpleNamespace):
    """An object of the protocol."""

    def model_copy(self, update: dict[str, Any]) -> Model:
        """Return a copy with other values of some fields."""
        return Model(**vars(self) | update)


class _Schema:
    def __getattr__(self, _: str) -> type[Model]:
        return Model


schema = _Schema()


def update_agent_message_text(text: str) -> Model:
    """Return a piece of the agent's message."""
    return Model(session_update="agent_message_chunk", content=Model(type="text", text=text))


def start_tool_call(tool_call_id: str, title: str, **fields: Any) -> Model:
    """Return the beginning of a tool call."""
    return Model(session_update="tool_call", tool_call_id=tool_call_id, title=title, **fields)


def update_tool_call(tool_call_id: str, **fields: Any) -> Model:
    """Return the outcome of a tool call."""
    return Model(session_update="tool_call_update", tool_call_id=tool_call_id, **fields)


class Client:
    """The client that has started the agent."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._asked: dict[Any, asyncio.Future[Any]] = {}

    def send(self, **message: Any) -> None:
        """Write a message."""
        line = json.dumps({"jsonrpc": "2.0", **message}, default=_plain)
        sys.stdout.buffer.write(line.encode() + b"\n")
        sys.stdout.buffer.flush()

    async def session_update(self, session_id: str, update: Model) -> None:
        """Report an update of a turn."""
        self.send(method="session/update", params=Model(session_id=session_id, update=update))

    async def request_permission(self, **asked: Any) -> Any:
        """Ask whether a tool may be used."""
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        self.send(id=number, method="session/request_permission", params=Model(**asked))
        return await self._asked[number]

    def hear(self, answer: dict[str, Any]) -> None:
        """Take the answer to an earlier request."""
        self._asked.pop(answer["id"]).set_result(_read(answer["result"]))


async def run_agent(agent: Any, **_: Any) -> None:
    """Answer requests on standard input until it ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    client = Client()
    agent.on_connect(client)
    answering = set()
    while line := await lines.readline():
        message = json.loads(line)
        if "method" not in message:
            client.hear(message)
            continue
        task = loop.create_task(_answer(agent, client, message))
        answering.add(task)
        task.add_done_callback(answering.discard)


async def _answer(agent: Any, client: Client, message: dict[str, Any]) -> None:
    params = dict(message["params"])
    meta = params.pop("_meta", None) or {}
    given = {_snake(name): _read(value) for name, value in params.items()}
    try:
        result = await getattr(agent, METHODS[message["method"]])(**given, **meta)
    except RequestError as error:
        client.send(id=message["id"], error=error.fields)
    except Exception as error:
        client.send(id=message["id"], error=RequestError(-32603, "Internal error", repr(error)).fields)
        raise
    else:
        if "id" in message:
            client.send(id=message["id"], result=result)


def _plain(model: Model) -> dict[str, Any]:
    return {_camel(name): value for name, value in vars(model).items() if value is not None}


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{_snake(name): _read(each) for name, each in value.items()})
    return [_read(each) for each in value] if isinstance(value, list) else value


def _camel(name: str) -> str:
    return "_meta" if name == "field_meta" else re.sub("_(.)", lambda found: found[1].upper(), name)


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)
