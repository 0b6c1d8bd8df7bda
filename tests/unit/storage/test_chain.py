"""The chain: which lines of a journal are trusted after every kind of damage."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import plain
from app.storage.journal import chain
from app.storage.journal.chain import Integrity

ANCHOR = plain.labelled_sha256(b"{}\n")

texts = st.text(max_size=40)
batches = st.lists(st.lists(texts, min_size=1, max_size=3), min_size=1, max_size=5)


def sealed_batches(batches: list[list[str]]) -> tuple[bytes, list[str], int]:
    """Return a journal, its texts and the number of lines before its last batch."""
    texts: list[str] = []
    content, prev = b"", ANCHOR
    for batch in batches:
        synced = len(texts)
        for text in batch:
            sealed = chain.seal(plain.encode({"text": text}), batch=synced, prev=prev)
            content, prev = content + sealed.content, sealed.digest
            texts.append(text)
    return content, texts, len(texts) - len(batches[-1])


def kept(content: bytes) -> tuple[list[str], Integrity]:
    """Return the trusted lines of a journal."""
    reading = chain.read(content, ANCHOR)
    return [line.fields["text"] for line in reading.lines], reading.integrity


@given(batches)
def test_a_whole_journal_is_read_back(batches: list[list[str]]) -> None:
    """Every line of an undamaged journal is read back, in order, and its head is the hash of the last one."""
    content, texts, _ = sealed_batches(batches)
    reading = chain.read(content, ANCHOR)

    assert reading.integrity is Integrity.WHOLE
    assert [line.fields["text"] for line in reading.lines] == texts
    assert reading.head == plain.labelled_sha256(content.splitlines()[-1])
    assert reading.end == len(content)


@given(batches, st.data())
def test_a_truncated_journal_keeps_its_whole_lines(batches: list[list[str]], data: st.DataObject) -> None:
    """Of a journal cut off anywhere, exactly the complete lines before that place are trusted."""
    content, texts, _ = sealed_batches(batches)
    cut = content[: data.draw(st.integers(0, len(content)))]
    found, integrity = kept(cut)

    assert found == texts[: cut.count(b"\n")]
    assert integrity is (Integrity.WHOLE if not cut or cut.endswith(b"\n") else Integrity.TORN)


@given(batches, st.data())
def test_a_flipped_bit_never_loses_a_confirmed_line(batches: list[list[str]], data: st.DataObject) -> None:
    """One wrong bit costs lines of the last batch at most, or is reported as damage; no changed line is trusted."""
    content, texts, confirmed = sealed_batches(batches)
    place = data.draw(st.integers(0, len(content) * 8 - 1))
    flipped = bytearray(content)
    flipped[place // 8] ^= 1 << place % 8
    found, integrity = kept(bytes(flipped))

    assert found == texts[: len(found)]
    assert integrity is not Integrity.WHOLE
    assert integrity is Integrity.DAMAGED or len(found) >= confirmed


@given(batches, st.data())
def test_lost_pages_of_the_last_batch_are_a_torn_end(batches: list[list[str]], data: st.DataObject) -> None:
    """A hole anywhere in the last batch cuts the batch off at this place, however sound the lines behind it are."""
    content, texts, confirmed = sealed_batches(batches)
    begin = len(b"".join(line + b"\n" for line in content.split(b"\n")[:confirmed]))
    first = data.draw(st.integers(begin, len(content) - 1))
    last = data.draw(st.integers(first, len(content)))
    holed = content[:first] + bytes(last - first) + content[last:]
    found, integrity = kept(holed)

    assert found == texts[: content[:first].count(b"\n")] or first == last
    assert integrity is Integrity.TORN or first == last


@given(batches, st.binary(max_size=60))
def test_garbage_behind_the_end_is_cut_off(batches: list[list[str]], garbage: bytes) -> None:
    """Any garbage behind the last line costs no confirmed line."""
    content, texts, _ = sealed_batches(batches)
    found, integrity = kept(content + garbage)

    assert found == texts
    assert integrity is (Integrity.TORN if garbage else Integrity.WHOLE)


def test_a_removed_line_breaks_the_chain() -> None:
    """A journal with sound lines in the wrong place is damaged, even at its end."""
    lines = sealed_batches([["a"], ["b"], ["c"]])[0].splitlines(keepends=True)
    found, integrity = kept(lines[0] + lines[2])

    assert found == ["a"]
    assert integrity is Integrity.DAMAGED


def test_a_replaced_line_breaks_the_chain() -> None:
    """A line with another content and a right checksum is damage of the line after it, which names the original."""
    lines = sealed_batches([["a", "b", "c"]])[0].splitlines(keepends=True)
    other = sealed_batches([["a", "x"]])[0].splitlines(keepends=True)
    found, integrity = kept(lines[0] + other[1] + lines[2])

    assert found == ["a", "x"]
    assert integrity is Integrity.DAMAGED


def test_another_start_breaks_the_chain() -> None:
    """A journal belongs to the start.json whose hash is in its first line."""
    content = sealed_batches([["a"]])[0]
    reading = chain.read(content, plain.labelled_sha256(b"another"))

    assert reading.integrity is Integrity.DAMAGED
    assert reading.reason == "is not sealed to start.json"


def test_a_sealed_line_has_batch_hash_and_checksum() -> None:
    """A line is plain JSON with its batch, the hash of the line before and its checksum."""
    content = sealed_batches([["a", "b"], ["c"]])[0]
    lines = [json.loads(line) for line in content.splitlines()]

    assert [line["batch"] for line in lines] == [0, 0, 2]
    assert lines[0]["prev"] == ANCHOR
    assert lines[1]["prev"] == plain.labelled_sha256(content.splitlines()[0])
    assert all(list(line)[-3:] == ["batch", "prev", "crc32"] for line in lines)


def test_a_payload_that_looks_like_an_ending_does_not_count() -> None:
    """Text of an output cannot pretend that a line was confirmed."""
    lookalike = ',"batch":99,"prev":"' + ANCHOR + '","crc32":"00000000"}'
    content = sealed_batches([[lookalike, "b"]])[0]
    found, integrity = kept(content[:-3])

    assert found == [lookalike]
    assert integrity is Integrity.TORN


@pytest.mark.parametrize("line", [b"null", b"[1]", b'"text"', b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_line_without_a_sealed_object_is_bad(line: bytes) -> None:
    """A line that is not a sealed JSON object is bad."""
    content, texts, _ = sealed_batches([["a"]])
    found, integrity = kept(content + line + b"\n")

    assert found == texts
    assert integrity is Integrity.TORN


def test_the_last_decision_is_read_from_the_end_alone() -> None:
    """The last line is found in a part of the file, and only if it is whole and sound."""
    content = sealed_batches([["a"], ["b"]])[0]
    last = content.splitlines(keepends=True)[-1]

    assert (chain.last_fields(b'cut off"}\n' + last) or {})["text"] == "b"
    assert chain.last_fields(content[:-1]) is None
    assert chain.last_fields(last[1:]) is None
    assert chain.last_fields(b"") is None
