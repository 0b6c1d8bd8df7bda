"""The marks of a bucket and of the store that keeps its blobs there: each refuses any other, by name.

`blobs.json` in the store is `{"identity": …, "address": …}`; `control-room.json` in the bucket is `{"identity": …,
"store": …}`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app import errors
from app.domain import plain
from app.storage import layout
from app.storage.disk import disk_port
from app.storage.disk.disk_port import Disk

if TYPE_CHECKING:
    from app.storage.objects.bucket import Bucket

_PROBE = "control-room.probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Place for blobs."""

    url: str | None = None  # Address of object storage; None: blobs are with the other files.
    new_identity: str = ""  # Identity that a new bucket gets.
    looks_only: bool = False  # Whether the store is only read.


def opened(disk: Disk, target: Target, store: str) -> Disk:
    """Return a disk whose blobs are at the target; without an address, the disk itself.

    Args:
        store: Identity of the store.

    Raises:
        errors.ConfigurationError: `store_differs`, the blobs are elsewhere; `blobs_unusable`, `blobs_away`.
        OSError: the store's own mark cannot be read or written.
    """
    known = _kept(disk)
    if target.url is None:
        if known is not None:
            message = (
                f"blobs of this store are in {known['address']}: set CONTROL_ROOM_BLOBS_URL to it. To leave it:"
                " control-room runs export --to FOLDER, then import that into another data directory"
            )
            raise errors.ConfigurationError(message, code="store_differs", detail=known)
        return disk
    from app.storage.objects.bucket import Bucket
    from app.storage.objects.disk import ObjectDisk

    bucket = Bucket(target.url)
    try:
        identity = _agreed(bucket, known, store, target)
        # Without a test write, a bucket that can only be read would fail at the first blob.
        if not target.looks_only:
            bucket.put(_PROBE, b"writable")
    except OSError as error:
        raise bucket.unusable(error) from error
    fresh = {"identity": identity, "address": bucket.shown}
    if known != fresh and not target.looks_only:
        disk_port.replace(disk, layout.BLOBS_MARK, plain.encode(fresh) + b"\n", sync=True)
    return ObjectDisk(disk, bucket)


def _agreed(bucket: Bucket, known: dict[str, Any] | None, store: str, target: Target) -> str:
    found = _found(bucket)
    if known is not None and (found is None or found["identity"] != known["identity"]):
        message = (
            f"blobs of this store were last kept in {known['address']} ({known['identity']}); {bucket.shown} is"
            f" {'empty' if found is None else 'another place'}. Set CONTROL_ROOM_BLOBS_URL to the former"
        )
        raise errors.ConfigurationError(message, code="store_differs", detail=known)
    # Two stores in one bucket would remove each other's blobs.
    if found is not None and found["store"] != store:
        message = f"{bucket.shown} contains blobs of another store ({found['store']}); give this store its own place"
        raise errors.ConfigurationError(message, code="store_differs", detail={"address": bucket.shown})
    # This store may be a copy of a data directory: both would write to the same bucket.
    if known is None and found is not None and any(bucket.all(f"{layout.RUNS}/")):
        message = f"{bucket.shown} contains blobs that this copy of the store did not write; give it its own place"
        raise errors.ConfigurationError(message, code="store_differs", detail={"address": bucket.shown})
    if found is None:
        found = {"identity": target.new_identity, "store": store}
        if not target.looks_only and not bucket.create(layout.BUCKET_MARK, plain.encode(found) + b"\n"):
            # Another process has marked the bucket first.
            return _agreed(bucket, known, store, target)
    return str(found["identity"])


def _found(bucket: Bucket) -> dict[str, Any] | None:
    try:
        return _parsed(bucket.get(layout.BUCKET_MARK), f"{bucket.shown}/{layout.BUCKET_MARK}", "identity", "store")
    except FileNotFoundError:
        return None


def _kept(disk: Disk) -> dict[str, Any] | None:
    try:
        return _parsed(disk.read(layout.BLOBS_MARK), layout.BLOBS_MARK, "identity", "address")
    except FileNotFoundError:
        return None


def _parsed(content: bytes, place: str, *names: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
        return {name: str(found[name]) for name in names}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = f"{place} does not say where blobs are; put it back from a copy"
        raise errors.ConfigurationError(message, code="data_directory_unusable") from error
