"""Settings: one frozen value in groups, read from the environment and checked before anything starts."""

# Not pydantic-settings: importing it takes 180 ms, nine times as long as this module with all its imports, and every
# command of the command line reads settings before it answers.

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app import environment_values, errors, setting_values

Documented = setting_values.Documented
Remark = setting_values.Remark

PREFIX = "CONTROL_ROOM_"
"""Beginning of the name of each environment variable."""

SENDABLE = r"[\x21-\x7e]+"
"""Form of a bearer token."""

CRASH_AT = PREFIX + "CRASH_AT"
"""For tests only: `point:N` makes the process kill itself when it passes that probe for the Nth time."""

RUN_ID = PREFIX + "RUN_ID"
"""Variable by which the programs that a run starts get the run's id."""

DEPTH = PREFIX + "DEPTH"
"""Variable by which the programs that a run starts get the number of runs above the run."""

SECRET_NAMES = ("*_KEY", "*_TOKEN", "*_SECRET", "*_PASSWORD")
"""Patterns of the variables that contain secrets, by default."""

OUTSIDE = (RUN_ID, DEPTH, "CONTROL_ROOM_COMMAND", "CONTROL_ROOM_SERVER", CRASH_AT)
"""Variables with the prefix that are not settings: for started programs, the client's server, and tests."""


CONTAINMENTS = ("auto", "namespace", "user_namespace", "guard")
"""Containments that can be chosen for agents: a namespace if possible, always one, one with its own users, or none."""
ENGINES = ("embedded", "temporal")
"""Values of the setting for the engine."""

WORKSPACES = ("sticky", "shared")
"""Values of the setting for workspaces of workers."""

LOG_LEVELS = ("debug", "info", "warning", "error")
"""Values of the log level, in upper or lower case."""


_STORE_URL = re.compile(r"postgres(ql)?(\+psycopg)?://")


