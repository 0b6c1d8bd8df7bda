"""Requests for endpoints of notifications, checked before any effect."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import urlsplit

from app import environment_values, errors, printable
from app.domain import notifications, plain
from app.services.triggers import pointers

NAME_CHARACTERS = 100  # Longest name of an endpoint.
MOST_WORDS = 50  # Most e-mail addresses, and most arguments of a command.


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEndpoint:
    """A requested endpoint; it has one of `url`, `to` and `argv`."""

    name: str | None = None  # Name for people; None: its receiver.
    url: str | None = None  # Address of a webhook.
    signing_secret: str | None = None  # Secret of the signatures; None: the service makes one.
    to: tuple[str, ...] = ()  # E-mail addresses.
    argv: tuple[str, ...] = ()  # Program and arguments of a command.
    kinds: tuple[str, ...] = ()  # Kinds of messages to send; empty: all.
    recipe_id: str | None = None  # Only messages about runs of this recipe.
    label: str | None = None  # Only messages about runs with this label, `name:value`.
    idempotency_key: str | None = None  # Key by which a repeated request finds the same endpoint.

    def sha256(self) -> str:
        """Return the hash that distinguishes a repetition from another request with the same key."""
        asked = dataclasses.asdict(self) | {"idempotency_key": None}
        return plain.sha256(plain.canonical(plain.plain(asked)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEdit:
    """Changes to an endpoint, by the names of `NewEndpoint`; omitted fields are unchanged."""

    changes: Mapping[str, Any]  # The fields; `signing_secret` None: the service makes one.


def edited(endpoint: notifications.Endpoint, edit: EndpointEdit, secret: str) -> notifications.Endpoint:
    """Return a changed endpoint, still of the same kind: a webhook, e-mail addresses or a program.

    Args:
        secret: Secret of signatures, if the edit requests a new one without giving it.

    Raises:
        errors.RequestInvalid: names every flaw.
    """
    kept: dict[str, Any] = {each.name: getattr(endpoint, each.name, None) for each in dataclasses.fields(NewEndpoint)}
    # A name that no person gave need not have the form of one.
    kept["name"] = None
    lists = {name: tuple(edit.changes[name] or ()) for name in ("to", "argv", "kinds") if name in edit.changes}
    changes = {**edit.changes, **lists}
    if endpoint.channel == "webhook" and "signing_secret" in changes:
        changes["signing_secret"] = changes["signing_secret"] or secret
    found = list(_flaws(NewEndpoint(**kept | changes), endpoint.signing_secret))
    own = {"webhook": "url", "email": "to", "command": "argv"}
    others = [name for channel, name in own.items() if changes.get(name) and channel != endpoint.channel]
    # Reported instead of all others, which follow from it.
    if others:
        found = [_flaw(f".{others[0]}", f"the endpoint is reached by {endpoint.channel}; add another one instead")]
    if endpoint.channel != "webhook" and "signing_secret" in changes:
        found = [_flaw(".signing_secret", f"only webhooks are signed; the endpoint is reached by {endpoint.channel}")]
    if not changes:
        found = [_flaw("", "changes nothing", "missing")]
    if found:
        raise errors.RequestInvalid(f"{found[0].path}: {found[0].message}", flaws=found)
    changes["name"] = changes.get("name") or endpoint.name
    if changes.get("url", endpoint.url) != endpoint.url:
        # The new receiver has not requested a wait.
        changes["held_until"] = None
    return dataclasses.replace(endpoint, **changes)


def made(new: NewEndpoint, endpoint_id: str, at: str, secret: str) -> notifications.Endpoint:
    """Return the endpoint for a request.

    Args:
        secret: Secret of signatures, if the request gives none.

    Raises:
        errors.RequestInvalid: names every flaw.
    """
    if found := list(_flaws(new)):
        raise errors.RequestInvalid(f"{found[0].path}: {found[0].message}", flaws=found)
    channel: notifications.Channel = "webhook" if new.url is not None else "email" if new.to else "command"
    names = {"webhook": urlsplit(new.url or "").hostname, "email": ", ".join(new.to), "command": _words(new.argv)}
    return notifications.Endpoint(
        endpoint_id=endpoint_id,
        name=new.name or str(names[channel])[:NAME_CHARACTERS],
        channel=channel,
        url=new.url,
        signing_secret=(new.signing_secret or secret) if channel == "webhook" else None,
        to=new.to,
        argv=new.argv,
        kinds=new.kinds,  # type: ignore[arg-type]
        recipe_id=new.recipe_id,
        label=new.label,
        created_at=at,
        request_sha256=new.sha256() if new.idempotency_key else None,
        since=at,
    )


def _flaws(new: NewEndpoint, kept_secret: str | None = None) -> Iterator[errors.Flaw]:
    if sum(bool(given) for given in (new.url, new.to, new.argv)) != 1:
        yield _flaw("", "needs exactly one of url, to and argv", "missing")
    if new.name is not None and not (0 < len(new.name) <= NAME_CHARACTERS and new.name.isprintable()):
        yield _flaw(".name", f"must be printable and have at most {NAME_CHARACTERS} characters")
    if new.url is not None and (reason := _wrong_url(new.url)):
        yield _flaw(".url", reason)
    secret = new.signing_secret
    # One of an earlier version may be shorter; it stays until an edit brings another.
    if secret is not None and secret != kept_secret and (reason := pointers.weakness(secret, standard=True)):
        yield _flaw(".signing_secret", reason)
    elif secret is not None and new.url is None:
        yield _flaw(".signing_secret", "belongs to url")
    for number, address in enumerate(new.to):
        if not environment_values.MAIL_ADDRESS.fullmatch(address):
            yield _flaw(f".to[{number}]", f"{address!r:.80} is not an address of e-mail")
    for name in ("to", "argv"):
        if len(getattr(new, name)) > MOST_WORDS or any(len(word) > 4000 or "\0" in word for word in getattr(new, name)):
            yield _flaw(f".{name}", f"must have at most {MOST_WORDS} words of at most 4000 characters")
    if new.argv and not new.argv[0].strip():
        yield _flaw(".argv[0]", "must name a program")
    for number, kind in enumerate(new.kinds):
        if kind not in get_args(notifications.Kind):
            yield _flaw(f".kinds[{number}]", f"{kind!r:.80} is not one of {', '.join(get_args(notifications.Kind))}")
    if new.label is not None and ":" not in new.label:
        yield _flaw(".label", "must be NAME:VALUE")


def _wrong_url(text: str) -> str | None:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        return f"{text!r:.80} is not an address: {error}"
    if url.scheme not in ("http", "https") or not url.hostname or not text.isascii() or not text.isprintable():
        return f"{text!r:.80} is not an address; write it as https://hooks.example.org/runs"
    if port == 0:
        return f"{text!r:.80} has the port 0, which no server can have"
    if url.username is not None or url.fragment or len(text) > 2000 or " " in text:
        return "must hold no user, fragment or space, and at most 2000 characters"
    return None


def _words(argv: tuple[str, ...]) -> str:
    return printable.one_line(" ".join(" ".join(argv).split()))


def _flaw(path: str, message: str, code: str = "invalid") -> errors.Flaw:
    return errors.Flaw(path=f"${path}", code=code, message=message)
