"""The performer of commands: real programs in a workspace, and the fields of their records."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import clock, errors
from app.domain import operations, plain, states
from app.engine import ports
from app.processes import commands as processes
from app.processes import supervisor
from app.tools import command_results
from app.tools.commands import MAX_STDIN_BYTES, CommandPerformer
from app.tools.workspace import Workspaces
from tests.architecture import sources
from tests.unit.calls import Harness
from tests.unit.processes import modes, process_families

SECRET = "sk-very-secret-4711"
DOCUMENT = (sources.ROOT / "docs" / "reference" / "programs.md").read_text(encoding="utf-8")
ENVIRON = {**os.environ, "TOKEN": SECRET, "EMPTY": "", "MY_KEY": "mine", "YOUR_KEY": "yours"}


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    project = tmp_path / "project"
    project.mkdir()
    return Harness(working_dir=project)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[supervisor.Supervisor]:
    started = supervisor.Supervisor(tmp_path / "processes", clock.RandomIds(), ENVIRON)
    yield started
    await started.close()


@pytest.fixture
def performer(harness: Harness, running: supervisor.Supervisor) -> CommandPerformer:
    return CommandPerformer(running, Workspaces([harness.working_dir]), ENVIRON)


def shell(script: str, **given: Any) -> operations.Command:
    """Return a command that runs a script."""
    return operations.Command(argv=("/bin/sh", "-c", script), **given)


def test_the_document_names_every_field() -> None:
    """The page docs/reference/programs.md names every field of a command."""
    given = DOCUMENT.split("## Fields")[1].split("## Results")[0]
    fields = {field.name for field in dataclasses.fields(operations.Command)}

    assert fields - set(re.findall(r"`(\w+)`", given)) == set()


class TestRecords:
    """Records of commands."""

    async def test_the_record_of_a_success_has_every_field(self, harness: Harness, performer: CommandPerformer) -> None:
        """The record of a success has outputs, exit code, sizes and resource usage; the first line is the summary."""
        result = await performer.perform(harness.call(shell("echo out; echo err >&2")))
        told = result.output

        assert (result.status, result.error, result.summary) == (states.StepState.DONE, None, "out")
        assert (told["exit_code"], told["signal"], told["stdout"], told["stderr"]) == (0, None, "out\n", "err\n")
        assert (told["stdout_bytes"], told["stdout_truncated"], told["stderr_truncated"]) == (4, False, False)
        assert (told["leftovers"], told["survivors"]) == (0, 0)
        assert all(f"`{name}`" in DOCUMENT for name in told)
        assert told["cpu_seconds"] >= 0
        assert told["peak_bytes"] > 0

    @pytest.mark.parametrize("given", [{}, {"output_file": "out.txt"}])
    async def test_a_silent_command_is_ended(
        self, harness: Harness, performer: CommandPerformer, given: dict[str, Any]
    ) -> None:
        """A command that writes nothing for its idle limit is ended, also with an output file; its output is kept."""
        command = shell("echo begun; exec sleep 600", idle_seconds=0.1, **given)
        result = await performer.perform(harness.call(command))

        assert result.error is not None
        assert (result.error.code, result.error.detail) == ("idle", {"idle_seconds": 0.1})
        assert result.error.message == "The command '/bin/sh' wrote nothing for 0.1 seconds."
        assert result.output["stdout"] == "begun\n"

    async def test_the_setting_holds_for_commands_without_a_limit(
        self, harness: Harness, running: supervisor.Supervisor
    ) -> None:
        """The idle limit of the settings applies to commands without a limit of their own."""
        performer = CommandPerformer(running, Workspaces([harness.working_dir]), ENVIRON, idle_seconds=0.1)
        silent, patient = shell("exec sleep 600"), shell("sleep 1.5; echo end", idle_seconds=3600)
        ended, kept = await asyncio.gather(
            performer.perform(harness.call(silent)), performer.perform(harness.call(patient))
        )

        assert ended.error is not None
        assert (ended.error.code, kept.error) == ("idle", None)

    async def test_an_unexpected_exit_code_fails_the_step(self, harness: Harness, performer: CommandPerformer) -> None:
        """An unexpected exit code fails the step, and the record still has the output."""
        result = await performer.perform(harness.call(shell("echo out; exit 7")))

        assert result.status is states.StepState.FAILED
        assert result.error is not None
        assert (result.error.code, result.error.detail) == ("exit_code", {"exit_code": 7})
        assert result.output["stdout"] == "out\n"

    @pytest.mark.parametrize(
        ("script", "told"),
        [
            ("exit 7", "."),
            ("echo first >&2; printf '  why: \\n\\n' >&2; exit 7", ": why:"),
            ("printf '%0300d' 5 >&2; exit 7", f": {'0' * 200}"),
            ("echo x${TOKEN}x >&2; exit 7", ": x***x"),
        ],
    )
    async def test_the_error_ends_with_the_last_line_of_stderr(
        self, harness: Harness, performer: CommandPerformer, script: str, told: str
    ) -> None:
        """The error message ends with the last line of standard error, cut short and masked."""
        result = await performer.perform(harness.call(shell(script, secrets=("TOKEN",))))

        assert result.error is not None
        assert result.error.message == f"The command '/bin/sh' ended with exit code 7{told}"

    async def test_an_expected_exit_code_does_not(self, harness: Harness, performer: CommandPerformer) -> None:
        """The operation decides which exit codes are a success, zero included."""
        results = [
            await performer.perform(harness.call(shell(f"exit {code}", exit_codes=(1, 2)))) for code in (0, 1, 2, 3)
        ]

        assert [result.status.value for result in results] == ["failed", "done", "done", "failed"]
        assert [result.output["exit_code"] for result in results] == [0, 1, 2, 3]

    async def test_a_signal_fails_the_step(self, harness: Harness, performer: CommandPerformer) -> None:
        """A program killed by a signal fails the step, and the error names the signal."""
        result = await performer.perform(harness.call(shell("kill -KILL $$")))

        assert result.error is not None
        assert (result.error.code, result.error.detail) == ("signal", {"signal": "SIGKILL", "number": 9})
        assert (result.output["exit_code"], result.output["signal"]) == (None, "SIGKILL")

    async def test_time_runs_out(self, harness: Harness, performer: CommandPerformer) -> None:
        """A time-out fails the step, and the record has the output up to then."""
        result = await performer.perform(
            harness.call(shell("echo begun; sleep 60", timeout_seconds=modes.BEGUN_SECONDS))
        )

        assert result.error is not None
        assert (result.error.code, result.error.detail) == ("timeout", {"timeout_seconds": modes.BEGUN_SECONDS})
        assert result.output["stdout"] == "begun\n"

    async def test_leftover_processes_are_ended_and_counted(
        self, harness: Harness, performer: CommandPerformer
    ) -> None:
        """A process that the command leaves behind is ended with the step, and counted."""
        result = await performer.perform(harness.call(shell("sleep 60 & exit 0")))

        assert (result.status, result.output["leftovers"]) == (states.StepState.DONE, 1)

    async def test_a_cancel_reaches_the_processes(
        self, harness: Harness, performer: CommandPerformer, tmp_path: Path
    ) -> None:
        """A cancelled performer leaves none of the command's processes alive."""
        operation = operations.Command(argv=process_families.argv(tmp_path, "stubborn", *process_families.ALL))
        work = asyncio.ensure_future(performer.perform(harness.call(operation)))
        pids = await process_families.born(tmp_path, "parent", *process_families.ALL)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

        assert process_families.living(pids) == set()


