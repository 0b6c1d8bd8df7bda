"""Exit codes and lines of errors."""

from __future__ import annotations

import pytest

from app import errors
from app.cli import exit_codes
from app.domain import states


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFound(), 4),
        (errors.UnknownRecipe(), 4),
        (errors.ArgsInvalid(), 2),
        (errors.RecipeInvalid(), 2),
        (errors.Unroutable(), 2),
        (errors.TooLarge(), 2),
        (errors.WrongState(), 1),
        (errors.JournalCorrupt(), 1),
        (errors.ConfigurationError(), 5),
        (errors.DataDirectoryBusy(), 5),
        (errors.WriteFailed(), 5),
        (errors.StorageFault(), 5),
    ],
)
def test_error_has_its_exit_code(error: BaseException, code: int):
    """Each kind of error has its documented exit code."""
    assert exit_codes.of_error(error) == code


@pytest.mark.parametrize(
    ("status", "code"), [("done", 0), ("failed", 1), ("paused", 1), ("cancelled", 3), ("pending", 0), ("waiting", 1)]
)
def test_status_has_its_exit_code(status: str, code: int):
    """The state of a followed run decides the exit code."""
    assert exit_codes.of_status(states.RunState(status).value) == code


def test_error_is_one_line_and_one_for_each_flaw():
    """Flaws are listed below the error, with path and line."""
    flaws = [
        errors.Flaw(path="$.phase_a[0].tool", message="there is no tool x", line=12),
        errors.Flaw(path="$.dod", message="is missing"),
    ]

    assert exit_codes.sentences(errors.RecipeInvalid("The recipe is broken.", flaws=flaws)) == [
        "The recipe is broken. [recipe_invalid]",
        "  $.phase_a[0].tool (line 12): there is no tool x",
        "  $.dod: is missing",
    ]


def test_a_flaw_repeating_the_message_is_not_listed():
    """A flaw that repeats the error's message, with or without its place, is not listed again."""
    flaws = [errors.Flaw(path="$.title", message="is blank"), errors.Flaw(path="$.body", message="is too long")]

    for message in ("$.title: is blank", "is blank"):
        assert exit_codes.sentences(errors.RequestInvalid(message, flaws=flaws)) == [
            f"{message} [request_invalid]",
            "  $.body: is too long",
        ]


def test_a_held_data_directory_names_the_server_option():
    """If a service holds the data directory, the message names the option that reaches the service."""
    busy = errors.DataDirectoryBusy(detail={"pid": 7, "url": "http://127.0.0.1:8000"})

    assert (
        exit_codes.sentences(busy)[1]
        == "  ask it with --server http://127.0.0.1:8000; stop it for a command without that option"
    )
    assert len(exit_codes.sentences(errors.DataDirectoryBusy(detail={"pid": 7, "url": None}))) == 1


def test_configuration_error_lists_the_flaws_in_its_detail():
    """The flaws of a configuration file are listed like those of a request."""
    flaw = errors.Flaw(path="$.agents[0].tier", message="is none of t1, t3, t5").to_json()

    assert exit_codes.sentences(errors.ConfigurationError("agents.json is broken", detail={"flaws": [flaw]})) == [
        "agents.json is broken [configuration_error]",
        "  $.agents[0].tier: is none of t1, t3, t5",
    ]
