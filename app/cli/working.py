"""The command `worker`."""

from __future__ import annotations

import sys

import click

from app import interruption, settings
from app.cli import exit_codes, options, serving, terminal


@click.command()
@click.option("--temporal", "TEMPORAL", metavar="HOST:PORT", help="Address of the Temporal server.")
@click.option("--temporal-namespace", "TEMPORAL_NAMESPACE", metavar="NAME", help="Namespace on the Temporal server.")
@click.option("--project", "PROJECT", metavar="DIR", help="Project whose runs are executed.")
@click.option(
    "--blobs", "BLOBS_URL", metavar="URL", help="Object storage of blobs and logs, the same as for the services."
)
@click.option(
    "--data-directory", "DATA_DIRECTORY", metavar="DIR", help="Data directory of the project on this machine."
)
@serving.store_option
@click.option(
    "--workspaces", "WORKSPACES", metavar="HOW", help="With --store: workspaces are sticky (default) or shared."
)
@click.option(
    "--worker-gone-seconds",
    "WORKER_GONE_SECONDS",
    metavar="N",
    help="Absence of a worker, in seconds, after which its runs are paused.",
)
@click.option(
    "--serve",
    "SERVE",
    metavar="WHAT",
    help="What the worker performs, e.g. tools,commands,backend:claude; by default everything it can.",
)
@click.option("--max-running", "MAX_RUNNING", metavar="N", help="Maximum number of steps performed at the same time.")
def worker(**given: str | None) -> int:
    """Perform the steps of runs that services on Temporal have accepted, until SIGTERM or Ctrl-C.

    On the signal no further step starts, and steps in flight get STOP_GRACE_SECONDS; another worker performs
    interrupted steps again.
    """
    environ = options.laid_over(ENGINE="temporal", **given)
    config, remarks = settings.examine(environ)
    if remarks:
        serving.warn_of(remarks)
    if config is None or any(remark.fatal for remark in remarks):
        return exit_codes.ExitCode.CONFIGURATION
    return interruption.run(_work(config))


async def _work(config: settings.Settings) -> int:
    from app import bootstrap, telemetry
    from app.worker import stop_signals

    telemetry.write_logs(config.telemetry.log_level, sys.stderr)
    async with bootstrap.build(config, bootstrap.OpenMode(works=True)) as application:
        engine = application.engine

        async def stop(hurried: bool) -> None:
            await engine.stop(0 if hurried else None)

        signals = stop_signals.StopSignals(stop)
        with signals.caught():
            await engine.recovered()
            terminal.say(f"worker: ready, on {config.engine.temporal}, namespace {config.engine.temporal_namespace}")
            await engine.watch()
        await signals.stopped()
    return exit_codes.ExitCode.DONE
