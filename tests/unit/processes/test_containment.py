"""Containment: every mode gives a program the same input, results and ending, and no process survives a kill."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from app import clock, settings
from app.processes import (
    commands,
    containment,
    launcher_client,
    namespace_init,
    namespaces,
    process_markers,
    process_tree,
    supervisor,
)
from tests.unit.processes import modes, process_families

ROOT = Path(__file__).resolve().parents[3]
FAMILY = ("parent", *process_families.ALL)


@pytest.fixture(params=modes.EACH)
def mode(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    modes.need(wanted)
    return wanted


@pytest.fixture(params=modes.NAMESPACES)
def namespaced(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    modes.need(wanted)
    return wanted


@pytest.fixture
async def running(mode: str, tmp_path: Path) -> AsyncIterator[supervisor.Supervisor]:
    async for started in _running(mode, tmp_path):
        yield started


@pytest.fixture
async def alone(namespaced: str, tmp_path: Path) -> AsyncIterator[supervisor.Supervisor]:
    async for started in _running(namespaced, tmp_path):
        yield started


async def _running(mode: str, folder: Path) -> AsyncIterator[supervisor.Supervisor]:
    environ = {**os.environ, "SECRET_OF_THE_SERVICE": "sk-1"}
    started = supervisor.Supervisor(folder / "processes", clock.RandomIds(), environ, containment=mode)
    yield started
    await started.close()


def request(*argv: str, **given: Any) -> commands.Request:
    """Return a request for a contained program."""
    facts: dict[str, Any] = {"argv": argv, "run_id": "run-1", "cwd": Path("/"), "timeout_seconds": 60.0}
    return commands.Request(**facts | {"contained": True} | given)


def shell(script: str, **given: Any) -> commands.Request:
    """Return a request for a script."""
    return request("/bin/sh", "-c", script, **given)


def python(script: str, **given: Any) -> commands.Request:
    """Return a request for a Python program."""
    return request(sys.executable, "-I", "-S", "-c", script, **given)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


class TestResults:
    """A program has the same result in every mode."""

    @pytest.mark.parametrize(
        ("script", "exit_code", "number"),
        [
            ("exit 0", 0, None),
            ("exit 3", 3, None),
            ("exit 255", 255, None),
            ("sh -c 'kill -KILL $$'; exit $?", 128 + signal.SIGKILL, None),
            ("kill -TERM $$", None, signal.SIGTERM),
            ("kill -KILL $$", None, signal.SIGKILL),
            ("kill -SEGV $$", None, signal.SIGSEGV),
        ],
    )
    async def test_codes_and_signals_come_through(
        self, running: supervisor.Supervisor, mode: str, script: str, exit_code: int | None, number: int | None
    ) -> None:
        """An exit code is reported as a code and a signal as a signal."""
        ended = await running.run(shell(script))

        assert (ended.exit_code, ended.signal, ended.cause, ended.leftovers) == (exit_code, number, "", 0)
        assert (ended.survivors, ended.containment) == (0, mode)

    async def test_the_program_gets_its_folder_input_and_environment(
        self, running: supervisor.Supervisor, tmp_path: Path
    ) -> None:
        """The program gets the requested folder descriptor, standard input, output file and complete environment."""
        (tmp_path / "work").mkdir()
        file = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        ended = await running.run(
            shell(
                "pwd -P; cat; echo $ONLY; echo made > here; echo err >&2",
                cwd=os.open(tmp_path / "work", os.O_RDONLY),
                stdin=b"read\n",
                stdout=file,
                env={"ONLY": "this"},
                inherits=False,
            )
        )

        assert (tmp_path / "out").read_text() == f"{tmp_path}/work\nread\nthis\n"
        assert (ended.stdout.content, ended.stderr.content) == ((tmp_path / "out").read_bytes(), b"err\n")
        assert (tmp_path / "work" / "here").read_text() == "made\n"
        assert (tmp_path / "work" / "here").stat().st_uid == os.geteuid()
        assert (tmp_path / "work" / "here").stat().st_gid == os.getegid()

    async def test_the_program_runs_as_the_services_user(self, running: supervisor.Supervisor) -> None:
        """The program runs as the service's user and group, who own the files that it makes."""
        ended = await running.run(shell("id -u; id -g"))

        assert ended.stdout.content.decode().split() == [str(os.geteuid()), str(os.getegid())]

    async def test_the_caller_exchanges_text_with_the_program(self, running: supervisor.Supervisor) -> None:
        """The caller exchanges text with the program through a socket, and notices the program's end."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        streams = {"stdin": os.dup(theirs.fileno()), "stdout": theirs.detach()}
        work = asyncio.ensure_future(running.run(shell("while read word; do echo heard $word; done", **streams)))
        writer.write(b"one\n")
        first = await reader.readline()
        writer.write_eof()
        rest = await reader.read()
        ended = await work
        writer.close()
        await writer.wait_closed()

        assert (first, rest, ended.exit_code) == (b"heard one\n", b"", 0)

    async def test_the_program_has_usual_signals_and_files(self, running: supervisor.Supervisor) -> None:
        """Signals have their usual meaning, the program leads a session, and only the three standard files are open."""
        script = (
            "import os, signal\n"
            "told = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
            "names = [name for name in os.listdir('/proc/self/fd') if int(name) > 3]\n"
            "ignored = int(told['SigIgn'], 16) & 0x7fffffff\n"
            "usual = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)\n"
            "print(names, int(told['SigBlk'], 16), ignored & ~usual, os.getsid(0) == os.getpid())\n"
        )
        ended = await running.run(python(script))

        assert ended.stdout.content == b"[] 0 0 True\n"

    async def test_resource_usage_of_the_program_is_reported(self, running: supervisor.Supervisor) -> None:
        """The reported processor time and memory are the program's."""
        ended = await running.run(python("x = bytearray(60_000_000); sum(range(2_000_000))"))

        assert ended.cpu_seconds > 0.01
        assert ended.peak_bytes > 50_000_000

    @pytest.mark.parametrize(
        ("argv", "given", "code"),
        [
            (("no-such-program",), {}, "program_missing"),
            (("/no/such/program",), {}, "program_missing"),
            (("/etc/passwd",), {}, "program_not_executable"),
            (("/bin/true",), {"cwd": Path("/no/such/folder")}, "cwd_missing"),
            (("/bin/true", *["x" * 100_000] * 100), {}, "arguments_too_long"),
            (("/bin/true", "a\0b"), {}, "program_not_executable"),
        ],
    )
    async def test_each_failed_start_has_its_code(
        self, running: supervisor.Supervisor, argv: tuple[str, ...], given: dict[str, Any], code: str
    ) -> None:
        """Each reason for a failed start has its code, and no process or file remains."""
        await running.run(request("/bin/true"))
        before = _open_files(running)
        with pytest.raises(commands.NotStarted) as refused:
            await running.run(request(*argv, **given))

        assert refused.value.code == code
        assert (await running.run(request("/bin/true"))).exit_code == 0
        assert (_open_files(running), _family(running)) == (before, {running.launcher_pid})

    async def test_a_program_that_goes_too_far_is_ended(self, running: supervisor.Supervisor) -> None:
        """Time, silence and output are limited, and the output until then is kept."""
        waiting = "echo begun; exec sleep 60"
        limited = {
            "timeout": shell(waiting, timeout_seconds=modes.BEGUN_SECONDS),
            "idle": shell(waiting, idle_seconds=modes.BEGUN_SECONDS),
            "output": shell("while :; do echo begun; done", cap_bytes=10_000),
        }
        found = await asyncio.gather(*(running.run(each) for each in limited.values()))

        for cause, ended in zip(limited, found, strict=True):
            assert (ended.cause, ended.leftovers, ended.survivors) == (cause, 0, 0)
            # A busy machine may need longer than the grace period for the first signal.
            assert ended.signal in (signal.SIGTERM, signal.SIGKILL)
            assert ended.stdout.content.startswith(b"begun\n")

    async def test_many_at_a_time(self, running: supervisor.Supervisor) -> None:
        """Forty programs at a time get their own results, and leave no descriptor and no process open."""
        await running.run(request("/bin/true"))
        before = _open_files(running)
        found = await asyncio.gather(*(running.run(shell(f"sleep 60 & echo {n}; exit {n}")) for n in range(40)))

        assert [(ended.exit_code, ended.stdout.content) for ended in found] == [(n, b"%d\n" % n) for n in range(40)]
        assert {(ended.leftovers, ended.survivors) for ended in found} == {(1, 0)}
        assert (_open_files(running), _family(running)) == (before, {running.launcher_pid})


