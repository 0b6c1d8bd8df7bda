"""Environment values: reads the texts of environment variables, and a token from its file."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from app import errors, setting_values

MAIL_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}")  # An address of e-mail.

_HOST = re.compile(r"[\w.:-]+|\[[0-9A-Fa-f:.]+\](:[0-9]+)?", re.ASCII)
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@*\s]+/*|null")
_TOKEN_BYTES = 4096
# An address, or a name and an address; a name with a special character is quoted.
_SENDER = re.compile(rf"""{MAIL_ADDRESS.pattern}|([^"<>,@;:()\[\]\\]*|"[^"\\]*" *)<{MAIL_ADDRESS.pattern}>""")


def _boolean(text: str) -> bool:
    return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(_folder(part) for part in text.split(os.pathsep) if part)


def _folder(text: str) -> Path:
    # The launcher of programs has another current folder, where a relative path would lead elsewhere.
    return Path(text).absolute()


READERS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "str": (str, "text"),
    "str | None": (str, "text"),
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "bool": (_boolean, "true or false"),
    "Path": (_folder, "a path"),
    "Path | None": (Path, "a path"),
    "tuple[str, ...]": (_names, "names separated by commas"),
    "tuple[Path, ...]": (_paths, "paths separated as in PATH"),
}
"""By the type of a setting: the function that reads its text, and the form that the text must have.

For a text of another form, the function raises a KeyError or ValueError.
"""


def token_in(file: Path) -> str:
    """Return the token in a file, without surrounding white space.

    Raises:
        errors.ConfigurationError: the file cannot be read, or does not contain a token.
    """
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise ValueError
        content = file.read_bytes()[: _TOKEN_BYTES + 1]
        token = content.decode("ascii").strip() if len(content) <= _TOKEN_BYTES else ""
        reason = "" if token else "it is empty or too large"
    except (OSError, ValueError) as error:
        token, reason = "", getattr(error, "strerror", None) or "it is not a regular file of ASCII characters"
    if not token:
        raise errors.ConfigurationError(f"no token can be read from {file}: {reason}", code="token_unreadable")
    return token


def is_shared(file: Path) -> bool:
    """Return whether other users of the machine can read a file."""
    try:
        return bool(file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def is_text(path: str) -> bool:
    """Return whether a path can be encoded as UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def flaw_of_folder(path: Path) -> str:
    """Return why a path is not a folder; empty if it is one."""
    if os.path.isdir(path):
        return ""
    return f"{path} is not a folder" if os.path.lexists(path) else f"{path} does not exist"


def remarks_on_site(hosts: Iterable[str], origins: Iterable[str]) -> list[setting_values.Remark]:
    """Return warnings about values of `ALLOWED_HOSTS` and `ALLOWED_ORIGINS` that no request can have."""
    flaws = [("HOSTS", each, "a name like runs.example.org") for each in hosts if not _HOST.fullmatch(each)]
    flaws += [
        ("ORIGINS", each, "an origin like https://example.org") for each in origins if not _ORIGIN.fullmatch(each)
    ]
    return [
        setting_values.Remark(
            setting=f"CONTROL_ROOM_ALLOWED_{name}",
            message=f"{given!r:.200} allows nothing: it is not {form}",
            fatal=False,
        )
        for name, given, form in flaws
    ]


def flaws_of_notifications(allowed: Iterable[str], smtp_url: str | None, sender: str | None) -> list[tuple[str, str]]:
    """Return the flaws of `NOTIFY_ALLOWED`, `SMTP_URL` and `MAIL_FROM`, each after the setting's name."""
    found = [("NOTIFY_ALLOWED", flaw) for each in allowed if (flaw := _flaw_of_host(each))]
    mail = (("SMTP_URL", _flaw_of_mail_server(smtp_url)), ("MAIL_FROM", _flaw_of_sender(sender)))
    return [*found, *((name, flaw) for name, flaw in mail if flaw)]


def _flaw_of_host(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        labels = text.removesuffix(".").split(".")
        is_name = all(label.replace("-", "").replace("_", "").isalnum() for label in labels)
        # A last part of digits alone makes an address, and this one is none.
        if not is_name or labels[-1].isdecimal():
            return f"{text!r:.200} is not a host name, an address or a network like 10.0.0.0/8"
    return ""


def _flaw_of_mail_server(url: str | None) -> str:
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("smtp", "smtps") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    # The address is not repeated: it may hold a password.
    return "" if is_one else "must be an address like smtp://USER:PASSWORD@HOST:PORT or smtps://HOST"


def _flaw_of_sender(text: str | None) -> str:
    if not text or (text.isprintable() and _SENDER.fullmatch(text)):
        return ""
    return f"{text!r:.200} is not one address like room@example.org or Control Room <room@example.org>"


def flaw_of_bucket(url: str) -> str | None:
    """Return the flaw of an address of object storage, without repeating the address; None if there is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "is not an address"
    local = parts.scheme == "file"
    if parts.scheme not in ("s3", "gs", "az", "file") or bool(parts.netloc) is local:
        return "must be an address like s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///FOLDER"
    if "@" in parts.netloc or parts.query or parts.fragment:
        return "must not hold credentials or options; set the variables of its provider, e.g. AWS_SECRET_ACCESS_KEY"
    if local and not parts.path.strip("/"):
        return "must name a folder"
    return None
