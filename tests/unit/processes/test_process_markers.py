"""Marks, process trees and registers: how processes are identified and recorded."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.processes import command_register, output_files, process_markers, process_tree
from tests.unit.processes import process_families

SERIES = st.integers(1, 2**30 - 1)
NUMBERS = st.integers(0, 2**32 - 1)
BEARING = """
import os, sys
sys.path.append(sys.argv[1])
from app.processes import process_markers
print(process_markers.set_marker(int(sys.argv[2])), flush=True)
os.execve("/bin/sleep", ["sleep", "60"], {})
"""
ROOT = Path(__file__).resolve().parents[3]


class TestMarks:
    """Marks of processes."""

    @given(series=SERIES, number=NUMBERS)
    def test_a_mark_contains_its_series_and_number(self, series: int, number: int) -> None:
        """A mark contains its series and number, and is a valid limit for the system."""
        mark = process_markers.marker(series, number)

        assert process_markers.series_of(mark) == series
        assert 2**32 <= mark < 2**63
        assert process_markers._parsed(process_markers.to_text(mark).encode()) == mark

    @given(chance=st.binary(min_size=1, max_size=16))
    def test_any_chance_makes_a_series(self, chance: bytes) -> None:
        """A series is never 0, which would not be a valid mark."""
        assert 0 < process_markers.series(chance) < 2**30

    @pytest.mark.skipif(not process_tree.LINUX, reason="marks are a matter of Linux")
    def test_a_mark_outlives_exec_and_an_empty_environment(self) -> None:
        """A process keeps its mark through exec, with an empty environment."""
        mark = process_markers.marker(77, 5)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BEARING, str(ROOT), str(mark)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        told = process.stdout.readline()
        found = process_markers.read(process.pid)
        process.kill()
        process.communicate()

        assert told == b"True\n"
        assert found == mark

    @pytest.mark.parametrize(
        ("value", "found"),
        [
            ("0000abcd.5", process_markers.marker(0xABCD, 5)),
            ("", None),
            ("x.y", None),
            ("5", None),
            ("0000abcd.", None),
        ],
    )
    def test_a_mark_is_read_from_the_environment(self, value: str, found: int | None) -> None:
        """If no limit contains the mark, the environment does; an invalid text is not a mark."""
        process = process_families.sleeper(value)
        told = process_markers.read(process.pid)
        process.kill()
        process.wait()

        assert told == found

    def test_a_missing_process_has_no_mark(self) -> None:
        """A process that does not exist has no mark and causes no error."""
        assert process_markers.read(2**22 + 1) is None

    def test_a_foreign_lock_limit_is_not_a_mark(self) -> None:
        """A small limit of file locks is not a mark."""
        before = resource.getrlimit(10)
        process = subprocess.Popen(["/bin/sleep", "60"], env={})
        resource.prlimit(process.pid, 10, (4096, before[1]))
        told = process_markers.read(process.pid)
        process.kill()
        process.wait()

        assert told is None


@pytest.mark.skipif(not process_tree.LINUX, reason="/proc is a matter of Linux")
class TestProcessTree:
    """The processes of a tree."""

    def test_descendants_are_found(self) -> None:
        """A grandchild descends from its grandparent, and this process from neither."""
        process = subprocess.Popen(["/bin/sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE)
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        found = process_tree.descendants(process_tree.table(), [process.pid])
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        process.communicate()

        assert found == {process.pid, grandchild}

    def test_a_zombie_is_dead(self) -> None:
        """A zombie counts as dead, but its start time can be read."""
        process = subprocess.Popen(["/bin/true"])
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        found, began = process_tree.process(process.pid), process_tree.started(process.pid)
        process.wait()

        assert found is None
        assert began > 0

    @pytest.mark.parametrize("handles", [True, False])
    def test_only_the_very_process_is_struck(self, monkeypatch: pytest.MonkeyPatch, handles: bool) -> None:
        """A signal spares a process with a reused id, even if processes can be named only by their ids."""
        if not handles:
            monkeypatch.setattr(process_tree, "_handle", lambda pid: None)
        process = subprocess.Popen(["/bin/sleep", "60"])
        began = process_tree.started(process.pid)
        process_tree.send_signal(process.pid, began + 1, signal.SIGKILL)
        spared = process_tree.is_alive(process.pid, began)
        process_tree.send_signal(process.pid, began, signal.SIGKILL)

        assert spared
        assert process.wait() == -signal.SIGKILL

    def test_a_signal_to_a_missing_process_is_not_an_error(self) -> None:
        """A signal to a process that does not exist causes no error."""
        process_tree.send_signal(2**22 + 1, 5, signal.SIGKILL)
        process_tree.signal_group(2**22 + 1, signal.SIGKILL)

        assert not process_tree.group_exists(2**22 + 1)

    def test_a_group_is_killed_as_a_whole(self) -> None:
        """The group of a child is killed at once, with members that are not its children; this process's own is not."""
        script = "sleep 60 & sleep 60 & echo $!; exec sleep 60"
        with (
            subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as other,
            subprocess.Popen(["sleep", "60"]) as own,
        ):
            assert other.stdout is not None
            other.stdout.readline()
            process_tree.kill_groups([other.pid, own.pid])
            # The pipe ends with its last writer, so that all members are gone.
            assert other.stdout.read() == b""
            assert other.wait() == -signal.SIGKILL
            assert own.poll() is None
            own.kill()

    def test_groups_of_children_that_are_gone_are_ignored(self) -> None:
        """A child that has been reaped has no group."""
        with subprocess.Popen(["true"], start_new_session=True) as gone:
            gone.wait()

        process_tree.kill_groups([gone.pid])


