"""API keys: names of callers, what they may do, and the hashes of their secrets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from app import clock
from app.domain import access, shapes
from app.domain.access import Role, Scope
from app.domain.authors import Author

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"  # Form of a key's name.
NAME_FORM = "must be 1 to 64 letters, digits, '.', '_', '@', '+' and '-', and begin with a letter or digit"

RECIPE_PATTERN = r"[^\x00-\x1f]{1,200}"  # Form of the id of a recipe that a key is limited to.
LABEL_PATTERN = r"[^\x00-\x1f:]{1,200}:[^\x00-\x1f]{1,200}"  # Form of a label that a key is limited to.
MOST_KEYS = 1000  # Most keys of a data directory.
MOST_NAMED = 100  # Most recipes, and most labels, that a key can be limited to.
PREFIX = "crk_"  # Beginning of every secret, so that one that leaks is recognised.


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret that opens, as its hash."""

    sha256: str  # Bare hash of the secret; 256 bits of chance need no slower one.
    until: str | None = None  # When it stops to count after a rotation; None: it does not by itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key."""

    name: str  # Name of its holder, and author of the orders given with it.
    role: Role  # What it may do.
    scope: Scope = access.EVERYTHING  # Runs that it is limited to.
    created_at: str  # When it was added.
    expires_at: str | None = None  # When it stops to count; None: never.
    secrets: tuple[Secret, ...] = ()  # Its secrets, the newest first.

    def is_expired(self, now: datetime) -> bool:
        """Return whether it has come to its end."""
        return self.expires_at is not None and clock.instant(self.expires_at) <= now

    def administers(self, now: datetime) -> bool:
        """Return whether its holder can manage keys."""
        return self.role is Role.ADMIN and not self.scope.is_limited and not self.is_expired(now)

    def caller(self, sha256: str) -> access.Caller:
        """Return who asks with the secret of a hash."""
        author = Author(name=self.name, claimed=False, via="key")
        limits = self.scope if self.scope.is_limited else None
        return access.Caller(author=author, role=self.role, limits=limits, sha256=sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShown(shapes.Shape):
    """A key, without its secret."""

    name: str  # Name of its holder, and author of the orders given with it.
    role: Role  # What it may do; each role includes those before it.
    recipes: tuple[str, ...]  # Recipes whose runs it is limited to; none: all.
    labels: tuple[str, ...]
    """Labels, as `name:value`, that it is limited to: of each name one of the values; none: all runs."""
    created_at: shapes.Instant  # When it was added.
    expires_at: shapes.Instant | None  # When it stops to count; null: never.
    rotates_until: shapes.Instant | None
    """Until when the secret before the last rotation counts; null: it does not."""

    @classmethod
    def of(cls, key: Key) -> KeyShown:
        """Return a key as it is listed."""
        return cls(
            name=key.name,
            role=key.role,
            recipes=key.scope.recipes,
            labels=tuple(":".join(pair) for pair in key.scope.labels),
            created_at=key.created_at,
            expires_at=key.expires_at,
            rotates_until=next((secret.until for secret in key.secrets[1:]), None),
        )


class NoKeys:
    """The keys of a service that has none."""

    is_locked = False

    def find(self, sha256: str) -> Key | None:
        """Return no key."""

    def caller(self, sha256: str) -> access.Caller | None:
        """Return no caller."""


NONE = NoKeys()  # No keys.


def hashed(secret: str) -> str:
    """Return the hash by which a secret is known."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def labels(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return labels written as `name:value`."""
    return tuple((name, value) for name, _, value in (text.partition(":") for text in texts))
