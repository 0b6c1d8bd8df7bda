"""Verdicts: the replies made from the results of programs, golden and damaged ones."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.agents.configuration import BackendConfig
from app.agents.programs import catalogue, results, template, verdicts
from app.agents.programs.verdicts import ProcessResult
from app.domain import records
from tests.examples import examples
from tests.unit.agents import program_replies

SUCCESS = {"type": "result", "is_error": False, "result": "PONG", "session_id": "s"}


@pytest.mark.parametrize("name", program_replies.names())
def test_a_golden_reply_is_understood(name: str) -> None:
    """The golden output of each program, recorded or written from its documentation, leads to the reply beside it."""
    golden = program_replies.golden(name)

    assert program_replies.golden_form(program_replies.verdict(name, golden)) == golden["reply"]


@pytest.mark.parametrize("name", program_replies.names())
def test_a_reply_with_text_is_the_only_success(name: str) -> None:
    """A reply has either a text or an error with a code and a message."""
    reply = program_replies.verdict(name, program_replies.golden(name))

    assert (reply.error is None) or (not reply.text and reply.error.code and reply.error.message)


@pytest.mark.parametrize("program", catalogue.PROGRAMS)
def test_success_needs_every_sign(program: str) -> None:
    """A successful output with another exit code, a signal or an end by the service is an error."""
    golden = program_replies.golden(f"{program}/success")
    changes: list[dict[str, Any]] = [
        {"exit_code": 3},
        {"exit_code": None, "signal": 9},
        {"cause": "timeout"},
        {"cause": "idle"},
    ]
    codes = []
    for change in changes:
        error = program_replies.verdict(f"{program}/success", golden | change).error
        codes.append(error and error.code)

    assert codes == ["agent_error", "agent_signalled", "agent_timeout", "agent_idle"]


@pytest.mark.parametrize("program", catalogue.PROGRAMS)
def test_a_program_without_output_has_failed(program: str) -> None:
    """A program that ends with exit code 0 and prints no line has failed."""
    error = verdicts.verdict(catalogue.PROGRAMS[program], ProcessResult()).reply.error

    assert error is not None
    assert error.code == "reply_unreadable"


@pytest.mark.parametrize("program", catalogue.PROGRAMS)
def test_a_reply_out_of_another_conversation_is_none(program: str) -> None:
    """A reply from another conversation than the one to be continued is an error."""
    golden = program_replies.golden(f"{program}/success")
    reply = verdicts.verdict(catalogue.PROGRAMS[program], program_replies.left(golden), "another").reply

    assert reply.error is not None
    assert reply.error.code == "unknown_agent_session"


@pytest.mark.parametrize("program", catalogue.PROGRAMS)
@given(st.data())
@settings(max_examples=examples(20), deadline=None)
def test_no_words_bring_it_down(program: str, data: st.DataObject) -> None:
    """Any output of a program leads to a reply."""
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "result", "error", "usage", "message", "part", "item", "data", "stats", "models", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    )
    types = ["result", "error", "text", "step_finish", "item.completed", "turn.completed", "turn.failed", "message"]
    told = data.draw(st.lists(st.dictionaries(st.just("type"), st.sampled_from(types)) | values, max_size=5))
    lines = [json.dumps(line).encode() + b"\n" for line in told] + [data.draw(st.binary(max_size=20))]
    reply = verdicts.verdict(
        catalogue.PROGRAMS[program], ProcessResult(stdout=iter(lines), stderr=data.draw(st.binary(max_size=30)))
    ).reply

    assert isinstance(reply.text, str)
    assert reply.error is None or reply.error.code


def _turn_result(program: str, *events: dict[str, Any]) -> verdicts.TurnResult:
    lines = iter([json.dumps(event).encode() + b"\n" for event in events])
    return verdicts.verdict(catalogue.PROGRAMS[program], ProcessResult(stdout=lines))


@pytest.mark.parametrize("program", ["claude-code", "qwen"])
def test_a_further_result_includes_the_sums_of_the_first(program: str) -> None:
    """A further result repeats the sums of the conversation, and they are not added up."""
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    models = {"m": {"inputTokens": 10, "outputTokens": 2}}
    result = SUCCESS | {"total_cost_usd": 0.5, "usage": usage, "modelUsage": models}
    once, twice = _turn_result(program, result), _turn_result(program, result, result)

    assert once.sums is not None
    assert (twice.sums, twice.reply.usage) == (once.sums, once.reply.usage)


def test_a_further_turn_of_codex_includes_the_sums_of_the_first() -> None:
    """Codex counts the whole conversation, however often it reports the counts."""
    turn = {"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 2}}

    assert _turn_result("codex", turn, turn).sums == _turn_result("codex", turn).sums


@pytest.mark.parametrize(
    ("program", "event"),
    [
        ("claude-code", {"type": "result", "is_error": True, "result": "API Error: 529 Overloaded"}),
        ("claude-code", {"type": "result", "is_error": True, "result": "No.", "api_error_status": 503}),
        ("codex", {"type": "turn.failed", "error": {"message": "unexpected status 502 Bad Gateway"}}),
        ("opencode", {"type": "error", "error": {"data": {"message": "No.", "statusCode": 504}}}),
    ],
)
def test_an_overloaded_service_is_unavailable(program: str, event: dict[str, Any]) -> None:
    """A model's service that is overloaded or away has the code after which steps are retried elsewhere."""
    error = _turn_result(program, event).reply.error

    assert error is not None
    assert error.code == "backend_unavailable"


