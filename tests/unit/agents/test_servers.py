"""Models behind HTTP: the vendors' real packages against real services on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from importlib import util
from typing import Any

import pytest

from app import errors
from app.agents import backends
from app.agents.configuration import BackendConfig
from app.agents.servers import anthropic_http, openai_http, services
from app.domain import agent_sessions, plain, records
from app.storage.agent_sessions import MemoryAgentSessions
from tests.unit.agents import around, http_service
from tests.unit.agents.http_service import Said, completion, message, said_json
from tests.unit.agents.prompts import prompt

AT_ONCE = {"retry_after_ms": "1"}
OPENAI_ERROR = {"error": {"message": "No.", "type": "invalid_request_error", "code": "some_code", "param": None}}
ANTHROPIC_ERROR = {"type": "error", "error": {"type": "some_error", "message": "No."}}


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The messages of one vendor's interface."""

    vendor: services.Vendor
    path: str
    base: str
    says: Callable[..., Said]
    error: Mapping[str, Any]
    key_header: Callable[[str], tuple[str, str]]
    usage: dict[str, Any] = field(default_factory=dict)

    def cut(self, text: str) -> Said:
        """Return a reply that was cut off at its limit of tokens."""
        if self.vendor is openai_http.OPENAI:
            return completion(text, finish_reason="length")
        return message(text, stop_reason="max_tokens")

    def refusal(self) -> Said:
        """Return a refusal."""
        if self.vendor is openai_http.OPENAI:
            return completion(None, message={"refusal": "I cannot."})
        return message("I cannot.", stop_reason="refusal")

    def said(self, body: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the messages of a request, its system prompt first."""
        system = [("system", body["system"])] if "system" in body else []
        return [*system, *((message["role"], message["content"]) for message in body["messages"])]


DIALECTS = {
    "openai": Dialect(
        vendor=openai_http.OPENAI,
        path="/v1/chat/completions",
        base="/v1",
        says=completion,
        error=OPENAI_ERROR,
        key_header=lambda key: ("authorization", f"Bearer {key}"),
    ),
    "anthropic": Dialect(
        vendor=anthropic_http.ANTHROPIC,
        path="/v1/messages",
        base="",
        says=message,
        error=ANTHROPIC_ERROR,
        key_header=lambda key: ("x-api-key", key),
    ),
}


@pytest.fixture(params=sorted(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]


@pytest.fixture
def sessions() -> MemoryAgentSessions:
    return MemoryAgentSessions()


@pytest.fixture
async def speak(
    dialect: Dialect, sessions: MemoryAgentSessions
) -> AsyncIterator[Callable[..., services.ServiceBackend]]:
    made: list[services.ServiceBackend] = []

    def make(running: http_service.Service, kept: agent_sessions.AgentSessions = sessions, **given: Any) -> Any:
        config = BackendConfig(
            **{"name": "mine", "type": dialect.vendor.package, "base_url": running.url + dialect.base}
            | {"api_key_env": "MY_KEY", "models": {"sonnet": "m-2"}}
            | given
        )
        environ = {"MY_KEY": "sk-mine", dialect.vendor.key_variable: "sk-vendor"}
        made.append(
            services.ServiceBackend(config, dialect.vendor, around.surroundings(sessions=kept, environ=environ))
        )
        return made[-1]

    yield make
    for backend in made:
        await backend.close()


async def failure(work: Any) -> errors.AgentFailed:
    """Return the error of a prompt."""
    with pytest.raises(errors.AgentFailed) as failed:
        await work
    return failed.value


class TestAsking:
    """Requests and replies."""

    async def test_a_prompt_gets_its_reply(self, dialect: Dialect, speak: Any) -> None:
        """A request has system prompt, model, limit and key; the reply has text and tokens, and no price."""
        async with http_service.service(dialect.says("Kael waves.")) as running:
            reply = await speak(running).prompt(prompt("Hello?", system="Be brief.", max_tokens=50))
        asked = running.asked[0]
        name, value = dialect.key_header("sk-mine")

        assert (reply.text, reply.error, reply.agent_session_id) == ("Kael waves.", None, None)
        assert reply.usage is not None
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (7, 3)
        assert not reply.usage.cost_usd
        assert asked.path.partition("?")[0] == dialect.path
        assert asked.headers[name] == value
        assert dialect.said(asked.body) == [("system", "Be brief."), ("user", "Hello?")]
        assert (asked.body["model"], asked.body["max_tokens"]) == ("m-2", 50)

    async def test_the_vendors_key_is_kept_from_others(self, dialect: Dialect, speak: Any) -> None:
        """A service at another address gets the key named for it, and never the vendor's key."""
        async with http_service.service(dialect.says("Yes.")) as running:
            await speak(running, api_key_env=None).prompt(prompt())

        assert "sk-vendor" not in json.dumps(running.asked[0].headers)
        assert "sk-mine" not in json.dumps(running.asked[0].headers)

    @pytest.mark.parametrize(
        ("asked", "sent"), [(None, "m-2"), ("other", "other"), ("sonnet", "m-2")], ids=["default", "name", "tier"]
    )
    async def test_a_model_can_be_chosen(self, dialect: Dialect, speak: Any, asked: str | None, sent: str) -> None:
        """A tier selects its configured model, a name is the model itself, and the default is the middle tier."""
        async with http_service.service(dialect.says("Yes.")) as running:
            backend = speak(running)
            await backend.prompt(prompt(model=asked and backend.resolve_model(asked)))

        assert running.asked[0].body["model"] == sent

    def test_the_vendors_models_are_for_its_own_address(self, dialect: Dialect, speak: Any) -> None:
        """Without a `base_url` each tier has the vendor's model; at another address only configured ones are known."""
        running = http_service.Service([])
        known = dialect.vendor.models

        assert speak(running, base_url=None, models={"opus": "big"}).resolve_model("haiku") == known["haiku"]
        assert speak(running, base_url=None, models={"opus": "big"}).resolve_model("opus") == "big"
        assert speak(running, models={}).resolve_model("haiku") == "haiku"

    async def test_a_tier_without_a_model_fails_the_prompt(self, speak: Any) -> None:
        """A tier without a model fails the prompt before the service is asked."""
        running = http_service.Service([])
        error = await failure(speak(running, models={}).prompt(prompt()))

        assert (error.code, error.detail) == ("unknown_model", {"model": "sonnet"})

    async def test_a_schema_travels(self, dialect: Dialect, speak: Any) -> None:
        """The schema of a reply is sent in the interface's own way."""
        schema = {
            "type": "object",
            "properties": {"outcome": {"type": "string", "enum": ["yes", "no"]}},
            "required": ["outcome"],
            "additionalProperties": False,
        }
        async with http_service.service(dialect.says('{"outcome":"yes"}')) as running:
            reply = await speak(running).prompt(prompt(reply_schema=schema))
            await speak(running).prompt(prompt(reply_schema=schema | {"required": []}))
        first, second = (asked.body for asked in running.asked)

        assert reply.text == '{"outcome":"yes"}'
        if dialect.vendor is openai_http.OPENAI:
            form = first["response_format"]
            assert form == {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}
            assert second["response_format"]["json_schema"]["strict"] is False
        else:
            assert first["output_config"]["format"]["schema"]["required"] == ["outcome"]

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {}}},
            {"type": "object", "properties": {"a": True}},
            {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
            {"type": "object", "properties": {"a": {"type": "array", "items": {"description": "anything"}}}},
            {"type": "object", "properties": {"a": {"type": "object"}}},
            {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "number"}}}},
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
            {"type": "object", "properties": {"a": {"enum": [{"b": 1}]}}},
            {"type": "object", "anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}]},
            {"type": "object", "properties": {"a": {"const": {"type": "object", "properties": 3}}}},
            {"type": "object", "properties": {"a": {"const": {"type": "object", "required": [[]]}}}},
            {"type": "object", "minProperties": 1},
            {},
        ],
        ids=json.dumps,
    )  # fmt: skip
    async def test_any_schema_travels(self, dialect: Dialect, speak: Any, schema: dict[str, Any]) -> None:
        """A schema that the interface does not support is sent as text in the prompt."""
        async with http_service.service(dialect.says('{"a":"x"}')) as running:
            backend = speak(running)
            begun = await backend.prompt(prompt(agent_session_id="s-1", reply_schema=schema))
            await backend.prompt(prompt("And?", agent_session_id="s-1", session_created=True))
        first, second = running.asked

        assert begun.text == '{"a":"x"}'
        if dialect.vendor is openai_http.OPENAI:
            assert first.body["response_format"]["json_schema"]["schema"] == schema
        else:
            told = plain.canonical(schema).decode()
            assert "output_config" not in first.body
            assert dialect.said(first.body)[-1][1].endswith(
                f"Answer with JSON alone that fits this JSON Schema: {told}"
            )
        assert "JSON Schema" not in json.dumps(second.body["messages"])

    async def test_a_long_reply_arrives_whole(self, dialect: Dialect, speak: Any) -> None:
        """A reply of a megabyte arrives whole."""
        text = "All the kings ☃ men. " * 50_000
        async with http_service.service(dialect.says(text)) as running:
            reply = await speak(running).prompt(prompt())

        assert reply.text == text

    async def test_a_long_prompt_arrives_whole(self, dialect: Dialect, speak: Any) -> None:
        """A prompt of three hundred kilobytes arrives whole."""
        text = "word " * 60_000
        async with http_service.service(dialect.says("Read.")) as running:
            await speak(running).prompt(prompt(text))

        assert dialect.said(running.asked[0].body) == [("user", text)]

    @pytest.mark.parametrize("dialect", ["openai"], indirect=True)
    async def test_the_other_name_of_the_limit_is_tried(self, speak: Any) -> None:
        """A server that rejects `max_tokens` is asked with `max_completion_tokens`, and from then on always."""
        unknown = {"message": "Unsupported parameter", "code": "unsupported_parameter", "param": "max_tokens"}
        answers = said_json({"error": unknown}, 400), completion("Yes.")
        async with http_service.service(*answers) as running:
            backend = speak(running)
            await backend.prompt(prompt())
            await backend.prompt(prompt())

        assert ["max_completion_tokens" in asked.body for asked in running.asked] == [False, True, True]
        assert ["max_tokens" in asked.body for asked in running.asked] == [True, False, False]


