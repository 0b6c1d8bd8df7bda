"""Issues: list, create, edit and close them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app import clock, errors
from app.domain import authors, issues, plain
from app.engine import stores
from app.services import faults, issue_texts, requests

RECEIPTS = 100  # Most receipts that a person can name.

_EDITED = ("title", "body", "severity", "status", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIssue:
    """An issue that a person creates."""

    title: str  # One line.
    body: str = ""  # Text of the issue.
    kind: str = issues.KIND  # Kind of the issue, in a word.
    severity: issues.Severity | None = None  # Severity of the issue.
    run_id: str | None = None  # Run that the issue is about.
    session_id: str | None = None
    """Work session of the issue; None: that of the run or of the receipts."""
    receipts: tuple[str, ...] = ()  # Receipts that prove it.
    idempotency_key: str | None = None  # Key by which a repeated request finds the same issue.

    def sha256(self) -> str:
        """Return the hash that distinguishes a repetition from another issue with the same key."""
        request_sha256 = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        if self.severity is None:
            # The previous release had no severity, and this keeps its hashes.
            del request_sha256["severity"]
        return plain.sha256(plain.canonical(plain.plain({**request_sha256, "idempotency_key": None})))


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Result of a request to create an issue."""

    issue: issues.Issue  # The new issue, or the one that the idempotency key found, in its present state.
    existed: bool  # Whether an earlier request created it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Changes of an issue by a person; None leaves a field unchanged."""

    title: str | None = None  # New title.
    body: str | None = None  # New body.
    severity: issues.Severity | None = None  # New severity.
    status: issues.Status | None = None  # Closes the issue or opens it again.
    note: str | None = None  # A note, stored with its time after the earlier ones.
    revision: int | None = None
    """Revision that the person saw; the edit is refused if it has changed since. None: any."""


class Issues:
    """Lists, shows, creates and changes issues.

    Args:
        issue_store: Stores issues.
        store: Stores the runs and receipts that issues name.
        masker: Masks secrets in texts that people write.
    """

    def __init__(
        self,
        *,
        issue_store: issues.IssueStore,
        store: stores.RunStore,
        clock: clock.Clock,
        ids: clock.Ids,
        masker: plain.Masker,
    ) -> None:
        self._issues = issue_store
        self._store = store
        self._clock = clock
        self._ids = ids
        self._masker = masker

    async def page(self, query: issues.IssueQuery) -> tuple[list[issues.IssueSummary], bool]:
        """Return a page of issues, newest first, and whether more follow."""
        with faults.as_errors():
            found = await self._issues.list(dataclasses.replace(query, limit=query.limit + 1))
        return found[: query.limit], len(found) > query.limit

    async def show(self, issue_id: str) -> issues.Issue:
        """Return an issue.

        Raises:
            errors.NotFound: `issue_not_found`.
            errors.Conflict: `issue_damaged`.
        """
        return await self._issues.get(issue_id)

    async def add(self, new: NewIssue, author: authors.Author | None = None) -> Added:
        """Create an issue, and return it once it is durable; a repeated request with the same key finds it.

        Raises:
            errors.RequestInvalid: a field has the wrong form, or names a run, session or receipt that does not exist.
            errors.Conflict: `idempotency_conflict`, the key belongs to another issue; `issue_damaged`.
            errors.WriteFailed: it cannot be written.
        """
        _refuse([*issue_texts.flaws(new.title, new.body, None, new.kind), *requests.key_flaws(new.idempotency_key)])
        request_sha256 = None if new.idempotency_key is None else new.sha256()
        issue_id = self._ids.token("iss_") if new.idempotency_key is None else _keyed(new.idempotency_key)
        # Before all other checks, since the named things may be gone when the request is repeated.
        if request_sha256 is not None and (known := await self._found(issue_id)) is not None:
            return Added(issue=_repeated(known, request_sha256), existed=True)
        record: Any = issues.made(
            issue_id,
            clock.stamp(self._clock.now()),
            title=new.title,
            body=new.body,
            kind=new.kind,
            severity=new.severity,
            run_id=new.run_id,
            session_id=await self._session(new),
            receipts=list(dict.fromkeys(new.receipts)),
            request_sha256=request_sha256,
        )
        # A title or body can contain a secret that a person copied from a log.
        record |= self._masked(title=new.title, body=new.body)
        with faults.as_errors():
            # The entry first: a change without an entry must not exist, an entry without its change may.
            await self._store.audit.append(author, "issue.created", issue_id, {"kind": new.kind})
            stored = await self._issues.change(
                issue_id, lambda known: _repeated(known, request_sha256) if known else record
            )
        return Added(issue=issues.whole(stored), existed=stored is not record)

    async def edit(self, issue_id: str, edit: Edit, author: authors.Author | None = None) -> issues.Issue:
        """Change an issue, and return it once that is durable.

        Raises:
            errors.RequestInvalid: no field changes, or a field has the wrong form.
            errors.NotFound: `issue_not_found`.
            errors.Conflict: `issue_changed`, with the present issue; `too_many_notes`; `issue_damaged`.
            errors.WriteFailed: it cannot be written.
        """
        changed: list[plain.Json] = [name for name in _EDITED if getattr(edit, name) is not None]
        if not changed:
            _refuse([errors.Flaw(path="$", code="missing", message="changes nothing")])
        _refuse(issue_texts.flaws(edit.title, edit.body, edit.note, None))
        at, masked = clock.stamp(self._clock.now()), self._masked(title=edit.title, body=edit.body, note=edit.note)
        with faults.as_errors():
            # Checked before the entry is written, and once more within the change.
            known = await self._issues.get(issue_id)
            if (edited := _edited(known, edit, masked, at)) is None or edited is known:
                return issues.whole(known)
            facts: dict[str, plain.Json] = {"changed": changed, "revision": edited["revision"]}
            await self._store.audit.append(author, "issue.edited", issue_id, facts)
            return await self._issues.change(issue_id, lambda known: _edited(known, edit, masked, at))

    async def _found(self, issue_id: str) -> issues.Issue | None:
        try:
            return await self._issues.get(issue_id)
        except errors.NotFound:
            return None

    def _masked(self, **texts: str | None) -> dict[str, Any]:
        return {name: self._masker.mask(text) for name, text in texts.items() if text is not None}

    async def _session(self, new: NewIssue) -> str | None:
        """Return the session of a new issue; every thing that it names must exist, and belong to the same session."""
        session_id = new.session_id
        # The session of a run is known; a comparison with it does not reveal whether another one exists.
        if session_id is not None and new.run_id is None:
            formed = re.fullmatch(requests.SESSION_ID_PATTERN, session_id)
            if formed is None or not await self._issues.knows_session(session_id):
                raise unknown("session", "session_id", session_id)
        if new.run_id is not None:
            session_id = _agreed(session_id, await self._session_of_run(new.run_id), "$.run_id")
        for index, receipt_id in enumerate(dict.fromkeys(new.receipts)):
            place = f"$.receipts[{index}]"
            session_id = _agreed(session_id, await self._session_of_receipt(receipt_id, place), place)
        return session_id

    async def _session_of_run(self, run_id: str) -> str:
        try:
            return (await self._store.summary(run_id)).session_id
        except errors.NotFound as error:
            raise unknown("run", "run_id", run_id) from error

    async def _session_of_receipt(self, receipt_id: str, place: str) -> str:
        try:
            return str((await self._store.find_receipt(receipt_id)).get("session_id"))
        except errors.NotFound as error:
            raise unknown("receipt", place.removeprefix("$."), receipt_id) from error


