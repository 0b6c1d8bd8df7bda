"""Add up JSON lines: lines `sum FIELD by FIELD` on standard input become tables, all other lines stay as they are."""

import argparse
import collections
import json
import re
import sys
from pathlib import Path


def main() -> None:
    """Write the report."""
    options = argparse.ArgumentParser()
    options.add_argument("--folder", type=Path, required=True)
    files = sorted(options.parse_args().folder.glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for line in sys.stdin.read().splitlines():
        asked = re.fullmatch(r"sum (\w+) by (\w+)", line)
        if asked is None:
            print(line)
            continue
        sums: dict[str, float] = collections.defaultdict(float)
        for row in rows:
            sums[row[asked[2]]] += row[asked[1]]
        print(f"| {asked[2]} | {asked[1]} |\n| --- | --- |")
        for name, total in sorted(sums.items()):
            print(f"| {name} | {total:.2f} |")


main()
