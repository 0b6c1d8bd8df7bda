"""The platform: what the application runs on, the mode in which it opens a project, and the data directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from app import clock, errors, settings
from app.bootstrap.engines import Engine, EngineParts, Store, embedded
from app.dialects import registry as dialects
from app.engine import ports, probes, registries
from app.flows import registry as flows
from app.storage import agent_sessions, data_directory, folder_store, store_mark
from app.storage.objects import mark
from app.storage.runs import run_folders
from app.worker import crash_probes


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMode:
    """The mode in which a process opens a project."""

    address: str | None = None
    """Address of the service: the process holds the service's lock and continues unfinished runs."""
    alone: bool = False  # Whether the process holds that lock without serving, to keep a service from starting.
    look_only: bool = False
    """Whether the process changes nothing, and does not even create a missing data directory."""
    is_storeless: bool = False
    """Whether an empty store in memory replaces that of the runs, for a process that only looks."""
    works: bool = False  # Whether the process performs steps for services on Temporal.


def _in_folders(kept: data_directory.DataDirectory, url: str, platform: Platform, adopt: run_folders.Adopt) -> Store:
    from app.storage.index.sql import index

    store_mark.refuse_database(kept)
    return folder_store.FolderStore(
        kept, index.SqlIndex(url), clock=platform.clock, probes=platform.probes, adopt=adopt
    )


def _unwatched(performer: ports.Performer) -> ports.Performer:
    return performer


def _registered() -> Mapping[str, ports.Dialect]:
    return dialects.DIALECTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The injected platform; tests replace parts of it."""

    ids: clock.Ids  # Identifiers.
    clock: clock.Clock  # Time.
    probes: probes.Probes  # Named crash points.
    make_store: Callable[[data_directory.DataDirectory, str, Platform, run_folders.Adopt], Store] = _in_folders
    """Opens the run store of a data directory, with the URL of its index database."""
    watch: Callable[[ports.Performer], ports.Performer] = _unwatched
    """Wraps each performer that has external effects."""
    dialects: Mapping[str, ports.Dialect] = field(default_factory=_registered)  # Recipe languages by name.
    performers: Mapping[str, ports.Performer] = field(default_factory=dict)
    """Additional performers by kind of operation."""
    make_engine: Callable[[EngineParts], Engine] = embedded  # Makes the engine.
    elsewhere: bool = False  # Whether other processes perform the steps, with the programs of their machines.
    check_store: Callable[[Store], Awaitable[None]] | None = None
    """Checks an opened store against the other processes that use it; raises a `ConfigurationError` to refuse it."""

    @property
    def drivers(self) -> Mapping[str, ports.Driver]:
        """Return all drivers: the recipe languages and the built-in flows."""
        found = (flows.DRIVERS, self.dialects)
        return registries.LazyRegistry({name: partial(known.__getitem__, name) for known in found for name in known})


def real_platform(environ: Mapping[str, str]) -> Platform:
    """Return the platform with the system's clock and random ids.

    `CONTROL_ROOM_CRASH_AT=point:N`, for crash tests only, makes the process kill itself with SIGKILL when it passes a
    probe for the Nth time.

    Raises:
        errors.ConfigurationError: that variable has the wrong form.
    """
    points: probes.Probes = probes.NoProbes()
    if wanted := environ.get(settings.CRASH_AT):
        try:
            points = crash_probes.parse(wanted)
        except ValueError as error:
            raise errors.ConfigurationError(f"{settings.CRASH_AT}: {error}") from error
    return Platform(clock=clock.SystemClock(), ids=clock.RandomIds(), probes=points)


def store_of(
    project: settings.ProjectSettings,
    directory: data_directory.DataDirectory,
    platform: Platform,
    adopt: run_folders.Adopt,
    *,
    looks_only: bool,
    shared: bool = False,
) -> Store:
    """Return the run store of a project, not opened yet.

    Args:
        shared: Whether other services and workers use it, too.

    Raises:
        errors.ConfigurationError: `store_differs`, the data directory's runs are in another store.
    """
    store = _store_of(project, directory, platform, adopt, looks_only=looks_only, shared=shared)
    if isinstance(store, folder_store.FolderStore):
        identity = platform.ids.token("blobs_")
        store.keep_blobs_in(mark.Target(url=project.blobs_url, new_identity=identity, looks_only=looks_only))
        # Other machines take part in these runs, and use this folder.
        if shared and not looks_only and not project.store_url:
            store.share()
    return store


def engine_of(config: settings.Settings, mode: OpenMode) -> settings.Settings:
    """Return the settings with the engine that executes the runs of a store on Postgres, for a process that only looks.

    Processes that share the store keep the index there; the one of the data directory does not know what they perform.
    """
    if not (
        mode.look_only and not mode.is_storeless and config.project.store_url and config.engine.engine == "embedded"
    ):
        return config
    from app.storage.postgres import ownership

    engine = "temporal" if ownership.is_shared(config.project.store_url) else "embedded"
    return dataclasses.replace(config, engine=dataclasses.replace(config.engine, engine=engine))


def _store_of(
    project: settings.ProjectSettings,
    directory: data_directory.DataDirectory,
    platform: Platform,
    adopt: run_folders.Adopt,
    *,
    looks_only: bool,
    shared: bool,
) -> Store:
    index_url = project.database_url or (shared and project.store_url) or directory.index_url()
    if not project.store_url:
        return platform.make_store(directory, index_url, platform, adopt)
    from app.storage.index import memory_index
    from app.storage.index.sql import index
    from app.storage.postgres import store

    target = store.Target(
        url=project.store_url,
        new_identity=platform.ids.token("store_"),
        looks_only=looks_only,
        shared=shared and not looks_only,
    )
    # A process that only looks creates no data directory for the file of an index.
    is_kept = not looks_only or index_url != directory.index_url() or directory.path.is_dir()
    rows = index.SqlIndex(index_url) if is_kept else memory_index.MemoryIndex()
    return store.PostgresStore(target, directory, rows, clock=platform.clock, probes=platform.probes, adopt=adopt)


def sessions_of(project: settings.ProjectSettings, store: Store) -> agent_sessions.StoredAgentSessions:
    """Return the store of conversations, which is next to that of the runs."""
    if project.store_url:
        return agent_sessions.on_disk(store.checked_disk)
    return agent_sessions.in_folder(project.data_directory, store.read_faults)


def directory_of(project: settings.ProjectSettings, platform: Platform) -> data_directory.DataDirectory:
    """Return the data directory of a project, without touching it."""
    return data_directory.DataDirectory(project.data_directory, clock=platform.clock, ids=platform.ids)
