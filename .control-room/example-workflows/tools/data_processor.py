"""Turn CSV on standard input into JSON lines, by rules of the form `numbers|drop|required: COLUMN...`."""

import argparse
import csv
import json
import sys
from pathlib import Path


def main() -> int:
    """Transform every row; end with 1 at the first that lacks what is required."""
    options = argparse.ArgumentParser()
    options.add_argument("--rules", type=Path, required=True)
    lines = options.parse_args().rules.read_text().splitlines()
    rules = {name.strip(): columns.split() for name, _, columns in (line.partition(":") for line in lines)}
    for number, row in enumerate(csv.DictReader(sys.stdin), start=2):
        for column in rules.get("required", []):
            if not row.get(column):
                print(f"line {number} has no {column}", file=sys.stderr)
                return 1
        kept = {name: value for name, value in row.items() if name not in rules.get("drop", [])}
        print(json.dumps(kept | {name: float(kept[name]) for name in rules.get("numbers", [])}))
    return 0


sys.exit(main())
