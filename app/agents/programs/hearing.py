"""Hearing: the output of a program while it works; the agent's words, if the program writes them as JSON."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator

import orjson

from app.agents.programs import results
from app.domain import plain

MOST_LINE = 4000  # Longest line that is not an agent's words; a longer one is cut off.

_MOST_TORN = 4 * 1024 * 1024
_MOST_DEPTH = 8
_LEFT_OUT = "[output left out here]\n"


class Hearing:
    """Convert the output of a program into text as it arrives."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._torn = b""
        self._is_cut = False
        self._decoders = dict[int, codecs.IncrementalDecoder]()
        self._is_utf_16 = False

    def feed(self, stream: int, content: bytes, skipped_bytes: int) -> None:
        """Take in a part of an output; only whole lines of standard output are decoded."""
        if stream not in self._decoders:
            encoding = results.encoding(content)
            self._decoders[stream] = codecs.getincrementaldecoder(encoding)("replace")
            self._is_utf_16 |= stream == 1 and encoding == results.UTF_16
        if stream != 1:
            self._hear(self._decoders[stream].decode(content))
            return
        if self._is_utf_16:
            # The bytes of a character stay together after an odd number of omitted ones.
            content = self._decoders[stream].decode(b"\0" * (skipped_bytes % 2) + content).encode()
        # Half a line cannot be decoded; decoding begins again at the next newline.
        if skipped_bytes or len(self._torn) > _MOST_TORN:
            self._torn, self._is_cut = b"", True
            self._hear(_LEFT_OUT)
        if self._is_cut:
            _, newline, content = content.partition(b"\n")
            self._is_cut = not newline
        *lines, self._torn = (self._torn + content).split(b"\n")
        # A part of a line is a sign of life, too.
        self._hear("")
        for line in lines:
            self._hear(f"{_shown(line)}\n")


def _shown(line: bytes) -> str:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        event = None
    texts = "\n".join(_texts(event, _MOST_DEPTH)) if isinstance(event, dict) else ""
    return texts or line.decode("utf-8", "replace")[:MOST_LINE]


def _texts(value: plain.Json, depth: int) -> Iterator[str]:
    """Yield the texts of an event's messages, which every program puts under `text`."""
    # Limited depth: deeper levels contain the output of tools.
    if depth and isinstance(value, dict):
        for name, part in value.items():
            if name == "text" and isinstance(part, str):
                yield part
            else:
                yield from _texts(part, depth - 1)
    elif depth and isinstance(value, list):
        for part in value:
            yield from _texts(part, depth - 1)
