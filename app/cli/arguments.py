"""Arguments of command lines: `k=v`, `k:=JSON`, files of them, and the run that started the command."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from app import errors, settings

if TYPE_CHECKING:
    from app.cli.options import Place
    from app.engine import stores

C = TypeVar("C", bound=Callable[..., Any])

STATES = ("pending", "running", "waiting", "paused", "done", "failed", "cancelled")  # States of a run.

MAX_BYTES = 4 * 1024 * 1024
"""Largest file that is read: a text of the project has at most a quarter as many characters."""

_SIGN = re.compile("[:=]")
_UNITS = (86_400, 3_600, 60, 1)
_PARTS = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s?)?")


def collect(given: Iterable[str], file: Path | None, option: str = "--arg") -> dict[str, Any]:
    """Return the arguments of a run; those on the command line override those of the file.

    Args:
        option: Option of the command line that has them.

    Raises:
        errors.ArgsInvalid: with every argument that cannot be read.
    """
    args = {} if file is None else read_file(file)
    return args | _pairs(given, _argument, option)


def texts(given: Iterable[str], file: Path | None, option: str) -> dict[str, Any]:
    """Return values that are always texts; those on the command line override those of the file.

    Raises:
        errors.ArgsInvalid: with every value that cannot be read.
    """
    values = {} if file is None else read_file(file)
    return values | _pairs(given, _pair, option)


def labels(given: Iterable[str], option: str = "--label") -> dict[str, str]:
    """Return the labels of a run, written as `NAME=TEXT` or `NAME:TEXT`.

    Args:
        option: Option or argument of the command line that has them.

    Raises:
        errors.ArgsInvalid: with every label that cannot be read.
    """
    return _pairs(given, _label, option)


def label(given: str) -> str:
    """Return one label in the form of the REST interface, `name:value`.

    Raises:
        errors.ArgsInvalid: it cannot be read.
    """
    return ":".join(next(iter(labels([given]).items())))


def shown_label(label: str) -> str:
    """Return a label in the form of the command line, `NAME=TEXT`."""
    return label.replace(":", "=", 1)


def label_changes(given: Iterable[str]) -> dict[str, str | None]:
    """Return changes of labels: `NAME=TEXT` sets one, `NAME-` removes it.

    Raises:
        errors.ArgsInvalid: naming every one that cannot be read.
    """
    words = list(given)
    gone = [word for word in words if not _SIGN.search(word) and word.endswith("-")]
    kept = labels((word for word in words if word not in gone), "NAME=TEXT|NAME-")
    return {**kept, **{word[:-1]: None for word in gone}}


def read_file(path: Path) -> dict[str, Any]:
    """Read a file with a JSON object.

    Raises:
        errors.InputRefused: it cannot be read, or contains no JSON object; with every flaw found.
    """
    text = read_text(path)
    try:
        value = _json(text)
    except errors.InputRefused as error:
        raise errors.ArgsInvalid(f"{path} cannot be read.", flaws=error.flaws) from error
    if not isinstance(value, dict):
        raise errors.ArgsInvalid(f"{path} is not a JSON object.")
    return value


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        errors.InputRefused: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            # One byte more than allowed detects a file that is too large without reading all of it.
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    if len(content) > MAX_BYTES:
        raise errors.TooLarge(f"{path} has more than {MAX_BYTES} bytes")
    return content


def read_text(path: Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        errors.InputRefused: it cannot be read, is too large, or is not text.
    """
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"byte {error.start} is not UTF-8") from error


def parent_run_id() -> str | None:
    """Return the run that started this process; None outside of runs."""
    return os.environ.get(settings.RUN_ID) or None


def runs_above() -> int | None:
    """Return how many runs are above a run that this process starts, from the environment.

    Raises:
        errors.ConfigurationError: it is not a number.
    """
    depth = os.environ.get(settings.DEPTH)
    if not depth:
        return None
    if not depth.isascii() or not depth.isdigit():
        raise errors.ConfigurationError(f"{settings.DEPTH}={depth!r:.80} is not a number", code="settings_invalid")
    return int(depth) + 1


