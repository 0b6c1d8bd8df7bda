"""Settings: read from the environment, overridden by options, checked before the service starts."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from app import errors, settings


def load(environ: dict[str, str] | None = None, **overrides: object) -> settings.Settings:
    """Read settings from the given environment only."""
    return settings.load(environ or {}, **overrides)


def fatal(environ: dict[str, str], **overrides: object) -> set[str]:
    """Return the names of the settings that keep the service from starting."""
    found = settings.check(load(environ, **overrides), environ)
    return {remark.setting for remark in found if remark.fatal}


def test_defaults_serve_the_current_folder_on_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without any setting the service listens on this machine only and needs no token."""
    monkeypatch.chdir(tmp_path)
    defaults = load()

    assert (defaults.server.host, defaults.server.port, defaults.server.api_token) == ("127.0.0.1", 8000, None)
    assert defaults.project.data_directory == tmp_path / ".control-room"
    assert defaults.pool.max_running == 8
    assert not fatal({})


def test_the_data_directory_can_have_another_name(tmp_path: Path):
    """A relative data directory is in the project; an absolute one may be anywhere."""
    beside = load({"CONTROL_ROOM_PROJECT": str(tmp_path), "CONTROL_ROOM_DATA_DIRECTORY": ".orchestrate"})
    elsewhere = load({"CONTROL_ROOM_PROJECT": str(tmp_path), "CONTROL_ROOM_DATA_DIRECTORY": "/data"})

    assert beside.project.data_directory == tmp_path / ".orchestrate"
    assert elsewhere.project.data_directory == Path("/data")


def test_folders_are_absolute_however_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A relative folder is resolved from the current one, and the data directory from the project."""
    monkeypatch.chdir(tmp_path)
    names = ("PROJECT", "HOME", "ALLOWED_ROOTS", "DATA_DIRECTORY")
    read = load({f"CONTROL_ROOM_{name}": "some" for name in names}).project

    assert (read.project, read.home, read.allowed_roots) == (tmp_path / "some", tmp_path / "some", (tmp_path / "some",))
    assert read.data_directory == tmp_path / "some" / "some"


def test_every_setting_can_be_read_from_its_documented_variable(tmp_path: Path):
    """Each documented variable changes exactly one setting."""
    examples = {
        "int": "17",
        "float": "2.5",
        "bool": "yes",
        "str": "error",
        "str | None": "text",
        "Path": str(tmp_path),
        "Path | None": str(tmp_path),
        "tuple[str, ...]": "a, b",
        "tuple[Path, ...]": os.pathsep.join(["/x", "/y"]),
    }
    plain = load({"CONTROL_ROOM_PROJECT": "/p", "CONTROL_ROOM_HOME": "/h"})
    for room in dataclasses.fields(settings.Settings):
        for item in dataclasses.fields(getattr(plain, room.name)):
            name = item.metadata["env"]
            read = load({"CONTROL_ROOM_PROJECT": "/p", "CONTROL_ROOM_HOME": "/h", name: examples[str(item.type)]})
            changed = {
                (other.name, inner.name)
                for other in dataclasses.fields(settings.Settings)
                for inner in dataclasses.fields(getattr(plain, other.name))
                if getattr(getattr(plain, other.name), inner.name) != getattr(getattr(read, other.name), inner.name)
            }

            assert changed == {(room.name, item.name)}, name


def test_an_option_with_a_value_overrides_the_environment():
    """An option of the command line overrides the environment if it has a value."""
    environ = {"CONTROL_ROOM_PORT": "9000", "CONTROL_ROOM_HOST": "127.0.0.2"}
    both = load(environ, port=0, host=None)

    assert (both.server.port, both.server.host) == (0, "127.0.0.2")


def test_empty_variable_counts_as_unset():
    """An empty variable, as compose files write it, leaves the default."""
    assert load({"CONTROL_ROOM_PORT": ""}).server.port == 8000


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "eighty"), ("MAX_RUNNING", "2.5"), ("INLINE_RECIPES", "perhaps"), ("STOP_GRACE_SECONDS", "ten")],
)
def test_value_of_the_wrong_form_names_its_variable(name: str, value: str):
    """A value that cannot be read is refused, and the message names its variable."""
    with pytest.raises(errors.ConfigurationError) as refused:
        load({f"CONTROL_ROOM_{name}": value})

    assert refused.value.detail["setting"] == f"CONTROL_ROOM_{name}"
    assert value in refused.value.message


def test_unknown_variable_is_a_warning_with_the_nearest_name():
    """A misspelt setting is a warning that suggests the nearest name."""
    environ = {"CONTROL_ROOM_MAX_RUNING": "3"}
    (remark,) = settings.check(load(environ), environ)

    assert (remark.setting, remark.fatal) == ("CONTROL_ROOM_MAX_RUNING", False)
    assert "CONTROL_ROOM_MAX_RUNNING" in remark.message


@pytest.mark.parametrize("name", settings.OUTSIDE)
def test_known_variables_of_other_parts_are_accepted(name: str):
    """The check accepts the variables that agents, the command line and crash tests read."""
    environ = {name: "something"}

    assert settings.check(load(environ), environ) == []


def test_crash_point_is_known_to_the_check():
    """The crash tests' variable is a known one."""
    assert settings.CRASH_AT in settings.OUTSIDE


