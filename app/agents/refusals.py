"""Refusals: replies that only say that nothing will be done.

Only a short reply that opens with the wording of a refusal is one; a text or a report in which someone refuses is not.
"""

from __future__ import annotations

import re

from app.domain import abstentions

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
    """Return whether a reply, as a whole, refuses what was asked."""
    text = abstentions.bare(reply)
    if len(text) > _MOST_CHARACTERS or len(text.splitlines()) > _MOST_LINES:
        return False
    return _REFUSED.match(text) is not None
