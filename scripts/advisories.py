"""Ask whether advisories are known for the packages that the locks pin.

    python3 scripts/advisories.py

The exit code is 1 only if there are some. If the script reaches no source of advisories, it reports so and passes.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-scale.lock", "requirements-local.lock", "requirements-dev.lock")

SOURCE = "https://api.osv.dev/v1/querybatch"
"""Database of advisories for packages of all registries, with a documented interface and without a key."""

SECONDS = 30
"""Longest time for the whole request, with the lookup of the source's name."""

MOST_BYTES = 16 * 2**20
"""Longest answer that is read."""

AT_ONCE = 500
"""Packages in a request; the interface takes a thousand."""

ACCEPTED: Mapping[str, str] = {}
"""Advisories that do not concern the project, each with the reason."""

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)

Package = tuple[str, str]
"""Name and version."""


class NoSource(Exception):
    """The source of advisories cannot be reached, or its answer is unusable."""


def main() -> int:
    """Print the advisories for the locked packages, or why none could be fetched."""
    source = os.environ.get("ADVISORIES_SOURCE", SOURCE)
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, float(os.environ.get("ADVISORIES_SECONDS", SECONDS)))
    packages = locked(ROOT / lock for lock in LOCKS)
    try:
        found = advisories(packages, source)
    except NoSource as reason:
        print(f"not checked: there is no source of advisories here ({reason})")
        return 0
    left = [(package, known) for package, known in found if known not in ACCEPTED]
    for (name, version), known in left:
        print(f"{name} {version}: {known}")
    print(f"{len(packages)} packages: {len(left)} advisories, {len(found) - len(left)} accepted")
    return 1 if left else 0


def _give_up(*_: object) -> None:
    raise TimeoutError("no answer in time")


def locked(locks: Any) -> list[Package]:
    """Return the packages that the locks pin, each once."""
    return sorted({(name, version) for lock in locks for name, version in _PINNED.findall(lock.read_text("utf-8"))})


def advisories(packages: Sequence[Package], source: str) -> list[tuple[Package, str]]:
    """Return the ids of the advisories for each package.

    Raises:
    NoSource: The source does not answer in time, or not in the documented form.
    """
    found: list[tuple[Package, str]] = []
    for begin in range(0, len(packages), AT_ONCE):
        part = packages[begin : begin + AT_ONCE]
        results = _asked(part, source)
        for package, result in zip(part, results, strict=True):
            found += [(package, known) for known in _ids(result)]
    return found


def _asked(packages: Sequence[Package], source: str) -> list[Any]:
    queries = [{"package": {"ecosystem": "PyPI", "name": name}, "version": version} for name, version in packages]
    request = urllib.request.Request(
        source, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            results = json.loads(answer.read(MOST_BYTES))["results"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise NoSource(f"{source}: {error}") from error
    if not isinstance(results, list) or len(results) != len(packages):
        raise NoSource(f"{source}: the answer has another form")
    return results


def _ids(result: Any) -> list[str]:
    known = result.get("vulns") if isinstance(result, dict) else None
    return [str(each.get("id")) for each in known or [] if isinstance(each, dict)]


if __name__ == "__main__":
    sys.exit(main())