class TestPlaces:
    """Folders and files of a command."""

    async def test_a_command_runs_in_the_workspace(self, harness: Harness, performer: CommandPerformer) -> None:
        """A command runs in the run's working folder, or in a folder below it."""
        (harness.working_dir / "a" / "b").mkdir(parents=True)
        (harness.working_dir / "link").symlink_to("a")
        seen = [
            (await performer.perform(harness.call(shell("pwd -P", cwd=cwd)))).output["stdout"].strip()
            for cwd in (".", "", "a/b", "link/b")
        ]

        assert [Path(path).relative_to(harness.working_dir).as_posix() for path in seen] == [".", ".", "a/b", "a/b"]

    @pytest.mark.parametrize("path", ["..", "/etc", "a/../..", "out", "out/below", ".control-room", "~/x", "a\0b"])
    async def test_no_place_outside_is_reached(self, harness: Harness, performer: CommandPerformer, path: str) -> None:
        """A folder or file outside the workspace is refused, also behind a link, and no command starts."""
        (harness.working_dir / "out").symlink_to("/etc")
        for place in ({"cwd": path}, {"output_file": path}):
            with pytest.raises(errors.ToolFailed) as failed:
                await performer.perform(harness.call(shell("touch started", **place)))

            assert failed.value.code in ("path_outside_workspace", "write_failed")
        assert not (harness.working_dir / "started").exists()

    async def test_a_workspace_elsewhere_is_refused(self, tmp_path: Path, performer: CommandPerformer) -> None:
        """A command of a run whose working folder is outside the allowed workspaces is refused."""
        with pytest.raises(errors.ToolFailed) as failed:
            await performer.perform(Harness(working_dir=tmp_path).call(shell("true")))

        assert failed.value.code == "workspace_not_allowed"

    async def test_a_workspace_behind_a_link_is_refused(self, harness: Harness, performer: CommandPerformer) -> None:
        """The refusal of a working folder that a link has replaced names the link, not the settings."""
        moved = harness.working_dir.with_name("moved")
        harness.working_dir.rename(moved)
        harness.working_dir.symlink_to(moved)
        with pytest.raises(errors.ToolFailed) as failed:
            await performer.perform(harness.call(shell("true")))

        assert failed.value.code == "workspace_not_allowed"
        assert "leads through a link" in failed.value.message

    async def test_a_missing_folder_fails_the_step(self, harness: Harness, performer: CommandPerformer) -> None:
        """A missing folder, or a file in its place, fails the step with `cwd_missing`."""
        (harness.working_dir / "file").write_text("x")
        for cwd in ("none", "file"):
            with pytest.raises(errors.StepError) as failed:
                await performer.perform(harness.call(shell("true", cwd=cwd)))

            assert failed.value.code == "cwd_missing"

    async def test_standard_output_goes_to_a_file(self, harness: Harness, performer: CommandPerformer) -> None:
        """Standard output replaces the file byte for byte, secrets included; the record has masked text."""
        (harness.working_dir / "deep" / "er").mkdir(parents=True)
        (harness.working_dir / "deep" / "er" / "out.txt").write_text(
            "something longer than what comes now, much longer"
        )
        operation = shell("printf 'a\\377%s' $TOKEN", secrets=("TOKEN",), output_file="deep/er/out.txt")
        result = await performer.perform(harness.call(operation))
        made = await performer.perform(harness.call(shell("echo made", output_file="new/folder/x")))

        assert (harness.working_dir / "deep/er/out.txt").read_bytes() == b"a\xff" + SECRET.encode()
        assert result.output["stdout"] == "a\ufffd***"
        assert (harness.working_dir / "new/folder/x").read_text() == made.output["stdout"] == "made\n"

    async def test_a_link_inside_the_workspace_is_followed(self, harness: Harness, performer: CommandPerformer) -> None:
        """The target of a link inside the workspace gets the output, and the link remains."""
        (harness.working_dir / "logs").mkdir()
        (harness.working_dir / "latest").symlink_to("logs/1.txt")
        (harness.working_dir / "again").symlink_to(harness.working_dir / "latest")
        await performer.perform(harness.call(shell("echo first", output_file="latest")))
        first = (harness.working_dir / "logs/1.txt").read_text()
        await performer.perform(harness.call(shell("echo next", output_file="again")))

        assert (first, (harness.working_dir / "logs/1.txt").read_text()) == ("first\n", "next\n")
        assert (harness.working_dir / "latest").is_symlink()

    @pytest.mark.parametrize("kind", ["folder", "pipe", "circle", "link to a folder", "link to a pipe"])
    async def test_only_a_file_can_take_output(self, harness: Harness, performer: CommandPerformer, kind: str) -> None:
        """An output file that is not a regular file is refused, and no descriptor stays open."""
        place = harness.working_dir / "place"
        target = place if kind in ("folder", "pipe") else harness.working_dir / "there"
        if kind == "circle":
            target.symlink_to("place")
        else:
            target.mkdir() if kind.endswith("folder") else os.mkfifo(target)
        if target != place:
            place.symlink_to("there")
        (harness.working_dir / "sub").mkdir()
        before = {*os.listdir("/proc/self/fd")}
        with pytest.raises(errors.ToolFailed) as failed:
            await performer.perform(harness.call(shell("true", output_file="place", cwd="sub")))

        assert failed.value.code in ("not_a_file", "write_failed", "path_outside_workspace")
        assert {*os.listdir("/proc/self/fd")} == before


