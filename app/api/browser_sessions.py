"""Browser sessions: a signed cookie that, together with a header, replaces the token."""

# A browser sends a cookie to every port of a host, even to a development server that an agent has started. So the
# cookie alone opens nothing: its hash of a second secret must match a header, which only a page of this origin can know
# and send.

from __future__ import annotations

import base64
import datetime as dt
import hmac
import json

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from app import clock
from app.api import callers
from app.domain import access, authors, plain

LIFE = dt.timedelta(hours=12)  # Time for which a sign-in is valid.
HEADER = "x-control-room-session"  # Header with the second secret.

_PURPOSE = b"control-room browser session 1"


class BrowserSessions:
    """Issues and checks sign-ins with the token or a key; they end with a change of the token or with their key.

    With a token, sign-ins survive a restart; without one, they are signed with a secret of the process and end with it.
    """

    def __init__(self, credentials: callers.Credentials, time: clock.Clock, ids: clock.Ids) -> None:
        self.credentials = credentials
        """Token and keys that a person can sign in with."""
        secret = credentials.token or ids.token("", 48).encode()
        self._key = hmac.digest(secret, _PURPOSE, "sha256")
        self._clock = time
        self._ids = ids

    def issue(self, name: str, sha256: str | None = None) -> tuple[str, str, str]:
        """Return the cookie's value, the header's value and the instant of expiry of a new sign-in.

        Args:
            name: Name of the person.
            sha256: Hash of the secret of the person's key; None: the token.
        """
        now, header = self._clock.now(), self._ids.token("bs_", 32)
        key = None if sha256 is None else self.credentials.ring.find(sha256)
        expires = min(clock.stamp(now + LIFE), (key and key.expires_at) or "9999")
        content = {
            "name": name,
            "key": sha256,
            "issued": clock.stamp(now),
            "expires": expires,
            "header": plain.sha256(header.encode()),
        }
        payload = base64.urlsafe_b64encode(plain.encode(content)).decode().rstrip("=")
        return f"{payload}.{self._signature(payload)}", header, expires

    def caller(self, scope: Scope) -> access.Caller | None:
        """Return the caller with the sign-in of a request; None if the request has no valid one."""
        sign_in = self.find(scope)
        return None if sign_in is None else self._signed_in(sign_in)

    def find(self, scope: Scope) -> dict[str, str] | None:
        """Return the sign-in of a request, `{name, key, issued, expires, header}`; None if it has no valid one."""
        headers = Headers(scope=scope)
        # Cookies of other ports come along, in forms that the parser of the standard library stops at.
        value = cookie_parser("; ".join(headers.getlist("cookie"))).get(cookie_name(scope), "")
        header = headers.get(HEADER, "")
        payload, _, signature = value.partition(".")
        # The signature is checked before the content, so that no content from a stranger is decoded.
        if not hmac.compare_digest(signature.encode(), self._signature(payload).encode()):
            return None
        # Only content that `issue` has encoded has a valid signature.
        content: dict[str, str] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if clock.instant(content["expires"]) <= self._clock.now():
            return None
        if not hmac.compare_digest(plain.sha256(header.encode()), content["header"]):
            return None
        # Sign-ins of the previous release name no key.
        return content if self._signed_in(content) is not None else None

    def _signed_in(self, content: dict[str, str]) -> access.Caller | None:
        if content.get("key"):
            return self.credentials.holder(content["key"])
        author = authors.Author(name=content["name"] or None, claimed=False, via="browser")
        return access.Caller(author=author) if self.credentials.token is not None else None

    def _signature(self, payload: str) -> str:
        digest = hmac.digest(self._key, payload.encode("utf-8", "replace"), "sha256")
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def cookie_name(scope: Scope) -> str:
    """Return the cookie's name, which contains the port, so that services on one host do not sign one another out.

    This is the port that the browser knows: containers all serve the same port, each published as another.
    """
    port = Headers(scope=scope).get("host", "").rpartition(":")[2]
    return f"control-room-{port}" if port.isdecimal() and port.isascii() else "control-room"
