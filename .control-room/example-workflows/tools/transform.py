"""Transform the JSON that stands in a prompt by the rules behind it: `rename A -> B`, `drop A`, `upper A`."""

import json
import re
import sys


def main() -> int:
    """Print the transformed rows."""
    found = re.search(r"^=== File: .* ===\n(\[.*?\n\])\n(.*)", sys.stdin.read(), re.DOTALL | re.MULTILINE)
    if found is None:
        print("there is no list of rows in the prompt", file=sys.stderr)
        return 1
    rows = json.loads(found[1])
    for rule in found[2].split("\n"):
        match rule.split():
            case ["rename", old, "->", new]:
                rows = [{new if name == old else name: value for name, value in row.items()} for row in rows]
            case ["drop", field]:
                rows = [{name: value for name, value in row.items() if name != field} for row in rows]
            case ["upper", field]:
                rows = [row | {field: row[field].upper()} for row in rows]
    print(json.dumps(rows, indent=2))
    return 0


sys.exit(main())
