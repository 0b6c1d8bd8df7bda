"""The supervisor: real commands, their input, their output, and their end."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

from app import clock
from app.processes import (
    commands,
    environments,
    launcher_client,
    launcher_protocol,
    process_markers,
    process_tree,
    supervisor,
)
from tests.unit.processes import modes, process_families


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[supervisor.Supervisor]:
    environ = {**os.environ, "KEPT": "kept", "CONTROL_ROOM_API_TOKEN": "no command's business"}
    environ |= {"A_TOKEN": "token-4711", "B_KEY": "key-4711"}
    started = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), environ)
    yield started
    await started.close()


def request(*argv: str, **given: Any) -> commands.Request:
    """Return a request."""
    facts: dict[str, Any] = {"argv": argv, "run_id": "run-1", "cwd": Path("/"), "timeout_seconds": 60.0}
    return commands.Request(**facts | given)


def shell(script: str, **given: Any) -> commands.Request:
    """Return a request for a script."""
    return request("/bin/sh", "-c", script, **given)


def python(script: str, **given: Any) -> commands.Request:
    """Return a request for a Python program."""
    return request(sys.executable, "-I", "-S", "-c", script, **given)


class TestWhatItIsGiven:
    """Arguments, folder, environment, input."""

    async def test_arguments_arrive_as_they_are(self, running: supervisor.Supervisor) -> None:
        """No shell interprets the arguments."""
        script = "import sys, json; print(json.dumps(sys.argv[1:]))"
        given = ("a b", "$HOME", "*", "'", "", "ünïcode ☃", "x\ny")
        ended = await running.run(request(sys.executable, "-I", "-S", "-c", script, *given))

        assert tuple(json.loads(ended.stdout.content)) == given

    async def test_a_program_is_found_on_the_path_of_the_command(
        self, running: supervisor.Supervisor, tmp_path: Path
    ) -> None:
        """A name without a slash is searched on the PATH of the command."""
        tool = tmp_path / "some-tool"
        tool.write_text("#!/bin/sh\necho found\n")
        tool.chmod(0o755)
        ended = await running.run(request("some-tool", env={"PATH": f"/nowhere:{tmp_path}"}))

        assert ended.stdout.content == b"found\n"

    @pytest.mark.parametrize("by_descriptor", [False, True])
    async def test_a_command_runs_in_its_folder(
        self, running: supervisor.Supervisor, tmp_path: Path, by_descriptor: bool
    ) -> None:
        """The folder is a path or an open folder, and a program with a slash in its name is searched from there."""
        (tmp_path / "here.sh").write_text("#!/bin/sh\npwd -P\n")
        (tmp_path / "here.sh").chmod(0o755)
        cwd = os.open(tmp_path, os.O_RDONLY) if by_descriptor else tmp_path
        ended = await running.run(request("./here.sh", cwd=cwd))

        assert ended.stdout.content.decode().strip() == str(tmp_path)

    async def test_the_environment_is_the_services_with_the_set_variables(self, running: supervisor.Supervisor) -> None:
        """Variables are set, replaced and left out; those that configure the service are not passed on."""
        script = "import os, json; print(json.dumps(dict(os.environ)))"
        ended = await running.run(python(script, env={"KEPT": "changed", "NEW": "1", "HOME": None}))
        seen = json.loads(ended.stdout.content)

        assert (seen["KEPT"], seen["NEW"]) == ("changed", "1")
        assert not {"HOME", "PWD", "CONTROL_ROOM_API_TOKEN"} & seen.keys()
        assert {name for name in seen if name.startswith("CONTROL_ROOM_")} == {process_markers.VARIABLE}

    async def test_secrets_reach_the_commands_that_they_are_named_for(self, running: supervisor.Supervisor) -> None:
        """A command gets only its own secrets, and the launcher, whose environment all commands can read, has none."""
        wanted = ("A_TOKEN", "ABSENT_KEY", "CONTROL_ROOM_API_TOKEN")
        ended = await running.run(shell("env; tr '\\0' '\\n' < /proc/$PPID/environ >&2", secrets=wanted))
        seen = ended.stdout.content.decode().splitlines()

        assert "A_TOKEN=token-4711" in seen
        assert not [line for line in seen if line.startswith(("B_KEY=", "ABSENT_KEY=", "CONTROL_ROOM_API"))]
        assert "KEPT=kept" in ended.stderr.content.decode()
        assert "token-4711" not in ended.stderr.content.decode()

    async def test_an_environment_can_be_given_whole(self, running: supervisor.Supervisor) -> None:
        """A complete environment replaces the service's, also for the search of programs."""
        script = "import os, json; print(json.dumps(dict(os.environ)))"
        ended = await running.run(python(script, env={"ONLY": "this", "HOME": None}, inherits=False))
        seen = json.loads(ended.stdout.content)
        found = await running.run(request("sh", "-c", "echo $ONLY", env={"ONLY": "that"}, inherits=False))

        assert {name for name in seen if name != "LC_CTYPE"} == {"ONLY", process_markers.VARIABLE}
        assert found.stdout.content == b"that\n"

    @pytest.mark.parametrize("text", [b"", b"one\ntwo\n", b"x" * 3_000_000])
    async def test_input_is_read_to_its_end(self, running: supervisor.Supervisor, text: bytes) -> None:
        """A command reads its whole input, however long, and then the end."""
        ended = await running.run(python("import sys; print(len(sys.stdin.read()))", stdin=text))

        assert int(ended.stdout.content) == len(text)

    async def test_a_command_gets_the_usual_limit_of_open_files(self, tmp_path: Path) -> None:
        """A command gets the usual limit of open files although the service has raised its own, which it keeps."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        with environments.raised_descriptor_limit() as usual:
            running = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), os.environ, usual - 7)
            told = await running.run(shell("ulimit -Sn"))
            await running.close()

            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
            assert int(told.stdout.content) == before[0] - 7

        assert resource.getrlimit(resource.RLIMIT_NOFILE) == before

    async def test_without_input_there_is_nothing_to_wait_for(self, running: supervisor.Supervisor) -> None:
        """Standard input is at its end from the beginning."""
        ended = await running.run(shell("cat; echo over"))

        assert ended.stdout.content == b"over\n"

    async def test_a_command_notices_nothing_of_its_launcher(self, running: supervisor.Supervisor) -> None:
        """Signals have their usual meaning, files their usual limit, and only the three standard files are open."""
        script = (
            "import os, json, resource\n"
            "told = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
            "names = [os.readlink(f'/proc/self/fd/{name}') for name in os.listdir('/proc/self/fd') if int(name) > 3]\n"
            "print(json.dumps({'blocked': int(told['SigBlk'], 16), 'files': resource.getrlimit(7), 'open': names,\n"
            "    'leader': os.getsid(0) == os.getpid()}))\n"
        )
        seen = json.loads((await running.run(python(script))).stdout.content)
        ignored = await running.run(shell("exec grep SigIgn /proc/self/status"))

        assert (seen["blocked"], seen["open"], seen["leader"]) == (0, [], True)
        assert tuple(seen["files"]) == resource.getrlimit(resource.RLIMIT_NOFILE)
        # The C library itself uses the two signals above this mask.
        assert int(ignored.stdout.content.split()[1], 16) & 0x7FFFFFFF == 0


class TestWhatItSays:
    """Exit codes, signals, outputs."""

    async def test_exit_code_and_outputs_are_returned(self, running: supervisor.Supervisor) -> None:
        """The two outputs are separate, and the result has the exit code."""
        ended = await running.run(shell("echo out; echo err >&2; exit 3"))

        assert (ended.exit_code, ended.signal, ended.cause, ended.leftovers) == (3, None, "", 0)
        assert (ended.stdout.content, ended.stderr.content) == (b"out\n", b"err\n")
        assert (ended.stdout.size_bytes, ended.stderr.size_bytes) == (4, 4)
        assert ended.pid > 0

    async def test_a_command_ended_by_a_signal_has_no_exit_code(self, running: supervisor.Supervisor) -> None:
        """A command that dies of a signal has no exit code."""
        ended = await running.run(shell("kill -SEGV $$"))

        assert (ended.exit_code, ended.signal) == (None, signal.SIGSEGV)

    async def test_resource_usage_of_the_command_is_reported(self, running: supervisor.Supervisor) -> None:
        """The reported processor time and memory are those of the command and its children."""
        ended = await running.run(python("x = bytearray(60_000_000); sum(range(2_000_000))"))

        assert ended.cpu_seconds > 0.01
        assert ended.peak_bytes > 50_000_000

    async def test_a_large_output_keeps_its_beginning_and_its_errors_end(self, running: supervisor.Supervisor) -> None:
        """The result has the beginning of standard output, the end of standard error, and the whole size of both."""
        size = commands.HELD_BYTES + 1000
        script = f"import os, sys\nfor f in (1, 2):\n  os.write(f, b'A' * 500 + b'.' * {size - 1000} + b'Z' * 500)"
        ended = await running.run(python(script))

        assert (ended.stdout.size_bytes, ended.stderr.size_bytes) == (size, size)
        assert (len(ended.stdout.content), len(ended.stderr.content)) == (commands.HELD_BYTES, commands.HELD_BYTES)
        assert ended.stdout.content.startswith(b"A" * 500)
        assert ended.stdout.content.endswith(b".")
        assert ended.stderr.content.startswith(b".")
        assert ended.stderr.content.endswith(b"Z" * 500)

    async def test_a_truncated_output_file_continues_without_a_hole(self, running: supervisor.Supervisor) -> None:
        """Writing to /dev/stderr as to a file leaves no hole in the output."""
        ended = await running.run(shell("echo one >&2; echo two > /dev/stderr; echo three >&2"))

        assert ended.stderr.content == b"two\nthree\n"

    async def test_output_can_go_to_a_file(self, running: supervisor.Supervisor, tmp_path: Path) -> None:
        """A file from the caller gets standard output byte for byte, and the result has it as well."""
        file = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        ended = await running.run(shell("printf 'a\\000b'; echo err >&2", stdout=file))

        assert (tmp_path / "out").read_bytes() == ended.stdout.content == b"a\0b"

    async def test_a_command_can_be_talked_to(self, running: supervisor.Supervisor) -> None:
        """The caller exchanges text with a running command through a socket, and notices its end."""
        await running.run(request("/bin/true"))
        before = _open_files(running)
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        streams = {"stdin": os.dup(theirs.fileno()), "stdout": theirs.detach()}
        script = "while read line; do echo heard $line; done; echo over; echo err >&2; exit 4"
        work = asyncio.ensure_future(running.run(shell(script, **streams)))
        heard = []
        for word in (b"one", b"two"):
            writer.write(word + b"\n")
            heard.append(await reader.readline())
        writer.write_eof()
        heard.append(await reader.read())
        ended = await work
        writer.close()
        await writer.wait_closed()

        assert heard == [b"heard one\n", b"heard two\n", b"over\n"]
        assert (ended.exit_code, ended.stdout, ended.stderr.content) == (4, commands.Output(), b"err\n")
        assert _open_files(running) == before

    async def test_a_pipe_of_the_callers_ends_with_the_command(
        self, running: supervisor.Supervisor, tmp_path: Path
    ) -> None:
        """The caller's pipe ends with the command, although the command has left a process behind."""
        reader, writer = os.pipe()
        argv = process_families.argv(tmp_path, "stubborn", "child", "leave")
        ended = await running.run(request(*argv, stdin=os.open(os.devnull, os.O_RDONLY), stdout=writer))
        rest = os.read(reader, 10)
        os.close(reader)

        assert (ended.exit_code, ended.leftovers, rest) == (0, 1, b"")

    @pytest.mark.slow
    async def test_the_silence_limit_does_not_apply_to_a_stream(self, running: supervisor.Supervisor) -> None:
        """The limit of silence does not apply to a command that writes to the caller's own socket."""
        ours, theirs = socket.socketpair()
        with ours:
            ended = await running.run(shell("sleep 2.5", stdout=theirs.detach(), idle_seconds=0.5))

        assert (ended.cause, ended.exit_code) == ("", 0)

    async def test_streams_of_a_command_that_cannot_be_started_are_closed(self, running: supervisor.Supervisor) -> None:
        """The other end of a stream is closed at once if its command cannot be started."""
        ours, theirs = socket.socketpair()
        streams = {"stdin": os.dup(theirs.fileno()), "stdout": theirs.detach()}
        with ours:
            with pytest.raises(commands.NotStarted):
                await running.run(request("no-such-program", **streams))
            ours.settimeout(60)

            assert ours.recv(1) == b""

    async def test_many_commands_at_a_time(self, running: supervisor.Supervisor) -> None:
        """Two hundred commands at a time each get their own result, and no descriptor is left open."""
        await running.run(request("/bin/true"))
        before = {*os.listdir("/proc/self/fd")}
        launchers = len(os.listdir(f"/proc/{running.launcher_pid}/fd"))
        found = await asyncio.gather(*(running.run(shell(f"echo {n}; exit {n % 7}")) for n in range(200)))

        assert [int(ended.stdout.content) for ended in found] == list(range(200))
        assert [ended.exit_code for ended in found] == [n % 7 for n in range(200)]
        assert {*os.listdir("/proc/self/fd")} == before
        assert len(os.listdir(f"/proc/{running.launcher_pid}/fd")) == launchers