class TestEnding:
    """No process continues, however a program ends."""

    async def test_a_cancel_leaves_nothing(self, running: supervisor.Supervisor, traces: Path) -> None:
        """A cancel also ends processes that ignore SIGTERM, have a session, were forked twice or removed their mark."""
        kinds = (*process_families.ALL, "hidden") if _contains_all(running) else process_families.ALL
        work = asyncio.ensure_future(running.run(request(*process_families.argv(traces, "stubborn", *kinds))))
        alive = await process_families.born(traces, "parent", *kinds)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        left, written = process_families.running(traces), process_families.written(traces)

        assert alive.keys() == {"parent", *kinds}
        assert left == {}
        assert written == process_families.written(traces)

    async def test_many_cancels_at_once(self, running: supervisor.Supervisor) -> None:
        """Twenty programs that ignore SIGTERM are gone after one grace period, and leave no file open."""
        await running.run(request("/bin/true"))
        before = _open_files(running)
        script = "trap '' TERM; sleep 60 & setsid sleep 60 & sleep 60"
        works = [asyncio.ensure_future(running.run(shell(script))) for _ in range(20)]
        await process_families.until(lambda: len(_family(running)) > 80)
        for work in works[:10]:
            work.cancel()
        await asyncio.wait(works[:10])
        left = len(running.active())
        for work in works[10:]:
            work.cancel()
        await asyncio.wait(works)

        assert (left, running.active()) == (10, [])
        assert (_open_files(running), _family(running)) == (before, {running.launcher_pid})

    async def test_a_timeout_leaves_nothing(self, running: supervisor.Supervisor, traces: Path) -> None:
        """A time-out ends every process; one that ignored SIGTERM is ended by SIGKILL."""
        argv = process_families.argv(traces, "stubborn", *process_families.ALL)
        ended = await running.run(request(*argv, timeout_seconds=3.0))

        assert (ended.cause, ended.signal, ended.survivors) == ("timeout", signal.SIGKILL, 0)
        assert {name for name in os.listdir(traces) if name.endswith(".trace")} == {f"{kind}.trace" for kind in FAMILY}
        assert process_families.running(traces) == {}

    @pytest.mark.parametrize("kind", ["polite", "tool"])
    async def test_every_process_gets_sigterm_first(
        self, running: supervisor.Supervisor, traces: Path, kind: str
    ) -> None:
        """The program, its children and tools in sessions of their own get SIGTERM first."""
        work = asyncio.ensure_future(running.run(request(*process_families.argv(traces, kind))))
        await process_families.born(traces, "parent", kind)
        work.cancel()
        await asyncio.wait([work])

        assert (traces / "goodbye").exists()
        assert process_families.running(traces) == {}

    async def test_a_program_may_clean_up_at_sigterm(self, running: supervisor.Supervisor) -> None:
        """A program that ends well within the grace period keeps its exit code, although it received SIGTERM."""
        ended = await running.run(
            shell(
                "trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.01; done", timeout_seconds=modes.BEGUN_SECONDS
            ),
        )

        assert (ended.cause, ended.exit_code, ended.stdout.content) == ("timeout", 0, b"cleaned\n")

    @pytest.mark.parametrize("kind", [*process_families.ALL, "hidden"])
    async def test_leftovers_are_ended(
        self, running: supervisor.Supervisor, traces: Path, mode: str, kind: str
    ) -> None:
        """A program has ended when its processes have; in a namespace also those that removed their mark."""
        ended = await running.run(request(*process_families.argv(traces, "stubborn", kind, "leave")))
        if kind == "hidden" and mode == namespace_init.GUARD:
            await process_families.until(lambda: process_families.running(traces) == {})

        assert process_families.running(traces) == {}
        assert (ended.exit_code, ended.cause, ended.survivors) == (0, "", 0)
        assert ended.leftovers == (0 if kind == "hidden" and mode == namespace_init.GUARD else 1)

    async def test_a_killed_launcher_leaves_nothing(self, running: supervisor.Supervisor, traces: Path) -> None:
        """The caller gets the error once no process is left; the next program has a new launcher."""
        work = asyncio.ensure_future(
            running.run(request(*process_families.argv(traces, "stubborn", *process_families.ALL)))
        )
        await process_families.born(traces, *FAMILY)
        first = running.launcher_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        with pytest.raises(commands.LauncherLost):
            await work

        assert process_families.running(traces) == {}
        assert (await running.run(request("/bin/true"))).exit_code == 0
        assert running.launcher_pid != first

    async def test_a_killed_wrapper_leaves_nothing(
        self, running: supervisor.Supervisor, traces: Path, mode: str
    ) -> None:
        """After kill -9 of the process that represents a program, none of its processes continues."""
        work = asyncio.ensure_future(
            running.run(request(*process_families.argv(traces, "stubborn", *process_families.ALL)))
        )
        await process_families.born(traces, *FAMILY)
        (active,) = running.active()
        assert active.pid is not None
        os.kill(active.pid, signal.SIGKILL)
        ended = await work

        assert (ended.pid, ended.signal, ended.cause) == (active.pid, signal.SIGKILL, "")
        assert ended.leftovers == (3 if mode == namespace_init.GUARD else 0)
        assert process_families.running(traces) == {}

    async def test_a_close_leaves_nothing(self, running: supervisor.Supervisor, traces: Path, tmp_path: Path) -> None:
        """After a close no process and no register is left."""
        work = asyncio.ensure_future(
            running.run(request(*process_families.argv(traces, "stubborn", *process_families.ALL)))
        )
        await process_families.born(traces, *FAMILY)
        await running.close()
        await asyncio.wait([work])
        work.exception()

        assert process_families.running(traces) == {}
        assert os.listdir(tmp_path / "processes") == [".gitignore"]


