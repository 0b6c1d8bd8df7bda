"""Result records: the form in which several programs end a turn."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator

import orjson

from app.agents.programs.program import Event, Failure, ParsedOutput, Tally, counted, within
from app.domain import plain

UTF_16 = "utf-16"  # Encoding of the outputs of some programs of Windows, with a byte order mark.

_READ = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


def parse(event: Event, output: ParsedOutput, *, sums: bool = False) -> None:
    """Parse the first record, which names the conversation, and the last one; `subtype` alone is not a verdict.

    Args:
        sums: Whether `usage` is that of the whole conversation.
    """
    session_id = event.get("session_id")
    if isinstance(session_id, str) and session_id:
        output.session_id = session_id
    if event.get("type") == "result":
        _parse_result(event, output, sums=sums)
    elif "type" not in event:
        parse_error(event, output)


def parse_sums(event: Event, output: ParsedOutput) -> None:
    """Parse the records of a program whose `usage` is that of the whole conversation."""
    parse(event, output, sums=True)


def parse_error(event: Event, output: ParsedOutput) -> None:
    """Parse the document `{"error": {message, type, code}}` that some programs end with."""
    message = within(event, "error", "message")
    if isinstance(message, str):
        code = within(event, "error", "code")
        status = code if isinstance(code, int) and 400 <= code < 600 else None
        reason = _text(within(event, "error", "type"))
        output.failure = Failure(message=inner_words(message), status=status, reason=reason)


def inner_words(reported: str) -> str:
    """Return the message inside an answer of the model's service that the program passed on unchanged."""
    try:
        inner = within(orjson.loads(reported), "error", "message")
    except orjson.JSONDecodeError:
        inner = None
    return inner if isinstance(inner, str) and inner else reported


def _parse_result(event: Event, output: ParsedOutput, *, sums: bool) -> None:
    output.complete = True
    # A program whose queue is not empty continues after a result. Its last result includes the sums of the others.
    output.sums = Tally()
    usage, models = event.get("usage"), event.get("modelUsage")
    if isinstance(models, dict):
        # Then the usage comes from the sums, and this value is the least that the turn took.
        output.turn = Tally()
    tally = output.sums if sums else output.turn
    if isinstance(usage, dict):
        # If the cache is counted separately, the model has still read those tokens.
        cached = None if "total_tokens" in usage else usage.get("cache_read_input_tokens")
        read = counted(usage.get("input_tokens"), usage.get("cache_creation_input_tokens"), cached)
        tally.add(read, usage.get("output_tokens"))
    output.sums.add(cost_usd=event.get("total_cost_usd"))
    for model in models.values() if isinstance(models, dict) else ():
        output.sums.add(counted(*(within(model, name) for name in _READ)), within(model, "outputTokens"))
    output.cut_off = event.get("stop_reason") == "max_tokens"
    # A reply that fits a schema comes in a field of its own; the text then only comments on it.
    reply_text = event.get("structured_output")
    text = plain.canonical(reply_text).decode() if reply_text is not None else event.get("result")
    output.failure = _failure(event, text)
    output.text = text if output.failure is None and isinstance(text, str) else ""


def _failure(event: Event, text: object) -> Failure | None:
    if not event.get("is_error") and isinstance(text, str):
        return None
    status, subtype = event.get("api_error_status"), _text(event.get("subtype"))
    kind = None if subtype == "success" else subtype
    reported = (within(event, "error", "message"), *(event.get("errors") or ()), text, kind)
    is_limit = event.get("stop_reason") == "max_tokens" and kind is None and status is None
    return Failure(
        message=next((words for words in reported if isinstance(words, str) and words.strip()), "it does not say why"),
        status=status if isinstance(status, int) else None,
        reason=kind or _text(event.get("terminal_reason")),
        is_cut_off=is_limit or event.get("api_error") == "max_output_tokens",
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# Colours and cursors; titles and links, up to their end; character sets.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()][0-9A-Z])")
_TRIES = 50
_MOST_SPREAD = 64 * 1024 * 1024
_DECODER = json.JSONDecoder()


def events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield every JSON object: one per line, in an array, or written over many lines; skip all else."""
    result = iter(lines)
    for line in result:
        line = line.removeprefix(codecs.BOM_UTF8)
        # Programs print warnings and progress between the events.
        if line.lstrip()[:1] not in (b"{", b"["):
            continue
        try:
            value = _value(line)
        except (ValueError, RecursionError):
            yield from _spread(itertools.chain([line], result))
            return
        yield from _objects(value)


def _value(line: bytes) -> object:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        # Programs print what orjson refuses: half of a surrogate pair, NaN, bytes of a tool that are not UTF-8.
        return json.loads(line.decode("utf-8", "replace"))


def last_event(text: str) -> Event | None:
    """Return the JSON object at the end of a text: some programs write their error there, after other messages."""
    end = text.rstrip()
    # The object may contain further objects: search outwards from the end, with a few tries.
    begin = len(end)
    for _ in range(_TRIES):
        begin = max(end.rfind("\n{", 0, begin), 0 if end.startswith("{") else -1)
        if begin < 0:
            return None
        try:
            value = json.loads(end[begin:])
        except ValueError:
            if begin == 0:
                return None
            continue
        return value if isinstance(value, dict) else None
    return None


def plain_text(content: bytes) -> str:
    """Return an output as text, without the escape sequences that colour a terminal."""
    return _ESCAPES.sub("", content.decode(encoding(content), "replace"))


def encoding(begin: bytes) -> str:
    """Return the encoding of an output by its byte order mark; UTF-8 without one."""
    return UTF_16 if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def _spread(lines: Iterable[bytes]) -> Iterator[Event]:
    text = _end_of(lines)
    start, tries = 0, _TRIES
    while start < len(text):
        end = text.index("\n", start) + 1
        line = text[start:end].strip()
        start, begin = end, text.index(line, start)
        if line[:1] not in ("{", "["):
            continue
        try:
            yield from _objects(_DECODER.raw_decode(line)[0])
        except json.JSONDecodeError as error:
            # The object may continue in the next lines. Each try may read all of them in vain, so tries are limited.
            if error.pos == len(line) and tries:
                tries -= 1
                with contextlib.suppress(ValueError, RecursionError):
                    value, stop = _DECODER.raw_decode(text, begin)
                    yield from _objects(value)
                    start, tries = text.index("\n", stop) + 1, _TRIES
        except (ValueError, RecursionError):
            continue


def _end_of(lines: Iterable[bytes]) -> str:
    """Return the last whole lines: a program that prints without end must not fill the memory."""
    text, begin = bytearray(), 0
    for line in lines:
        text += line if line.endswith(b"\n") else line + b"\n"
        if len(text) > 2 * _MOST_SPREAD:
            del text[:-_MOST_SPREAD]
            begin = text.index(b"\n") + 1
    return text[begin:].decode("utf-8", "replace")


def _objects(value: object) -> Iterator[Event]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item