class TestTrouble:
    """Services that are busy, broken or hostile."""

    async def test_retry_after_is_honoured(self, dialect: Dialect, speak: Any) -> None:
        """A busy service is asked again after its `Retry-After`, not before."""
        busy = said_json(dialect.error, 429, retry_after="1")
        async with http_service.service(busy, dialect.says("Now.")) as running:
            reply = await speak(running).prompt(prompt())

        assert reply.text == "Now."
        assert running.asked[1].at - running.asked[0].at >= 1

    async def test_a_wait_beyond_the_limit_is_not_waited(self, dialect: Dialect, speak: Any) -> None:
        """A `Retry-After` of a week fails the prompt at once, and the error has its value."""
        async with http_service.service(said_json(dialect.error, 429, retry_after="604800")) as running:
            error = await failure(speak(running).prompt(prompt()))

        assert (error.code, error.detail["retry_after"], len(running.asked)) == ("rate_limited", "604800", 1)

    async def test_a_date_beyond_the_limit_is_not_waited(self, dialect: Dialect, speak: Any) -> None:
        """A `Retry-After` with a far date fails the prompt at once."""
        late = "Fri, 01 Jan 2100 00:00:00 GMT"
        async with http_service.service(said_json(dialect.error, 503, retry_after=late)) as running:
            error = await failure(speak(running).prompt(prompt()))

        assert (error.detail["retry_after"], len(running.asked)) == (late, 1)

    @pytest.mark.parametrize(
        ("status", "code"),
        [
            (429, "rate_limited"),
            (500, "agent_error"),
            *((status, "backend_unavailable") for status in (502, 503, 504, 529)),
        ],
    )
    async def test_endless_trouble_ends(self, dialect: Dialect, speak: Any, status: int, code: str) -> None:
        """A service that always fails is asked a limited number of times, and then the prompt fails."""
        async with http_service.service(said_json(dialect.error, status, **AT_ONCE)) as running:
            error = await failure(speak(running).prompt(prompt()))

        assert (error.code, error.detail["status"], len(running.asked)) == (code, status, services.TRIES)

    @pytest.mark.parametrize(
        ("status", "code"),
        [(400, "agent_error"), (401, "unauthorized"), (403, "unauthorized"), (413, "prompt_too_large")],
    )
    async def test_a_refusal_is_not_repeated(self, dialect: Dialect, speak: Any, status: int, code: str) -> None:
        """A refusal that a retry cannot change is not repeated."""
        async with http_service.service(said_json(dialect.error, status)) as running:
            error = await failure(speak(running).prompt(prompt()))

        assert (error.code, error.detail["status"], len(running.asked)) == (code, status, 1)
        assert "No." in error.message

    async def test_a_prompt_beyond_the_model_is_too_long(self, dialect: Dialect, speak: Any) -> None:
        """A prompt with more tokens than the model allows fails with `prompt_too_long`."""
        body = {
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 9 tokens > 8 maximum",
                "code": "context_length_exceeded",
            }
        }
        async with http_service.service(said_json(body, 400)) as running:
            error = await failure(speak(running).prompt(prompt()))

        assert error.code == "prompt_too_long"

    async def test_an_address_without_a_listener_fails_the_prompt(
        self, speak: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An address without a listener fails the prompt, and the error has the cause."""
        monkeypatch.setattr(services, "TRIES", 2)
        async with http_service.service(Said()) as running:
            pass
        error = await failure(speak(running).prompt(prompt()))

        assert error.code == "backend_unavailable"
        assert error.detail["cause"]

    async def test_a_broken_connection_fails_the_prompt(
        self, dialect: Dialect, speak: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A reply whose connection breaks fails the prompt."""
        monkeypatch.setattr(services, "TRIES", 2)
        whole = dialect.says("All the kings men.")
        broken = Said(body=whole.body[:-10], headers=whole.headers, cut=True)
        async with http_service.service(broken) as running:
            error = await failure(speak(running).prompt(prompt()))

        assert error.code == "backend_unavailable"

    @pytest.mark.parametrize(
        "body", [b"", b"<html>", b"null", b"[]", b"{}", b'{"choices": []}', b'{"choices": [3]}', b"[" * 100_000]
    )
    async def test_a_malformed_answer_is_unreadable(self, dialect: Dialect, speak: Any, body: bytes) -> None:
        """An answer of another form fails the prompt with `reply_unreadable`."""
        async with http_service.service(Said(body=body, headers={"content-type": "application/json"})) as running:
            error = await failure(speak(running).prompt(prompt()))

        assert error.code == "reply_unreadable"

    @pytest.mark.parametrize("dialect", ["anthropic"], indirect=True)
    @pytest.mark.parametrize(
        "events",
        [
            [{"type": "message_stop", "message": 3}, {"type": "message_start", "message": 4}],
            [{"type": "message_start"}],
            [{"type": "message_delta", "delta": 3, "usage": 4}],
            [{"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta"}}],
        ],
    )
    async def test_malformed_events_are_unreadable(self, events: list[dict[str, Any]], speak: Any) -> None:
        """Malformed events fail the prompt with `reply_unreadable`."""
        streamed = Said(body=http_service.stream(events), headers={"content-type": "text/event-stream"})
        async with http_service.service(streamed) as running:
            error = await failure(speak(running).prompt(prompt()))

        assert error.code == "reply_unreadable"

    @pytest.mark.parametrize("dialect", ["anthropic"], indirect=True)
    @pytest.mark.parametrize(
        ("reported", "usage"),
        [
            ({"input_tokens": 5, "cache_read_input_tokens": "two"}, records.Usage(input_tokens=5, output_tokens=3)),
            ({"input_tokens": 5, "cache_read_input_tokens": None}, records.Usage(input_tokens=5, output_tokens=3)),
            ({"input_tokens": "five", "cache_read_input_tokens": 2}, None),
            ({"input_tokens": -5}, None),
            ("5", None),
        ],
    )
    async def test_counts_of_another_form_are_not_reported(
        self, reported: Any, usage: records.Usage | None, speak: Any
    ) -> None:
        """Tokens in another form count as not reported, and the reply, which is paid for, counts."""
        begun = json.loads(message("Yes.").body.decode().split("\n")[1].removeprefix("data: "))
        begun["message"]["usage"] = reported
        body = http_service.stream([begun]) + message("Yes.").body.partition(b"\n\n")[2]
        async with http_service.service(Said(body=body, headers={"content-type": "text/event-stream"})) as running:
            reply = await speak(running).prompt(prompt())

        assert (reply.text, reply.usage) == ("Yes.", usage)

    @pytest.mark.parametrize("dialect", ["anthropic"], indirect=True)
    @pytest.mark.parametrize(
        ("kind", "code"), [("rate_limit_error", "rate_limited"), ("overloaded_error", "backend_unavailable")]
    )
    async def test_an_error_within_a_stream_fails_the_prompt(self, speak: Any, kind: str, code: str) -> None:
        """An error in the middle of a stream fails the prompt with that error."""
        late = {"type": "error", "error": {"type": kind, "message": "Too many."}}
        body = message("Half", whole=False).body + http_service.stream([late])
        async with http_service.service(Said(body=body, headers={"content-type": "text/event-stream"})) as running:
            error = await failure(speak(running).prompt(prompt()))

        assert (error.code, "Too many" in error.message) == (code, True)

    async def test_a_cut_off_reply_has_its_text_and_finish_reason(self, dialect: Dialect, speak: Any) -> None:
        """A cut-off reply has its text and the finish reason, with or without a limit in the prompt."""
        async with http_service.service(dialect.cut("Half a")) as running:
            cut = [await speak(running).prompt(prompt(max_tokens=limit)) for limit in (3, None)]
        async with http_service.service(dialect.says("All of it.")) as running:
            whole = await speak(running).prompt(prompt(max_tokens=3))

        assert [(reply.text, reply.finish, reply.error) for reply in cut] == [("Half a", "length", None)] * 2
        assert (whole.finish, cut[1].usage is not None) == (None, True)

    async def test_a_cut_reply_is_remembered_only_if_it_counts(self, dialect: Dialect, speak: Any) -> None:
        """A cut-off reply becomes part of the conversation only if cut-off replies are kept."""
        async with http_service.service(dialect.cut("Half a")) as running:
            backend = speak(running)
            await backend.prompt(prompt(agent_session_id="lost"))
            await backend.prompt(prompt(agent_session_id="kept", keeps_cut_off=True))
            await backend.prompt(prompt(agent_session_id="kept", session_created=True, keeps_cut_off=True))
            with pytest.raises(errors.AgentFailed) as unknown:
                await backend.prompt(prompt(agent_session_id="lost", session_created=True))

        assert unknown.value.code == "unknown_agent_session"

    async def test_a_refused_prompt_is_an_error(self, dialect: Dialect, speak: Any) -> None:
        """A model's refusal is an error with the model's words."""
        async with http_service.service(dialect.refusal()) as running:
            reply = await speak(running).prompt(prompt())

        assert reply.error is not None
        assert (reply.error.code, reply.text) == ("prompt_refused", "")
        assert "I cannot." in reply.error.message

    async def test_an_empty_reply_is_passed_on(self, dialect: Dialect, speak: Any) -> None:
        """An empty reply is passed on; the backend does not judge it."""
        async with http_service.service(dialect.says("")) as running:
            reply = await speak(running).prompt(prompt())

        assert (reply.text, reply.error) == ("", None)

    async def test_a_cancellation_closes_the_connection(self, dialect: Dialect, speak: Any) -> None:
        """A cancelled prompt closes the connection to the service."""
        hanging = Said(body=dialect.says("Half").body[:20], headers={"content-type": "text/event-stream"}, hang=True)
        async with http_service.service(hanging) as running:
            work = asyncio.ensure_future(speak(running).prompt(prompt()))
            await running.hung.wait()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            async with asyncio.timeout(60):
                await running.left.wait()

        assert running.left.is_set()