class TestWhatIsRefused:
    """Commands that cannot be started."""

    @pytest.mark.parametrize(
        ("argv", "given", "code"),
        [
            (("no-such-program",), {}, "program_missing"),
            (("/no/such/program",), {}, "program_missing"),
            (("./no-such-script",), {}, "program_missing"),
            (("/etc/passwd",), {}, "program_not_executable"),
            (("/tmp",), {}, "program_not_executable"),
            (("/bin/true",), {"cwd": Path("/no/such/folder")}, "cwd_missing"),
            (("/bin/true",), {"cwd": Path("/etc/passwd")}, "cwd_missing"),
            (("/bin/true", *["x" * 100_000] * 100), {}, "arguments_too_long"),
            (("/bin/true", "a\0b"), {}, "program_not_executable"),
        ],
    )
    async def test_each_failed_start_has_its_code(
        self, running: supervisor.Supervisor, argv: tuple[str, ...], given: dict[str, Any], code: str
    ) -> None:
        """Each reason for a failed start has a code, and the next command is not affected."""
        with pytest.raises(commands.NotStarted) as refused:
            await running.run(request(*argv, **given))

        assert refused.value.code == code
        assert (await running.run(request("/bin/true"))).exit_code == 0

    async def test_a_program_on_the_path_must_be_executable(
        self, running: supervisor.Supervisor, tmp_path: Path
    ) -> None:
        """A file with the program's name that cannot be executed is not reported as a missing program."""
        (tmp_path / "some-tool").write_text("x")
        with pytest.raises(commands.NotStarted) as refused:
            await running.run(request("some-tool", env={"PATH": str(tmp_path)}))

        assert refused.value.code == "program_not_executable"

    @modes.ORDINARY
    async def test_a_folder_on_the_path_that_cannot_be_searched_is_passed_over(
        self, running: supervisor.Supervisor, tmp_path: Path
    ) -> None:
        """A folder that cannot be searched is skipped: a program in a later folder is found, any other is missing."""
        (tmp_path / "locked").mkdir(mode=0)
        with pytest.raises(commands.NotStarted) as refused:
            await running.run(request("some-tool", env={"PATH": f"{tmp_path / 'locked'}"}))
        found = await running.run(request("true", env={"PATH": f"{tmp_path / 'locked'}:/usr/bin:/bin"}))

        assert (refused.value.code, found.exit_code) == ("program_missing", 0)

    async def test_without_a_place_for_registers_nothing_is_started(self, tmp_path: Path) -> None:
        """Without a folder for registers no launcher starts, since it could not be found again after a crash."""
        (tmp_path / "processes").write_text("in the way")
        running = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), os.environ)
        file = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(commands.NotStarted) as refused:
            await running.run(request("/bin/true", cwd=file))

        assert refused.value.code == "not_started"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)


