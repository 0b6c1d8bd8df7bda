"""A bucket: objects by name in S3, Google Cloud Storage, Azure or a folder, with the errors of a file system."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from app import errors, extras
from app.storage.disk import os_disk

if TYPE_CHECKING:
    from obstore.store import ObjectStore

INSTALL = extras.install("objects")  # Command that installs the extra.

_PROVIDERS = {
    "s3": ("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION", ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT", ("GOOGLE_BASE_URL",)),
    "az": (
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    ),
    "file": ("the permissions of the folder", ()),
}
"""By scheme: the variables or rights that give access, and the variables that name another server."""

_REFUSAL = re.compile(r"status code: (401|403)\b")
_LOCAL_ERROR = re.compile(r"\(os error (\d+)\)")
_RETRIES: dict[str, Any] = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
_OPTIONS: dict[str, Any] = {"connect_timeout": "5s", "timeout": "60s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Facts about an object."""

    name: str  # Name in the bucket.
    size_bytes: int  # Length.
    changed_at: datetime  # Time of its last write.


class Bucket:
    """Objects below an address; all methods block and raise `OSError`, whose text contains no credentials."""

    def __init__(self, url: str) -> None:
        """Open the bucket of an address, without a request to a server.

        Raises:
            errors.ConfigurationError: `blobs_unusable`, the extra is missing or the address cannot be used.
        """
        try:
            import obstore
            from obstore import store
        except ImportError as error:
            message = f"object storage needs a library that is not installed: {INSTALL}"
            raise errors.ConfigurationError(message, code="blobs_unusable") from error
        self.shown = url
        """Address for messages; it contains no secret."""
        self._calls = obstore
        self._scheme = url.partition(":")[0]
        self._root = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
        try:
            if self._root is not None:
                # Only the folder itself is made; a missing parent is an error of the address.
                self._root.mkdir(mode=0o700, exist_ok=True)
                self._store: ObjectStore = store.LocalStore(self._root)
            else:
                options = {**_OPTIONS, "allow_http": self._is_insecure(os.environ)}
                open_url: Any = store.from_url
                self._store = open_url(url, client_options=options, retry_config=_RETRIES)
        except OSError as error:
            raise self.unusable(error) from error
        except Exception as error:
            # The library of each provider has its own errors, whose texts can quote the credentials.
            message = f"{url} cannot be used: {type(error).__name__}; check {self._access}"
            raise errors.ConfigurationError(message, code="blobs_unusable") from error

    def unusable(self, error: OSError) -> errors.ConfigurationError:
        """Return the error for a bucket that cannot be used at the start."""
        passing = error.errno in (errno.EIO, errno.ETIMEDOUT)
        reason = error.strerror or os.strerror(error.errno or errno.EIO)
        if error.errno == errno.ENOENT and self._root is None:
            reason = "there is no such bucket"
        message = f"blobs cannot be kept in {self.shown}, which CONTROL_ROOM_BLOBS_URL names: {reason}"
        return errors.ConfigurationError(message, code="blobs_away" if passing else "blobs_unusable")

    def put(self, name: str, content: bytes) -> None:
        """Write an object durably."""
        with self._faults_of(name):
            self._calls.put(self._store, name, content, use_multipart=False)
        if self._root is not None:
            self._sync(self._root / name)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless its name exists; return whether it was written."""
        from obstore import exceptions

        try:
            with self._faults_of(name, exceptions.AlreadyExistsError):
                # One request, since a reader must never find half of the content.
                self._calls.put(self._store, name, content, use_multipart=False, mode="create")
        except exceptions.AlreadyExistsError:
            return False
        if self._root is not None:
            self._sync(self._root / name)
        return True

    def get(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        """Return an object's content, or a part of it.

        Raises:
            FileNotFoundError: the object does not exist.
        """
        with self._faults_of(name):
            if begin == 0 and end is None:
                return bytes(self._calls.get(self._store, name).bytes())
        # The size is read first: servers answer a range beyond the end in different ways.
        size = self.head(name).size_bytes
        end = size if end is None else min(end, size)
        if begin >= end:
            return b""
        with self._faults_of(name):
            return bytes(self._calls.get_range(self._store, name, start=begin, end=end))

    def head(self, name: str) -> Found:
        """Return the facts about an object.

        Raises:
            FileNotFoundError: the object does not exist.
        """
        with self._faults_of(name):
            return _found(self._calls.head(self._store, name))

    def has(self, name: str) -> bool:
        """Return whether an object exists."""
        try:
            self.head(name)
        except FileNotFoundError:
            return False
        return True

    def all(self, prefix: str) -> Iterator[Found]:
        """Yield the objects below a path; the path consists of whole parts of names."""
        with self._faults_of(prefix):
            for chunk in self._calls.list(self._store, prefix):
                yield from map(_found, chunk)

    def remove(self, names: list[str]) -> None:
        """Remove objects; missing ones are skipped."""
        # S3 removes many with one request; the other providers stop at the first missing one.
        for some in filter(None, [names]) if self._scheme == "s3" else [[name] for name in names]:
            with suppress(FileNotFoundError), self._faults_of(some[0]):
                self._calls.delete(self._store, some)

    @property
    def _access(self) -> str:
        return _PROVIDERS[self._scheme][0]

    def _is_insecure(self, environ: Mapping[str, str]) -> bool:
        return any(environ.get(name, "").startswith("http:") for name in _PROVIDERS[self._scheme][1])

    def _sync(self, path: Path) -> None:
        # The library leaves to the system when a file and its name reach the disk.
        assert self._root is not None
        for place in (path, *path.parents):
            os_disk.sync(place)
            if place == self._root:
                return

    @contextmanager
    def _faults_of(self, name: str, *meant: type[BaseException]) -> Iterator[None]:
        from obstore import exceptions

        try:
            yield
        except meant:
            raise
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError):
            raise self._refused(name) from None
        except (exceptions.BaseError, OSError) as error:
            raise self._failed(name, error) from None

    def _refused(self, name: str) -> OSError:
        return OSError(errno.EACCES, f"{self.shown} refuses access; check {self._access}", name)

    def _failed(self, name: str, error: BaseException) -> OSError:
        # The library's own text can quote addresses and headers, so it is not passed on.
        if self._root is None and _REFUSAL.search(str(error)):
            return self._refused(name)
        local = _LOCAL_ERROR.search(str(error)) if self._root is not None else None
        if local is not None:
            number = int(local[1])
            return OSError(number, os.strerror(number), name)
        return OSError(errno.EIO, f"{self.shown} does not answer as it should ({type(error).__name__})", name)


def _found(meta: Any) -> Found:
    return Found(name=meta["path"], size_bytes=meta["size"], changed_at=meta["last_modified"])
