"""The Messages API, through the package `anthropic`; replies are streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from app import clock
from app.agents import reply_forms
from app.agents.servers import failures, refused_calls, services, tries
from app.domain import json_text, plain, records

if TYPE_CHECKING:
    import anthropic
    import httpx2

REPLY_TOKENS = 16_000  # Longest reply if the prompt sets no limit; the API requires one.

_ALTERNATIVES = frozenset({"anyOf", "oneOf", "allOf"})
_ENDINGS: Mapping[str, services.Ending] = {
    "max_tokens": "cut",
    "model_context_window_exceeded": "cut",
    "refusal": "refused",
}


class Messages:
    """Request messages."""

    def __init__(self, account: services.Account, clock: clock.Clock) -> None:
        self._account = account
        self._clock = clock
        self._client: anthropic.AsyncAnthropic | None = None
        self._opening = asyncio.Lock()

    async def ask(self, question: services.Question) -> services.Completion:
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(_opened, self._account, self._clock)
        return await _asked(self._client, question)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _opened(account: services.Account, clock: clock.Clock) -> anthropic.AsyncAnthropic:
    import anthropic

    async def refuse_long_waits(response: httpx2.Response) -> None:
        # By default the package waits as long as the service asks, even for weeks; this header prevents that.
        if refused_calls.asked_wait_seconds(response.headers, clock) > services.MOST_WAIT_SECONDS:
            response.headers["x-should-retry"] = "false"

    # Anthropic's own service accepts either header; some compatible ones do not know the newer one.
    old_header = {} if account.base_url is None else {"x-api-key": account.api_key}
    client = anthropic.AsyncAnthropic(
        api_key=account.api_key,
        base_url=account.base_url,
        max_retries=services.TRIES - 1,
        timeout=anthropic.Timeout(services.SILENCE_SECONDS, connect=services.CONNECT_SECONDS),
        default_headers=old_header,
        http_client=tries.noting(anthropic.DefaultAsyncHttpxClient)(
            event_hooks={"response": [refused_calls.hook(account.limited, clock), refuse_long_waits]}
        ),
    )
    client.messages  # noqa: B018 - loads the parts that are needed in this thread
    return client


async def _asked(client: anthropic.AsyncAnthropic, question: services.Question) -> services.Completion:
    import anthropic
    import httpx2

    try:
        async with await client.messages.create(**_arguments(question), stream=True) as stream:
            return await _answer(stream, question.hear)
    except anthropic.APIStatusError as error:
        raise failures.refused(error) from error
    except (anthropic.APIConnectionError, httpx2.TransportError) as error:
        raise failures.unreachable(error) from error
    except (anthropic.AnthropicError, httpx2.HTTPError, AttributeError, TypeError, ValueError) as error:
        # The package builds its values from any input, without a check.
        raise failures.unreadable(error) from error


def _arguments(question: services.Question) -> dict[str, Any]:
    reply_text = [{"role": message.role, "content": message.text} for message in question.messages]
    arguments: dict[str, Any] = {
        "model": question.model,
        "messages": reply_text,
        # The API requires a limit, unlike others.
        "max_tokens": question.max_tokens or REPLY_TOKENS,
    }
    if question.system:
        arguments["system"] = question.system
    if question.reply_schema is not None:
        schema = _binding(plain.plain(question.reply_schema))
        if schema is None:
            # Then the prompt contains the schema, and the reply is checked like every other one.
            reply_text[-1]["content"] += reply_forms.BREAK + reply_forms.in_words(question.reply_schema)
        else:
            arguments["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return arguments


def _binding(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return a schema that the API enforces with the same meaning; None if it cannot."""
    import anthropic

    try:
        fits = schema.get("type") == "object" and _can_be_closed(schema)
        return anthropic.transform_schema(schema) if fits else None
    except (AssertionError, AttributeError, TypeError, ValueError):
        # The package supports only single type names of JSON Schema, and raises one of these four errors for others.
        return None


def _can_be_closed(schema: plain.Json) -> bool:
    """Return whether each object has only required fields, or can be closed to all others; the API allows no others."""
    if isinstance(schema, list):
        return all(_can_be_closed(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        names = set(schema.get("properties", ()))
        is_open = schema.get("additionalProperties", not names) is not False
        if is_open or _ALTERNATIVES & schema.keys() or not names.issuperset(schema.get("required", ())):
            return False
    return all(_can_be_closed(part) for part in schema.values())


async def _answer(stream: AsyncIterator[Any], hear: Callable[[str], None]) -> services.Completion:
    parts: list[str] = []
    usage: dict[str, Any] = {}
    size, started, whole, stop_reason = 0, False, False, None
    async for event in stream:
        reported: dict[str, Any] = event.to_dict(warnings=False)
        # An empty text is a sign of life for the limit on silence.
        hear("")
        match reported:
            case {"type": "message_start", "message": dict(begun)}:
                started, usage = True, _counts(begun)
            case {"type": "content_block_start", "content_block": {"type": "text", "text": str(text)}}:
                parts.append(text)
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                parts.append(text)
                hear(text)
                size += len(text)
            case {"type": "message_delta", "delta": {"stop_reason": reason}}:
                stop_reason = reason
                usage |= _counts(reported)
            case {"type": "message_stop"}:
                whole = started
        if size > services.MAX_REPLY_BYTES:
            raise failures.unreadable(f"it has more than {services.MAX_REPLY_BYTES} characters")
    # A connection may end between two events without an error.
    if not whole:
        raise failures.unreadable("the stream ended before the reply did")
    return services.Completion(
        text=json_text.joined(parts), usage=_usage(usage), ending=_ENDINGS.get(str(stop_reason), "complete")
    )


def _counts(event: Mapping[str, Any]) -> dict[str, Any]:
    usage = event.get("usage")
    # A service that is only compatible may report them in another form; its reply counts all the same.
    given = usage.items() if isinstance(usage, dict) else ()
    return {name: records.amount(each, int) for name, each in given if each is not None}


def _usage(reported: Mapping[str, int | None]) -> records.Usage | None:
    read, written = reported.get("input_tokens"), reported.get("output_tokens")
    if read is None or written is None:
        return None
    cached = [reported.get(name) or 0 for name in ("cache_creation_input_tokens", "cache_read_input_tokens")]
    return records.Usage(input_tokens=read + sum(cached), output_tokens=written)


ANTHROPIC = services.Vendor(
    package="anthropic",
    key_variable="ANTHROPIC_API_KEY",
    models={"haiku": "claude-haiku-5-5", "sonnet": "claude-sonnet-5-5", "opus": "claude-opus-5-5"},
    open=Messages,
)
"""Anthropic, and services that speak its Messages API."""