class TestLimits:
    """Commands that exceed a limit."""

    async def test_a_command_that_takes_too_long_is_ended(self, running: supervisor.Supervisor) -> None:
        """A command that exceeds its time is ended, and its output until then is kept."""
        ended = await running.run(shell("echo begun; exec sleep 60", timeout_seconds=modes.BEGUN_SECONDS))

        assert (ended.cause, ended.signal, ended.stdout.content) == ("timeout", signal.SIGTERM, b"begun\n")

    @pytest.mark.slow
    async def test_a_silent_command_is_ended(self, running: supervisor.Supervisor) -> None:
        """Output keeps a command alive; silence ends it."""
        script = "for i in 1 2 3 4; do echo $i; sleep 0.8; done; exec sleep 60"
        ended = await running.run(shell(script, idle_seconds=modes.BEGUN_SECONDS))

        assert ended.cause == "idle"
        assert ended.stdout.content == b"1\n2\n3\n4\n"

    async def test_a_command_with_too_much_output_is_ended(self, running: supervisor.Supervisor) -> None:
        """A command that writes too much output is ended before it fills the disk."""
        ended = await running.run(shell("while :; do echo much too much; done", cap_bytes=10_000))

        assert (ended.cause, ended.signal) == ("output", signal.SIGTERM)
        assert ended.stdout.size_bytes > 10_000


