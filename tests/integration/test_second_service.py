"""A second service of one project, at the address of the first one."""

from __future__ import annotations

import dataclasses
import re
import socket

import pytest

from app import clock, errors, main
from app.storage import data_directory
from tests.integration import served
from tests.integration.project import Project


@pytest.mark.parametrize("stopping", [False, True])
def test_a_second_service_on_the_same_port_names_the_first(project: Project, *, stopping: bool) -> None:
    """The owner of the data directory is named, and not "another program", also while the owner stops."""
    chosen = served.chosen(project)
    directory = data_directory.DataDirectory(
        chosen.project.data_directory, clock=clock.SystemClock(), ids=clock.RandomIds()
    )
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        chosen = dataclasses.replace(chosen, server=dataclasses.replace(chosen.server, host="127.0.0.1", port=port))
        held = directory.lock_service()
        try:
            held.announce(None if stopping else f"http://127.0.0.1:{port}")
            with pytest.raises(errors.DataDirectoryBusy) as busy, main._listening(chosen):
                pass
        finally:
            held.release()
        with pytest.raises(errors.ConfigurationError, match="another program has this port"), main._listening(chosen):
            pass
        other = data_directory.DataDirectory(
            project.root / "other" / ".control-room", clock=clock.SystemClock(), ids=clock.RandomIds()
        ).lock_service()
        named = f"the Control Room service of {project.root}/other/.control-room has this port"
        with pytest.raises(errors.ConfigurationError, match=re.escape(named)), main._listening(chosen):
            pass
        other.release()

    assert busy.value.detail["pid"] is not None
