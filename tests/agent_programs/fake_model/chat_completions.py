"""The dialect of OpenAI's Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.agent_programs.fake_model import pieces
from tests.agent_programs.fake_model.asked import Asked, Turn, text_of
from tests.agent_programs.fake_model.replies import CACHED_TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, Fault
from tests.agent_programs.fake_model.tools import Said

NAME = "chat"
_STANDING = ("system", "developer")
_USAGE = {
    "prompt_tokens": INPUT_TOKENS,
    "completion_tokens": OUTPUT_TOKENS,
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def is_meant(path: str) -> bool:
    """Return whether a request asks for a reply."""
    return path.partition("?")[0].endswith("/chat/completions")


def other(path: str) -> dict[str, Any] | None:
    """Answer a request that does not ask for a reply; None: not found."""
    if path.partition("?")[0].endswith("/models"):
        return {"object": "list", "data": [{"id": "fake-model", "object": "model", "created": 0, "owned_by": "fake"}]}
    return None


def asked(path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Asked:
    """Read a request."""
    messages = body.get("messages", ())
    return Asked(
        dialect=NAME,
        path=path,
        headers=headers,
        body=body,
        model=body.get("model", ""),
        system="\n".join(text_of(message["content"]) for message in messages if message["role"] in _STANDING),
        turns=tuple(
            Turn(role=message["role"], text=text_of(message.get("content") or ""))
            for message in messages
            if message["role"] not in _STANDING
        ),
        offered={
            tool["function"]["name"]: tool["function"].get("parameters")
            for tool in body.get("tools") or ()
            if tool.get("type") == "function"
        },
        streaming=bool(body.get("stream")),
    )


def whole(said: Said, asked: Asked, number: int) -> dict[str, Any]:
    """Return the reply in one piece."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text or ("" if not said.call else None)}
    if said.call:
        message["tool_calls"] = _calls(said, number)
    choice = {"index": 0, "message": message, "finish_reason": _reason(said), "logprobs": None}
    return {**_head(asked, number, "chat.completion"), "choices": [choice], "usage": _USAGE}


def begin(text: str, asked: Asked, number: int) -> Iterator[bytes]:
    """Return the first pieces of a reply that never ends."""
    yield _chunk(asked, number, {"role": "assistant", "content": text})


def streamed(said: Said, asked: Asked, number: int) -> Iterator[bytes]:
    """Return the reply in pieces."""
    yield _chunk(asked, number, {"role": "assistant", "content": ""})
    for piece in pieces.cut(said.text):
        yield _chunk(asked, number, {"content": piece})
    if said.call:
        yield _chunk(asked, number, {"tool_calls": [{"index": 0, **call} for call in _calls(said, number)]})
    yield _chunk(asked, number, {}, _reason(said))
    yield pieces.event({**_head(asked, number, "chat.completion.chunk"), "choices": [], "usage": _USAGE})
    yield b"data: [DONE]\n\n"


def fault(fault: Fault) -> dict[str, Any]:
    """Return the body of an error."""
    kind = "invalid_request_error" if fault.status < 500 else "server_error"
    return {"error": {"message": fault.message, "type": kind, "param": None, "code": None}}


def _calls(said: Said, number: int) -> list[dict[str, Any]]:
    assert said.call is not None
    function = {"name": said.call.name, "arguments": json.dumps(said.call.arguments)}
    return [{"id": f"call_{number:08}", "type": "function", "function": function}]


def _reason(said: Said) -> str:
    return "tool_calls" if said.call else "length" if said.cut else "stop"


def _head(asked: Asked, number: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number:08}", "object": kind, "created": 1, "model": asked.model}


def _chunk(asked: Asked, number: int, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    return pieces.event({**_head(asked, number, "chat.completion.chunk"), "choices": [choice]})
