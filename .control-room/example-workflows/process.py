"""Fails as long as there is no queue, so that there is something to find out."""

import sys
from pathlib import Path

queue = Path("data/queue.txt")
if not queue.exists():
    sys.exit(f"cannot process: {queue} does not exist")
print(f"processed {len(queue.read_text().splitlines())} lines")
