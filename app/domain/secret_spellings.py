"""Spellings of secrets: how programs quote, escape and encode secrets, and where an environment contains them."""

# Why: docs/decisions/0265.

from __future__ import annotations

import base64
import fnmatch
import html
import json
import re
import shlex
import string
from collections.abc import Iterable, Iterator, Mapping

SHORTEST = 4  # Length of the shortest secret that is masked.

_SHORTEST_ENCODED = 8
_MOST_LINES = 2_000
_WRAPS = (64, 76)
# Passwords that exist on every machine: they protect nothing, and masking them would tear ordinary text apart.
_NO_SECRETS = frozenset(
    "admin changeme default development example guest local localhost mariadb minio minioadmin mongo mysql none null "
    "pass passwd password postgres production rabbitmq redis root secret test testing true false user".split()
)
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#\s]+)@")
_UNICODE_ESCAPE = re.compile(r"\\u[0-9a-f]{4}")
_PERCENT_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED = frozenset((string.ascii_letters + string.digits + "_.-~").encode())
_FOR_HTML = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})
_APOSTROPHE = str.maketrans({"'": r"\u0027"})


def of(secret: str) -> frozenset[str]:
    """Return the spellings of a secret: unchanged, escaped, encoded, and for several lines those of each line."""
    text = _as_read(secret)
    whole = {text, text.strip()}
    lines = {line.strip() for line in text.splitlines()[:_MOST_LINES]} - whole
    written = {spelling for text in whole | lines for spelling in _written(text) if len(text) >= SHORTEST}
    return frozenset(written.union(*map(_in_base64, whole)))


def named(names: Iterable[str], patterns: Iterable[str]) -> frozenset[str]:
    """Return the names that match a pattern, such as `*_TOKEN`, regardless of case."""
    wanted = sorted({fnmatch.translate(pattern.upper()) for pattern in patterns})
    # Without a pattern the expression would match every name.
    matches = re.compile("|".join(wanted)).match if wanted else lambda name: False
    return frozenset(name for name in names if matches(name.upper()))


def of_environment(environ: Mapping[str, str], names: Iterable[str]) -> set[str]:
    """Return the secrets of an environment: values of variables with these names, and passwords within URLs.

    Args:
        names: Patterns of names, such as `*_TOKEN`; case is ignored.
    """
    found = {environ[name] for name in named(environ, names)}
    found |= {password for value in environ.values() for password in _passwords(value)}
    return {value for value in found if value.strip().lower() not in _NO_SECRETS}


def with_passwords(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the variables whose values contain a URL with a password."""
    return frozenset(name for name, value in environ.items() if any(_passwords(value)))


def _as_read(secret: str) -> str:
    """Return a secret in the form in which program output is read: bytes that are not UTF-8 are replaced."""
    try:
        return secret.encode(errors="surrogateescape").decode(errors="replace")
    except UnicodeEncodeError:
        return secret.encode(errors="replace").decode()


def _passwords(value: str) -> Iterator[str]:
    for authority in _AUTHORITY.finditer(value) if "://" in value else ():
        password = authority[1].partition(":")[2]
        yield from {password, _percent_decoded(password)} - {""}


def _written(text: str) -> Iterator[str]:
    yield text
    for is_ascii in (False, True):
        escaped = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        for_html = escaped.translate(_FOR_HTML)
        for once in (escaped, for_html, for_html.translate(_APOSTROPHE), escaped.replace("/", r"\/")):
            yield once
            yield _UNICODE_ESCAPE.sub(lambda found: rf"\u{found[0][2:].upper()}", once)
            # Agents report tool output as JSON inside JSON.
            yield json.dumps(once, ensure_ascii=is_ascii)[1:-1]
    yield from (repr(text)[1:-1], ascii(text)[1:-1], repr(text.encode(errors="replace"))[2:-1])
    yield from (shlex.quote(text).removeprefix("'").removesuffix("'"), text.replace("'", r"'\''"))
    yield from (html.escape(text), html.escape(text, quote=False))
    for safe in ("", "/", "!'()*", " "):
        encoded = _percent_encoded(text, safe).replace(" ", "+")
        yield encoded
        yield _PERCENT_ESCAPE.sub(lambda found: found[0].lower(), encoded)


def _percent_encoded(text: str, safe: str) -> str:
    kept = _UNRESERVED | frozenset(safe.encode())
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in text.encode(errors="replace"))


def _percent_decoded(text: str) -> str:
    parts = _PERCENT_ESCAPE.sub(lambda found: chr(int(found[0][1:], 16)), text)
    try:
        return parts.encode("latin-1").decode()
    except UnicodeError:
        return text


def _in_base64(text: str) -> Iterator[str]:
    """Yield the part of a secret's encoding that does not depend on its surroundings, and its wrapped lines."""
    content = text.encode(errors="replace")
    if len(content) < _SHORTEST_ENCODED:
        # A short secret would occur in ordinary words and mask them.
        return
    alone = base64.b64encode(content).decode()
    lines = [alone[at : at + wrap] for wrap in _WRAPS if len(alone) > wrap for at in range(0, len(alone), wrap)]
    inner = [_inner(content, before) for before in range(3)]
    for encoded in (alone, *inner, *lines):
        if len(encoded) >= _SHORTEST_ENCODED:
            yield from (encoded, encoded.replace("+", "-").replace("/", "_").rstrip("="))


def _inner(content: bytes, before: int) -> str:
    encoded = base64.b64encode(bytes(before) + content).decode()
    first = (0, 2, 3)[before]
    whole = (before + len(content)) // 3 * 4
    # In an incomplete last group, the last character also depends on the next byte.
    return encoded[first : whole + (0, 1, 2)[(before + len(content)) % 3]]
