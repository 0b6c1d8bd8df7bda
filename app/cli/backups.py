"""The commands `backup` and `restore`: a project's data directory as one file."""

from __future__ import annotations

from pathlib import Path

import click

from app import printable
from app.cli import exit_codes, options, terminal
from app.cli.client import Access
from app.cli.verifying import report_of, verify_everything

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("file", type=_FILE)
@options.as_json
@options.in_folder
def backup(place: options.Place, as_json: bool, file: Path) -> int:
    """Copy the project's data directory to FILE, even while a service uses it."""
    from app.storage import backup as copies

    project = place.settings().project
    copied = copies.write(project.data_directory, file, project.blobs_url)
    if as_json:
        made = {"file": str(file), "runs": copied.runs, "files": copied.files, "skipped": copied.skipped}
        terminal.say_json(made | {"partial": copied.is_partial})
    else:
        skipped = f"; {len(copied.skipped)} left out: {', '.join(copied.skipped)}" if copied.skipped else ""
        counts = f"{printable.counted(copied.runs, 'run')}, {printable.counted(copied.files, 'file')}"
        terminal.say(f"{counts} in {file}{skipped}")
        if copied.is_partial:
            terminal.say("The runs are in a database. Back it up, too: pg_dump --schema=control_room")
            if project.blobs_url:
                terminal.say(f"Their blobs are in {project.blobs_url}. Copy that place after the dump")
    return exit_codes.ExitCode.DONE


@click.command()
@click.argument("file", type=_FILE)
@options.as_json
@options.in_folder
def restore(place: options.Place, as_json: bool, file: Path) -> int:
    """Restore the project's data directory from FILE and verify it; it must not exist, or be empty."""
    from app.storage import restoring

    found = restoring.read(file, place.settings().project.data_directory)
    # Runs in a database are verified there, which may be away.
    if not as_json:
        terminal.say(f"{printable.counted(found['runs'], 'run')}, {printable.counted(found['files'], 'file')} restored")
    report = place.work(verify_everything, Access.READ)
    if as_json:
        terminal.say_json({"runs": found["runs"], "files": found["files"], "verification": report})
    else:
        terminal.say(report_of(report))
    return exit_codes.ExitCode.DONE if report["ok"] else exit_codes.ExitCode.FAILED