class TestNamespaces:
    """The program's view of a namespace of its own."""

    async def test_a_program_sees_only_itself_and_its_init(self, alone: supervisor.Supervisor) -> None:
        """A program sees only itself and its init; ids fit /proc, which does not show the service's environment."""
        script = (
            "import os\n"
            "pids = sorted(int(name) for name in os.listdir('/proc') if name.isdigit())\n"
            "told = open('/proc/self/stat').read().split()[0]\n"
            "try: seen = open('/proc/1/environ', 'rb').read()\n"
            "except PermissionError: seen = b''\n"
            "print(pids == [1, os.getpid()], os.getppid() == 1, int(told) == os.getpid(), seen.strip(b'\\0'))\n"
        )
        ended = await alone.run(python(script, inherits=False))

        assert ended.stdout.content == b"True True True b''\n"

    async def test_neither_launcher_nor_namespace_init_can_be_killed(self, alone: supervisor.Supervisor) -> None:
        """A program that kills all it can does not reach its launcher and init, and its exit code is reported."""
        await alone.run(request("/bin/true"))
        launcher = alone.launcher_pid
        ended = await alone.run(shell(f"kill -9 1; kill -9 {launcher}; kill -9 -1; exit 7"))

        assert (ended.exit_code, alone.launcher_pid) == (7, launcher)

    async def test_ids_are_not_always_the_same(self, alone: supervisor.Supervisor) -> None:
        """Several programs at a time have different process ids."""
        found = await asyncio.gather(*(alone.run(shell("echo $$; sleep 0.3")) for _ in range(5)))

        assert len({ended.stdout.content for ended in found}) == 5

    async def test_orphans_are_buried(self, alone: supervisor.Supervisor) -> None:
        """Orphans do not remain as zombies while the program runs."""
        # Orphans are children of the first process, like the script itself, until that process reaps them.
        script = (
            "for i in 1 2 3 4 5; do sh -c 'sleep 0.01 &'; done\n"
            "for i in $(seq 500); do\n"
            "  test \"$(grep -ls 'PPid:[[:space:]]1$' /proc/[0-9]*/status)\" = /proc/$$/status && exit 0\n"
            "  sleep 0.01\n"
            "done; exit 1"
        )
        ended = await alone.run(shell(script))

        assert ended.exit_code == 0

    @pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
    async def test_programs_can_be_traced(self, alone: supervisor.Supervisor) -> None:
        """A debugger works in the container."""
        ended = await alone.run(shell("strace -f -o /dev/null sh -c 'exit 5'"))

        assert ended.exit_code == 5

    async def test_short_commands_are_spared(self, alone: supervisor.Supervisor) -> None:
        """A program that does not ask for a namespace gets none."""
        ended = await alone.run(request("/bin/true", contained=False))

        assert (ended.exit_code, ended.containment) == (0, namespace_init.GUARD)

    async def test_a_namespace_keeps_the_launchers_mark(self, alone: supervisor.Supervisor, traces: Path) -> None:
        """A namespace does not replace the mark: init and program have the mark of their launcher."""
        work = asyncio.ensure_future(alone.run(request(*process_families.argv(traces, "child"))))
        pids = await process_families.born(traces, "parent", "child")
        (active,) = alone.active()
        found = {process_markers.read(pid) for pid in (*pids.values(), active.pid or 0)}
        work.cancel()
        await asyncio.wait([work])

        assert len(found) == 1
        assert None not in found

    def test_without_rights_over_the_machine(self) -> None:
        """A user without rights gets a user namespace where the system allows it, and owns the files."""
        modes.need(namespace_init.USER_NAMESPACE)
        user = 54321 if os.geteuid() == 0 else os.geteuid()
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            words = [sys.executable, "-c", _NOBODY, str(ROOT), str(user), f"{folder}/made"]
            told = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
            owners = [Path(folder, name).stat().st_uid for name in os.listdir(folder)]

        assert told.stdout.split("\n") == ["user_namespace", f"{user}", "6", ""], told.stderr
        assert owners == [user]


