"""The dialect of OpenAI's Responses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.agent_programs.fake_model import pieces
from tests.agent_programs.fake_model.asked import Asked, Turn, text_of
from tests.agent_programs.fake_model.replies import CACHED_TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, Fault
from tests.agent_programs.fake_model.tools import Said

NAME = "responses"
_STANDING = ("system", "developer")
_USAGE = {
    "input_tokens": INPUT_TOKENS,
    "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
    "output_tokens": OUTPUT_TOKENS,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


def is_meant(path: str) -> bool:
    """Return whether a request asks for a reply."""
    return path.partition("?")[0].endswith("/responses")


def other(path: str) -> dict[str, Any] | None:
    """Return None, because this dialect answers only requests for replies."""
    return None


def asked(path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Asked:
    """Read a request."""
    given = body.get("input", ())
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else list(given)
    messages = [item for item in items if item.get("type", "message") == "message"]
    standing = [text_of(message["content"]) for message in messages if message["role"] in _STANDING]
    added = [tool for item in items if item.get("type") == "additional_tools" for tool in item.get("tools") or ()]
    return Asked(
        dialect=NAME,
        path=path,
        headers=headers,
        body=body,
        model=body.get("model", ""),
        system="\n".join([body.get("instructions") or "", *standing]),
        turns=tuple(turn for item in items if (turn := _turn(item)) is not None),
        offered={
            tool["name"]: tool.get("parameters") for tool in [*(body.get("tools") or ()), *added] if "name" in tool
        },
        streaming=bool(body.get("stream")),
    )


def _turn(item: Mapping[str, Any]) -> Turn | None:
    kind = item.get("type", "message")
    if kind == "message" and item["role"] not in _STANDING:
        return Turn(role=item["role"], text=text_of(item["content"]))
    if kind.endswith("_call_output"):
        return Turn(role="tool", text=text_of(item.get("output") or ""))
    return None


def whole(said: Said, asked: Asked, number: int) -> dict[str, Any]:
    """Return the reply in one piece."""
    ending: dict[str, Any] = {"status": "completed"}
    if said.cut:
        ending = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return {**_head(asked, number), **ending, "output": _items(said, number), "usage": _USAGE}


def begin(text: str, asked: Asked, number: int) -> Iterator[bytes]:
    """Return the first pieces of a reply that never ends."""
    yield _event("response.created", response={**_head(asked, number), "status": "in_progress"})
    yield from _spoken(_items(Said(text=text, call=None), number)[0])


def streamed(said: Said, asked: Asked, number: int) -> Iterator[bytes]:
    """Return the reply in pieces."""
    reply = whole(said, asked, number)
    yield _event("response.created", response={**_head(asked, number), "status": "in_progress"})
    for index, item in enumerate(reply["output"]):
        if item["type"] == "message":
            yield from _spoken(item, index)
        else:
            yield _event("response.output_item.added", output_index=index, item={**item, "arguments": ""})
            facts = {"item_id": item["id"], "output_index": index}
            yield _event("response.function_call_arguments.delta", **facts, delta=item["arguments"])
            yield _event("response.function_call_arguments.done", **facts, arguments=item["arguments"])
        yield _event("response.output_item.done", output_index=index, item=item)
    yield _event(f"response.{reply['status']}", response=reply)


def _spoken(item: Mapping[str, Any], index: int = 0) -> Iterator[bytes]:
    facts = {"item_id": item["id"], "output_index": index, "content_index": 0}
    text = item["content"][0]["text"]
    added = {**item, "content": [], "status": "in_progress"}
    yield _event("response.output_item.added", output_index=index, item=added)
    yield _event("response.content_part.added", **facts, part={**item["content"][0], "text": ""})
    for piece in pieces.cut(text):
        yield _event("response.output_text.delta", **facts, delta=piece)
    yield _event("response.output_text.done", **facts, text=text)
    yield _event("response.content_part.done", **facts, part=item["content"][0])


def fault(fault: Fault) -> dict[str, Any]:
    """Return the body of an error."""
    kind = "invalid_request_error" if fault.status < 500 else "server_error"
    return {"error": {"message": fault.message, "type": kind, "param": None, "code": None}}


def _items(said: Said, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if said.text or not said.call:
        content = [{"type": "output_text", "text": said.text, "annotations": []}]
        message = {"id": f"msg_{number:08}", "type": "message", "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    if said.call:
        call = {"id": f"fc_{number:08}", "call_id": f"call_{number:08}", "type": "function_call", "status": "completed"}
        items.append({**call, "name": said.call.name, "arguments": json.dumps(said.call.arguments)})
    return items


def _head(asked: Asked, number: int) -> dict[str, Any]:
    return {
        "id": f"resp_{number:08}",
        "object": "response",
        "created_at": 1,
        "model": asked.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "temperature": 1.0,
        "top_p": 1.0,
    }


def _event(kind: str, **facts: Any) -> bytes:
    return pieces.event({"type": kind, "sequence_number": 0, **facts}, kind)