def _setting(default: Any, env: str, meaning: str, least: float | None = None, most: float = math.inf) -> Any:
    metadata = {"env": PREFIX + env, "meaning": meaning, "least": least, "most": most}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def user_home() -> Path:
    """Return the home folder of the user; the root folder if the user has none."""
    try:
        return Path.home()
    except RuntimeError:
        # A user without an entry and without HOME, e.g. in a container, has no layer of their own.
        return Path(os.sep)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of the HTTP service."""

    host: str = _setting("127.0.0.1", "HOST", "Address to listen on. Addresses other than loopback require a token.")
    port: int = _setting(8000, "PORT", "Port to listen on; 0 chooses a free one.", 0, 65535)
    api_token: str | None = _setting(None, "API_TOKEN", "Bearer token required on every request.")
    api_token_file: Path | None = _setting(
        None, "API_TOKEN_FILE", "File that contains the bearer token, instead of the token itself."
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (), "ALLOWED_HOSTS", "Additional `Host` names to accept, comma-separated."
    )
    allowed_origins: tuple[str, ...] = _setting(
        (), "ALLOWED_ORIGINS", "Additional browser origins to accept, comma-separated."
    )
    max_body_bytes: int = _setting(1024 * 1024, "MAX_BODY_BYTES", "Maximum size of a request body, in bytes.", 1024)
    max_head_bytes: int = _setting(
        64 * 1024, "MAX_HEAD_BYTES", "Maximum size of the request line and headers, in bytes.", 4096
    )
    max_headers: int = _setting(100, "MAX_HEADERS", "Maximum number of request headers.", 16)
    head_seconds: float = _setting(
        20.0, "HEAD_SECONDS", "Seconds a client may take to send the request line and headers.", 0.1
    )
    body_seconds: float = _setting(60.0, "BODY_SECONDS", "Seconds a client may take to send a body.", 0.1)
    max_connections: int = _setting(
        2048, "MAX_CONNECTIONS", "Maximum number of connections, at most half of the process's file limit.", 8
    )
    max_connections_per_address: int = _setting(
        1024, "MAX_CONNECTIONS_PER_ADDRESS", "Maximum number of connections from one address.", 1
    )

    @property
    def token(self) -> str | None:
        """Return the bearer token, given directly or in its file; None if there is none.

        Raises:
            errors.ConfigurationError: no token can be read from the file.
        """
        if self.api_token_file is None or self.api_token:
            return self.api_token
        return environment_values.token_in(self.api_token_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """Settings of the project and its data."""

    project: Path = _setting(Path.cwd, "PROJECT", "Project folder; its data is in `.control-room/` inside it.")
    data: Path | None = _setting(
        None, "DATA_DIRECTORY", "Data directory, relative to the project; `.control-room/` by default."
    )
    home: Path = _setting(user_home, "HOME", "Folder whose `.control-room/` contains the user's own prompts.")
    allowed_roots: tuple[Path, ...] = _setting(
        (), "ALLOWED_ROOTS", "Additional folders that may contain a run's `working_dir`, separated like `PATH`."
    )
    database_url: str | None = _setting(
        None, "DATABASE_URL", "Index database URL, e.g. `postgresql://…`; `index.db` by default."
    )
    store_url: str | None = _setting(
        None, "STORE_URL", "Run store on Postgres, `postgresql://…`; folders in the data directory by default."
    )
    blobs_url: str | None = _setting(
        None,
        "BLOBS_URL",
        "Object storage of blobs and logs, `s3://…`, `gs://…`, `az://…` or `file://…`; with the runs by default.",
    )
    keep_conversations_days: int = _setting(
        90, "KEEP_CONVERSATIONS_DAYS", "Days to keep a conversation after its last run; 0 keeps it forever.", 0, 36_500
    )
    inline_recipes: bool = _setting(False, "INLINE_RECIPES", "Whether requests may contain an inline recipe.")

    @property
    def data_directory(self) -> Path:
        """Return the data directory."""
        return self.project / (self.data or ".control-room")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Settings of the worker pool."""

    max_running: int = _setting(8, "MAX_RUNNING", "Maximum number of runs executing at the same time.", 1)
    stop_grace_seconds: float = _setting(
        10.0, "STOP_GRACE_SECONDS", "Seconds that steps in flight get to finish when the service stops.", 0
    )
    stalled_after_seconds: float = _setting(
        300.0,
        "STALLED_AFTER_SECONDS",
        "Seconds of silence of an agent, program or tool after which its run is reported as stalled.",
        0.1,
    )
    fair_label: str | None = _setting(
        None, "FAIR_LABEL", "Label whose values take turns in the queue; by default runs start in order of arrival."
    )
    max_depth: int = _setting(3, "MAX_DEPTH", "Maximum nesting depth of runs that start runs.", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of the engine."""

    engine: str = _setting("embedded", "ENGINE", "What executes runs: embedded or temporal.")
    temporal: str = _setting("127.0.0.1:7233", "TEMPORAL", "Address of the Temporal server, `HOST:PORT`.")
    temporal_namespace: str = _setting("default", "TEMPORAL_NAMESPACE", "Namespace on the Temporal server.")
    workspaces: str = _setting("sticky", "WORKSPACES", "Workspaces across several machines: sticky or shared.")
    worker_gone_seconds: float = _setting(
        300.0, "WORKER_GONE_SECONDS", "Seconds without a worker until its runs are paused with `worker_gone`.", 1
    )
    serve: tuple[str, ...] = _setting((), "SERVE", "What a worker performs, e.g. `tools,commands,backend:claude`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Settings of the programs that runs start."""

    containment: str = _setting(
        "auto", "CONTAINMENT", "Containment of agent processes: auto, namespace, user_namespace or guard."
    )
    idle_seconds: float = _setting(
        0.0, "IDLE_SECONDS", "Seconds of silence allowed if step and backend set no `idle_seconds`; 0: no limit.", 0
    )
    agent_secrets: tuple[str, ...] = _setting(
        (), "AGENT_SECRETS", "Patterns of secret variables that every agent program receives besides its own keys."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Settings of logs."""

    log_level: str = _setting("info", "LOG_LEVEL", "Log level: debug, info, warning or error.")
    secret_names: tuple[str, ...] = _setting(
        SECRET_NAMES,
        "SECRET_NAMES",
        "Patterns of environment variables whose values are masked everywhere, comma-separated.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSettings:
    """Settings of notifications."""

    notify_allowed: tuple[str, ...] = _setting(
        (), "NOTIFY_ALLOWED", "Private host names, addresses and networks that webhooks may contact."
    )
    smtp_url: str | None = _setting(
        None, "SMTP_URL", "E-mail server, `smtp://USER:PASSWORD@HOST:PORT`, or `smtps://…` for TLS from the start."
    )
    mail_from: str | None = _setting(None, "MAIL_FROM", "Sender address of e-mail.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings."""

    server: ServerSettings = field(default_factory=ServerSettings)
    """The HTTP service."""
    project: ProjectSettings = field(default_factory=ProjectSettings)
    """The project and its data."""
    pool: PoolSettings = field(default_factory=PoolSettings)
    """The worker pool."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    """The engine."""
    processes: ProcessSettings = field(default_factory=ProcessSettings)
    """The programs that runs start."""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    """Logs."""
    notifications: NotificationSettings = field(default_factory=NotificationSettings)
    """Notifications."""


def documented() -> list[Documented]:
    """Return every setting in the order of its group."""
    return [
        Documented(env=item.metadata["env"], default=_default_text(item), meaning=item.metadata["meaning"])
        for group in dataclasses.fields(Settings)
        for item in _items(group)
    ]


def load(environ: Mapping[str, str] | None = None, **overrides: object) -> Settings:
    """Read the settings from the environment; `overrides` (by field name) take precedence.

    Raises:
        errors.ConfigurationError: a value has the wrong form; `detail.setting` names it.
    """
    environ = os.environ if environ is None else environ
    overrides = {name: value for name, value in overrides.items() if value is not None}
    groups: dict[str, Any] = {}
    for group in dataclasses.fields(Settings):
        read = {item.name: _read(item, text) for item in _items(group) if (text := environ.get(item.metadata["env"]))}
        names = {item.name for item in _items(group)}
        groups[group.name] = _type(group)(**read | {name: overrides[name] for name in names & overrides.keys()})
    return Settings(**groups)


def check(settings: Settings, environ: Mapping[str, str] | None = None) -> list[Remark]:
    """Return errors and warnings about the settings; fatal ones prevent the service from starting."""
    environ, notifying = os.environ if environ is None else environ, settings.notifications
    receivers = (notifying.notify_allowed, notifying.smtp_url, notifying.mail_from)
    return [
        *_unknown(environ),
        *_check_server(settings.server, environ),
        *_check_values(settings),
        *_check_project(settings.project),
        *(_fatal(*flaw) for flaw in environment_values.flaws_of_notifications(*receivers)),
    ]


def examine(environ: Mapping[str, str]) -> tuple[Settings | None, list[Remark]]:
    """Read and check the settings, and return all remarks together; if a value has the wrong form, without settings."""
    remarks = []
    for group in dataclasses.fields(Settings):
        for item in _items(group):
            try:
                _read(item, environ.get(item.metadata["env"]) or None)
            except errors.ConfigurationError as error:
                remarks.append(Remark(setting=item.metadata["env"], message=error.message, fatal=True))
    if remarks:
        return None, [*remarks, *_unknown(environ)]
    settings = load(environ)
    return settings, check(settings, environ)


def _type(group: dataclasses.Field[Any]) -> Any:
    return group.default_factory


def _items(group: dataclasses.Field[Any]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(_type(group))


def _default_text(item: dataclasses.Field[Any]) -> str:
    if item.default_factory is not dataclasses.MISSING:
        return {"PROJECT": "the current folder", "HOME": "the home folder"}[item.metadata["env"][len(PREFIX) :]]
    if item.default is None or item.default == ():
        return "none"
    if isinstance(item.default, tuple):
        return ",".join(item.default)
    return str(item.default).lower() if isinstance(item.default, bool) else str(item.default)


def _read(item: dataclasses.Field[Any], text: str | None) -> Any:
    reader, form = environment_values.READERS[str(item.type)]
    try:
        return None if text is None else reader(text)
    except (KeyError, ValueError) as error:
        name = item.metadata["env"]
        message = f"{name} must be {form}, not {text!r:.200}"
        raise errors.ConfigurationError(message, detail={"setting": name}) from error


def _unknown(environ: Mapping[str, str]) -> list[Remark]:
    known = [item.env for item in documented()]
    remarks = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known and name not in OUTSIDE:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            remarks.append(Remark(setting=name, message=f"unknown setting{hint}", fatal=False))
    return remarks


def _check_values(settings: Settings) -> list[Remark]:
    """Check ranges and choices."""
    remarks = []
    for group in dataclasses.fields(settings):
        for item in _items(group):
            value = getattr(getattr(settings, group.name), item.name)
            least, most = item.metadata["least"], item.metadata["most"]
            if least is not None and (not least <= value <= most or value == math.inf):
                limits = f"at least {least}" if most == math.inf else f"from {least} to {most}"
                remarks.append(_fatal(item.metadata["env"], f"must be {limits}, not {value}"))
    choices = (
        ("LOG_LEVEL", settings.telemetry.log_level, LOG_LEVELS),
        ("ENGINE", settings.engine.engine, ENGINES),
        ("WORKSPACES", settings.engine.workspaces, WORKSPACES),
        ("CONTAINMENT", settings.processes.containment, CONTAINMENTS),
    )
    for name, value, known in choices:
        if (value.lower() if name == "LOG_LEVEL" else value) not in known:
            remarks.append(_fatal(name, f"must be one of {', '.join(known)}, not {value!r:.200}"))
    return remarks


def _check_server(server: ServerSettings, environ: Mapping[str, str]) -> list[Remark]:
    name = PREFIX + ("API_TOKEN" if server.api_token_file is None else "API_TOKEN_FILE")
    remarks = environment_values.remarks_on_site(server.allowed_hosts, server.allowed_origins)
    if not environment_values.is_loopback(server.host) and not server.api_token and server.api_token_file is None:
        remarks.append(_fatal("API_TOKEN", f"{server.host} is not a loopback address, so a token is required"))
    if server.api_token_file is not None and environ.get(PREFIX + "API_TOKEN"):
        remarks.append(Remark(setting=name, message="is given beside API_TOKEN; give one of them", fatal=True))
    try:
        token = server.token
    except errors.ConfigurationError as error:
        return [*remarks, Remark(setting=name, message=error.message, fatal=True)]
    if token and not re.fullmatch(SENDABLE, token):
        remarks.append(_fatal(name, "must consist of ASCII characters that a header can carry, without spaces"))
    if token and len(token) < 16:
        remarks.append(Remark(setting=name, message="is shorter than 16 characters", fatal=False))
    if server.api_token_file is not None and environment_values.is_shared(server.api_token_file):
        remarks.append(Remark(setting=name, message="can be read by other users; chmod 600 it", fatal=False))
    return remarks


def _check_project(project: ProjectSettings) -> list[Remark]:
    places = [("PROJECT", project.project), *(("ALLOWED_ROOTS", root) for root in project.allowed_roots)]
    remarks = [_fatal(name, flaw) for name, place in places if (flaw := environment_values.flaw_of_folder(place))]
    # Runs record the folders with which they work, as text.
    folders = {"PROJECT": project.project, "DATA_DIRECTORY": project.data_directory}
    unwritable = [name for name, folder in folders.items() if not environment_values.is_text(os.path.realpath(folder))]
    remarks += [_fatal(name, f"{folders[name]} cannot be written as UTF-8") for name in unwritable[:1]]
    if project.store_url and not _STORE_URL.match(project.store_url):
        remarks.append(_fatal("STORE_URL", "must be an address like postgresql://USER:PASSWORD@HOST/DATABASE"))
    if project.blobs_url and (reason := environment_values.flaw_of_bucket(project.blobs_url)):
        remarks.append(_fatal("BLOBS_URL", reason))
    real, data = (Path(os.path.realpath(folders[name])) for name in ("PROJECT", "DATA_DIRECTORY"))
    if real.is_relative_to(data):
        remarks.append(_fatal("DATA_DIRECTORY", "must not be or contain the project: runs cannot work in it"))
    return remarks


def _fatal(name: str, message: str) -> Remark:
    return Remark(setting=PREFIX + name.removeprefix(PREFIX), message=message, fatal=True)
