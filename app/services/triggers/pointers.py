"""Pointers and signatures: read values from an occurrence, and verify the sender of a request."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping

from app.domain import json_text, plain

TOLERANCE_SECONDS = 300  # Longest difference between the timestamp of a request and now (Standard Webhooks).
SECRET_PREFIX = "whsec_"  # noqa: S105 - the form of a secret, not one
"""Prefix of a secret of Standard Webhooks."""

SECRET_CHARACTERS = 500  # Longest secret of signatures.

_POINTER = re.compile(r"(/([^~/]|~[01])*)*")
_MOST_SIGNATURES = 10
_LEAST = 16  # Fewest characters of a secret, and fewest bytes of the key in one of Standard Webhooks.

GITHUB_SIGNATURE = "x-hub-signature-256"  # Header of GitHub's signature.


def is_pointer(text: str) -> bool:
    """Return whether a text is a JSON pointer (RFC 6901)."""
    return len(text) <= 500 and _POINTER.fullmatch(text) is not None


def resolved(document: plain.Json, pointers: Mapping[str, str]) -> dict[str, plain.Json]:
    """Return the values of pointers; names whose pointers have no value are left out."""
    found = ((name, _followed(document, pointer)) for name, pointer in pointers.items())
    return {name: value[0] for name, value in found if value is not None}


def _followed(value: plain.Json, pointer: str) -> tuple[plain.Json] | None:
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            value = json_text.inner(value, name)
        except KeyError:
            return None
    return (value,)


def key_of(secret: str) -> bytes | None:
    """Return the key in a secret of Standard Webhooks; None if it has another form."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if secret.startswith(SECRET_PREFIX) and key else None


def weakness(secret: str, *, standard: bool) -> str | None:
    """Return what a new secret must have and lacks; None if it can be used.

    Args:
        standard: Whether it is one of Standard Webhooks.
    """
    if standard and len(key_of(secret) or b"") < _LEAST:
        return f"must be {SECRET_PREFIX} and a key of at least {_LEAST} bytes in base64"
    is_fit = _LEAST <= len(secret) <= SECRET_CHARACTERS
    return None if is_fit else f"must have {_LEAST} to {SECRET_CHARACTERS} characters"


def signature(key: bytes, message_id: str, timestamp: int | str, body: bytes) -> str:
    """Return the signature of a message by Standard Webhooks."""
    content = f"{message_id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()}"


def is_signed_standard(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Return whether a request has a valid signature of Standard Webhooks and a recent timestamp."""
    key, sent = key_of(secret), headers.get("webhook-timestamp", "")
    if key is None or not re.fullmatch(r"[0-9]{1,12}", sent) or abs(now - int(sent)) > TOLERANCE_SECONDS:
        return False
    expected = signature(key, headers.get("webhook-id", ""), sent, body).encode()
    given = headers.get("webhook-signature", "").split()[:_MOST_SIGNATURES]
    # All are compared, so that the duration does not depend on which one matches.
    matches = [hmac.compare_digest(each.encode(), expected) for each in given]
    return any(matches)


def is_signed_github(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether a request has a valid signature in GitHub's form."""
    expected = f"sha256={hmac.digest(secret.encode(), body, hashlib.sha256).hex()}"
    return hmac.compare_digest(headers.get(GITHUB_SIGNATURE, "").encode(), expected.encode())
