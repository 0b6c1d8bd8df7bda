"""Forms of replies: requested in words, for agents that no schema can bind."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.domain import abstentions, plain

BREAK = "\n\n---\n\n"  # Separator of the parts of a prompt that are sent as one text.


def in_words(schema: plain.Object) -> str:
    """Return the sentence that asks for a reply in this form."""
    return f"Answer with JSON alone that fits this JSON Schema: {plain.canonical(plain.plain(schema)).decode()}"


def after(past: Sequence[tuple[str, str]], text: str) -> str:
    """Return a prompt preceded by the earlier exchanges, for an agent that does not remember them."""
    if not past:
        return text
    reply_text = "\n\n".join(f"<prompt>\n{prompt}\n</prompt>\n<reply>\n{reply}\n</reply>" for prompt, reply in past)
    return f"This continues an earlier conversation. What was said in it:\n\n{reply_text}{BREAK}{text}"


_MOST_CHARACTERS = 400
_MOST_LINES = 3
_OPENING = (
    r"(?:(?:i['’]?m|i\sam|we['’]?re|we\sare)\s(?:(?:very|so|really|truly)\s)?sorry|sorry|(?:my\s)?apologies|"
    r"i\sapologi[sz]e|unfortunately|as\san\s(?:ai|language)[^.,\n]{0,40})"
)
_UNABLE = (
    r"(?:i|we)(?:\s?(?:cannot|can['’]t|can\snot|won['’]t|will\snot|must\sdecline\sto)"
    r"|(?:['’]m|\sam|['’]re|\sare)\s(?:not\sable|unable|not\sallowed)\sto)"
)
_ASKED = r"(?:this|that|it|these|your|the\s(?:request|task)|such|any)\b"
_REFUSED = re.compile(
    rf"(?:{_OPENING}[\s,.:;!–—-]{{1,4}}(?:but\s)?)?{_UNABLE}\s"
    rf"(?:(?:help|assist)(?:\syou)?(?:\s*[.!]|\s*\Z|\s(?:with|in|on)\s{_ASKED})"
    rf"|(?:comply|continue|engage)(?:\s*[.!]|\s*\Z|\swith\s{_ASKED})"
    rf"|(?:fulfil|fulfill|complete|do|provide|create|generate|write|produce|draft|answer|discuss)\s{_ASKED})",
    re.IGNORECASE,
)


def is_refusal(reply: str) -> bool:
    """Return whether a reply as a whole refuses the request."""
    text = abstentions.bare(reply)
    if len(text) > _MOST_CHARACTERS or len(text.splitlines()) > _MOST_LINES:
        return False
    return _REFUSED.match(text) is not None