class TestEnvironmentAndInput:
    """Environment and input of a command."""

    async def test_secrets_are_named_and_masked(self, harness: Harness, performer: CommandPerformer) -> None:
        """A secret reaches the command, but is masked in the record and the logs."""
        operation = shell("test $TOKEN = " + SECRET + " && echo $TOKEN; echo x${TOKEN}x >&2", secrets=("TOKEN",))
        result = await performer.perform(harness.call(operation))

        assert (result.output["exit_code"], result.output["stdout"], result.output["stderr"]) == (0, "***\n", "x***x\n")
        assert SECRET not in str(harness.logs) + str(result)
        assert harness.logs == {"brief.1.stdout.txt": "***\n", "brief.1.stderr.txt": "x***x\n"}

    async def test_keys_of_backends_are_withheld(self, harness: Harness, running: supervisor.Supervisor) -> None:
        """A command gets a key that is withheld from its program only if the recipe names it as a secret."""
        places = Workspaces([harness.working_dir])
        performer = CommandPerformer(
            running, places, ENVIRON, lambda program: {"/bin/sh": ["MY_KEY", "TOKEN"]}[program]
        )
        result = await performer.perform(harness.call(shell("echo $MY_KEY $YOUR_KEY $TOKEN", secrets=("TOKEN",))))

        assert result.output["stdout"] == "yours ***\n"

    async def test_a_missing_secret_fails_the_step(self, harness: Harness, performer: CommandPerformer) -> None:
        """Missing secrets fail the step, and the error names all of them; an empty secret is not missing."""
        with pytest.raises(errors.StepError) as failed:
            await performer.perform(harness.call(shell("true", secrets=("ZZZ", "TOKEN", "EMPTY", "AAA"))))

        assert (failed.value.code, failed.value.detail) == ("missing_secrets", {"missing_secrets": ["AAA", "ZZZ"]})
        assert failed.value.message == "The environment lacks AAA, ZZZ, which the command needs."

    async def test_variables_win_over_secrets(self, harness: Harness, performer: CommandPerformer) -> None:
        """A variable that is set replaces a secret of the same name, and both values are masked."""
        operation = shell(f"echo $TOKEN {SECRET}", secrets=("TOKEN",), env={"TOKEN": "another-value"})
        result = await performer.perform(harness.call(operation))

        assert result.output["stdout"] == "*** ***\n"

    async def test_a_command_knows_its_run(self, harness: Harness, performer: CommandPerformer) -> None:
        """A command gets the id and the depth of its run, even if the operation sets them differently."""
        operation = shell(
            "echo $CONTROL_ROOM_RUN_ID $CONTROL_ROOM_DEPTH $A", env={"CONTROL_ROOM_RUN_ID": "x", "A": "b"}
        )
        result = await performer.perform(harness.call(operation))

        assert result.output["stdout"] == "20260210T143000Z-abc123 0 b\n"

    @pytest.mark.parametrize("blob", [False, True])
    async def test_input_is_a_text_or_a_blob(self, harness: Harness, performer: CommandPerformer, blob: bool) -> None:
        """A command reads its input from the operation or from a blob."""
        text = "ünï\n" * 50_000
        result = await performer.perform(harness.call(shell("wc -c", stdin=harness.blob(text) if blob else text)))

        assert int(result.output["stdout"]) == len(text.encode())

    @pytest.mark.parametrize(
        ("operation", "code"),
        [
            (operations.Command(argv=()), "invalid_command"),
            (operations.Command(argv=("",)), "invalid_command"),
            (operations.Command(argv=("/bin/true", "a\0")), "invalid_command"),
            (operations.Command(argv=("/bin/true",), env={"A": "\0"}), "invalid_command"),
            (operations.Command(argv=("/bin/true",), env={"A=B": "c"}), "invalid_command"),
            (operations.Command(argv=("/bin/true",), env={"": "c"}), "invalid_command"),
            (operations.Command(argv=("/bin/true",), stdin=["no text"]), "invalid_command"),
            (operations.Command(argv=("/bin/true",), stdin="x" * (MAX_STDIN_BYTES + 1)), "stdin_too_large"),
            (operations.Command(argv=("no-such-program-here",)), "program_missing"),
            (operations.Command(argv=("/etc/passwd",)), "program_not_executable"),
        ],
    )
    async def test_an_invalid_command_fails_with_its_reason(
        self, harness: Harness, performer: CommandPerformer, operation: operations.Command, code: str
    ) -> None:
        """A command that cannot be run fails with the code of its reason."""
        with pytest.raises(errors.StepError) as failed:
            await performer.perform(harness.call(operation))

        assert failed.value.code == code


