"""Rows: stores every file except journals as a row with its content in chunks; folders and runs are rows, too."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

from app.storage.postgres import places
from app.storage.postgres.database import CHANNEL, SCHEMA, Cursor
from app.storage.postgres.places import Place

_RUN = f"(SELECT id FROM {SCHEMA}.runs WHERE place = %b)"
_FILE = f"run = {_RUN} AND folder = %b AND name = %b"
_PUT = f"""
INSERT INTO {SCHEMA}.files AS f (run, folder, name, is_folder, bytes, version)
SELECT id, %b, %b, false, %b, coalesce(%b, nextval('{SCHEMA}.changes')) FROM {SCHEMA}.runs WHERE place = %b
ON CONFLICT (run, folder, name) DO UPDATE SET bytes = f.bytes * %b + EXCLUDED.bytes, version = EXCLUDED.version
WHERE NOT f.is_folder RETURNING run, bytes
"""
_CHUNK = f"INSERT INTO {SCHEMA}.chunks (run, folder, name, begins_at, content) VALUES (%b, %b, %b, %b, %b)"
_ANNOUNCE = f"SELECT pg_notify('{CHANNEL}', concat_ws(' ', split_part(%b, '/', 2), %b::bigint, %b::bigint))"
# OFFSET 0 keeps the planner from joining before it compares, which would read all earlier chunks.
_READ = f"""
SELECT f.is_folder, c.begins_at, c.content FROM {SCHEMA}.runs r JOIN {SCHEMA}.files f ON f.run = r.id
CROSS JOIN LATERAL (SELECT coalesce((SELECT max(begins_at) FROM {SCHEMA}.chunks
  WHERE run = f.run AND folder = f.folder AND name = f.name AND begins_at <= %b), 0) AS begins_at) first
LEFT JOIN LATERAL (SELECT begins_at, content FROM {SCHEMA}.chunks
  WHERE run = f.run AND folder = f.folder AND name = f.name AND begins_at >= first.begins_at
    AND begins_at < %b AND begins_at + octet_length(content) > %b OFFSET 0) c ON true
