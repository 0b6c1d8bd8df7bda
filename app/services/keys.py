"""Keys: add, list, revoke and rotate them; each change is in the audit log."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from app import clock, errors
from app.domain import audit, authors, keys
from app.domain.access import Role, Scope
from app.services import faults

_FILE = "keys.json"
LONGEST_GRACE_SECONDS = 7 * 24 * 3600  # Longest time for which the old secret remains valid after a rotation.


class KeyFile(Protocol):
    """The keys of a data directory."""

    reach: Callable[[str], None]  # Called at each crash point of a write.

    def renew(self) -> None:
        """Make sure that the next read returns the last write of other processes; it blocks."""

    def read(self) -> list[keys.Key]:
        """Return all keys; it blocks."""

    def write(self, found: list[keys.Key]) -> None:
        """Replace all keys durably; it blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A requested key."""

    name: str  # Name of its holder.
    role: Role = Role.VIEWER  # Role of the key.
    recipes: tuple[str, ...] = ()  # Recipes that the key is limited to; empty: all.
    labels: tuple[str, ...] = ()  # Labels, as `name:value`, that the key is limited to.
    expires_at: str | None = None  # When the key expires; None: never.


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyIssued(keys.KeyShown):
    """A key with its secret, which is shown only this once."""

    secret: str  # The secret; keep it, since it cannot be shown again.


class Keys:
    """Manages the keys of a data directory."""

    def __init__(
        self, file: KeyFile, audit_log: audit.AuditLog, time: clock.Clock, ids: clock.Ids, *, has_token: bool = False
    ) -> None:
        self._file = file
        self._has_token = has_token
        self._audit = audit_log
        self._clock = time
        self._ids = ids

    def over(self, file: KeyFile) -> Keys:
        """Return the same use cases for a file that another process opened."""
        file.reach = self._file.reach
        return Keys(file, self._audit, self._clock, self._ids, has_token=self._has_token)

    def list(self) -> list[keys.KeyShown]:
        """Return all keys, by name; it blocks.

        Raises:
            errors.Conflict: `file_damaged`.
            errors.Unavailable: `file_unreadable`.
        """
        return [keys.KeyShown.of(key) for key in sorted(self._read(), key=lambda key: key.name)]

    async def add(self, new: NewKey, author: authors.Author) -> KeyIssued:
        """Add a key and return its secret.

        Raises:
            errors.RequestInvalid: the name, recipes or labels have the wrong form, or the key expires in the past.
            errors.Conflict: `key_exists`, a key has that name; `too_many_keys`; `admin_key_needed`, the key would close
                the service, and no client could manage keys then.
        """
        now = self._clock.now()
        if flaws := list(_flaws(new, now)):
            raise errors.RequestInvalid(f"{flaws[0].path}: {flaws[0].message}", flaws=flaws)
        secret = self._secret()
        key = keys.Key(
            name=new.name,
            role=new.role,
            scope=Scope(recipes=new.recipes, labels=keys.labels(new.labels)),
            created_at=clock.stamp(now),
            expires_at=new.expires_at and clock.stamp(clock.instant(new.expires_at)),
            secrets=(keys.Secret(sha256=keys.hashed(secret)),),
        )

        def added(known: dict[str, keys.Key]) -> dict[str, keys.Key]:
            if new.name in known:
                message = f"there is a key {new.name} already; rotate it, or revoke it first"
                raise errors.Conflict(message, code="key_exists", detail={"name": new.name})
            if len(known) >= keys.MOST_KEYS:
                raise errors.Conflict(
                    f"there are {keys.MOST_KEYS} keys already, which is the limit; revoke one", code="too_many_keys"
                )
            found = {**known, key.name: key}
            # If no key can manage keys, only a person with access to the data directory can change that.
            if not self._remains_managed(found):
                message = (
                    f"{new.name} cannot be the first key: it closes the service, and without CONTROL_ROOM_API_TOKEN"
                    " only an admin's key without limits lets anyone manage keys then; add such a key first:"
                    " control-room keys add NAME --role admin"
                )
                raise errors.Conflict(message, code="admin_key_needed", detail={"name": new.name})
            return found

        return _issued(await self._change("key.added", new.name, author, added), secret)

    async def rotate(self, name: str, author: authors.Author, grace_seconds: int = 0) -> KeyIssued:
        """Give a key a new secret, and return it.

        Args:
            grace_seconds: Time for which the previous secret remains valid.

        Raises:
            errors.NotFound: `key_not_found`.
        """
        secret = self._secret()
        until = clock.stamp(self._clock.now() + timedelta(seconds=grace_seconds)) if grace_seconds else None

        def rotated(known: dict[str, keys.Key]) -> dict[str, keys.Key]:
            key = _named(known, name)
            # Only the newest secret gets a grace period; older ones end now.
            old = (dataclasses.replace(key.secrets[0], until=until),) if until else ()
            fresh = (keys.Secret(sha256=keys.hashed(secret)), *old)
            return {**known, name: dataclasses.replace(key, secrets=fresh)}

        return _issued(await self._change("key.rotated", name, author, rotated), secret)

    async def revoke(self, name: str, author: authors.Author) -> None:
        """Remove a key, which ends its requests, sessions and streams.

        Raises:
            errors.NotFound: `key_not_found`.
            errors.Conflict: `last_admin_key`; without it, and without a token, no client could manage keys.
        """

        def revoked(known: dict[str, keys.Key]) -> dict[str, keys.Key]:
            key = _named(known, name)
            left = {other: key for other, key in known.items() if other != name}
            if key.administers(self._clock.now()) and not self._remains_managed(left):
                message = f"{name} is the last key that can manage keys; add another admin first, or rotate this key"
                raise errors.Conflict(message, code="last_admin_key", detail={"name": name})
            return left

        await self._change("key.revoked", name, author, revoked)

    def _read(self) -> Sequence[keys.Key]:
        with faults.of_file(_FILE):
            return self._file.read()

    def _remains_managed(self, found: dict[str, keys.Key]) -> bool:
        now = self._clock.now()
        return self._has_token or any(key.administers(now) for key in found.values())

    def _secret(self) -> str:
        # Four times 82 bits.
        return self._ids.token(keys.PREFIX, 64)

    async def _change(
        self,
        action: str,
        name: str,
        author: authors.Author,
        change: Callable[[dict[str, keys.Key]], dict[str, keys.Key]],
    ) -> keys.Key | None:
        left: dict[str, keys.Key] = {}

        def check() -> audit.Change:
            # Another process may have changed the file since it was last read.
            self._file.renew()
            left.update(change({key.name: key for key in self._read()}))
            key = left.get(name)
            facts = {} if key is None else keys.KeyShown.of(key).to_json()
            return audit.Change(
                action=action,
                target=name,
                make=lambda: self._file.write(list(left.values())),
                details={each: value for each, value in facts.items() if value not in (None, [], name)},
            )

        with faults.as_errors():
            await self._audit.change(author, check)
        return left.get(name)


def _flaws(new: NewKey, now: datetime) -> Iterator[errors.Flaw]:
    if not re.fullmatch(keys.NAME_PATTERN, new.name):
        yield errors.Flaw(path="$.name", message=keys.NAME_FORM)
    if new.expires_at is not None and clock.instant(new.expires_at) <= now:
        yield errors.Flaw(path="$.expires_at", message="is in the past")
    for name, pattern in (("recipes", keys.RECIPE_PATTERN), ("labels", keys.LABEL_PATTERN)):
        given: tuple[str, ...] = getattr(new, name)
        if len(given) > keys.MOST_NAMED:
            yield errors.Flaw(path=f"$.{name}", message=f"has more than {keys.MOST_NAMED} items")
        for number, text in enumerate(given[: keys.MOST_NAMED]):
            if not re.fullmatch(pattern, text):
                message = "must be the id of a recipe" if name == "recipes" else "must be `name:value`"
                yield errors.Flaw(path=f"$.{name}[{number}]", message=message)


def _issued(key: keys.Key | None, secret: str) -> KeyIssued:
    assert key is not None
    shown = keys.KeyShown.of(key)
    return KeyIssued(**{name: getattr(shown, name) for name in keys.KeyShown.__slots__}, secret=secret)


def _named(known: dict[str, keys.Key], name: str) -> keys.Key:
    if name not in known:
        raise errors.NotFound(f"there is no key {name!r:.80}", code="key_not_found")
    return known[name]