class TestEnding:
    """A command that ends leaves no process."""

    async def test_a_cancel_reaches_every_process(self, running: supervisor.Supervisor, tmp_path: Path) -> None:
        """A cancel also ends processes that ignore SIGTERM, have a session, or are daemons without an environment."""
        work = asyncio.ensure_future(
            running.run(request(*process_families.argv(tmp_path, "stubborn", *process_families.ALL)))
        )
        pids = await process_families.born(tmp_path, "parent", *process_families.ALL)
        alive = process_families.living(pids)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

        assert alive == {"parent", *process_families.ALL}
        assert process_families.living(pids) == set()

    async def test_the_command_and_its_descendants_get_sigterm_first(
        self, running: supervisor.Supervisor, tmp_path: Path
    ) -> None:
        """The command and its descendants get SIGTERM first."""
        work = asyncio.ensure_future(running.run(request(*process_families.argv(tmp_path, "polite"))))
        pids = await process_families.born(tmp_path, "parent", "polite")
        work.cancel()
        await asyncio.wait([work])

        assert (tmp_path / "goodbye").exists()
        assert process_families.living(pids) == set()

    async def test_impatience_changes_nothing(self, running: supervisor.Supervisor, tmp_path: Path) -> None:
        """A repeated cancel does not return before every process is dead."""
        work = asyncio.ensure_future(running.run(request(*process_families.argv(tmp_path, "stubborn", "child"))))
        pids = await process_families.born(tmp_path, "parent", "child")
        for _ in range(3):
            work.cancel()
            await asyncio.wait([work], timeout=0.01)
        with pytest.raises(asyncio.CancelledError):
            await work

        assert process_families.living(pids) == set()

    async def test_a_cancel_ends_no_other_command(self, running: supervisor.Supervisor, tmp_path: Path) -> None:
        """A cancel ends no process of another command, whichever process adopted it."""
        folders = [tmp_path / "one", tmp_path / "two"]
        works = []
        for folder in folders:
            folder.mkdir()
            works.append(
                asyncio.ensure_future(running.run(request(*process_families.argv(folder, *process_families.ALL))))
            )
        first, second = [await process_families.born(folder, "parent", *process_families.ALL) for folder in folders]
        works[0].cancel()
        await asyncio.wait([works[0]])
        left = process_families.living(first), process_families.living(second)
        works[1].cancel()
        await asyncio.wait([works[1]])

        assert left == (set(), {"parent", *process_families.ALL})
        assert process_families.living(second) == set()

    async def test_a_command_that_was_never_sent_leaves_nothing(
        self, running: supervisor.Supervisor, tmp_path: Path
    ) -> None:
        """A cancel right after the request ends the command too."""
        await running.run(request("/bin/true"))
        work = asyncio.ensure_future(running.run(request(*process_families.argv(tmp_path, "child"))))
        await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

        assert _count_of_processes(running) == 1

    @pytest.mark.parametrize("kind", [*process_families.ALL, "hidden"])
    async def test_leftover_processes_of_a_command_are_ended(
        self, running: supervisor.Supervisor, tmp_path: Path, kind: str
    ) -> None:
        """Processes that a command leaves behind are ended after it."""
        ended = await running.run(request(*process_families.argv(tmp_path, "stubborn", kind, "leave")))
        pids = await process_families.born(tmp_path, kind)

        if kind == "hidden":
            await process_families.until(lambda: process_families.living(pids) == set())
        assert process_families.living(pids) == set()
        assert (ended.exit_code, ended.cause) == (0, "")
        assert ended.leftovers == (0 if kind == "hidden" else 1)

    async def test_many_cancels_at_once(self, running: supervisor.Supervisor, tmp_path: Path) -> None:
        """Sixty commands that ignore SIGTERM are gone after one grace period, not after sixty."""
        await running.run(request("/bin/true"))
        script = "trap '' TERM; sleep 60 & sleep 60"
        works = [asyncio.ensure_future(running.run(shell(script))) for _ in range(60)]
        await process_families.until(lambda: _count_of_processes(running) >= 180)
        began = asyncio.get_running_loop().time()
        for work in works:
            work.cancel()
        await asyncio.wait(works)

        assert _count_of_processes(running) == 1
        assert asyncio.get_running_loop().time() - began < 10

    async def test_close_ends_commands_and_launcher(self, tmp_path: Path) -> None:
        """After a close no process and no register is left, and a second close has no effect."""
        running = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), os.environ)
        work = asyncio.ensure_future(
            running.run(request(*process_families.argv(tmp_path, "stubborn", *process_families.ALL)))
        )
        pids = await process_families.born(tmp_path, "parent", *process_families.ALL)
        pids["launcher"] = running.launcher_pid or 0
        await running.close()
        await running.close()
        (result,) = await asyncio.gather(work, return_exceptions=True)

        assert isinstance(result, commands.LauncherLost | commands.Ended)
        assert process_families.living(pids) == set()
        assert os.listdir(tmp_path / "processes") == [".gitignore"]