UNREPORTED = [
    ("claude-code", [SUCCESS | {"usage": {}}]),
    ("qwen", [SUCCESS | {"usage": {"input_tokens": "12", "output_tokens": None}}]),
    ("codex", [{"type": "turn.completed", "usage": {"input_tokens": True, "output_tokens": -1}}]),
    ("gemini", [{"response": "Yes.", "stats": {"models": {"m": {"tokens": {}}}}}]),
    ("opencode", [{"type": "text", "part": {"text": "Yes."}}, {"type": "step_finish", "part": {"tokens": {}}}]),
]


@pytest.mark.parametrize(("program", "events"), UNREPORTED)
def test_tokens_that_are_not_reported_are_null(program: str, events: list[dict[str, Any]]) -> None:
    """A usage without a count, or with one in another form, is not a usage of 0 tokens."""
    found = _turn_result(program, *events)

    assert (found.reply.usage, found.sums) == (None, None)


@pytest.mark.parametrize(
    ("program", "events"),
    [
        (
            "codex",
            [
                {"type": "item.completed", "item": {"type": "agent_message", "text": "I will look."}},
                {"type": "item.started", "item": {"type": "command_execution"}},
                {"type": "item.completed", "item": {"type": "command_execution"}},
                {"type": "turn.completed"},
            ],
        ),
        (
            "gemini",
            [
                {"type": "message", "role": "assistant", "content": "I will look.", "delta": True},
                {"type": "tool_use"},
                {"type": "tool_result"},
                {"type": "result", "status": "success"},
            ],
        ),
        (
            "opencode",
            [
                {"type": "text", "part": {"text": "I will look."}},
                {"type": "tool_use", "part": {}},
                {"type": "step_finish", "part": {}},
            ],
        ),
    ],
)
def test_text_before_a_tool_call_is_not_the_reply(program: str, events: list[dict[str, Any]]) -> None:
    """Text before a tool call is not the reply, so that the reply is empty if no text follows."""
    assert _turn_result(program, *events).reply.text == ""


@pytest.mark.parametrize(
    "events",
    [
        # OpenCode may print the text of a step after its tool calls.
        [
            {"type": "tool_use", "part": {}},
            {"type": "text", "part": {"text": "I will look."}},
            {"type": "step_finish", "part": {"reason": "tool-calls"}},
        ],
        [
            {"type": "step_finish", "part": {"reason": "tool-calls"}},
            {"type": "step_start", "part": {}},
            {"type": "text", "part": {"text": "The answer beg"}},
        ],
    ],
)
def test_an_unfinished_turn_of_opencode_has_no_reply(events: list[dict[str, Any]]) -> None:
    """The text of a step that calls tools, or that does not finish, is not the reply."""
    assert _turn_result("opencode", *events).reply.text == ""


def test_a_character_in_two_pieces_is_one() -> None:
    """A character whose surrogates Gemini CLI streams in two pieces is whole in the reply."""
    pieces = [
        {"type": "message", "role": "assistant", "delta": True, "content": text}
        for text in ("One \ud83d", "\ude00 two")
    ]

    assert _turn_result("gemini", *pieces, {"type": "result", "status": "success"}).reply.text == "One \U0001f600 two"