WHERE r.place = %b AND f.folder = %b AND f.name = %b ORDER BY c.begins_at
"""
_STAT = f"""
SELECT f.is_folder, f.bytes, f.version FROM {SCHEMA}.runs r JOIN {SCHEMA}.files f ON f.run = r.id
WHERE r.place = %b AND f.folder = %b AND f.name = %b
"""
_NAMES = f"""
SELECT name FROM {SCHEMA}.files WHERE run = {_RUN} AND folder = %b
UNION ALL SELECT journal FROM {SCHEMA}.journals WHERE run = {_RUN} AND %b = ''
"""
_CHILDREN = f"SELECT place FROM {SCHEMA}.runs WHERE parent = %b AND place <> ''"
_NEWEST = f"""
SELECT max(version) FROM (
SELECT version FROM {SCHEMA}.files WHERE run = {_RUN} AND folder = %b
UNION ALL SELECT version FROM {SCHEMA}.journals WHERE run = {_RUN} AND %b = '') AS changed
"""


def read(cursor: Cursor, place: Place, begin: int, end: int) -> bytes | None:
    """Return a part of a file; None if it does not exist.

    Raises:
        IsADirectoryError: it is a folder.
    """
    rows = cursor.execute(_READ, (begin, end, begin, *place)).fetchall()
    if not rows:
        return None
    # A folder has a row without content.
    if rows[0][0]:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), _path(place))
    found = [(row[1], bytes(row[2])) for row in rows if row[2] is not None]
    # The first chunk usually begins before the requested part.
    first = found[0][0] if found else 0
    return b"".join(content for _, content in found)[max(0, begin - first) : max(0, end - first)]


def stat(cursor: Cursor, place: Place) -> tuple[bool, int, int] | None:
    """Return whether a path is a folder, its length and the number of its last change; None if it does not exist."""
    if place.is_journal:
        cursor.execute(
            f"SELECT false, bytes, version FROM {SCHEMA}.journals WHERE run = {_RUN} AND journal = %b",
            (place.run, place.name),
        )
    else:
        cursor.execute(_STAT, place)
    row = cursor.fetchone()
    return None if row is None else (row[0], row[1], row[2])


def announce(cursor: Cursor, run: str, begin: int | None, sender: int) -> None:
    """Notify the processes that listen of a write to a run.

    Args:
        run: The run's folder.
        begin: Offset of new events in the run's file of events; None: no new events.
        sender: Number of this process.
    """
    cursor.execute(_ANNOUNCE, (run, begin, sender))


def versions(cursor: Cursor, names: Sequence[str]) -> dict[str, int]:
    """Return the number of the last change of each of these files of the data directory, as far as they exist."""
    cursor.execute(
        f"SELECT name, version FROM {SCHEMA}.files WHERE run = {_RUN} AND folder = '' AND name = ANY(%b)",
        ("", list(names)),
    )
    return {row[0]: row[1] for row in cursor.fetchall()}


def put(cursor: Cursor, place: Place, content: bytes, *, append: bool = False, version: int | None = None) -> int:
    """Write a file, replacing or extending its content, and return the offset of the new content.

    Raises:
        FileNotFoundError: its run is gone.
        IsADirectoryError: it is a folder.
    """
    keep = 1 if append else 0
    cursor.execute(_PUT, (place.folder, place.name, len(content), version, place.run, keep))
    if (row := cursor.fetchone()) is None:
        code = errno.EISDIR if stat(cursor, place) else errno.ENOENT
        raise OSError(code, os.strerror(code), _path(place))
    if not append:
        cursor.execute(
            f"DELETE FROM {SCHEMA}.chunks WHERE run = %b AND folder = %b AND name = %b", (row[0], *place[1:])
        )
    if content:
        cursor.execute(_CHUNK, (row[0], *place[1:], row[1] - len(content), content))
    return int(row[1]) - len(content)


def cut(cursor: Cursor, place: Place, size: int) -> None:
    """Shorten a file."""
    cursor.execute(f"UPDATE {SCHEMA}.files SET bytes = %b, version = DEFAULT WHERE {_FILE}", (size, *place))
    cursor.execute(f"DELETE FROM {SCHEMA}.chunks WHERE {_FILE} AND begins_at >= %b", (*place, size))
    cursor.execute(
        f"UPDATE {SCHEMA}.chunks SET content = substring(content FROM 1 FOR (%b - begins_at)::int)"
        f" WHERE {_FILE} AND begins_at + octet_length(content) > %b",
        (size, *place, size),
    )


def names(cursor: Cursor, path: str) -> list[str]:
    """Return the names in a folder."""
    run, folder = places.within(path) if path else ("", "")
    found = [row[0] for row in cursor.execute(_NAMES, (run, folder, run, folder)).fetchall()]
    if not run:
        found += [row[0].rpartition("/")[2] for row in cursor.execute(_CHILDREN, (path,)).fetchall()]
    return sorted(found)


def newest(cursor: Cursor, path: str) -> int:
    """Return the number of the last change of a name in a folder; 0 for an empty folder."""
    run, folder = places.within(path)
    row = cursor.execute(_NEWEST, (run, folder, run, folder)).fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


def has_run(cursor: Cursor, path: str) -> bool:
    """Return whether a run's folder exists."""
    return cursor.execute(f"SELECT 1 FROM {SCHEMA}.runs WHERE place = %b", (path,)).fetchone() is not None


def add_run(cursor: Cursor, path: str, epoch: int) -> bool:
    """Make a run's folder, and return whether it is new."""
    cursor.execute(
        f"INSERT INTO {SCHEMA}.runs (place, parent, epoch) VALUES (%b, %b, %b) ON CONFLICT (place) DO NOTHING",
        (path, path.rpartition("/")[0], epoch),
    )
    return cursor.rowcount == 1