class TestOutputs:
    """Limits of outputs."""

    async def test_the_record_has_as_much_as_the_operation_wants(
        self, harness: Harness, performer: CommandPerformer
    ) -> None:
        """The record keeps the beginning of standard output and the end of standard error; the logs have it all."""
        script = "for n in 1 2 3 4 5; do echo line $n; echo line $n >&2; done"
        result = await performer.perform(harness.call(shell(script, output_limit_bytes=7)))
        told = result.output

        assert (told["stdout"], told["stderr"]) == ("line 1\n", "line 5\n")
        assert (told["stdout_bytes"], told["stdout_truncated"], told["stderr_truncated"]) == (35, True, True)
        assert harness.logs["brief.1.stdout.txt"] == "".join(f"line {n}\n" for n in range(1, 6))

    @pytest.mark.parametrize("capture", [None, operations.Capture()])
    async def test_the_log_of_a_later_attempt_is_its_own(
        self, harness: Harness, performer: CommandPerformer, capture: operations.Capture | None
    ) -> None:
        """A short output of a later attempt replaces the long one that an earlier attempt left in the same log."""
        said = operations.Command(argv=("echo", "short"), log="S", capture=capture)
        await performer.perform(harness.call(said))
        assert harness.logs == {}
        harness.logs["S.stdout"] = "long"
        await performer.perform(harness.call(said, attempt=2))

        assert harness.logs == {"S.stdout": "short\n"}

    async def test_a_silent_command_leaves_no_log(self, harness: Harness, performer: CommandPerformer) -> None:
        """A command without output leaves no log."""
        result = await performer.perform(harness.call(operations.Command(argv=("/bin/true",))))

        assert harness.logs == {}
        assert result.summary == "exit code 0"

    async def test_a_large_output_is_cut_and_the_rest_counted(
        self, harness: Harness, performer: CommandPerformer
    ) -> None:
        """An output beyond the memory limit is cut, and the log reports how many bytes are missing."""
        size = processes.HELD_BYTES + 5
        script = f"import sys; sys.stdout.write('x' * {size})"
        result = await performer.perform(harness.call(operations.Command(argv=(sys.executable, "-c", script))))

        assert len(result.output["stdout"]) == operations.Command(argv=("x",)).output_limit_bytes
        assert (result.output["stdout_bytes"], result.output["stdout_truncated"]) == (size, True)
        assert harness.logs["brief.1.stdout.txt"].endswith("\n[5 bytes are not kept]\n")

    @given(
        before=st.integers(0, 30),
        after=st.integers(0, 30),
        limit=st.integers(0, 80),
        held=st.integers(0, 80),
        at_end=st.booleans(),
    )
    def test_no_part_of_a_secret_is_left_by_a_cut(
        self, before: int, after: int, limit: int, held: int, at_end: bool
    ) -> None:
        """A cut output never shows part of a secret, wherever the cut is."""
        whole = b"." * before + b"SECRET-0123456789" + b"." * after
        content = whole[max(len(whole) - held, 0) :] if at_end else whole[:held]
        output = processes.Output(content=content, size_bytes=len(whole))
        said = command_results.said(output, limit, plain.Masker(["SECRET-0123456789"]), at_end=at_end)

        assert not set("SECRT0123456789") & set(said.text.replace("***", ""))
        assert said.truncated == (said.text != "." * before + "***" + "." * after)

    @pytest.mark.parametrize("stream", [1, 2])
    async def test_a_secret_that_comes_in_pieces_is_masked(
        self, harness: Harness, performer: CommandPerformer, stream: int
    ) -> None:
        """A secret is masked even if the program writes it in pieces or a buffer splits it."""
        secret = "SECRET-0123456789"
        pieces = "; ".join(f"printf %s {letter}" for letter in secret)
        script = f"{{ head -c 65530 /dev/zero | tr '\\0' .; {pieces}; echo; {pieces}; }} >&{stream}"
        call = dataclasses.replace(harness.call(shell(script)), masker=plain.Masker([secret]))
        result = await performer.perform(call)
        told = json.dumps(result.output) + "".join(harness.logs.values())

        assert "***" in told
        assert "SECRET" not in told
        assert "456789" not in told

    async def test_the_services_own_secrets_are_masked(self, harness: Harness, performer: CommandPerformer) -> None:
        """The record masks the service's own secrets in the output of a command."""
        call = dataclasses.replace(
            harness.call(shell("echo the service-wide secret")), masker=plain.Masker(["service-wide secret"])
        )
        result = await performer.perform(call)

        assert result.output["stdout"] == "the ***\n"


class TestLostLaunchers:
    """Commands whose launcher is killed."""

    async def test_a_killed_launcher_leaves_no_process(
        self, harness: Harness, performer: CommandPerformer, running: supervisor.Supervisor
    ) -> None:
        """A command whose launcher is killed is interrupted, and none of its processes is left."""
        script = "echo $$ >> tries; sleep 60"
        work = asyncio.ensure_future(performer.perform(harness.call(shell(script))))
        tries = harness.working_dir / "tries"
        await process_families.until(lambda: tries.exists() and bool(tries.read_text()))
        assert running.launcher_pid is not None
        os.kill(running.launcher_pid, signal.SIGKILL)
        with pytest.raises(ports.Interrupted):
            await work

        assert process_families.living({"first": int(tries.read_text())}) == set()
