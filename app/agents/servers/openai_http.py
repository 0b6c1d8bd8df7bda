"""The Chat Completions interface, through the package `openai`: OpenAI's own service and every compatible one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from app import clock, errors
from app.agents.servers import failures, refused_calls, services, tries
from app.domain import plain, records

if TYPE_CHECKING:
    import openai

_NEW_LIMIT, _OLD_LIMIT = "max_completion_tokens", "max_tokens"
_ENDINGS: Mapping[str, services.Ending] = {"length": "cut", "content_filter": "refused"}


class ChatCompletions:
    """Request chat completions."""

    def __init__(self, account: services.Account, time: clock.Clock) -> None:
        self._account = account
        self._clock = time
        self._client: openai.AsyncOpenAI | None = None
        self._opening = asyncio.Lock()
        # OpenAI's newer models know only the one name of the limit, many other servers only the other.
        self._limit = _NEW_LIMIT if account.base_url is None else _OLD_LIMIT

    async def ask(self, question: services.Question) -> services.Completion:
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(_opened, self._account, self._clock)
        client, limit = self._client, self._limit
        try:
            return await _asked(client, question, limit)
        except errors.AgentFailed as refusal:
            # If another parameter is wrong, a second request would fail as well.
            if question.max_tokens is None or refusal.detail.get("parameter") != limit:
                raise
        # Kept for later prompts: a server knows only one of the names.
        self._limit = _OLD_LIMIT if limit == _NEW_LIMIT else _NEW_LIMIT
        return await _asked(client, question, self._limit)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _opened(account: services.Account, time: clock.Clock) -> openai.AsyncOpenAI:
    import openai

    client = openai.AsyncOpenAI(
        api_key=account.api_key,
        base_url=account.base_url,
        # By itself the package waits at most two minutes for a `Retry-After`.
        max_retries=services.TRIES - 1,
        http_client=tries.noting(openai.DefaultAsyncHttpxClient)(
            event_hooks={"response": [refused_calls.hook(account.limited, time)]}
        ),
    )
    # The package loads its parts at first use; that takes a while, so it happens in this thread.
    client.chat.completions.with_streaming_response  # noqa: B018
    return client


async def _asked(client: openai.AsyncOpenAI, question: services.Question, limit: str) -> services.Completion:
    import httpx2
    import openai

    arguments = _arguments(question, limit)
    timeout = openai.Timeout(question.timeout_seconds, connect=services.CONNECT_SECONDS)
    try:
        completions = client.chat.completions.with_streaming_response
        async with completions.create(**arguments, timeout=timeout) as response:
            content = await _bounded(response.iter_bytes(), question.hear)
    except openai.APIStatusError as error:
        raise failures.refused(error) from error
    except (openai.APIConnectionError, httpx2.TransportError) as error:
        raise failures.unreachable(error) from error
    except (openai.OpenAIError, httpx2.HTTPError) as error:
        raise failures.unreadable(error) from error
    return _answer(content)


def _arguments(question: services.Question, limit: str) -> dict[str, Any]:
    system = [{"role": "system", "content": question.system}] if question.system else []
    messages = [{"role": message.role, "content": message.text} for message in question.messages]
    arguments: dict[str, Any] = {"model": question.model, "messages": [*system, *messages]}
    if question.max_tokens is not None:
        arguments[limit] = question.max_tokens
    if question.reply_schema is not None:
        schema = plain.plain(question.reply_schema)
        form = {"name": "reply", "schema": schema, "strict": _is_strict(schema)}
        arguments["response_format"] = {"type": "json_schema", "json_schema": form}
    return arguments


def _is_strict(schema: plain.Json) -> bool:
    """Return whether OpenAI accepts a schema as strict: every object in it closed, and every property required."""
    if isinstance(schema, list):
        return all(_is_strict(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    if "properties" in schema or schema.get("type") == "object":
        names = set(schema.get("properties", {}))
        # OpenAI refuses any other schema that is sent as strict.
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != names:
            return False
    return all(_is_strict(part) for part in schema.values())


async def _bounded(parts: AsyncIterator[bytes], hear: Callable[[str], None]) -> bytes:
    content = bytearray()
    async for part in parts:
        content += part
        # A sign of life; the reply itself is not streamed.
        hear("")
        if len(content) > services.MAX_REPLY_BYTES:
            raise failures.unreadable(f"it has more than {services.MAX_REPLY_BYTES} bytes")
    return bytes(content)


def _answer(content: bytes) -> services.Completion:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise failures.unreadable(error) from error
    match answer:
        case {"choices": [{"message": {"refusal": str(refusal)}}, *_]} if refusal:
            return services.Completion(text=refusal, usage=_usage(answer), ending="refused")
        case {"choices": [{"message": {"content": str() | None as text}, **choice}, *_]}:
            ending = _ENDINGS.get(str(choice.get("finish_reason")), "complete")
            return services.Completion(text=text or "", usage=_usage(answer), ending=ending)
        case {"error": {"message": str(message)}}:
            raise failures.unreadable(message)
    raise failures.unreadable(content[:200].decode("utf-8", "replace"))


def _usage(answer: Mapping[str, Any]) -> records.Usage | None:
    match answer.get("usage"):
        case {"prompt_tokens": int(read), "completion_tokens": int(written)} if read >= 0 and written >= 0:
            return records.Usage(input_tokens=read, output_tokens=written)
    return None


OPENAI = services.Vendor(
    package="openai",
    key_variable="OPENAI_API_KEY",
    models={"haiku": "gpt-6-luna", "sonnet": "gpt-6.1-terra", "opus": "gpt-6.2-sol"},
    open=ChatCompletions,
)
"""OpenAI, and services that speak Chat Completions."""
