"""The fake model speaks the four dialects as the vendors' own clients understand them, and gives scripted answers."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.agent_programs import loopback
from tests.agent_programs.fake_model import replies
from tests.agent_programs.fake_model.replies import Fault, Hang, Reply, Shell, Write
from tests.agent_programs.fake_model.server import FakeModel

SHELL_SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "description": {"type": "string"}, "slow": {"type": "boolean"}},
    "required": ["command", "description"],
}


@dataclass(frozen=True)
class ClientAnswer:
    """A client's view of an answer."""

    text: str
    call: tuple[str, Any] | None
    tokens: tuple[int, int]


Ask = Callable[..., ClientAnswer]


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as served:
        yield served


def _anthropic(model: FakeModel, text: str, *, stream: bool, tool: str | None = None, system: str = "") -> ClientAnswer:
    # Loading the vendors' clients takes seconds, which the mere collection of tests should not cost.
    import anthropic

    client = anthropic.Anthropic(base_url=model.address, api_key="dummy", max_retries=0)
    asked: dict[str, Any] = {"model": "fake-model", "max_tokens": 100, "system": system}
    asked["messages"] = [{"role": "user", "content": text}]
    if tool:
        asked["tools"] = [{"name": tool, "input_schema": SHELL_SCHEMA}]
    if stream:
        with client.messages.stream(**asked) as streamed:
            reply = streamed.get_final_message()
    else:
        reply = client.messages.create(**asked)
    calls = [(block.name, block.input) for block in reply.content if block.type == "tool_use"]
    said = "".join(block.text for block in reply.content if block.type == "text")
    return ClientAnswer(said, calls[0] if calls else None, (reply.usage.input_tokens, reply.usage.output_tokens))


def _responses(model: FakeModel, text: str, *, stream: bool, tool: str | None = None, system: str = "") -> ClientAnswer:
    import openai

    client = openai.OpenAI(base_url=f"{model.address}/v1", api_key="dummy", max_retries=0)
    asked: dict[str, Any] = {"model": "fake-model", "input": text, "instructions": system}
    if tool:
        asked["tools"] = [{"type": "function", "name": tool, "parameters": SHELL_SCHEMA}]
    if stream:
        with client.responses.stream(**asked) as streamed:
            reply = streamed.get_final_response()
    else:
        reply = client.responses.create(**asked)
    calls = [(item.name, json.loads(item.arguments)) for item in reply.output if item.type == "function_call"]
    assert reply.usage is not None
    return ClientAnswer(
        reply.output_text, calls[0] if calls else None, (reply.usage.input_tokens, reply.usage.output_tokens)
    )


def _chat(model: FakeModel, text: str, *, stream: bool, tool: str | None = None, system: str = "") -> ClientAnswer:
    import openai

    client = openai.OpenAI(base_url=f"{model.address}/v1", api_key="dummy", max_retries=0)
    asked: dict[str, Any] = {"model": "fake-model"}
    asked["messages"] = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    if tool:
        asked["tools"] = [{"type": "function", "function": {"name": tool, "parameters": SHELL_SCHEMA}}]
    if stream:
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as streamed:
            reply: Any = streamed.get_final_completion()
    else:
        reply = client.chat.completions.create(**asked)
    message = reply.choices[0].message
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]
    return ClientAnswer(
        message.content or "",
        calls[0] if calls else None,
        (reply.usage.prompt_tokens, reply.usage.completion_tokens),
    )


def _gemini(model: FakeModel, text: str, *, stream: bool, tool: str | None = None, system: str = "") -> ClientAnswer:
    asked: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    asked["systemInstruction"] = {"parts": [{"text": system}]}
    if tool:
        asked["tools"] = [{"functionDeclarations": [{"name": tool, "parametersJsonSchema": SHELL_SCHEMA}]}]
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    answer = httpx.post(f"{model.address}/v1beta/models/fake-model:{method}", json=asked, timeout=60, trust_env=False)
    answer.raise_for_status()
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    pieces = [json.loads(line) for line in lines] if stream else [answer.json()]
    parts = [part for piece in pieces for part in piece["candidates"][0]["content"]["parts"]]
    calls = [(part["functionCall"]["name"], part["functionCall"]["args"]) for part in parts if "functionCall" in part]
    usage = pieces[-1]["usageMetadata"]
    return ClientAnswer(
        "".join(part.get("text", "") for part in parts),
        calls[0] if calls else None,
        (usage["promptTokenCount"], usage["candidatesTokenCount"]),
    )