@pytest.mark.parametrize("is_first", [False, True])
def test_an_error_beside_a_cut_off_step_fails_the_turn(is_first: bool) -> None:
    """A text that reached the length limit is not the reply if the turn also fails with an error."""
    error = {"type": "error", "error": {"name": "APIError", "data": {"message": "no", "statusCode": 401}}}
    cut = (
        {"type": "text", "part": {"text": "The answer beg"}},
        {"type": "step_finish", "part": {"reason": "length"}},
    )
    reply = _turn_result("opencode", *((error, *cut) if is_first else (*cut, error))).reply

    assert (reply.text, reply.error and reply.error.code, reply.finish) == ("", "unauthorized", None)


def test_a_failure_after_a_cut_off_answer_is_not_hidden() -> None:
    """A result that reports a failure of its own is not called cut off because an answer of the turn was."""
    result = {"type": "result", "is_error": True, "subtype": "error_max_budget_usd", "stop_reason": "max_tokens"}
    reply = _turn_result("claude-code", result).reply

    assert (reply.error and reply.error.code, reply.finish) == ("cost_cap_reached", None)


@pytest.mark.parametrize("program", catalogue.PROGRAMS)
@pytest.mark.parametrize(("exit_code", "signal"), [(137, "SIGKILL"), (143, "SIGTERM")])
def test_a_shell_reports_the_signal_that_ended_its_program(program: str, exit_code: int, signal: str) -> None:
    """An exit code by which a shell reports a signal names that signal, even if the turn was complete."""
    error = program_replies.verdict(
        f"{program}/success", program_replies.golden(f"{program}/success") | {"exit_code": exit_code}
    ).error

    assert error is not None
    assert (error.code, error.detail["signal"]) == ("agent_signalled", signal)


@pytest.mark.parametrize("name", ["half \ud83d", "-x", "line\nbreak", "s" * 2000])
@pytest.mark.parametrize("program", catalogue.PROGRAMS)
def test_a_name_that_no_call_can_take_is_not_kept(program: str, name: str) -> None:
    """A name of a conversation that cannot be an argument is not passed on, and the reply counts."""
    golden = program_replies.golden(f"{program}/success")
    left = program_replies.left(golden)
    known, given = json.dumps(golden["reply"]["session_id"]).encode(), json.dumps(name).encode()
    lines = iter([line.replace(known, given) for line in left.stdout])
    reply = verdicts.verdict(catalogue.PROGRAMS[program], dataclasses.replace(left, stdout=lines)).reply

    assert (reply.text, reply.agent_session_id) == (golden["reply"]["text"], None)


def test_a_reason_is_short_text() -> None:
    """The reason of a failure is a short text, whatever the program prints."""
    long = _turn_result("claude-code", SUCCESS | {"is_error": True, "subtype": "e" * 5000}).reply.error
    odd = _turn_result("opencode", {"type": "error", "error": {"name": {"a": 1}}}).reply.error

    assert [len(str(error and error.detail["reason"])) for error in (long, odd)] == [200, 8]


def test_a_failure_without_words_names_its_exit_code() -> None:
    """The message of a program that fails without a word names its exit code."""
    error = verdicts.verdict(catalogue.PROGRAMS["codex"], ProcessResult(exit_code=3)).reply.error

    assert error is not None
    assert error.message == "Codex failed: exit code 3, without a message"


_BROKEN_LINES = (
    b'{"type": "x", "output": "half \\ud83d of a pair"}\n',
    b'{"type": "x", "output": "\xff\xfe"}\n',
    b'{"type": "x", "output": NaN}\n',
    b'{"type": "x",\n "output": "over lines"}\n',
    b'{"type": "x", "output": "to\n',
    b"[WARN] a bracket\n",
    b"{notice} a brace\n",
)


@pytest.mark.parametrize("line", _BROKEN_LINES)
@pytest.mark.parametrize("program", sorted(catalogue.PROGRAMS))
def test_a_strange_line_hides_no_other(program: str, line: bytes) -> None:
    """A line that is not proper JSON changes nothing in what the lines after and before it say."""
    golden = program_replies.golden(f"{program}/success")
    left = program_replies.left(golden)
    around = b"".join([line, *left.stdout, line]).splitlines(keepends=True)
    found = verdicts.verdict(catalogue.PROGRAMS[program], dataclasses.replace(left, stdout=iter(around)))

    assert program_replies.golden_form(program_replies.reply(found)) == golden["reply"]