class TestLostLaunchers:
    """A launcher that is killed."""

    async def test_its_commands_fail_and_nothing_of_them_is_left(
        self, running: supervisor.Supervisor, tmp_path: Path
    ) -> None:
        """The caller gets the error once the processes are gone; the next command has a new launcher."""
        work = asyncio.ensure_future(
            running.run(request(*process_families.argv(tmp_path, "stubborn", *process_families.ALL)))
        )
        pids = await process_families.born(tmp_path, "parent", *process_families.ALL)
        assert running.launcher_pid is not None
        os.kill(running.launcher_pid, signal.SIGKILL)
        with pytest.raises(commands.LauncherLost) as lost:
            await work

        assert process_families.living(pids) == set()
        assert lost.value.detail["exit_code"] == -signal.SIGKILL
        assert (await running.run(request("/bin/true"))).exit_code == 0

    async def test_a_cancel_meets_a_dying_launcher(self, running: supervisor.Supervisor, tmp_path: Path) -> None:
        """A cancel returns although its launcher has just been killed."""
        work = asyncio.ensure_future(running.run(request(*process_families.argv(tmp_path, "child"))))
        pids = await process_families.born(tmp_path, "parent", "child")
        assert running.launcher_pid is not None
        os.kill(running.launcher_pid, signal.SIGKILL)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

        assert process_families.living(pids) == set()

    async def test_a_cancel_meets_the_loss_of_the_launcher(
        self, running: supervisor.Supervisor, tmp_path: Path
    ) -> None:
        """A cancel in the turn of the loop in which the launcher is lost is still a cancel: the step is not retried."""
        work = asyncio.ensure_future(running.run(request(*process_families.argv(tmp_path, "child"))))
        await process_families.born(tmp_path, "parent", "child")
        assert running._launcher is not None
        (reply,) = running._launcher._waiting.values()
        reply.set_exception(commands.LauncherLost())
        work.cancel()

        with pytest.raises(asyncio.CancelledError):
            await work

    async def test_a_launcher_that_hangs_is_killed(
        self, running: supervisor.Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A cancel kills a launcher that does not end the command in time, and the command as well."""
        monkeypatch.setattr(launcher_client, "_END_SECONDS", 0.3)
        work = asyncio.ensure_future(running.run(request(*process_families.argv(tmp_path, *process_families.ALL))))
        pids = await process_families.born(tmp_path, "parent", *process_families.ALL)
        assert running.launcher_pid is not None
        os.kill(running.launcher_pid, signal.SIGSTOP)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

        assert process_families.living(pids) == set()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    async def test_a_launcher_does_not_end_at_signals_for_the_service(
        self, running: supervisor.Supervisor, number: signal.Signals
    ) -> None:
        """A launcher ignores signals for the service, and ends only with it."""
        await running.run(request("/bin/true"))
        launcher = running.launcher_pid
        assert launcher is not None
        os.kill(launcher, number)
        ended = await running.run(request("/bin/true"))

        assert (ended.exit_code, running.launcher_pid) == (0, launcher)


class TestElsewhere:
    """Systems that cannot list descendants; here Linux without the means for it."""

    @pytest.fixture
    async def elsewhere(self, running: supervisor.Supervisor, monkeypatch: pytest.MonkeyPatch) -> supervisor.Supervisor:
        begin, end = launcher_client._PROGRAM.split("launcher.main")
        monkeypatch.setattr(
            launcher_client,
            "_PROGRAM",
            f"{begin} from app.processes import process_tree; process_tree.LINUX = False; launcher.main{end}",
        )
        return running

    async def test_a_cancel_reaches_the_group(self, elsewhere: supervisor.Supervisor, tmp_path: Path) -> None:
        """A command is ended together with its process group."""
        work = asyncio.ensure_future(elsewhere.run(request(*process_families.argv(tmp_path, "stubborn", "child"))))
        pids = await process_families.born(tmp_path, "parent", "child")
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

        await process_families.until(lambda: not process_families.living(pids))

    async def test_a_command_ends_with_its_process_group(
        self, elsewhere: supervisor.Supervisor, tmp_path: Path
    ) -> None:
        """A command has ended when its process group has."""
        ended = await elsewhere.run(request(*process_families.argv(tmp_path, "child", "leave")))
        pids = await process_families.born(tmp_path, "child")

        assert (ended.exit_code, process_families.living(pids)) == (0, set())

    async def test_results_are_the_same(self, elsewhere: supervisor.Supervisor) -> None:
        """Outputs, codes and limits are reported as on Linux."""
        said = await elsewhere.run(shell("echo out; exit 5"))
        late = await elsewhere.run(shell("sleep 60", timeout_seconds=0.2))

        assert (said.exit_code, said.stdout.content, late.cause) == (5, b"out\n", "timeout")


def _open_files(running: supervisor.Supervisor) -> list[int]:
    return [len(os.listdir(f"/proc/{pid}/fd")) for pid in ("self", running.launcher_pid)]


def _count_of_processes(running: supervisor.Supervisor) -> int:
    return len(process_tree.descendants(process_tree.table(), [running.launcher_pid or 0]))


class TestConnections:
    """Find the run behind a connection."""

    @pytest.mark.parametrize(("listens", "calls"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")])
    async def test_the_run_of_a_command_that_connects(
        self, running: supervisor.Supervisor, listens: str, calls: str
    ) -> None:
        """The run of a connecting command is found, also through a child with an emptied environment.

        A connection of the service's own process belongs to no run.
        """
        found: asyncio.Queue[str | None] = asyncio.Queue()

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own, other = (writer.get_extra_info(name)[:2] for name in ("sockname", "peername"))
            found.put_nowait(await running.run_behind(own, other))
            writer.close()

        is_six = ":" in listens
        try:
            listener = socket.create_server(
                (listens, 0), family=socket.AF_INET6 if is_six else socket.AF_INET, dualstack_ipv6=listens == "::"
            )
        except OSError:
            pytest.skip("this machine has no IPv6")
        async with await asyncio.start_server(greet, sock=listener) as server:
            port = server.sockets[0].getsockname()[1]
            connect = f"import socket; socket.create_connection(({calls!r}, {port})).recv(1)"
            command = asyncio.create_task(running.run(shell(f'env -i {sys.executable} -I -S -c "{connect}"; sleep 60')))
            asked = await asyncio.wait_for(found.get(), 60)
            _, writer = await asyncio.open_connection(calls, port)
            stranger = await asyncio.wait_for(found.get(), 60)
            writer.close()
            command.cancel()
            await asyncio.gather(command, return_exceptions=True)

        assert (asked, stranger) == ("run-1", None)


async def test_long_outputs_of_a_cancelled_command_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open files of a cancelled command are closed although no thread could read them before the cancellation."""
    long = tmp_path / "long"
    long.write_bytes(b"much")
    passed = [os.open(long, os.O_RDONLY) for _ in range(2)]
    ended = launcher_protocol.Ended(1, 2, 0, "", None, None, 0, 0, 0.0, 0, "none")

    class Launcher:
        async def run(self, *_: object) -> launcher_client.Reply:
            return ended, list(passed)

    supervised = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), {})
    monkeypatch.setattr(supervised, "_running_launcher", Launcher)
    threads, free = futures.ThreadPoolExecutor(1), threading.Event()
    asyncio.get_running_loop().set_default_executor(threads)
    threads.submit(free.wait)
    running = asyncio.create_task(supervised.run(request("long")))
    for _ in range(9):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    free.set()
    threads.shutdown()

    assert running.cancelled()
    assert [file for file in passed if _is_open(file, long)] == []


def _is_open(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
