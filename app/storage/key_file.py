"""The form of keys.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from app import clock, errors
from app.domain import keys
from app.domain.access import Role, Scope


def _instant(text: object) -> str:
    return clock.stamp(clock.instant(str(text)))


_Instant = Annotated[str, BeforeValidator(_instant)]
_Names = Annotated[list[Annotated[str, Field(min_length=1, max_length=400)]], Field(max_length=keys.MOST_NAMED)]
_STRICT = ConfigDict(extra="forbid")


class _Secret(BaseModel):
    model_config = _STRICT
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    until: _Instant | None = None


class _Key(BaseModel):
    model_config = _STRICT
    name: Annotated[str, Field(pattern=keys.NAME_PATTERN)]
    role: Role
    recipes: _Names = []
    labels: _Names = []
    created_at: _Instant
    expires_at: _Instant | None = None
    secrets: Annotated[list[_Secret], Field(min_length=1, max_length=2)]

    def key(self) -> keys.Key:
        return keys.Key(
            name=self.name,
            role=self.role,
            scope=Scope(recipes=tuple(self.recipes), labels=keys.labels(self.labels)),
            created_at=self.created_at,
            expires_at=self.expires_at,
            secrets=tuple(keys.Secret(sha256=secret.sha256, until=secret.until) for secret in self.secrets),
        )


class _File(BaseModel):
    model_config = _STRICT
    version: Literal[1]
    keys: Annotated[list[_Key], Field(max_length=keys.MOST_KEYS)]


def parsed(content: bytes) -> list[keys.Key]:
    """Return the keys of a file.

    Raises:
        errors.ConfigurationError: `keys_invalid`, with the place of the error.
    """
    try:
        return [each.key() for each in _File.model_validate_json(content).keys]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise errors.ConfigurationError(f"${place}: {first['msg']}", code="keys_invalid") from error