def _pairs(given: Iterable[str], read: Callable[[str], tuple[str, Any]], option: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    flaws = []
    for text in given:
        try:
            name, value = read(text)
        except ValueError as error:
            flaws.append(errors.Flaw(path=option, message=f"{text!r:.80}: {error}"))
            continue
        if name in pairs:
            flaws.append(errors.Flaw(path=option, code="repeated", message=f"{name!r:.80} is given twice"))
        pairs[name] = value
    if flaws:
        raise errors.ArgsInvalid(f"{option} cannot be read.", flaws=flaws)
    return pairs


def _argument(text: str) -> tuple[str, Any]:
    name, value = _pair(text)
    if not name.endswith(":"):
        return name, value
    if len(name) == 1:
        raise ValueError("the name is missing")
    try:
        return name[:-1], _json(value)
    except errors.InputRefused as error:
        flaw = error.flaws[0]
        what = flaw.message if flaw.path == "$" else f"{flaw.path} {flaw.message}"
        raise ValueError(f"{what}; write = instead of := for a text") from error


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError("expected NAME=VALUE")
    if not name:
        raise ValueError("the name is missing")
    return name, value


def _label(text: str) -> tuple[str, str]:
    # The first sign separates: the name of a label contains neither sign.
    return _pair(_SIGN.sub("=", text, count=1))


def _json(text: str) -> Any:
    from app.domain import json_text

    return json_text.read(text, exact=True)


def _unreadable(path: Path, reason: str) -> errors.RequestInvalid:
    return errors.RequestInvalid(f"{path} cannot be read: {reason}", code="file_unreadable")


_BY_PLACE = (
    click.option("--recipe", "recipe_id", metavar="ID", help="Only runs of this recipe."),
    click.option("--label", metavar="NAME=TEXT", help="Only runs with this label."),
    click.option("--session", "session_id", metavar="ID", help="Only runs of this work session or session plan."),
    click.option(
        "--created-after", metavar="INSTANT", help="Only runs created at or after this time, e.g. 2026-02-10T14:30:00Z."
    ),
    click.option("--created-before", metavar="INSTANT", help="Only runs created before this time."),
)
_BY_STATE = (
    click.option("--started-by", metavar="NAME", help="Only runs started by this author, as shown in the list."),
    click.option("--status", type=click.Choice(STATES), multiple=True, help="Only runs in this state; repeatable."),
    click.option(
        "--search",
        "q",
        metavar="TEXT",
        help="Only runs that contain this text in the id, task, recipe, a label or the session.",
    ),
)


def by_place(command: C) -> C:
    """Give a command the options of `run_query`, except those for states and texts."""
    return functools.reduce(lambda made, option: option(made), reversed(_BY_PLACE), command)


by_priority = click.option(
    "--priority",
    type=click.IntRange(-100, 100),
    default=0,
    show_default=True,
    help="Priority; higher values start first.",
)
"""Option of a command that starts runs."""


def by_state(command: C) -> C:
    """Give a command all options of `run_query`."""
    return functools.reduce(lambda made, option: option(made), reversed(_BY_STATE), by_place(command))


def run_query(label: str | None = None, **filters: Any) -> stores.RunQuery:
    """Return the query for runs that the options describe.

    Raises:
        errors.RequestInvalid: an instant or a label is not one.
    """
    from app.engine import stores

    filters |= instants(filters, "created_after", "created_before")
    pair = next(iter(labels([label]).items())) if label else None
    return stores.RunQuery(label=pair, **{name: value for name, value in filters.items() if value not in (None, ())})


def instants(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the instants among options, in the stored form.

    Raises:
        errors.RequestInvalid: one is not an instant.
    """
    from app import clock

    found = {}
    for name in names:
        try:
            found[name] = given.get(name) and clock.stamp(clock.instant(given[name]))
        except ValueError as error:
            raise errors.RequestInvalid(f"--{name.replace('_', '-')}: {error}") from error
    return found


def repeatable(shown: str) -> Callable[[C], C]:
    """Give a command the option `--idempotency-key`.

    Args:
        shown: Its help text.
    """
    return click.option("--idempotency-key", type=_idempotency_key, metavar="KEY", help=shown)


def _idempotency_key(text: str) -> str:
    from app.services import requests

    if not re.fullmatch(requests.IDEMPOTENCY_KEY_PATTERN, text):
        raise click.BadParameter("must be 1 to 255 printable characters of ASCII, without spaces around them")
    try:
        return requests.clients_key(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def duration(text: str) -> int:
    """Return the seconds of an option that takes a duration; the type of such options.

    Raises:
        click.BadParameter: the text is not a duration.
    """
    parts = _PARTS.fullmatch(text) if text else None
    if parts is None:
        raise click.BadParameter(f"{text!r:.80} is not a duration; write it as 90s, 30m, 2h, 1h30m or 1d")
    return sum(int(count or 0) * seconds for count, seconds in zip(parts.groups(), _UNITS, strict=True))


def point_out_recipes(place: Place, names: Iterable[str | None]) -> None:
    """Warn of names without a recipe at present, in an order for later runs.

    The order has been accepted, because the recipe may be added later. But a budget or policy with a misspelt name
    would apply to no run, and its author would not notice.
    """
    given = {name for name in names if name}
    if not given:
        return
    from app.cli import formats, terminal, use_cases
    from app.domain import policies
    from app.flows import registry

    wanted = given - {policies.ANY, *registry.RECIPE_IDS}
    # If keys exist, a command without one may not list recipes.
    with contextlib.suppress(errors.ControlRoomError):
        known = [each["recipe_id"] for each in place.ask(use_cases.list_recipes)]
        for name in sorted(wanted.difference(known)):
            terminal.warn(f"warning: there is no recipe {name!r:.80} now{formats.nearest(name, known)}")
