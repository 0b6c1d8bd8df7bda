"""Tests of captures: what the state receives from an output, and which rules the output must meet."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import plain
from app.tools import captures
from app.tools.captures import Rules


def _output(text, *, more=0):
    return captures.StandardOutput(text=text, size_bytes=len(text.encode()) + more, complete=not more)


def _captured(text, exit_code=0, *, more=0, mode="json", **rules):
    return captures.captured(_output(text, more=more), exit_code, Rules(mode=mode, **rules))


@pytest.mark.parametrize(
    ("text", "output", "cut"),
    [
        ("", "", False),
        ("First\nSecond\n", "First\nSecond\n", False),
        ("a\r\nb", "a\r\nb", False),
        ("x" * 8192, "x" * 8192, False),
        ("x" * 8193, "x" * 8192, True),
        ("x" * 8191 + "é", "x" * 8191, True),
        ("é" * 4096, "é" * 4096, False),
    ],
)
def test_text(text, output, cut):
    """A text capture keeps eight KiB of whole characters; a longer output also goes to the logs."""
    made = _captured(text, 3, mode="text")

    assert made == captures.Captured(exit_code=3, fields={"output": output, "truncated": cut}, keeps_log=cut)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\r\r\n\r", ["a\r", ""]),
        (" a \n\n\tb", [" a ", "", "\tb"]),
        ("a\x0bb\u2028c\n", ["a\x0bb\u2028c"]),
    ],
)
def test_lines(text, lines):
    """Only LF and CRLF end a line, and the end of the last line does not begin another."""
    fields = {"output_capture": "lines", "lines": lines, "truncated": False}

    assert _captured(text, mode="lines") == captures.Captured(exit_code=0, fields=fields)


def test_many_lines():
    """A capture keeps ten thousand lines, and drops the cut line of an output that was not held whole."""
    at_most = _captured("x\n" * 10_000, mode="lines")
    over = _captured("x\n" * 10_001, mode="lines")
    cut = _captured("a\nb\nc", more=1, mode="lines")

    assert (len(at_most.fields["lines"]), at_most.fields["truncated"], at_most.keeps_log) == (10_000, False, False)
    assert (len(over.fields["lines"]), over.fields["truncated"], over.keeps_log) == (10_000, True, True)
    assert (cut.fields["lines"], cut.fields["truncated"]) == (["a", "b"], True)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"))))
def test_lines_come_out_as_they_went_in(lines):
    """Lines written with LF or CRLF are captured as the same list of lines."""
    for end in ("\n", "\r\n"):
        assert _captured("".join(f"{line}{end}" for line in lines), mode="lines").fields["lines"] == lines


@pytest.mark.parametrize("value", [{"ok": True, "files": ["a"]}, [1, 2], "x", 3.5, None, False, {}])
def test_json(value):
    """The capture keeps any JSON value, and no text beside it."""
    fields = {"output_capture": "json", "json": value, "truncated": False}

    assert _captured(f"{json.dumps(value)}\n") == captures.Captured(exit_code=0, fields=fields)


OVER = f'"{"x" * captures.JSON_BYTES}"'


@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        ("", 0, "invalid"),
        ("no", 0, "invalid"),
        ('{"a": 1} trailing', 0, "invalid"),
        ("NaN", 0, "invalid"),
        ("1e999", 0, "invalid"),
        ("[" * 5000, 0, "invalid"),
        ("9" * 5000, 0, "invalid"),
        (OVER, 0, "overflow"),
        ("{}", 10_000_000, "overflow"),
    ],
)
def test_json_that_cannot_be_parsed(text, more, reason):
    """JSON that cannot be parsed fails the step with exit code 2 and a reason, and the log keeps the output."""
    made = _captured(text, more=more)

    assert (made.exit_code, made.keeps_log) == (2, True)
    assert made.context == {"json_parse_error": {"reason": reason}}
    assert made.fields["debug"] == {"json_parse_error": {"reason": reason}}
    assert made.fields.keys() == {"output_capture", "truncated", "debug"}
    assert made.message
    assert "JSON" in made.message


@pytest.mark.parametrize(("text", "reason", "cut"), [("no", "invalid", False), (OVER, "overflow", True)])
def test_a_parse_error_that_is_allowed(text, reason, cut):
    """With `allow_parse_error`, the step succeeds with the output as text and the reason in `debug`."""
    made = _captured(text, allow_parse_error=True)

    assert (made.exit_code, made.message, made.keeps_log) == (0, None, True)
    assert made.fields == {
        "output_capture": "json",
        "output": text[:8192],
        "truncated": cut,
        "debug": {"json_parse_error": {"reason": reason}},
    }


@pytest.mark.parametrize("text", ["no", '{"a": 1}'])
def test_a_program_that_failed_keeps_its_exit_code(text):
    """A failed program keeps its exit code: its JSON is captured if it parses, and no rule is applied."""
    made = _captured(text, 7, require=[{"pointer": "/b"}], schema={"type": "array"})

    assert (made.exit_code, made.message) == (7, None)
    assert ("json" in made.fields) == (text != "no")


VERDICT = {"approved": True, "issues": [], "n": 1, "reason": None, "a/b": {"~": "x"}, "01": 0}


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ({"pointer": ""}, None),
        ({"pointer": "/approved"}, None),
        ({"pointer": "/reason"}, None),
        ({"pointer": "/missing"}, "is missing"),
        ({"pointer": "/approved/x"}, "is missing"),
        ({"pointer": "/issues/0"}, "is missing"),
        ({"pointer": "/a~1b/~0"}, None),
        ({"pointer": "/"}, "is missing"),
        ({"pointer": "/missing", "exists": False}, None),
        ({"pointer": "/n", "exists": False}, "is there, but must not be"),
        ({"pointer": "/approved", "equals": True}, None),
        ({"pointer": "/approved", "equals": "true"}, 'must be "true", not true'),
        ({"pointer": "/approved", "equals": 1}, "must be 1, not true"),
        ({"pointer": "/n", "equals": 1.0}, None),
        ({"pointer": "/n", "equals": True}, "must be true, not 1"),
        ({"pointer": "/reason", "equals": None}, None),
        ({"pointer": "/n", "equals": None}, "must be null, not 1"),
        ({"pointer": "/issues", "type": "array"}, None),
        ({"pointer": "/issues", "type": "object"}, "must be of the type object, not array"),
        ({"pointer": "/approved", "type": "number"}, "must be of the type number, not boolean"),
        ({"pointer": "", "type": "object", "exists": True}, None),
    ],
)
def test_requirements(requirement, reason):
    """A requirement names a pointer and an expected value or type; a mismatch fails the step with exit code 2."""
    made = _captured(json.dumps(VERDICT), require=[requirement])

    assert made.fields["json"] == VERDICT
    assert made.exit_code == (2 if reason else 0)
    assert made.context == (
        {"json_require_failed": {"pointer": requirement["pointer"], "reason": reason}} if reason else {}
    )


def test_the_first_failed_requirement_is_named():
    """All requirements must hold, and the record names the first one that fails."""
    require = [{"pointer": "/n"}, {"pointer": "/x"}, {"pointer": "/y"}]

    assert _captured(json.dumps(VERDICT), require=require).context["json_require_failed"]["pointer"] == "/x"


SCHEMA = {
    "type": "object",
    "required": ["approved", "issues"],
    "properties": {"approved": {"type": "boolean"}, "issues": {"type": "array", "items": {"type": "string"}}},
}


def test_a_schema_that_fits():
    """JSON that fits its schema passes with exit code 0."""
    assert _captured(json.dumps(VERDICT), schema=SCHEMA).exit_code == 0


def test_a_schema_that_does_not_fit():
    """The capture reports every breach of the schema in a sentence, and then checks no requirement."""
    made = _captured('{"approved": "yes"}', schema=SCHEMA, require=[{"pointer": "/x"}])

    assert made.exit_code == 2
    assert sorted(made.context) == ["json_schema_errors"]
    assert sorted(made.context["json_schema_errors"]) == [
        "$.approved must be true or false, not a text",
        "$.issues is missing",
    ]
    assert made.fields["json"] == {"approved": "yes"}


DOUBLING = {f"a{index}": {"allOf": [{"$ref": f"#/$defs/a{index + 1}"}] * 2} for index in range(40)} | {"a40": {}}


@pytest.mark.parametrize(
    "schema",
    [
        [],
        "x",
        True,
        {"type": "thing"},
        {"$ref": "#"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "#/nowhere"},
        {"properties": {"a": {"pattern": "("}}},
        {"patternProperties": {"(a+)+$": {}}},
        {"$ref": "#/$defs/a0", "$defs": DOUBLING},
    ],
    ids=["list", "text", "true", "type", "circle", "address", "nowhere", "pattern", "expressions", "doubling"],
)
def test_a_schema_that_cannot_be_used(schema):
    """A schema that cannot be used fails the step with exit code 2."""
    made = _captured('{"a": "x"}', schema=schema)

    assert made.exit_code == 2
    assert made.context["json_schema_errors"][0].startswith("the schema cannot be used: ")


def test_unique_items_in_linear_time():
    """`uniqueItems` compares many elements of mixed types at once, and treats 1 and 1.0 as the same number."""
    mixed = [*range(20_000), *(str(number) for number in range(20_000)), True, False, None, [1], {"a": 1}]

    assert _captured(json.dumps(mixed), schema={"uniqueItems": True}).exit_code == 0
    assert _captured("[1, 1.0]", schema={"uniqueItems": True}).exit_code == 2
    assert _captured('[{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]', schema={"uniqueItems": True}).exit_code == 2
    assert _captured("[1, true, [1], [true]]", schema={"uniqueItems": True}).exit_code == 0


def test_output_that_is_not_utf8_is_invalid_json():
    """An output with replaced bytes that were not UTF-8 is invalid JSON."""
    output = captures.StandardOutput(text='"a\ufffd"', size_bytes=4, complete=True, is_utf8=False)
    made = captures.captured(output, 0, Rules(mode="json"))

    assert made.exit_code == 2
    assert made.context == {"json_parse_error": {"reason": "invalid"}}


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\udfff": 1}', '["\\udc00\\ud83d"]'])
def test_half_a_character_is_not_json(text):
    """Half of a surrogate pair makes the JSON invalid, or is kept as the text that was written."""
    made = _captured(text)

    assert (made.exit_code, made.context) == (2, {"json_parse_error": {"reason": "invalid"}})
    assert "holds half of a surrogate pair" in str(made.message)
    assert _captured(text, allow_parse_error=True).fields["output"] == text


def test_a_secret_is_found_in_any_spelling():
    """A secret is masked in names and values after parsing, even if the JSON spells it with escapes."""
    made = _captured(r'{"a\u002dsecret": ["a-\u0073ecret!"]}', masker=plain.Masker(["a-secret"]))

    assert made.fields["json"] == {"***": ["***!"]}


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("", []),
        ("\n\n", []),
        ("a\n\nb\n", ["a", "", "b"]),
        ("\n".join(str(number) for number in range(30)), [str(number) for number in range(20, 30)]),
        ("x" * 5000, ["x" * 1000]),
    ],
)
def test_tails(text, tail):
    """A tail has the last ten lines, each cut to its end."""
    assert captures.tail(text) == tail


@given(st.text(), st.sampled_from(["text", "lines", "json"]), st.booleans(), st.integers(0, 255))
def test_any_output_is_captured(text, mode, allow, exit_code):
    """Any output is captured; a failed program keeps its exit code, and only exit code 2 adds a message."""
    made = _captured(text, exit_code, mode=mode, allow_parse_error=allow and mode == "json")

    assert made.exit_code == exit_code or (exit_code, made.exit_code) == (0, 2)
    assert (made.message is not None) == (made.exit_code != exit_code)
    assert isinstance(made.fields["truncated"], bool)
