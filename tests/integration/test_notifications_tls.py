"""Notifications over TLS: webhooks, smtps and STARTTLS check certificates."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration import endpoints, served
from tests.integration.project import Project

ADDRESS = "/api/notifications/endpoints"
ROOM = "room@example.org"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an authority, and a certificate of it for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl")
    folder = tmp_path_factory.mktemp("tls")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout")
    for arguments in (
        # Python 3.13 refuses an authority that does not say what its key may be used for.
        ("req", "-x509", *new, "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Test authority",
         "-addext", "keyUsage=critical,keyCertSign"),
        ("req", *new, "own.key", "-out", "own.csr", "-subj", "/CN=127.0.0.1"),
        ("x509", "-req", "-in", "own.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "own.pem",
         "-days", "2", "-extfile", "names"),
    ):  # fmt: skip
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


@pytest.fixture
def tls(certificates: Path) -> ssl.SSLContext:
    """Return the context of a server with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "own.pem", certificates / "own.key")
    return context


async def tried(project: Project, body: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Return the result of a test message."""
    async with served.in_process(project, notify_allowed=("127.0.0.1",), **settings) as service:
        added = await service.http.post(ADDRESS, json=body)
        assert added.status_code == 201, added.text
        found: dict[str, Any] = (await service.http.post(f"{ADDRESS}/{added.json()['endpoint_id']}/test")).json()
        return found


async def test_a_webhook_is_posted_only_where_the_certificate_is_trusted(
    project: Project, tls: ssl.SSLContext, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown authority is refused before any data is sent; `SSL_CERT_FILE` adds a known one."""
    async with endpoints.receiver(tls) as receiver:
        refused = await tried(project, {"url": receiver.url})
        sent_before = len(receiver.posts)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
        taken = await tried(project, {"url": receiver.url})

    assert (refused["delivered"], sent_before) == (False, 0)
    assert "CERTIFICATE_VERIFY_FAILED" in refused["detail"]
    assert taken == {"delivered": True, "detail": "the answer was 204"}
    assert len(receiver.posts) == 1


@pytest.mark.parametrize("upgrades", [False, True], ids=["smtps", "starttls"])
async def test_mail_is_sent_only_where_the_certificate_is_trusted(
    project: Project, tls: ssl.SSLContext, certificates: Path, monkeypatch: pytest.MonkeyPatch, upgrades: bool
) -> None:
    """Neither the password nor a mail reaches a server whose authority is unknown."""
    body = {"to": ["a@example.org"]}
    async with endpoints.mailbox(tls, upgrades=upgrades) as mailbox:
        mail = {"smtp_url": mailbox.url.replace("//", "//user:hunter2hunter2@"), "mail_from": ROOM}
        refused = await tried(project, body, **mail)
        told, sent = list(mailbox.commands), list(mailbox.mails)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
        taken = await tried(project, body, **mail)

    assert refused["delivered"] is False
    assert "CERTIFICATE_VERIFY_FAILED" in refused["detail"]
    assert ("AUTH" in told, sent) == (False, [])
    assert taken == {"delivered": True, "detail": "the server took it"}
    assert ("AUTH" in mailbox.commands, len(mailbox.mails), mailbox.recipients) == (True, 1, ["a@example.org"])


async def test_the_words_of_a_refused_sign_in_are_not_shown(
    project: Project, tls: ssl.SSLContext, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words of a refused sign-in are not shown, since some servers repeat the password in them."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
    async with endpoints.mailbox(tls) as mailbox:
        mailbox.refuses = True
        mail = {"smtp_url": mailbox.url.replace("//", "//user:hunter2hunter2@"), "mail_from": ROOM}
        found = await tried(project, {"to": ["a@example.org"]}, **mail)

    assert found == {"delivered": False, "detail": "the server refused the user or password, with code 535"}