class TestConversations:
    """The service stores the turns of a conversation and sends them again."""

    async def test_a_resumed_conversation_has_its_history(
        self, dialect: Dialect, speak: Any, sessions: MemoryAgentSessions
    ) -> None:
        """A later process sends all earlier turns of a conversation."""
        async with http_service.service(dialect.says("One."), dialect.says("Two.")) as running:
            first = await speak(running).prompt(prompt("First?", agent_session_id="s-1", key="a"))
            later = speak(running, kept=sessions.crashed(lose_unsynced=True))
            second = prompt("Second?", agent_session_id="s-1", session_created=True, key="b", system="New.")
            await later.prompt(second)

        assert first.agent_session_id == "s-1"
        assert dialect.said(running.asked[1].body) == [
            ("system", "New."),
            ("user", "First?"),
            ("assistant", "One."),
            ("user", "Second?"),
        ]

    async def test_an_unknown_conversation_is_refused(self, speak: Any) -> None:
        """A conversation that does not exist is refused, not begun."""
        running = http_service.Service([])
        error = await failure(speak(running).prompt(prompt(agent_session_id="s-1", session_created=True)))

        assert error.code == "unknown_agent_session"

    async def test_a_failed_try_leaves_nothing(
        self, dialect: Dialect, speak: Any, sessions: MemoryAgentSessions
    ) -> None:
        """A failed, refused or cancelled prompt stores no turn."""
        hanging = Said(body=b"x", hang=True)
        answers = said_json(dialect.error, 401), dialect.refusal(), hanging
        async with http_service.service(*answers) as running:
            backend = speak(running)
            await failure(backend.prompt(prompt(agent_session_id="s-1")))
            await backend.prompt(prompt(agent_session_id="s-1", attempt=2))
            work = asyncio.ensure_future(backend.prompt(prompt(agent_session_id="s-1", attempt=3)))
            await running.hung.wait()
            work.cancel()
            await asyncio.wait([work])

        assert await sessions.turns("s-1") == []

    async def test_a_repeated_try_does_not_double_a_turn(self, dialect: Dialect, speak: Any) -> None:
        """A retry after a lost record replaces the earlier turn of its step."""
        replies = [dialect.says(text) for text in ("A.", "lost", "B.", "C.")]
        async with http_service.service(*replies) as running:
            backend = speak(running)
            for text, key, attempt in (("a?", "a", 1), ("b?", "b", 1), ("b?", "b", 2), ("c?", "c", 1)):
                await backend.prompt(prompt(text, agent_session_id="s", key=key, attempt=attempt))
        told = [dialect.said(asked.body) for asked in running.asked]

        assert told[2] == [("user", "a?"), ("assistant", "A."), ("user", "b?")]
        assert told[3] == [*told[2], ("assistant", "B."), ("user", "c?")]

    async def test_a_repeated_step_replaces_the_later_turns_of_its_run(self, dialect: Dialect, speak: Any) -> None:
        """A repeated step replaces its own turn and the later ones of its run; turns of other runs remain."""
        other = "20260210T143000Z-other1"
        async with http_service.service(dialect.says("Yes.")) as running:
            backend = speak(running)
            await backend.prompt(prompt("a?", agent_session_id="s", key="a"))
            await backend.prompt(prompt("b?", agent_session_id="s", key="b"))
            await backend.prompt(prompt("x?", agent_session_id="s", key="a", run_id=other))
            await backend.prompt(prompt("again?", agent_session_id="s", key="a", attempt=2))
            await backend.prompt(prompt("c?", agent_session_id="s", key="c"))
        last = dialect.said(running.asked[-1].body)

        assert [text for role, text in last if role == "user"] == ["x?", "again?", "c?"]

    async def test_a_blank_reply_is_not_sent_again(self, dialect: Dialect, speak: Any) -> None:
        """A blank reply is not sent again, and the prompts around it are sent as one message."""
        async with http_service.service(dialect.says("  "), dialect.says("Yes.")) as running:
            backend = speak(running)
            await backend.prompt(prompt("a?", agent_session_id="s", key="a"))
            await backend.prompt(prompt("b?", agent_session_id="s", key="b", session_created=True))

        assert dialect.said(running.asked[1].body) == [("user", "a?\n\nb?")]