@pytest.mark.parametrize(
    ("name", "fit", "useless"),
    [
        ("HOSTS", "runs.example.org,runs_2,192.0.2.1:8000,::1,[::1]:80", "https://runs.example.org,*.example.org,a b"),
        ("ORIGINS", "https://example.org,HTTP://localhost:3000/,tauri://localhost", "example.org,*,https://a.org/page"),
    ],
)
def test_a_site_that_no_request_can_have_is_doubtful(name: str, fit: str, useless: str):
    """A host or an origin in a form that no browser sends gets a warning, since it would allow nothing."""
    setting = f"CONTROL_ROOM_ALLOWED_{name}"
    _, remarks = settings.examine({setting: f"{fit},{useless}"})

    assert [(each.setting, each.message.split(" allows")[0], each.fatal) for each in remarks] == [
        (setting, repr(each), False) for each in useless.split(",")
    ]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "", "example.org", "127.example.org"])
def test_address_beyond_loopback_needs_a_token(host: str):
    """A service that others can reach refuses to start without a token."""
    assert fatal({}, host=host) == {"CONTROL_ROOM_API_TOKEN"}
    assert not fatal({}, host=host, api_token="a-long-enough-token")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_loopback_needs_no_token(host: str):
    """A service for this machine starts without a token."""
    assert not fatal({}, host=host)


def test_short_token_is_doubtful_but_starts():
    """A short token is a warning."""
    (remark,) = settings.check(load({}, api_token="short"), {})

    assert (remark.setting, remark.fatal) == ("CONTROL_ROOM_API_TOKEN", False)


@pytest.mark.parametrize("token", ["with a space in it", "schlüssel-zum-haus", "line\nbreak-in-the-token"])
def test_token_that_no_header_can_carry_is_refused(token: str):
    """A token that an HTTP header cannot carry keeps the service from starting."""
    assert fatal({}, api_token=token) == {"CONTROL_ROOM_API_TOKEN"}


def test_all_faulty_settings_are_reported_together(tmp_path: Path):
    """One check reports every setting that cannot work."""
    environ = {
        "CONTROL_ROOM_PORT": "70000",
        "CONTROL_ROOM_PROJECT": str(tmp_path / "absent"),
        "CONTROL_ROOM_ALLOWED_ROOTS": str(tmp_path / ("x" * 300)),
        "CONTROL_ROOM_MAX_RUNNING": "0",
        "CONTROL_ROOM_STOP_GRACE_SECONDS": "nan",
        "CONTROL_ROOM_MAX_DEPTH": "-1",
        "CONTROL_ROOM_MAX_BODY_BYTES": "1",
        "CONTROL_ROOM_MAX_HEAD_BYTES": "4095",
        "CONTROL_ROOM_MAX_HEADERS": "0",
        "CONTROL_ROOM_HEAD_SECONDS": "nan",
        "CONTROL_ROOM_BODY_SECONDS": "inf",
        "CONTROL_ROOM_MAX_CONNECTIONS": "0",
        "CONTROL_ROOM_MAX_CONNECTIONS_PER_ADDRESS": "-1",
        "CONTROL_ROOM_KEEP_CONVERSATIONS_DAYS": "-1",
        "CONTROL_ROOM_LOG_LEVEL": "loud",
    }

    assert fatal(environ) == set(environ)


def test_a_project_path_that_is_not_text_is_refused(tmp_path: Path):
    """A project folder whose path is not valid text is refused, also when a link leads to it."""
    strange, link = tmp_path / "strange\udcff", tmp_path / "link"
    strange.mkdir()
    link.symlink_to(strange)

    assert fatal({}, project=strange) == fatal({}, project=link) == {"CONTROL_ROOM_PROJECT"}
    assert fatal({}, project=tmp_path, data=strange) == {"CONTROL_ROOM_DATA_DIRECTORY"}


def test_the_data_does_not_contain_the_project(tmp_path: Path):
    """A data directory that is the project or contains it is refused, also by way of a link."""
    (tmp_path / "link").symlink_to(tmp_path)

    assert fatal({}, project=tmp_path, data=Path()) == {"CONTROL_ROOM_DATA_DIRECTORY"}
    assert fatal({}, project=tmp_path / "link", data=tmp_path.parent) == {"CONTROL_ROOM_DATA_DIRECTORY"}
    assert fatal({}, project=tmp_path, data=Path("state")) == set()