_NOBODY = """
import ctypes, os, resource, sys
sys.path.append(sys.argv[1])
from app.processes import namespaces, namespace_init
user = int(sys.argv[2])
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(4, 1)  # as after an exec
way, _ = namespace_init.Containment("auto").probe()
print(namespaces.NAMES.get(way), flush=True)
script = f"id -u; touch {sys.argv[3]}; exit 6"
pid, hears = namespace_init.start(way, lambda: os.posix_spawn("/bin/sh", ["sh", "-c", script], os.environ), ())
os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(namespace_init.read_report(hears).status))
"""


class TestChoosing:
    """The choice of the mode."""

    def test_the_settings_name_every_mode(self) -> None:
        """The settings allow exactly the modes that exist."""
        assert settings.CONTAINMENTS == namespace_init.WANTED

    def test_diagnostics_report_the_containment_mode(self, mode: str) -> None:
        """Diagnostics try the mode out in a separate process."""
        modes.need(mode)
        found = containment.examine(mode)

        assert (found.containment, bool(found.reason)) == (mode, mode == namespace_init.GUARD)

    @pytest.mark.parametrize("wanted", ["auto", "namespace"])
    def test_a_short_lack_of_processes_is_not_remembered(self, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where processes lack for a moment, the command waits, and the next one is contained as the system allows."""
        lacks = [errno.EAGAIN]

        def fork_into(flags: int) -> int:
            raise OSError(lacks.pop() if lacks else errno.EPERM, "refused")

        monkeypatch.setattr(namespaces, "fork_into", fork_into)
        chosen = namespace_init.Containment(wanted)
        with pytest.raises(BlockingIOError):
            chosen.flags()

        assert chosen.probe() == (None, errno.EPERM)
        lacks.append(errno.EAGAIN)
        assert chosen.probe() == (None, errno.EPERM)

    def test_a_failed_probe_reports_its_reason(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A probe that fails counts as no namespace, with the reason."""
        monkeypatch.setattr(containment, "_PROGRAM", "import sys; sys.exit(3)")
        found = containment.examine()

        assert found.containment == namespace_init.GUARD
        assert "3" in found.reason

    @pytest.fixture
    def refusing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begin, end = launcher_client._PROGRAM.split("launcher.main")
        refuse = " from app.processes import namespaces; namespaces._SYS_CLONE3 = 1_000_000;"
        monkeypatch.setattr(launcher_client, "_PROGRAM", f"{begin}{refuse} launcher.main{end}")

    @pytest.mark.usefixtures("refusing")
    async def test_the_guard_replaces_a_refused_namespace(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """If the system refuses namespaces, the guard is used instead, and one line reports it."""
        async for running in _running(namespace_init.AUTO, tmp_path):
            found = [await running.run(request("/bin/true")) for _ in range(3)]

        assert {(ended.exit_code, ended.containment) for ended in found} == {(0, namespace_init.GUARD)}
        assert caplog.text.count("no namespaces") == 1

    @pytest.mark.usefixtures("refusing")
    @pytest.mark.parametrize("wanted", modes.NAMESPACES)
    async def test_where_it_must_be_a_namespace_nothing_else_will_do(self, tmp_path: Path, wanted: str) -> None:
        """If a namespace is required, agents are refused; commands that need none run."""
        async for running in _running(wanted, tmp_path):
            with pytest.raises(commands.NotStarted) as refused:
                await running.run(request("/bin/true"))
            other = await running.run(request("/bin/true", contained=False))

            assert (refused.value.code, other.exit_code) == ("containment_missing", 0)

    async def test_a_namespace_that_cannot_be_made_is_a_refusal(
        self, namespaced: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A namespace that worked in the trial and fails now is an error, and the program does not run uncontained."""
        modes.need(namespaced)
        begin, end = launcher_client._PROGRAM.split("launcher.main")
        refuse = " from app.processes import namespaces, namespace_init;"
        refuse += " namespace_init.Containment.probe = lambda self: (next(iter(namespaces.NAMES)), 0);"
        refuse += " namespaces._MS_REC = 0; namespaces._MS_SLAVE = 0;"
        monkeypatch.setattr(launcher_client, "_PROGRAM", f"{begin}{refuse} launcher.main{end}")
        async for running in _running(namespaced, tmp_path):
            with pytest.raises(commands.NotStarted) as refused:
                await running.run(shell(f"touch {tmp_path}/made"))

            assert refused.value.code == "containment_missing"
            assert not (tmp_path / "made").exists()


class TestActive:
    """The list of active programs."""

    async def test_active_programs_are_found_by_run_and_session(self, running: supervisor.Supervisor) -> None:
        """Active programs are found by run and by agent session until they have ended."""
        works = [
            asyncio.ensure_future(running.run(request("/bin/sleep", "60", run_id=run_id, agent_session_id=session)))
            for run_id, session in (("run-1", "talk-1"), ("run-1", None), ("run-2", "talk-2"))
        ]
        await process_families.until(
            lambda: all(found.pid for found in running.active()) and len(running.active()) == 3
        )
        by_run = [found.agent_session_id for found in running.active(run_id="run-1")]
        by_talk = running.active(agent_session_id="talk-2")
        for work in works:
            work.cancel()
        await asyncio.wait(works)

        assert by_run == ["talk-1", None]
        assert [(found.run_id, found.program) for found in by_talk] == [("run-2", "/bin/sleep")]
        assert running.active() == []


def _contains_all(running: supervisor.Supervisor) -> bool:
    return running._containment != namespace_init.GUARD


def _open_files(running: supervisor.Supervisor) -> list[int]:
    return [sum(1 for _ in _lasting_files(pid)) for pid in ("self", running.launcher_pid)]


def _lasting_files(pid: object) -> Iterator[str]:
    # The launcher may be reading /proc at this moment.
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/{pid}/fd/{number}")
            if not target.startswith("/proc"):
                yield target


def _family(running: supervisor.Supervisor) -> set[int]:
    return process_tree.descendants(process_tree.table(), [running.launcher_pid or 0])