class TestRegisters:
    """Registers of commands."""

    @pytest.fixture
    def written(self, tmp_path: Path) -> command_register.Register:
        return command_register.Register(str(tmp_path), 0xABC, command_register.current(os.getppid()))

    def test_a_register_contains_each_running_command(self, tmp_path: Path, written: command_register.Register) -> None:
        """A register contains a command before it starts, then its process, and neither of them afterwards."""
        path = str(tmp_path / "00000abc")
        place = written.announce(7, "run-1")
        announced = command_register.read(path)[1]
        written.complete(place, command_register.Entry(7, "run-1", 1234, 99))
        completed = command_register.read(path)[1]
        written.release(place)

        assert announced == [command_register.Entry(7, "run-1", 0, 0)]
        assert completed == [command_register.Entry(7, "run-1", 1234, 99)]
        assert command_register.read(path)[1] == []

    def test_the_first_line_identifies_owner_and_launcher(
        self, tmp_path: Path, written: command_register.Register
    ) -> None:
        """The first line identifies owner and launcher uniquely."""
        owner, _ = command_register.read(str(tmp_path / "00000abc"))

        assert owner is not None
        assert (owner.owner_pid, owner.launcher_pid) == (os.getppid(), os.getpid())
        assert process_tree.is_alive(owner.launcher_pid, owner.launcher_started)
        assert owner.boot_id == process_tree.boot_id()

    @pytest.mark.parametrize(
        ("line", "owner"),
        [
            ("boot 1 2 3 4", command_register.Owner("boot", 1, 2, 3, 4, 0)),
            ("boot 1 2 3 4 5", command_register.Owner("boot", 1, 2, 3, 4, 5)),
            ("boot 1 2 3", None),
            ("boot 1 2 3 4 5 6", None),
            ("boot 1 2 3 x", None),
        ],
    )
    def test_a_first_line_may_be_older(self, tmp_path: Path, line: str, owner: command_register.Owner | None) -> None:
        """A register of a version without namespaces can be read; a first line of another form cannot."""
        (tmp_path / "00000abc").write_text(line + "\n")

        assert command_register.read(str(tmp_path / "00000abc"))[0] == owner

    def test_a_register_grows_and_reuses_its_room(self, tmp_path: Path, written: command_register.Register) -> None:
        """Hundreds of commands at a time make a register grow, and as many later ones reuse its room."""
        path = tmp_path / "00000abc"
        for _ in range(3):
            places = [written.announce(number, "r" * 64) for number in range(200)]
            size = path.stat().st_size
            numbers = {entry.number for entry in command_register.read(str(path))[1]}
            for place in places:
                written.release(place)

            assert numbers == set(range(200))
            assert len(set(places)) == 200
            assert size == path.stat().st_size < 60_000

    def test_a_series_is_never_used_twice(self, tmp_path: Path, written: command_register.Register) -> None:
        """Two launchers cannot share a register."""
        os.rename(tmp_path / "00000abc", tmp_path / ".new-00000abc")
        with pytest.raises(FileExistsError):
            command_register.Register(str(tmp_path), 0xABC, command_register.current(os.getppid()))


class TestOutlets:
    """Private output files."""

    def test_an_output_file_has_no_name_in_the_folder(self, tmp_path: Path) -> None:
        """An output file has no name in the folder, even on a system without nameless files."""
        for nameless in (output_files._O_TMPFILE, 0):
            output_files._O_TMPFILE, kept = nameless, output_files._O_TMPFILE
            try:
                output = output_files.create(str(tmp_path))
            finally:
                output_files._O_TMPFILE = kept
            os.write(output.file, b"secret")
            seen = os.listdir(tmp_path), output.content(), output.size_bytes(), os.get_inheritable(output.file)
            output.close()

            assert seen == ([], b"secret", 6, False)

    def test_only_content_up_to_a_limit_is_returned_at_once(self, tmp_path: Path) -> None:
        """Content up to a limit is returned with the result; larger content is not."""
        output = output_files.create(str(tmp_path))
        os.write(output.file, b"x" * output_files.INLINE_BYTES)
        little = output.content()
        os.write(output.file, b"x")
        much = output.content()
        output.close()

        assert little == b"x" * output_files.INLINE_BYTES
        assert much is None
