"""The dialect of Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.agent_programs.fake_model import pieces
from tests.agent_programs.fake_model.asked import Asked, Turn, text_of
from tests.agent_programs.fake_model.replies import CACHED_TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, Fault
from tests.agent_programs.fake_model.tools import Said

NAME = "anthropic"
_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}
_USAGE = {
    "input_tokens": INPUT_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
    "cache_read_input_tokens": CACHED_TOKENS,
    "cache_creation_input_tokens": 0,
}


def is_meant(path: str) -> bool:
    """Return whether a request asks for a reply."""
    return path.partition("?")[0].endswith("/v1/messages")


def other(path: str) -> dict[str, Any] | None:
    """Answer a request that does not ask for a reply; None: not found."""
    return {"input_tokens": INPUT_TOKENS} if "/messages/count_tokens" in path else None


def asked(path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Asked:
    """Read a request."""
    return Asked(
        dialect=NAME,
        path=path,
        headers=headers,
        body=body,
        model=body.get("model", ""),
        system=text_of(body.get("system") or ""),
        turns=tuple(turn for message in body.get("messages", ()) for turn in _turns(message)),
        offered={tool["name"]: tool.get("input_schema") for tool in body.get("tools") or ()},
        streaming=bool(body.get("stream")),
    )


def _turns(message: Mapping[str, Any]) -> Iterator[Turn]:
    content = message["content"]
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        role = "tool" if part.get("type") == "tool_result" else message["role"]
        yield Turn(role=role, text=text_of(part))


def whole(said: Said, asked: Asked, number: int) -> dict[str, Any]:
    """Return the reply in one piece."""
    return {
        "id": f"msg_{number:08}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": _content(said, number),
        "stop_reason": "tool_use" if said.call else "max_tokens" if said.cut else "end_turn",
        "stop_sequence": None,
        "usage": _USAGE,
    }


def _content(said: Said, number: int) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    if said.text or not said.call:
        content.append({"type": "text", "text": said.text})
    if said.call:
        block = {"type": "tool_use", "id": f"toolu_{number:08}", "name": said.call.name}
        content.append({**block, "input": dict(said.call.arguments)})
    return content


def begin(text: str, asked: Asked, number: int) -> Iterator[bytes]:
    """Return the first pieces of a reply that never ends."""
    whole_reply = whole(Said(text=text, call=None), asked, number)
    yield _event("message_start", message={**whole_reply, "content": [], "stop_reason": None})
    yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def streamed(said: Said, asked: Asked, number: int) -> Iterator[bytes]:
    """Return the reply in pieces."""
    reply = whole(said, asked, number)
    yield _event("message_start", message={**reply, "content": [], "stop_reason": None})
    for index, block in enumerate(reply["content"]):
        empty = {**block, **({"text": ""} if block["type"] == "text" else {"input": {}})}
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in _deltas(block):
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta={"stop_reason": reply["stop_reason"], "stop_sequence": None}, usage=_USAGE)
    yield _event("message_stop")


def _deltas(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if block["type"] == "text":
        for piece in pieces.cut(block["text"]):
            yield {"type": "text_delta", "text": piece}
    else:
        yield {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}


def fault(fault: Fault) -> dict[str, Any]:
    """Return the body of an error."""
    return {"type": "error", "error": {"type": _KINDS.get(fault.status, "api_error"), "message": fault.message}}


def _event(kind: str, **facts: Any) -> bytes:
    return pieces.event({"type": kind, **facts}, kind)