class TestAbsence:
    """Missing packages and keys."""

    async def test_a_missing_vendor_package_is_named_in_the_error(
        self, dialect: Dialect, speak: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A prompt without the vendor's package fails, and the error names the extra to install."""
        monkeypatch.setattr(util, "find_spec", lambda _: None)
        error = await failure(speak(http_service.Service([])).prompt(prompt()))

        assert error.code == "agent_missing"
        assert f"control-room[{dialect.vendor.package}]" in error.message

    async def test_a_missing_key_is_named_without_a_request(self, dialect: Dialect, speak: Any) -> None:
        """A key that is not in the environment is named, and the service is not asked."""
        running = http_service.Service([])
        named = await failure(speak(running, api_key_env="NO_SUCH_KEY").prompt(prompt()))
        config = BackendConfig(name="mine", type="openai")
        usual = dialect.vendor.lacks(config, {})

        assert (named.code, named.detail) == ("unauthorized", {"api_key_env": "NO_SUCH_KEY"})
        assert usual is not None
        assert usual.detail == {"api_key_env": dialect.vendor.key_variable}
        assert dialect.vendor.lacks(config, {dialect.vendor.key_variable: "sk"}) is None

    def test_usual_keys_are_secrets(self) -> None:
        """The vendors' key variables are masked, even if no agents file names them."""
        assert {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"} <= backends.key_variables()
