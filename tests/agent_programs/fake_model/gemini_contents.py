"""The dialect of Gemini's generateContent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.agent_programs.fake_model import pieces
from tests.agent_programs.fake_model.asked import Asked, Turn, text_of
from tests.agent_programs.fake_model.replies import CACHED_TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, Fault
from tests.agent_programs.fake_model.tools import Said

NAME = "gemini"
_PATH = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent)")
_STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}
_USAGE = {
    "promptTokenCount": INPUT_TOKENS,
    "candidatesTokenCount": OUTPUT_TOKENS,
    "cachedContentTokenCount": CACHED_TOKENS,
    "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
}


def is_meant(path: str) -> bool:
    """Return whether a request asks for a reply."""
    return _PATH.search(path) is not None


def other(path: str) -> dict[str, Any] | None:
    """Answer a request that does not ask for a reply; None: not found."""
    return {"totalTokens": INPUT_TOKENS} if ":countTokens" in path else None


def asked(path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Asked:
    """Read a request."""
    found = _PATH.search(path)
    assert found is not None
    return Asked(
        dialect=NAME,
        path=path,
        headers=headers,
        body=body,
        model=found[1],
        system=text_of((body.get("systemInstruction") or {}).get("parts") or ""),
        turns=tuple(turn for content in body.get("contents", ()) for turn in _turns(content)),
        offered={
            tool["name"]: tool.get("parametersJsonSchema") or tool.get("parameters")
            for group in body.get("tools") or ()
            for tool in group.get("functionDeclarations") or ()
        },
        streaming=found[2] == "streamGenerateContent",
    )


def _turns(content: Mapping[str, Any]) -> Iterator[Turn]:
    for part in content.get("parts", ()):
        if "functionResponse" in part:
            yield Turn(role="tool", text=text_of(part["functionResponse"].get("response") or ""))
        else:
            role = "assistant" if content.get("role") == "model" else "user"
            yield Turn(role=role, text=text_of(part))


def whole(said: Said, asked: Asked, number: int) -> dict[str, Any]:
    """Return the reply in one piece."""
    parts: list[dict[str, Any]] = [{"text": said.text}] if said.text or not said.call else []
    if said.call:
        parts.append({"functionCall": {"name": said.call.name, "args": dict(said.call.arguments)}})
    return _piece(asked, number, parts, "MAX_TOKENS" if said.cut else "STOP")


def begin(text: str, asked: Asked, number: int) -> Iterator[bytes]:
    """Return the first pieces of a reply that never ends."""
    yield pieces.event(_piece(asked, number, [{"text": text}]))


def streamed(said: Said, asked: Asked, number: int) -> Iterator[bytes]:
    """Return the reply in pieces."""
    for piece in pieces.cut(said.text):
        yield pieces.event(_piece(asked, number, [{"text": piece}]))
    yield pieces.event(whole(Said(text="", call=said.call, cut=said.cut), asked, number))


def fault(fault: Fault) -> dict[str, Any]:
    """Return the body of an error."""
    status = _STATUSES.get(fault.status, "UNKNOWN")
    return {"error": {"code": fault.status, "message": fault.message, "status": status}}


def _piece(asked: Asked, number: int, parts: list[dict[str, Any]], reason: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if reason is not None:
        candidate["finishReason"] = reason
    return {
        "candidates": [candidate],
        "usageMetadata": _USAGE,
        "modelVersion": asked.model,
        "responseId": f"response-{number:08}",
    }