def _keyed(idempotency_key: str) -> str:
    return f"iss_{plain.sha256(f'issue {idempotency_key}'.encode())[:24]}"


def _repeated(known: issues.Issue, request_sha256: str | None) -> issues.Issue:
    if request_sha256 is None or known.get("request_sha256") != request_sha256:
        message = f"this idempotency key was used for another request, which made the issue {known['issue_id']}"
        raise errors.Conflict(message, code="idempotency_conflict", detail={"issue_id": known["issue_id"]})
    return known


def _edited(known: issues.Issue | None, edit: Edit, masked: dict[str, Any], at: str) -> issues.Issue | None:
    if known is None:
        return None
    present: dict[str, Any] = issues.whole(known)
    if edit.revision not in (None, present["revision"]):
        message = f"the issue {present['issue_id']} was changed meanwhile; its revision is now {present['revision']}"
        raise errors.Conflict(message, code="issue_changed", detail={"issue": present})
    texts = {name: masked[name] for name in ("title", "body") if name in masked}
    changed = present | texts | ({} if edit.severity is None else {"severity": edit.severity})
    if changed != present:
        changed["edited_at"] = at
    if edit.status not in (None, present["status"]):
        changed |= {"status": edit.status, "closed_at": at if edit.status == "closed" else None, "closed_by": None}
    if "note" in masked:
        if len(present["notes"]) >= issues.NOTES:
            raise errors.Conflict(f"the issue {present['issue_id']} has {issues.NOTES} notes", code="too_many_notes")
        changed["notes"] = [*present["notes"], {"at": at, "text": masked["note"], "status": changed["status"]}]
    if changed == present:
        return known
    return changed | {"updated_at": at, "revision": present["revision"] + 1}


def _agreed(session_id: str | None, other: str, place: str) -> str:
    if session_id in (None, other):
        return other
    message = f"belongs to the session {other!r:.80}, not to {session_id!r:.80}"
    raise errors.RequestInvalid(
        f"{place} {message}",
        code="session_mismatch",
        flaws=[errors.Flaw(path=place, code="session_mismatch", message=message)],
    )


def unknown(what: str, name: str, value: str) -> errors.RequestInvalid:
    """Return the refusal of an issue that names something that does not exist."""
    message, code = f"there is no {what} {value!r:.120}", f"unknown_{what}"
    return errors.RequestInvalid(message, code=code, flaws=[errors.Flaw(path=f"$.{name}", code=code, message=message)])


def _refuse(flaws: Iterator[errors.Flaw] | list[errors.Flaw]) -> None:
    if found := list(flaws):
        raise errors.RequestInvalid(f"{found[0].path}: {found[0].message}", flaws=found)
