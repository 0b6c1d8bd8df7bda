"""The UI's files: which are served at which address, without another server, a build or much space."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import app
from tests.integration import served
from tests.integration.project import Project

STATIC = Path(app.__file__).parent / "ui" / "static"
MODULES = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js"))
MOST_BYTES = {"js": 90 * 1024, "css": 16 * 1024}
LATER = re.compile(r"""\bimport\(["']([^"']+)["']\)""")
IMPORTED = re.compile(r"""^(?:import|export)\b[^;"'=(]*?\bfrom\s*["']([^"']+)["']""", re.MULTILINE)


class Document(HTMLParser):
    """Collects parts of a document that a strict policy would refuse."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.inline: list[str] = []
        self.import_map = ""
        self._in: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note attributes that contain code or style."""
        self.inline += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self._in = dict(attrs) if tag in ("script", "style") else None

    def handle_data(self, data: str) -> None:
        """Note content of scripts and styles."""
        if self._in is not None and self._in.get("type") == "importmap":
            self.import_map += data
        elif self._in is not None and data.strip():
            self.inline.append(data)

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        self._in = None


@pytest.mark.parametrize(
    "path",
    ["/", "/runs", "/runs/20260210T143000Z-k3x9af", "/inbox", "/start", "/plans/sp_x", "/cost", "/conferences/x"],
)
async def test_every_page_has_one_document(service: served.Served, path: str) -> None:
    """The address of a page can be reloaded; the policy allows the import map by its hash, and no inline code."""
    answer = await service.http.get(path)
    document = Document(answer.text)
    digest = base64.b64encode(hashlib.sha256(document.import_map.encode()).digest()).decode()

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert f"script-src 'self' 'sha256-{digest}'" in answer.headers["content-security-policy"]
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert document.inline == []


async def test_a_file_is_sent_once(service: served.Served) -> None:
    """A browser asks again each time, and receives the file only when it has changed."""
    first = await service.http.get("/ui/js/main.js")
    again = await service.http.get("/ui/js/main.js", headers={"If-None-Match": first.headers["etag"]})

    assert first.content == (STATIC / "js" / "main.js").read_bytes()
    assert first.headers["content-type"].startswith("text/javascript")
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/ui/js/none.js", 404),
        ("GET", "/ui/", 404),
        ("GET", "/ui/../pages.py", 404),
        ("GET", "/ui/%2e%2e/pages.py", 404),
        ("GET", "/ui/js/%2e%2e/%2e%2e/%2e%2e/pages.py", 404),
        ("POST", "/", 405),
        ("PATCH", "/runs", 405),
        ("OPTIONS", "/inbox", 405),
        ("DELETE", "/ui/js/main.js", 405),
        ("GET", "/nowhere", 404),
    ],
)
async def test_only_files_of_the_ui_are_served(service: served.Served, method: str, path: str, status: int) -> None:
    """Only the files of the UI have an address, and they can only be read; refusals are problem documents."""
    answer = await service.http.request(method, path)

    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers.get("allow") == ("GET, HEAD" if status == 405 else None)


@pytest.mark.parametrize("path", ["/nowhere", "/run/x", "/api", "/metrics", "/healthz"])
async def test_a_browser_at_an_unknown_address_gets_a_page(service: served.Served, path: str) -> None:
    """A browser at an unknown address receives the pages with a 404; addresses of data return data to every client."""
    answer = await service.http.get(path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    is_page = answer.headers["content-type"].startswith("text/html")

    assert is_page == (path in ("/nowhere", "/run/x"))
    assert answer.status_code == (200 if path in ("/metrics", "/healthz") else 404)
    assert (await service.http.get("/nowhere")).json()["code"] == "not_found"


async def test_pages_need_no_token(project: Project) -> None:
    """Pages contain no data and need no token, so that a browser can sign in; the API needs the token."""
    async with served.in_process(project, api_token="t" * 32) as service:
        page, data = [await service.http.get(path) for path in ("/runs", "/api/runs")]

    assert (page.status_code, data.status_code) == (200, 401)


def imports(name: str) -> Iterator[str]:
    """Return the files that a module imports, as names below the UI's folder."""
    imported = json.loads(Document((STATIC / "index.html").read_text()).import_map)["imports"]
    for target in IMPORTED.findall((STATIC / name).read_text()):
        path = imported.get(target) or posixpath.join("/ui", posixpath.dirname(name), target)
        yield posixpath.normpath(path).removeprefix("/ui/")


@pytest.mark.parametrize("name", MODULES)
def test_every_import_is_a_file(name: str) -> None:
    """Modules import one another by relative paths, and libraries by names of the import map."""
    missing = [target for target in imports(name) if not (STATIC / target).is_file()]

    assert missing == []


def pages() -> list[str]:
    """Return the modules of pages that are loaded when a page is opened."""
    return [f"js/{target.removeprefix('./')}" for target in LATER.findall((STATIC / "js/main.js").read_text())]


def test_every_module_is_imported() -> None:
    """Each module is imported, and the document imports the first one."""
    imported = {target for name in MODULES for target in imports(name)} | {"js/main.js", *pages()}

    assert [name for name in MODULES if name not in imported] == []


def test_no_script_is_long() -> None:
    """A script has at most 400 lines, like a module of the service."""
    lengths = {str(path.relative_to(STATIC)): len(path.read_text().splitlines()) for path in STATIC.rglob("*.js")}

    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_the_files_are_small() -> None:
    """All scripts with libraries, and all styles, keep within their budget of compressed bytes."""
    sizes = {"js": 0, "css": 0}
    for path in STATIC.rglob("*"):
        kind = {".mjs": "js", ".js": "js", ".css": "css"}.get(path.suffix)
        if kind is not None:
            sizes[kind] += len(gzip.compress(path.read_bytes()))

    assert {kind: size for kind, size in sizes.items() if size > MOST_BYTES[kind]} == {}


def test_libraries_are_as_published() -> None:
    """Each vendored file equals the published file of its package, and its licence is beside it."""
    vendored = json.loads((STATIC / "vendor" / "vendored.json").read_text())

    assert sorted(each["file"] for each in vendored) == sorted(path.name for path in (STATIC / "vendor").glob("*.mjs"))
    for each in vendored:
        assert hashlib.sha256((STATIC / "vendor" / each["file"]).read_bytes()).hexdigest() == each["sha256"], each
        assert (STATIC / "vendor" / each["license_file"]).read_text(), each
