"""API keys: names of callers, their roles and scopes, and the hashes of their secrets."""

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

RECIPE_PATTERN = r"[^\x00-\x1f]{1,200}"  # Form of the id of a recipe that a key can be limited to.
LABEL_PATTERN = r"[A-Za-z0-9_./-]{1,64}:[^\x00-\x1f]{1,200}"  # Form of a label that a key can be limited to.
MOST_KEYS = 1000  # Most keys in a data directory.
MOST_NAMED = 100  # Most recipes, and most labels, that a key can be limited to.
PREFIX = "crk_"  # Beginning of every secret, so that a leaked one is recognised.


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A valid secret, as its hash."""

    sha256: str  # Bare hash of the secret; with 256 random bits, no slower hash is needed.
    until: str | None = None  # When a rotation invalidates it; None: no rotation does.


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key."""

    name: str  # Name of its holder, and author of the orders given with it.
    role: Role  # Role of the holder.
    scope: Scope = access.EVERYTHING  # Runs to which it is limited.
    created_at: str  # When it was added.
    expires_at: str | None = None  # When it becomes invalid; None: never.
    secrets: tuple[Secret, ...] = ()  # Its secrets, the newest first.

    def is_expired(self, now: datetime) -> bool:
        """Return whether the key has expired."""
        return self.expires_at is not None and clock.instant(self.expires_at) <= now

    def administers(self, now: datetime) -> bool:
        """Return whether its holder can manage keys."""
        return self.role is Role.ADMIN and not self.scope.is_limited and not self.is_expired(now)

    def caller(self, sha256: str) -> access.Caller:
        """Return the caller who uses the secret with a hash."""
        author = Author(name=self.name, claimed=False, via="key")
        limits = self.scope if self.scope.is_limited else None
        return access.Caller(author=author, role=self.role, limits=limits, sha256=sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShown(shapes.Shape):
    """A key, without its secret."""

    name: str  # Name of its holder, and author of the orders given with it.
    role: Role  # Role of the holder; each role includes those before it.
    recipes: tuple[str, ...]  # Recipes to whose runs it is limited; empty: all.
    labels: tuple[str, ...]
    """Labels, as `name:value`, to which it is limited: for each name one of the values; empty: all runs."""
    created_at: shapes.Instant  # When it was added.
    expires_at: shapes.Instant | None  # When it becomes invalid; null: never.
    rotates_until: shapes.Instant | None
    """Until when the secret before the last rotation is valid; null: it is not valid."""

    @classmethod
    def of(cls, key: Key) -> KeyShown:
        """Return a key in the form of lists."""
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
        """Return None: there are no keys."""

    def caller(self, sha256: str) -> access.Caller | None:
        """Return None: there are no keys."""


NONE = NoKeys()  # No keys.


def hashed(secret: str) -> str:
    """Return the hash by which a secret is identified."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def labels(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the labels in texts of the form `name:value`, each once."""
    return tuple((name, value) for name, _, value in (text.partition(":") for text in dict.fromkeys(texts)))
