"""Journals: the lines of runs, and the transaction that appends to many of them at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.domain import plain
from app.storage.disk.disk_port import LeaseLost
from app.storage.journal import chain
from app.storage.postgres.database import CHANNEL, SCHEMA, Cursor
from app.storage.postgres.places import Place

# A run's row is locked, too: a process that begins a later epoch of the run waits until this transaction ends, and then
# reads its lines.
_HEADS = f"""
SELECT r.place, j.journal, r.id, r.epoch, r.lease, j.lines, j.bytes, j.head
FROM {SCHEMA}.runs r JOIN {SCHEMA}.journals j ON j.run = r.id
WHERE (r.place, j.journal) IN (SELECT * FROM unnest(%b::text[], %b::text[]))
ORDER BY r.id, j.journal FOR UPDATE
"""
_INSERT = f"""
INSERT INTO {SCHEMA}.lines (run, journal, position, begins_at, line)
SELECT * FROM unnest(%b::bigint[], %b::text[], %b::int[], %b::bigint[], %b::bytea[])
"""
_ADVANCE = f"""
UPDATE {SCHEMA}.journals j SET lines = n.lines, bytes = n.bytes, head = n.head, version = nextval('{SCHEMA}.changes')
FROM unnest(%b::bigint[], %b::text[], %b::int[], %b::bigint[], %b::text[], %b::text[])
  AS n (run, journal, lines, bytes, head, place)
WHERE j.run = n.run AND j.journal = n.journal
"""
# The server sends equal notifications once for each transaction.
_ANNOUNCE = f"{_ADVANCE} RETURNING pg_notify('{CHANNEL}', split_part(n.place, '/', 2))"
# Begins with the line that contains the first byte: mostly the end of a long journal is read, and offsets have no
# index.
_READ = f"""
SELECT l.begins_at, l.line FROM {SCHEMA}.runs r
JOIN {SCHEMA}.journals j ON j.run = r.id
LEFT JOIN LATERAL (
  SELECT position, begins_at, line FROM {SCHEMA}.lines WHERE run = j.run AND journal = j.journal
    AND position >= coalesce((SELECT b.position FROM {SCHEMA}.lines b WHERE b.run = j.run AND b.journal = j.journal
      AND b.begins_at <= %b AND %b > 0 ORDER BY b.position DESC LIMIT 1), 0)
    AND begins_at < %b AND begins_at + octet_length(line) > %b
  ORDER BY position
) l ON true
WHERE r.place = %b AND j.journal = %b ORDER BY l.position
"""


class Foreign(OSError):
    """A journal does not end where its writer left it: another process has written to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Lines for the end of one journal."""

    place: Place  # The journal.
    lines: Sequence[bytes]  # Sealed lines with their newlines, in order.
    lease: int | None = None
    """Lease of the run under which they were written; None: the writer owns the store alone."""


@dataclass(slots=True)
class _Head:
    run: int
    epoch: int
    lease: int
    lines: int
    bytes: int
    digest: str | None


def append(cursor: Cursor, epoch: int, appends: Sequence[Append], *, announces: bool = False) -> list[OSError | None]:
    """Append to journals in one transaction, and return each one's refusal or None; a repetition has no effect.

    Args:
        epoch: Epoch of the writer; a run that was opened in a later epoch refuses lines.
        announces: Whether other processes listen.
    """
    heads = _locked(cursor, [entry.place for entry in appends])
    outcomes: list[OSError | None] = []
    rows: list[tuple[int, str, int, int, bytes]] = []
    moved: dict[Place, _Head] = {}
    for entry in appends:
        head = heads.get(entry.place)
        # A commit whose answer was lost is repeated, and finds its last line in the journal.
        is_done = head is not None and head.digest == digest(entry.lines[-1])
        outcome = None if is_done else _refusal(entry, head, epoch)
        outcomes.append(outcome)
        if head is None or is_done or outcome is not None:
            continue
        for line in entry.lines:
            rows.append((head.run, entry.place.name, head.lines, head.bytes, line))
            head.lines += 1
            head.bytes += len(line)
        # Updated in place, since one transaction may append to a journal twice.
        head.digest = digest(entry.lines[-1])
        moved[entry.place] = head
    if rows:
        cursor.execute(_INSERT, _columns(rows))
        ends = [(head.run, place.name, head.lines, head.bytes, head.digest, place.run) for place, head in moved.items()]
        cursor.execute(_ANNOUNCE if announces else _ADVANCE, _columns(ends))
    return outcomes


def versions(cursor: Cursor, runs: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the last changes of the journals of runs."""
    query = f"""
    SELECT r.place, array_agg(j.version ORDER BY j.journal)
    FROM {SCHEMA}.runs r JOIN {SCHEMA}.journals j ON j.run = r.id
    WHERE r.place = ANY(%b) GROUP BY r.place
    """
    return {row[0]: tuple(row[1]) for row in cursor.execute(query, (list(runs),)).fetchall()}


