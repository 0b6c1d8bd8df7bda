"""The real service with its own language, whose recipes are lists of commands.

`python -m tests.acceptance.commanding PROJECT`; a recipe is `{"commands": {key: {"argv": […], …}}}`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from app import bootstrap, errors, main, settings
from app.dialects import registry
from app.domain import operations, runs
from app.engine import ports
from tests import json_dialect
from tests.acceptance import processes, programs

NAME = "commanding"


class Commanding(json_dialect.JsonDialect):
    """A language that runs one command after the other."""

    name = NAME

    async def drive(self, ctx: ports.Context) -> runs.Ending:
        """Run the commands."""
        for key, facts in ctx.run.recipe["commands"].items():
            record = await ctx.perform(key, operations.Command(**{**facts, "argv": tuple(facts["argv"])}))
            if not record.done:
                raise errors.RunFailed(f"{key} failed", causes=(key,), key=key)
        return runs.Ending()


def write(project: programs.Project, name: str, commands: Mapping[str, Any]) -> None:
    """Write a recipe."""
    project.write(f"recipes/{NAME}/{name}.json", {"commands": commands})


@contextlib.contextmanager
def service(project: programs.Project, **given: str) -> Iterator[programs.Service]:
    """Serve a project on a free port for the length of the block."""
    module, environ = "tests.acceptance.commanding", programs.environment(project, **given)
    process = processes.start(module, str(project.path), environ=environ, folder=programs.ROOT)
    served = programs.Service(process)
    assert process.stdout is not None
    assert process.stderr is not None
    reader = threading.Thread(target=served.logged.extend, args=(process.stderr,), daemon=True)
    reader.start()
    try:
        for line in process.stdout:
            if " listens on " in line:
                served.url = line.split(" listens on ")[1].strip()
                break
        assert served.url, served.logged
        yield served
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join(60)
        process.stdout.close()
        process.stderr.close()


def _serve(project: Path) -> int:
    platform = bootstrap.real_platform({})
    dialect = cast(ports.Dialect, Commanding())
    chosen = settings.load({}, project=project, home=project / "nobody", port=0)
    platform = dataclasses.replace(platform, dialects={**registry.DIALECTS, NAME: dialect})
    return main.serve(chosen, lambda line: print(line, flush=True), platform)


if __name__ == "__main__":
    sys.exit(_serve(Path(sys.argv[1])))
