"""Tests of the spellings of secrets: no program's form of a secret, and no cut part of one, remains."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import plain, secret_spellings

AWKWARD = "p\"ss'w\\rd/é&<b>+ %ü$"
PEM = (
    "-----BEGIN PRIVATE KEY-----\n"
    + "".join(f"MII{n:04}/abc+DEF{'x' * 40}\n" for n in range(9))
    + "-----END KEY-----\n"
)
NAMES = ("*_KEY", "*_TOKEN", "*_SECRET", "*_PASSWORD")


@pytest.mark.parametrize("secret", ["sk-ant-0123456789abcdef", AWKWARD, PEM], ids=["token", "awkward", "pem"])
@pytest.mark.parametrize(
    "spell",
    [
        str,
        json.dumps,
        lambda secret: json.dumps(secret, ensure_ascii=False),
        lambda secret: json.dumps(json.dumps(secret)),
        lambda secret: json.dumps(secret).replace("/", "\\/"),
        lambda secret: json.dumps(secret).replace("<", "\\u003c").replace("&", "\\u0026").replace(">", "\\u003e"),
        repr,
        ascii,
        lambda secret: repr(secret.encode()),
        shlex.quote,
        html.escape,
        urllib.parse.quote,
        urllib.parse.quote_plus,
        lambda secret: urllib.parse.quote(secret, safe=""),
        lambda secret: re.sub("%..", lambda found: found[0].lower(), urllib.parse.quote(secret)),
        lambda secret: base64.b64encode(secret.encode()).decode(),
        lambda secret: base64.b64encode(f"user:{secret}@".encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(f"me:{secret}".encode()).decode(),
        lambda secret: base64.encodebytes(secret.encode()).decode(),
        lambda secret: "".join(f"> {line}\r\n" for line in secret.splitlines()),
    ],
)  # fmt: skip
def test_a_secret_is_masked_in_every_spelling(secret: str, spell: object) -> None:
    """A secret is masked in the forms that programs print, and no long part of it remains."""
    written = spell(secret)  # type: ignore[operator]
    masked = plain.Masker([secret]).mask({"said": f"key={written};"})["said"]

    assert "***" in masked
    assert not _longest_common(written, masked) > 10


def _longest_common(one: str, other: str) -> int:
    length = 0
    for start in range(len(one)):
        while start + length < len(one) and one[start : start + length + 1] in other:
            length += 1
    return length


@given(
    at=st.integers(1, 30), kept=st.integers(0, 60), at_end=st.booleans(), quoted=st.booleans(),
    secret=st.text("abcdefXYZ0189-_", min_size=16, max_size=30),
)  # fmt: skip
def test_no_part_of_a_secret_is_left_in_a_message(at: int, kept: int, at_end: bool, quoted: bool, secret: str) -> None:
    """A message that quotes a cut text shows at most seven characters of a secret in a row."""
    whole = "." * at + secret + "." * at
    cut = whole[len(whole) - kept :] if at_end else whole[:kept]
    masked = plain.Masker([secret]).mask_cut(f"failed: {cut!r}, so it is" if quoted else cut)

    assert all(secret[n : n + 8] not in masked for n in range(len(secret) - 7))


def test_a_preview_of_masked_text_ends_before_a_part_of_a_secret() -> None:
    """A text that ends in the middle of a secret loses that part; a path that begins alike is kept."""
    masker = plain.Masker(["sk-0123456789abcdef", "/srv/keys/of/server.pem"])

    assert masker.mask(["key sk-0123456789", "9abcdef rest", "sk-01234567 is not it"]) == [
        "key ***", "9abcdef rest", "sk-01234567 is not it",
    ]  # fmt: skip
    assert masker.mask("/srv/keys/of/") == "/srv/keys/of/"
    assert masker.mask("see /srv/keys/of/server.pem") == "see ***"


def test_fields_of_records_keep_their_names() -> None:
    """A secret that is an ordinary word is masked in values and not in the names of fields."""
    masked = plain.Masker(["found", "correct horse"]).mask({"found": ["found"], "my correct horse": 1})

    assert masked == {"found": ["***"], "my ***": 1}


def test_an_environment_is_searched_by_names_and_for_urls() -> None:
    """Values of matching names and passwords in URLs are secrets, encoded or not; stock passwords are not."""
    environ = {
        "OPENAI_API_KEY": "sk-1", "npm_token": "npm-2", "DB_PASSWORD": "password", "KEYBOARD": "us-intl",
        "DATABASE_URL": "postgresql://app:p%40ss-3@db/x?sslmode=on", "PROXIES": "http://u:four-4@a,https://:five-5@b",
        "HOMEPAGE": "https://example.org/a:b@c", "EMPTY_SECRET": "",
    }  # fmt: skip

    assert secret_spellings.of_environment(environ, NAMES) - {""} == {
        "sk-1", "npm-2", "p%40ss-3", "p@ss-3", "four-4", "five-5",
    }  # fmt: skip
    assert secret_spellings.of_environment({"MY_PIN": "0000-1"}, ["*_pin"]) == {"0000-1"}


def test_a_secret_that_is_not_utf8_is_masked() -> None:
    """A secret that is not UTF-8 is masked in an output that was read with replacements."""
    secret = b"key-\xff\xfe-4711"

    masked = plain.Masker([secret.decode(errors="surrogateescape")]).mask(secret.decode(errors="replace"))

    assert masked == "***"