def test_a_token_comes_from_its_file(tmp_path: Path):
    """The token is read from its file: a file that others can read is a warning, one without a token is fatal."""
    file = tmp_path / "token"
    file.write_text("sixteen-characters-or-more\n")
    file.chmod(0o600)
    environ = {"CONTROL_ROOM_API_TOKEN_FILE": str(file), "CONTROL_ROOM_HOST": "0.0.0.0"}

    assert settings.load(environ).server.token == "sixteen-characters-or-more"
    assert settings.examine(environ)[1] == []
    file.chmod(0o644)
    assert [remark.fatal for remark in settings.examine(environ)[1]] == [False]
    beside = {**environ, "CONTROL_ROOM_API_TOKEN": "another-of-sixteen-characters"}
    assert [remark.fatal for remark in settings.examine(beside)[1]] == [True, False]
    for content in (b"", b" \n", b"\xff" * 20, b"x" * 5000):
        file.write_bytes(content)
        assert fatal(environ) == {"CONTROL_ROOM_API_TOKEN_FILE"}
    for absent in (tmp_path, tmp_path / "absent"):
        assert fatal({"CONTROL_ROOM_API_TOKEN_FILE": str(absent)}) == {"CONTROL_ROOM_API_TOKEN_FILE"}


def test_all_unreadable_settings_are_reported_together():
    """One check reports all settings that cannot be read, together with the unknown ones."""
    environ = {"CONTROL_ROOM_PORT": "x", "CONTROL_ROOM_MAX_RUNNING": "y", "CONTROL_ROOM_HOTS": "z"}
    read, remarks = settings.examine(environ)

    assert read is None
    assert {(remark.setting, remark.fatal) for remark in remarks} == {
        ("CONTROL_ROOM_PORT", True),
        ("CONTROL_ROOM_MAX_RUNNING", True),
        ("CONTROL_ROOM_HOTS", False),
    }


def test_examined_settings_are_those_that_are_loaded():
    """When all settings can be read, `examine` returns what `load` and `check` return."""
    read, remarks = settings.examine({"CONTROL_ROOM_PORT": "9000", "CONTROL_ROOM_API_TOKEN": "short"})

    assert read is not None
    assert read.server.port == 9000
    assert [remark.setting for remark in remarks] == ["CONTROL_ROOM_API_TOKEN"]


def test_a_folder_that_does_not_exist_is_distinguished_from_a_file(tmp_path: Path):
    """A project folder that does not exist and one that is a file get different messages."""
    (tmp_path / "file").write_text("")
    found = {
        name: [
            remark.message for remark in settings.check(settings.load({"CONTROL_ROOM_PROJECT": str(tmp_path / name)}))
        ]
        for name in ("none", "file")
    }

    assert f"{tmp_path / 'none'} does not exist" in found["none"]
    assert f"{tmp_path / 'file'} is not a folder" in found["file"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NOTIFY_ALLOWED", "300.1.1.1/8"),
        ("NOTIFY_ALLOWED", "localhost,10.0.0.300"),
        ("NOTIFY_ALLOWED", "hooks.example.org:8080"),
        ("NOTIFY_ALLOWED", "http://hooks.example.org"),
        ("SMTP_URL", "http://mail.example.org"),
        ("SMTP_URL", "smtp://user:secret-word@"),
        ("SMTP_URL", "smtp://mail.example.org:many"),
        ("SMTP_URL", "mail.example.org"),
        ("MAIL_FROM", "Control Room"),
        ("MAIL_FROM", "Control Room room@example.org"),
        ("MAIL_FROM", "room@example.org, desk@example.org"),
        ("MAIL_FROM", "room@"),
        ("MAIL_FROM", "room@bücher.example"),
        ("MAIL_FROM", "room@example.org\nBcc: desk@example.org"),
    ],
)
def test_receivers_that_nothing_can_reach_are_refused(name: str, value: str):
    """An impossible address or mail server is an error of its setting, and a password in it is not repeated."""
    name = f"CONTROL_ROOM_{name}"
    (remark,) = settings.examine({name: value})[1]

    assert (remark.setting, remark.fatal) == (name, True)
    assert "secret-word" not in remark.message


def test_every_way_to_name_a_receiver_is_accepted():
    """Host names, addresses and networks of both families may be allowed, and mail may go by both protocols."""
    allowed = "localhost,hooks.example.org,my_hooks,127.0.0.1,::1,10.0.0.0/8,10.1.2.3/8,fd00::/8"
    for url in ("smtp://user:word@mail.example.org:587", "smtps://mail.example.org", "smtp://[::1]:25"):
        assert settings.examine({"CONTROL_ROOM_NOTIFY_ALLOWED": allowed, "CONTROL_ROOM_SMTP_URL": url})[1] == []
    for sender in ("room@example.org", "Zoë's room <room@example.org>", '"Room, main" <room@localhost>'):
        assert settings.examine({"CONTROL_ROOM_MAIL_FROM": sender})[1] == []