def replace(cursor: Cursor, place: Place, content: bytes) -> bool:
    """Replace a journal's content; return whether the run exists."""
    lines = split(content)
    head = digest(lines[-1]) if lines else None
    cursor.execute(
        f"INSERT INTO {SCHEMA}.journals (run, journal, lines, bytes, head)"
        f" SELECT id, %b, %b, %b, %b FROM {SCHEMA}.runs WHERE place = %b"
        " ON CONFLICT (run, journal) DO UPDATE SET lines = EXCLUDED.lines, bytes = EXCLUDED.bytes,"
        " head = EXCLUDED.head, version = DEFAULT RETURNING run",
        (place.name, len(lines), len(content), head, place.run),
    )
    if (row := cursor.fetchone()) is None:
        return False
    # Readers see the old or the new content: one transaction replaces all of it.
    cursor.execute(f"DELETE FROM {SCHEMA}.lines WHERE run = %b AND journal = %b", (row[0], place.name))
    begin, rows = 0, []
    for position, line in enumerate(lines):
        rows.append((row[0], place.name, position, begin, line))
        begin += len(line)
    if rows:
        cursor.execute(_INSERT, _columns(rows))
    return True


def read(cursor: Cursor, place: Place, begin: int, end: int) -> bytes | None:
    """Return a part of a journal; None if it does not exist."""
    rows = cursor.execute(_READ, (begin, begin, end, begin, place.run, place.name)).fetchall()
    if not rows:
        return None
    found = [(row[0], bytes(row[1])) for row in rows if row[1] is not None]
    first = found[0][0] if found else 0
    return b"".join(line for _, line in found)[max(0, begin - first) : end - first]


def digest(line: bytes) -> str:
    """Return the hash of a line, which the next line contains."""
    return plain.labelled_sha256(line.removesuffix(b"\n"))


def split(content: bytes) -> list[bytes]:
    """Return the lines of some content with their newlines; bytes after the last newline are a line, too."""
    parts = content.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _locked(cursor: Cursor, places: Sequence[Place]) -> dict[Place, _Head]:
    rows = cursor.execute(_HEADS, ([place.run for place in places], [place.name for place in places])).fetchall()
    return {Place(row[0], "", row[1]): _Head(*row[2:]) for row in rows}


def _refusal(entry: Append, head: _Head | None, epoch: int) -> OSError | None:
    path = f"{entry.place.run}/{entry.place.name}"
    if head is None:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if head.epoch > epoch:
        return Foreign(errno.EPERM, f"{path} was opened by a later owner of the store")
    if entry.lease is not None and head.lease != entry.lease:
        return LeaseLost(errno.ESTALE, f"{path} was taken over by another process meanwhile")
    if head.digest != chain.previous(entry.lines[0]) and not (head.digest is None and head.lines == 0):
        return Foreign(errno.EPERM, f"{path} does not end where this process left it; another one has written to it")
    return None


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
