"""Growing runs: a read while another process writes shows the run at one moment."""

from __future__ import annotations

from pathlib import Path

from app.storage import layout
from app.storage.disk.memory_disk import MemoryDisk
from app.storage.runs import missing_lines
from tests.conformance import store_harness
from tests.conformance.store_harness import RUN
from tests.unit.storage import writer_processes
from tests.unit.storage.test_kept_runs import step

FOLDER = f"runs/{RUN}"
STEPS = 15


class GrowingDisk(MemoryDisk):
    """A disk on which a run gets one more step after each read of its journals."""

    def __init__(self, stages: list[dict[str, bytes]]) -> None:
        super().__init__()
        for folder in (*layout.FOLDERS, FOLDER):
            self.add_folder(folder)
        self.stages = stages
        self._show()

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        content = super().read(path, offset, size)
        if path.endswith(layout.CONTROL) and len(self.stages) > 1:
            del self.stages[0]
            self._show()
        return content

    def _show(self) -> None:
        for name, content in self.stages[0].items():
            self.write(f"{FOLDER}/{name}", content, sync=True)


async def test_a_run_that_grows_while_it_is_read_lacks_no_line(tmp_path: Path) -> None:
    """The events that are read are never behind the journals that were read before them."""
    stages: list[dict[str, bytes]] = []
    store = writer_processes.store_in(tmp_path)
    await store.start(serve=False)
    await store.create(store_harness.start())
    for number in range(STEPS):
        await step(store, f"s{number}")
        files = (tmp_path / "runs" / RUN).iterdir()
        stages.append({file.name: file.read_bytes() for file in files if file.is_file()})
    await store.close()

    found, lost = missing_lines.read_with_missing(GrowingDisk(stages), RUN)

    assert lost is None
    assert 1 <= len(found.records) < STEPS