def claim_run(cursor: Cursor, path: str, epoch: int) -> bool:
    """Let a run accept lines of this epoch only, and return whether it does."""
    cursor.execute(f"UPDATE {SCHEMA}.runs SET epoch = %b WHERE place = %b AND epoch <= %b", (epoch, path, epoch))
    return cursor.rowcount == 1


def move_run(cursor: Cursor, old: str, new: str) -> bool:
    """Move a run's folder, and return whether it existed."""
    cursor.execute(
        f"UPDATE {SCHEMA}.runs SET place = %b, parent = %b WHERE place = %b", (new, new.rpartition("/")[0], old)
    )
    return cursor.rowcount == 1


def add_folder(cursor: Cursor, place: Place) -> bool:
    """Make a folder, and return whether it is new."""
    cursor.execute(
        f"INSERT INTO {SCHEMA}.files (run, folder, name, is_folder, bytes)"
        f" SELECT id, %b, %b, true, 0 FROM {SCHEMA}.runs WHERE place = %b ON CONFLICT (run, folder, name) DO NOTHING",
        (place.folder, place.name, place.run),
    )
    if cursor.rowcount == 1:
        return True
    if stat(cursor, place) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), _path(place))
    return False


def move(cursor: Cursor, old: Place, new: Place) -> None:
    """Move a file or a folder with its content; a file that has the new name is replaced."""
    there, run = stat(cursor, new), cursor.execute(f"SELECT {_RUN}", (new.run,)).fetchone()
    if there is not None and there[0]:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), _path(new))
    if run is None or run[0] is None or stat(cursor, old) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), _path(old))
    # A file may replace another one, and the database refuses two of the same name.
    remove(cursor, new)
    # The chunks follow their file, and the content of a run's folder follows its run: foreign keys cascade.
    inner, outer = _inner(old), _inner(new)
    cursor.execute(
        f"UPDATE {SCHEMA}.files SET run = %b, folder = %b, name = %b, version = DEFAULT WHERE {_FILE}",
        (run[0], *new[1:], *old),
    )
    cursor.execute(
        f"UPDATE {SCHEMA}.files SET run = %b, folder = %b || substring(folder FROM %b::int)"
        f" WHERE run = {_RUN} AND (folder = %b OR starts_with(folder, %b))",
        (run[0], outer, len(inner) + 1, old.run, inner, f"{inner}/"),
    )


def remove(cursor: Cursor, place: Place) -> bool:
    """Remove a file, and return whether it existed; its folder counts as changed."""
    if place.is_journal:
        cursor.execute(f"DELETE FROM {SCHEMA}.journals WHERE run = {_RUN} AND journal = %b", (place.run, place.name))
    else:
        cursor.execute(f"DELETE FROM {SCHEMA}.files WHERE {_FILE}", place)
    found = cursor.rowcount == 1
    if found and place.folder:
        parent = places.Place(place.run, *_split(place.folder))
        cursor.execute(f"UPDATE {SCHEMA}.files SET version = DEFAULT WHERE {_FILE}", parent)
    return found


def remove_tree(cursor: Cursor, path: str) -> bool:
    """Remove a folder with its content, and return whether it existed."""
    if places.is_run(path):
        cursor.execute(f"DELETE FROM {SCHEMA}.runs WHERE place = %b", (path,))
        return cursor.rowcount == 1
    place = places.of(path)
    cursor.execute(
        f"DELETE FROM {SCHEMA}.files WHERE run = {_RUN} AND (folder = %b OR starts_with(folder, %b))",
        (place.run, _inner(place), f"{_inner(place)}/"),
    )
    return remove(cursor, place)


def next_version(cursor: Cursor) -> int:
    """Return a number for a change that is about to be made."""
    row: Any = cursor.execute(f"SELECT nextval('{SCHEMA}.changes')").fetchone()
    return int(row[0])


def _inner(place: Place) -> str:
    return f"{place.folder}/{place.name}" if place.folder else place.name


def _split(folder: str) -> tuple[str, str]:
    above, _, name = folder.rpartition("/")
    return above, name


def _path(place: Place) -> str:
    return "/".join(filter(None, place))