def test_a_result_without_text_is_not_called_a_success() -> None:
    """The message of a failure without text never uses the subtype `success` as its reason."""
    error = _turn_result("claude-code", SUCCESS | {"result": None, "subtype": "success"}).reply.error

    assert error is not None
    assert error.message == "Claude Code failed: it does not say why"


class TestTemplates:
    """Programs that only `agents.json` describes."""

    def reply(self, printed: bytes, **given: Any) -> tuple[str, str | None]:
        """Return text and error code of the reply made from an output."""
        config = BackendConfig(name="aider", type="template", command=("aider",), **given)
        lines = iter(printed.splitlines(keepends=True))
        reply = verdicts.verdict(template.program(config), ProcessResult(stdout=lines)).reply
        return reply.text, reply.error.code if reply.error else None

    def test_the_whole_output_is_the_reply_without_paths(self) -> None:
        """Without paths, the reply is the whole output without colours and surrounding space."""
        assert self.reply(b"\n\x1b[31mOne\x1b[0m\n{}\n") == ("One\n{}", None)

    def test_a_terminal_leaves_no_trace_in_the_reply(self) -> None:
        """A mark of the encoding, titles, colours and other orders to a terminal are not part of the reply."""
        linked = b"\x1b]8;;http://x\x1b\\One\x1b]8;;\x1b\\"
        printed = b"\xef\xbb\xbf\x1b]0;title\x07" + linked + b"\x1b(B \x1b[38:5:196mtwo\x1b[?25h\x1b[m\n"

        assert self.reply(printed) == ("One two", None)

    def test_a_mark_of_the_encoding_hides_no_object(self) -> None:
        """An object after a mark of the encoding is read."""
        assert self.reply(b'\xef\xbb\xbf{"text": "One"}\n', reply={"text": "text"}) == ("One", None)

    def test_the_message_of_a_traceback_is_its_last_line(self) -> None:
        """A program that fails with a traceback of Python is quoted by the exception, not by the heading."""
        config = BackendConfig(name="ours", type="template", command=("ours",))
        stderr = b'starting\nTraceback (most recent call last):\n  File "x", line 1\nValueError: no key\n'
        reply = verdicts.verdict(template.program(config), ProcessResult(stderr=stderr, exit_code=1)).reply

        assert reply.error is not None
        assert reply.error.message == "ours failed: ValueError: no key"

    def test_an_empty_output_is_an_error(self) -> None:
        """An empty output is an error."""
        assert self.reply(b"\n") == ("", "reply_unreadable")

    def test_a_reply_without_end_is_not_read_to_its_end(self) -> None:
        """A program that prints without end fails with the limit, and its output is not taken into memory."""
        size = verdicts.MOST_REPLY_BYTES
        more: Iterator[bytes] = map(pytest.fail, ["the output is read on"])
        lines = itertools.chain(itertools.repeat(b"y" * 1023 + b"\n", size // 1024 + 1), more)
        config = BackendConfig(name="ours", type="template", command=("ours",))
        reply = verdicts.verdict(template.program(config), ProcessResult(stdout=lines)).reply

        assert reply.error is not None
        assert reply.error.code == "reply_unreadable"
        assert reply.error.message == f"ours ended without a readable reply: it has more than {size} bytes"

    def test_paths_lead_to_the_reply(self) -> None:
        """With a path, the reply is the text of the last object that has one."""
        printed = b'noise\n{"a": {"b": "one"}}\n{"a": {"b": "two"}}\n{"a": 5}\n'

        assert self.reply(printed, reply={"text": "a.b"}) == ("two", None)

    @pytest.mark.parametrize(
        ("ends", "finish"), [(("length", "stop"), None), (("stop", "length"), "length"), (("length", None), "length")]
    )
    def test_several_objects_report_one_turn(self, ends: tuple[str, str | None], finish: str | None) -> None:
        """The last text is the reply, the last ending is its ending, and the usage is that of all calls of the turn."""
        paths = {"text": "say", "finish": "end", "input_tokens": "in", "output_tokens": "out", "cost_usd": "usd"}
        said = [{"say": "Let me look.", "in": 10, "out": 2, "usd": 0.5}, {"say": "Done.", "in": 30, "out": 4, "usd": 1}]
        lines = [json.dumps(each | {"end": end}).encode() + b"\n" for each, end in zip(said, ends, strict=True)]
        config = BackendConfig(name="ours", type="template", command=("ours",), reply=paths)
        reply = verdicts.verdict(template.program(config), ProcessResult(stdout=iter(lines))).reply

        assert (reply.text, reply.finish) == ("Done.", finish)
        assert reply.usage == records.Usage(input_tokens=40, output_tokens=6, cost_usd=1.5)

    @pytest.mark.parametrize(
        ("told", "usage"),
        [
            ({"out": 5}, records.Usage(input_tokens=None, output_tokens=5)),
            ({"in": "1,234", "out": 5, "usd": "0.5"}, records.Usage(input_tokens=None, output_tokens=5)),
            ({"in": 12, "out": None, "usd": -1}, records.Usage(input_tokens=12, output_tokens=None)),
            ({"in": True, "out": -5, "usd": True}, None),
            ({"out": 0, "usd": 0}, records.Usage(input_tokens=None, output_tokens=0, cost_usd=0)),
        ],
    )
    def test_what_is_not_reported_is_null(self, told: dict[str, Any], usage: records.Usage | None) -> None:
        """Of tokens and price, each part that the program does not report as an amount is null, and not 0."""
        paths = {"text": "say", "input_tokens": "in", "output_tokens": "out", "cost_usd": "usd"}
        config = BackendConfig(name="ours", type="template", command=("ours",), reply=paths)
        printed = iter([json.dumps({"say": "Done.", **told}).encode()])

        assert verdicts.verdict(template.program(config), ProcessResult(stdout=printed)).reply.usage == usage

    def test_a_text_at_the_error_path_is_an_error(self) -> None:
        """A text at the path of the error is an error."""
        printed = b'{"text": "so far", "error": {"message": "status 429"}}'

        assert self.reply(printed, reply={"text": "text", "error": "error.message"}) == ("", "rate_limited")

    @pytest.mark.parametrize(
        "printed",
        [
            b'{"text": "so far", "error": "stopped", "fin": "length"}',
            b'{"text": "so far", "error": "stopped"}\n{"fin": "length"}',
            b'{"text": "so far", "fin": "length"}\n{"error": "stopped"}',
        ],
    )
    def test_an_error_beside_the_length_limit_is_an_error(self, printed: bytes) -> None:
        """A program that reports an error fails, whether or not it also reports the length limit."""
        assert self.reply(printed, reply={"text": "text", "error": "error", "finish": "fin"}) == ("", "agent_error")


class TestWording:
    """JSON objects within other output."""

    @pytest.mark.parametrize(
        "written",
        [
            b'{"a": 1}',
            b'warning\n{"a": 1}\n',
            b'[{"a": 1}, 5]',
            b'{\n  "a":\n 1\n}\nbye\n',
            b'[\n {"a": 1}\n]\n',
            b'{"a": 1}\n{"torn',
            b'{"torn\n{"a": 1}\n',
        ],
    )
    def test_objects_are_found(self, written: bytes) -> None:
        """An object is found on one line, in an array, over many lines, and beside incomplete ones."""
        assert list(results.events(written.splitlines(keepends=True))) == [{"a": 1}]

    @pytest.mark.parametrize(
        ("written", "expected"),
        [
            ('{"a": 1}', {"a": 1}),
            ('Error: x {\n  status: 400\n}\n{\n "a": {\n  "b": 1\n }\n}\n', {"a": {"b": 1}}),
            ("Error: x {\n  status: 400\n}\n", None),
            ("", None),
            ("{", None),
        ],
    )
    def test_the_last_object_is_found(self, written: str, expected: object) -> None:
        """The last object of a text is found after text that only resembles one."""
        assert results.last_event(written) == expected

    def test_only_the_end_of_much_output_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of output that is not one object per line, a limited number of whole lines is kept."""
        monkeypatch.setattr(results, "_MOST_SPREAD", 1000)
        lines = [b'{"first": 1}\n', b"[INFO] begun\n", b'{"lost": 1}\n', *[b"noise\n"] * 400, b'{\n"a": 1\n}\n']

        assert list(results.events(lines)) == [{"first": 1}, {"a": 1}]

    def test_a_megabyte_is_read(self) -> None:
        """A reply of a megabyte is read whole."""
        text = "é\n" * 500_000
        lines = iter([json.dumps(SUCCESS | {"result": text}).encode()])

        assert verdicts.verdict(catalogue.PROGRAMS["claude-code"], ProcessResult(stdout=lines)).reply.text == text
