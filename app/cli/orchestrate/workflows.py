"""Workflows: read files that the command line names by their paths."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import errors
from app.cli import formats

if TYPE_CHECKING:
    from app.cli.orchestrate.places import Place
    from app.domain import library, plain
    from app.services import recipe_versions

DIALECT = "orchestrate"  # Language of the files.


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A workflow that can be run."""

    path: Path  # Its file, absolute.
    shown: str  # Its path for display: relative to the workspace, if it is in there.
    text: str  # The text of the file.
    recipe: library.Recipe  # The workflow as a recipe.

    @property
    def checksum(self) -> str:
        """Return the hash that reveals a changed workflow."""
        return checksum(self.text)

    @property
    def processed_dir(self) -> str:
        """Return the folder of finished task files, relative to the workspace."""
        return str(self.recipe.document["processed_dir"])

    def recipe_version(self) -> recipe_versions.RecipeVersion:
        """Return the recipe version that its runs share."""
        from app.domain import library
        from app.services import recipe_versions

        return recipe_versions.RecipeVersion(self.recipe, library.Library(), _dialect())

    def lacks(self) -> list[errors.Flaw]:
        """Return a flaw for each provider whose program is not installed."""
        from app import clock
        from app.services import recipe_versions

        looking = recipe_versions.Readiness(
            backend_lack=lambda *_: None,
            program_lack=recipe_versions.program_lack,
            default_backend=None,
            clock=clock.SystemClock(),
        )
        return looking.lacks(self.recipe_version(), {}, lambda _: None)

    def masker(self, base: plain.Masker) -> plain.Masker:
        """Return a masker that also hides the secrets that the workflow names."""
        from app.engine import ports

        dialect = _dialect()
        assert isinstance(dialect, ports.SecretiveDialect)
        secrets = dialect.secrets(self.recipe.document)
        return base.hiding({os.environ.get(name, "") for name in secrets.names} | secrets.texts)

    def only(self, step: str) -> Workflow:
        """Return a workflow with only one of its steps, without its jumps.

        Raises:
            errors.RequestInvalid: `unknown_step`.
            errors.RecipeInvalid: it needs other steps.
        """
        document = dict(self.recipe.document)
        named = {one["name"]: one for one in document["steps"]}
        if step not in named:
            hint = formats.nearest(step, list(named))
            raise errors.RequestInvalid(f"{self.shown} has no step {step!r:.80}{hint}", code="unknown_step")
        alone = {name: value for name, value in named[step].items() if name != "on"}
        text = json.dumps({**document, "steps": [alone]}, ensure_ascii=False, indent=1)
        try:
            recipe = _parse(text, self.path, f"{self.shown}: {step} alone")
        except errors.RecipeInvalid as error:
            # The positions in the text made here are not those in the file.
            at = f"$.steps[{list(named).index(step)}]"
            error.flaws = tuple(
                dataclasses.replace(flaw, line=None, path=flaw.path.replace("$.steps[0]", at, 1))
                for flaw in error.flaws
            )
            raise
        return dataclasses.replace(self, text=text, recipe=recipe)


def read(path: Path, place: Place) -> Workflow:
    """Read a workflow's file.

    Raises:
        errors.RecipeInvalid: with every flaw, each with path and line.
    """
    named = Path(os.path.normpath(place.workspace / path))
    shown = place.shown_path(named if named.is_relative_to(place.workspace) else named.resolve())
    text = source(named, shown)
    return Workflow(path=named, shown=shown, text=text, recipe=_parse(text, named, shown))


def source(path: Path, shown: str) -> str:
    """Return the text of a file.

    Raises:
        errors.RecipeInvalid: it cannot be read.
    """
    from app.services import recipe_files

    try:
        return recipe_files.source_of(path)
    except errors.RecipeInvalid as error:
        message = f"{shown} {error.message.removeprefix('the file ')}"
        raise errors.RecipeInvalid(message, code=error.flaws[0].code) from error
    except ValueError as error:
        raise errors.RecipeInvalid(f"{shown!r:.200} is not a path: {error}") from error


def checksum(text: str) -> str:
    """Return the hash of a workflow's text, in the form of runs."""
    from app.domain import plain

    return plain.labelled_sha256(text.encode())


def flaws(error: errors.InputRefused) -> list[dict[str, Any]]:
    """Return the flaws of a workflow, as JSON."""
    return [flaw.to_json() for flaw in error.flaws or [errors.Flaw(path="$", code=error.code, message=error.message)]]


def _parse(text: str, path: Path, shown: str) -> library.Recipe:
    try:
        recipe: library.Recipe = _dialect().parse(text, path.stem)
        return recipe
    except errors.RecipeInvalid as error:
        raise errors.RecipeInvalid(f"{shown} is not valid", code=error.code, flaws=error.flaws) from error
    except RecursionError as error:
        raise errors.RecipeInvalid(f"{shown} is nested too deeply", code="too_deep") from error


def _dialect() -> Any:
    from app.dialects import registry

    return registry.DIALECTS[DIALECT]