@pytest.fixture(params=[_anthropic, _responses, _chat, _gemini], ids=["anthropic", "responses", "chat", "gemini"])
def ask(request: pytest.FixtureRequest) -> Ask:
    found: Ask = request.param
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_reply_is_understood(ask: Ask, model: FakeModel, stream: bool) -> None:
    """Each dialect delivers text and tokens, whole and streamed."""
    model.say(Reply(text="Kael wakes. é 雨"))

    heard = ask(model, "hello", stream=stream)

    assert heard == ClientAnswer("Kael wakes. é 雨", None, (replies.INPUT_TOKENS, replies.OUTPUT_TOKENS))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_tool_is_called_as_it_is_offered(ask: Ask, model: FakeModel, stream: bool) -> None:
    """A shell command becomes a call of the tool that the client offers, with every argument that it requires."""
    model.say(Reply(text="I act.", tool=Shell(command="echo hi > x")))

    heard = ask(model, "act", stream=stream, tool="bash")

    assert heard.call == ("bash", {"command": "echo hi > x", "description": "Do what is wanted."})
    assert heard.text == "I act."


def test_no_tool_is_called_where_none_is_offered(ask: Ask, model: FakeModel) -> None:
    """If the client offers no tool, the model reports that in its text, unless the reply insists on a tool."""
    model.say(
        Reply(tool=Shell(command="echo hi")), Reply(tool=Write(path="/x", content="hi", insist="write_it")), Reply()
    )

    assert ask(model, "act", stream=True).text == "NO TOOL IS OFFERED"
    assert ask(model, "act", stream=True).call == ("write_it", {"file_path": "/x", "path": "/x", "content": "hi"})
    assert ask(model, "act", stream=True).text == ""


def test_requests_are_kept(ask: Ask, model: FakeModel) -> None:
    """The fake model records a request in the same form for every dialect."""
    ask(model, "Where is Kael?", stream=True, tool="bash", system="You are brief.")
    (asked,) = model.asked

    assert asked.model == "fake-model"
    assert asked.system.strip() == "You are brief."
    assert asked.prompt == "Where is Kael?"
    assert asked.offered == {"bash": SHELL_SCHEMA}
    assert asked.after_tool is None
    assert asked.body == json.loads(asked.everything)
    assert any("dummy" in value for value in asked.headers.values()) or asked.dialect == "gemini"


def test_titles_are_asked_aside(ask: Ask, model: FakeModel) -> None:
    """A request for a title consumes none of the scripted answers."""
    model.say(Reply(text="first"), Reply(text="second"))

    assert ask(model, "x", stream=True, system="You are a title generator.").text == "A title"
    assert ask(model, "x", stream=True).text == "first"
    assert len(model.aside) == 1


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_fault_has_its_status_for_ever(ask: Ask, model: FakeModel, status: int) -> None:
    """The last answer is repeated; an error has its status, its headers and its message."""
    import anthropic
    import openai

    model.say(Fault(status=status, message="no more", headers={"Retry-After": "7"}))

    for _ in range(3):
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError, httpx.HTTPStatusError)) as raised:
            ask(model, "x", stream=True)
        refused: Any = raised.value
        assert refused.response.status_code == status
        assert refused.response.headers["Retry-After"] == "7"
        assert "no more" in refused.response.text


def test_a_megabyte_arrives_whole(ask: Ask, model: FakeModel) -> None:
    """The fake model delivers a reply of a megabyte whole."""
    text = "0123456789abcde\n" * 65536
    model.say(Reply(text=text))

    assert ask(model, "x", stream=True).text == text


@pytest.mark.parametrize("begin", [None, "half a"])
def test_a_hanging_request_ends_with_its_client_or_its_server(model: FakeModel, begin: str | None) -> None:
    """A hanging request gets no reply or half of one, and blocks neither other clients nor the end of the server."""
    model.say(Hang(begin=begin))
    asked = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
    hanging = socket.create_connection(("127.0.0.1", model.port))
    content = json.dumps(asked).encode()
    hanging.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))

    assert model.wait(lambda seen: len(seen) == 1)
    if begin:
        heard = b""
        while b"half a" not in heard:
            heard += hanging.recv(4096)
    model.say(Reply(text="PONG"))
    assert _chat(model, "x", stream=True).text == "PONG"
    hanging.close()


def test_the_fake_model_records_unexpected_requests(model: FakeModel) -> None:
    """The fake model also answers other requests, and records them separately."""
    with httpx.Client(base_url=model.address, timeout=60, trust_env=False) as http:
        assert http.get("/v1/models").json()["data"][0]["id"] == "fake-model"
        assert http.post("/v1/messages/count_tokens", json={}).json() == {"input_tokens": replies.INPUT_TOKENS}
        assert http.post("/v1beta/models/m:countTokens", json={}).json() == {"totalTokens": replies.INPUT_TOKENS}
        assert http.head("/").status_code == 404

    assert [one.status for one in model.seen] == [200, 200, 200, 404]
    assert model.asked == []


def test_alone_there_is_only_loopback() -> None:
    """In a network namespace of its own, a thread reaches a server on loopback; without one, it gets the reason."""
    with loopback.alone() as reason:
        assert loopback.is_alone() == (reason is None)
        with FakeModel() as served:
            assert _chat(served, "x", stream=False).text == "PONG"
