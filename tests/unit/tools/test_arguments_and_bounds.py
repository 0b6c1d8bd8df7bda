"""Arguments are validated completely and flaws have paths; outputs keep their bounds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import errors
from app.domain import plain
from app.tools import arguments, bounds, findings

SCHEMA = {
    **arguments.schema(
        required=["path"],
        path=arguments.path("A path."),
        paths=arguments.paths("Paths."),
        mode=arguments.choice("A mode.", "fast", "deep", default="fast"),
        limit=arguments.count("A number.", minimum=1, maximum=9, default=3),
        quiet=arguments.flag("A switch."),
    )
}


def codes_by_path(args) -> dict[str, str]:
    """Return the codes of all flaws by their path."""
    return {flaw.path: flaw.code for flaw in arguments.flaws(SCHEMA, args)}


def test_defaults_are_filled_in():
    """An argument that is not given gets its default, or stays absent without one."""
    assert arguments.complete("tool", SCHEMA, {"path": "a"}) == {
        "path": "a",
        "mode": "fast",
        "limit": 3,
        "quiet": False,
    }


def test_whole_numbers_may_be_written_with_a_point():
    """JSON Schema accepts 5.0 as an integer; the tool receives 5."""
    given_args = arguments.complete("tool", SCHEMA, {"path": "a", "limit": 5.0})

    assert given_args["limit"] == 5
    assert isinstance(given_args["limit"], int)


def test_every_flaw_of_arguments_has_its_path():
    """All flaws are reported at once: missing, unknown, wrong type, out of range, not in the list."""
    args = {"paths": ["a", 3], "mode": "slow", "limit": 12, "quiet": "yes", "pth": "a"}

    assert codes_by_path(args) == {
        "$.path": "required",
        "$.pth": "unknown",
        "$.paths[1]": "type",
        "$.mode": "enum",
        "$.limit": "maximum",
        "$.quiet": "type",
    }


def test_an_unknown_argument_is_answered_with_the_nearest_known_one():
    """A misspelt argument is answered with the nearest known name, a quite different one with all names."""
    flaw = next(flaw for flaw in arguments.flaws(SCHEMA, {"path": "a", "pats": []}) if flaw.path == "$.pats")

    assert "did you mean path" in flaw.message
    far = arguments.flaws(SCHEMA, {"path": "a", "zzzz": 1})
    assert "there are path, paths, mode, limit, quiet" in far[0].message


def test_invalid_arguments_fail_with_their_flaws():
    """The failure names the tool and contains the flaws as data."""
    with pytest.raises(errors.ToolFailed) as caught:
        arguments.complete("file_locator", SCHEMA, {"limit": 0})

    assert caught.value.code == "invalid_args"
    assert caught.value.detail["tool"] == "file_locator"
    assert [flaw["path"] for flaw in caught.value.detail["flaws"]] == ["$.limit", "$.path"]
    assert "$.path: is required" in caught.value.message


def test_a_huge_wrong_value_does_not_fill_the_message():
    """A huge wrong value is cut in the message and in the detail."""
    with pytest.raises(errors.ToolFailed) as caught:
        arguments.complete("tool", SCHEMA, {"path": "a", "mode": "x" * 100_000, "y" * 100_000: 1})

    assert len(caught.value.message) < 1_000
    assert len(json.dumps(caught.value.detail)) < 3_000


@pytest.mark.parametrize(
    "args", [{"path": ""}, {"path": "x" * 2_000}, {"path": None}, {"path": ["a"]}, {"paths": [], "path": "a"}]
)
def test_wrong_paths_are_refused_before_any_file_is_touched(args):
    """Empty paths, overlong paths, paths of a wrong type and empty lists of paths have flaws."""
    assert codes_by_path(args)


def test_arguments_that_are_not_an_object_are_refused():
    """A list in place of the arguments object is a type error."""
    assert codes_by_path([]) == {"$": "type"}


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["path", "paths", "mode", "limit", "quiet", "other"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=6,
        ),
    )
)
def test_arguments_are_either_complete_or_refused(args):
    """Any arguments give either a complete valid set or `invalid_args`."""
    if arguments.flaws(SCHEMA, args):
        with pytest.raises(errors.ToolFailed) as caught:
            arguments.complete("tool", SCHEMA, args)
        assert caught.value.code == "invalid_args"
        assert caught.value.detail["flaws"]
    else:
        completed = arguments.complete("tool", SCHEMA, args)
        assert arguments.flaws(SCHEMA, completed) == []
        assert {"path", "mode", "limit", "quiet"} <= completed.keys()


def test_a_clipped_text_is_one_line_with_an_ellipsis():
    """A clipped text has blanks in place of line ends, and an ellipsis where it was cut."""
    assert bounds.clipped("a\n  b\tc") == "a b c"
    assert bounds.clipped("x" * 300) == "x" * 199 + "…"
    assert bounds.clipped("word " * 100, 12) == "word word w…"


def test_a_report_ends_where_its_room_ends():
    """A report that is too long ends with a whole line and an ellipsis."""
    report = bounds.report(f"line {number}" for number in range(1_000))

    assert len(report) <= bounds.REPORT_CHARACTERS
    assert report.endswith("\n…")
    assert bounds.report(["one", "two"]) == "one\ntwo"


def test_a_payload_that_fits_is_left_as_it_is():
    """A payload that fits is unchanged; `truncated` is false and the totals are the lengths."""
    fitted = bounds.fitted({"a": [1, 2], "b": "x"}, ["a"])

    assert fitted == {"a": [1, 2], "b": "x", "truncated": False, "totals": {"a": 2}}


def test_the_longest_list_is_cut_first():
    """The longest list is cut and a short one stays whole; the totals give the lengths before the cut."""
    fitted = bounds.fitted({"long": ["x" * 500] * 150, "short": ["y"] * 5}, ["long", "short"])

    assert fitted["truncated"]
    assert len(fitted["short"]) == 5
    assert 0 < len(fitted["long"]) < 150
    assert fitted["totals"] == {"long": 150, "short": 5}


def test_lists_have_a_most_number_of_entries():
    """A list with too many small entries is cut to the maximum number of entries."""
    fitted = bounds.fitted({"a": list(range(1_000))}, ["a"])

    assert len(fitted["a"]) == bounds.LIST_ENTRIES
    assert fitted["truncated"]


def test_a_payload_that_was_truncated_before_stays_so():
    """A payload that the tool itself truncated stays marked as truncated."""
    assert bounds.fitted({"a": [], "truncated": True}, ["a"])["truncated"]


def test_an_oversized_payload_ends_with_empty_lists():
    """A payload whose other fields are already too large gets empty lists, and the cut ends."""
    fitted = bounds.fitted({"text": "x" * 50_000, "a": [1]}, ["a"])

    assert fitted["a"] == []
    assert fitted["truncated"]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.text(max_size=400), max_size=120), min_size=1))
def test_fitted_payloads_fit_and_keep_the_heads_of_their_lists(payload):
    """Any payload fits its bound, and each of its lists is the beginning of the original list."""
    fitted = bounds.fitted(payload, sorted(payload))

    assert len(plain.encode(plain.plain(fitted))) <= bounds.PAYLOAD_BYTES + 200
    for name, entries in payload.items():
        assert fitted[name] == entries[: len(fitted[name])]
        assert fitted["totals"][name] == len(entries)
    assert fitted["truncated"] == any(len(fitted[name]) < len(entries) for name, entries in payload.items())


def test_findings_are_ranked_by_severity_and_place():
    """Errors come first, then findings by file and line."""
    found = [
        findings.finding("a", "hint", "h", path="a.md", line=1),
        findings.finding("b", "error", "e2", path="b.md", line=9),
        findings.finding("c", "error", "e1", path="b.md", line=2),
        findings.finding("d", "warning", "w"),
    ]

    assert [finding["message"] for finding in findings.ranked(found)] == ["e1", "e2", "w", "h"]
    assert findings.has_error(found)
    assert not findings.has_error(found[:1])


def test_numbers_agree_with_their_nouns():
    """A count uses the singular for one and the plural for several: 1 conflict, 2 conflicts, 3 stories."""
    assert [findings.counted(1, "conflict"), findings.counted(2, "conflict"), findings.counted(3, "story")] == [
        "1 conflict",
        "2 conflicts",
        "3 stories",
    ]
    assert (bounds.mean([]), bounds.share(1, 3), bounds.share(1, 0)) == (0.0, 0.333, 0.0)
