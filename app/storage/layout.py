"""Layout: the paths of a data directory, and the names allowed in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from app import clock, errors

RUNS = "runs"
TRASH = "runs/.trash"
AUDIT = "audit"
AUDIT_ORDERS = "audit/orders.jsonl"
SESSIONS = "audit/sessions"
AGENT_SESSIONS = "sessions/agents"
ISSUES = "issues"
PLANS = "sessions"
PLANS_MADE = "sessions/.made"
PLANS_REMOVED = "sessions/.removed"
COMMITS = "commits"
TRIGGERS = "triggers"
OUTBOX = "outbox"

START = "start.json"
STEPS = "steps.jsonl"
CONTROL = "control.jsonl"
EVENTS = "events.jsonl"
MANIFEST = "run.json"
CACHE = "cache.json"
ADOPTED = "steps.jsonl.adopted"
ADOPTED_CONTROL = "control.jsonl.adopted"
LOGS = "logs"
BLOBS = "blobs"
PLAN = "plan.json"
RECEIPTS = "tool_receipts.jsonl"
STORE_MARK = "store.json"
"""File that names the database with the runs of a data directory, if a database has them."""
STORE_SCHEMA = "control_room"  # Schema of the store's tables in Postgres.
BLOBS_MARK = "blobs.json"  # File that names the object storage of blobs and logs, if it is used.
BUCKET_MARK = "control-room.json"  # Object that names the owner of the bucket.
SPENDING = "spending"
"""Folder that a process locks while it reserves within budgets, if several share the store."""
RATES = "rates"
"""Folder for the prompts of all processes that share the store; a process locks it to change them."""
CONCURRENCY = "concurrency"
"""Folder that a process locks while it gives a run its concurrency key, if several share the store."""
COMMON = "common"  # Folder of copies of the files that all services of a store in a database share.
LATEST = "latest"  # Link in `runs/` to the newest run of a command line.

FOLDERS = (RUNS, TRASH, AUDIT, SESSIONS, PLANS, AGENT_SESSIONS, ISSUES, COMMITS)
"""Folders that a data directory always has."""

_NEW = ".new-"
_RUN_ID = re.compile(clock.RUN_ID_PATTERN)
_PROJECTION = re.compile(r"[A-Za-z0-9_-]{1,64}\.json")
_AGENT_SESSION = re.compile(r"[a-z0-9_][a-z0-9_-]{0,127}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._#@+=,~%\[\]-]")
_LONGEST_NAME = 200


def common_folder(data_directory: Path, store_url: str | None) -> Path:
    """Return the folder of keys, budgets, prices and policies, or of their copies if a database has them."""
    return data_directory / COMMON if store_url else data_directory


def run_folder(run_id: str) -> str:
    """Return a run's folder.

    Raises:
        errors.NotFound: the id is not a valid run id.
    """
    if not is_run_id(run_id):
        raise errors.no_run(run_id)
    return f"{RUNS}/{run_id}"


def is_run_id(name: str) -> bool:
    """Return whether a name in `runs/` can be a run; one that is reached by the link `latest` would have two locks."""
    return _RUN_ID.fullmatch(name) is not None and name != LATEST


def run_of(path: str) -> tuple[str, str] | None:
    """Return the run of a path and the path within its folder, `.` for the folder; None outside of runs."""
    first, _, rest = path.partition("/")
    run_id, _, file = rest.partition("/")
    return (run_id, file or ".") if first == RUNS and is_run_id(run_id) else None


def new_folder(run_id: str) -> str:
    """Return the folder in which a run is built."""
    return f"{RUNS}/{_NEW}{run_id}"


def unfinished_folders(names: Iterable[str]) -> list[str]:
    """Return the folders among the names in `runs/` whose building was interrupted."""
    return [f"{RUNS}/{name}" for name in names if name.startswith(_NEW)]


def run_ids(names: Iterable[str]) -> list[str]:
    """Return the names in `runs/` that can be runs."""
    return [name for name in names if is_run_id(name)]


def projection(name: str) -> str:
    """Check the name of a snapshot or of a driver's projection.

    Raises:
        errors.DriverFault: the name is unsafe or belongs to the authority.
    """
    if not _PROJECTION.fullmatch(name) or name == START:
        raise errors.DriverFault(f"{name!r:.80} is not the name of a projection", code="bad_projection")
    return name


def file_name(text: str) -> str:
    """Return a file name for any text, which never leads out of its folder; a safe text is returned unchanged."""
    name = _UNSAFE.sub(lambda found: quote(found.group().encode("utf-8", "replace"), safe=""), text)
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        stem, dot, suffix = name.rpartition(".")
        ending = f"{dot}{suffix}" if stem and len(suffix) <= 8 else ""
        name = f"{name[: _LONGEST_NAME - 17 - len(ending)]}-{digest}{ending}"
    return name or "%00"


def receipts_file(session_id: str) -> str:
    """Return the file of a session's receipts."""
    return f"{session_folder(session_id)}/{RECEIPTS}"


def session_folder(session_id: str) -> str:
    """Return the folder of a session's receipts."""
    return f"{SESSIONS}/{file_name(session_id)}"


def agent_session_folder(agent_session_id: str) -> str:
    """Return the folder of a conversation: named by its id if that is safe in any file system, else by a hash."""
    if _AGENT_SESSION.fullmatch(agent_session_id):
        return f"{AGENT_SESSIONS}/{agent_session_id}"
    digest = hashlib.sha256(agent_session_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{AGENT_SESSIONS}/%{digest}"


def issue_file(issue_id: str) -> str:
    """Return the file of an issue."""
    return f"{ISSUES}/{file_name(issue_id)}.json"


def plan_file(session_id: str) -> str:
    """Return the file of a session's plan."""
    return f"{PLANS}/{file_name(session_id)}/{PLAN}"


def plan_marker(kind: str, session_id: str) -> str:
    """Return the empty file that records that a plan of a session was made, or that it was removed.

    Args:
        kind: Folder of such files.
    """
    return f"{kind}/{file_name(session_id)}"


def can_have_plan(session_id: str) -> bool:
    """Return whether a session may have a plan: it may not if its folder would be that of all conversations."""
    return f"{PLANS}/{file_name(session_id)}" != AGENT_SESSIONS
