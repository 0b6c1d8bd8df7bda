"""Hostile files: no text makes a tool run too long, fail unexpectedly or return an unbounded answer."""

from __future__ import annotations

import itertools
import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import errors
from app.domain import plain
from app.engine import ports
from app.tools import bounds, registry
from tests.examples import examples
from tests.unit.tools import stories

SIZES = [2_000, pytest.param(30_000, marks=pytest.mark.slow)]
"""Characters of a hostile file; runaway work would take minutes at this size."""

UNSURE = {"scene_ambiguous", "scene_not_found"}
"""Codes of a tool that finds no scene in a hostile outline."""

LIMIT_SECONDS = 30.0
"""Processor time: far more than all tools need at this size, far less than runaway work would take."""

HOSTILE = {
    "dots": ".",
    "quotes": '"',
    "opening quotes": "“",
    "letters": "a",
    "capitals": "Abc ",
    "possessives": "Kael's ",
    "speech": '"x," said Kael. ',
    "dates": "12 October 1893 ",
    "hidden": "He hid the key in it. ",
    "questions": "Who came there now? ",
    "promises": "He promised to bring the big key. ",
    "paragraphs": "a\n\n",
    "items": "- Kael opens door\n",
    "headings": "## Scene 1: abc def\n- kael x\n- Plants: a key\n- Pays off: a key\n",
    "fields": "a: b\n",
    "eyes": "his grey eyes were green ",
    "blanks": " ",
    "line ends": "\r",
    "hashes": "#",
    "dashes": "- ",
    "colons": "a:",
    "brass": "the brass key stands on the Hill in ",
    "apostrophes": "'",
    "passive": "was oddly really ",
    "dead": "Kael was very ",
    "titles": "Abc Def Ghi Jkl ",
    "writing": "Kael wrote with ",
    "numbers": "Kael was thirty-",
    "ideographs": "語",
    "combining": "e\u0301",
    "front matter": "---\n",
}


PIECES = [
    "---\n", "scene: 2\n", "date: 3 March\n", "kind: character\n", "# Scene 1: A\n", "- POV: Kael\n", "Kael ",
    "was dead. ", '"No," said Kael. ', "He hid the key. ", "Why? ", "\r\n", "- Eyes: red\n", "the Long Storm ",
]  # fmt: skip
"""Pieces from which texts are composed."""


def calls(scene: str) -> list[tuple[str, dict]]:
    """Return a call of each tool that reads files."""
    return [
        ("canon_checker", {"scene_path": scene, "canon_paths": ["canon"]}),
        ("canon_checker", {"canon_paths": [scene]}),
        ("consistency_checker", {"scene_paths": ["Story"]}),
        ("consistency_checker", {"scene_paths": ["Story"], "canon_paths": ["canon"]}),
        ("file_locator", {"search_criteria": "Draft scene 1 with Kael and the brass key", "scan_mode": "DEEP_SCAN"}),
        ("outline_analyzer", {"outline_path": scene, "query": "Kael opens the door"}),
        ("prose_analyzer", {"scene_path": scene}),
        ("stakes_mapper", {"scene_paths": ["Story"]}),
        ("reader_experience_simulator", {"scene_paths": ["Story"], "outline_path": scene}),
        ("scene_draft_validator", {"scene_path": scene, "outline_path": scene, "beat": "scene 1", "pov": "Kael"}),
    ]


TOOLS = registry.bundled_tools(lambda text: pytest.fail("no file is routed"))


def check_output(output: ports.ToolOutput) -> None:
    """Check that an output keeps the bounds of all tools."""
    payload = output.payload
    assert plain.plain(payload) == payload
    assert len(plain.encode(payload)) <= bounds.PAYLOAD_BYTES
    assert len(json.dumps(payload, indent=1, ensure_ascii=False).encode()) <= 36_000
    assert 0 < len(output.summary) <= 200
    assert "\n" not in output.summary
    assert isinstance(payload["truncated"], bool)
    assert all(len(payload[name]) <= total for name, total in payload["totals"].items())
    assert len(payload["report"]) <= bounds.REPORT_CHARACTERS


def check_answer(ask) -> None:
    """Check the output of a tool, or its failure to find a scene."""
    try:
        output = ask()
    except errors.ToolFailed as failure:
        told = failure.to_json()
    else:
        check_output(output)
        return
    assert told["code"] in UNSURE
    assert len(json.dumps(told)) < 8_000


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_answered_soon_and_small(tmp_path, name, size):
    """Texts with repetitions are read in linear time and give bounded answers."""
    text = "".join(itertools.islice(itertools.repeat(HOSTILE[name]), size // len(HOSTILE[name])))
    workspace = stories.write(
        tmp_path, {**stories.CANON, "Story/a.md": text, "Story/b.md": f"Kael came. {text[: size // 4]}"}
    )
    started = time.process_time()
    for tool, args in calls("Story/a.md"):
        check_answer(lambda tool=tool, args=args: TOOLS.execute(tool, args, workspace))

    assert time.process_time() - started < LIMIT_SECONDS


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    texts=st.lists(
        st.one_of(
            st.text(max_size=200),
            st.lists(
                st.sampled_from(PIECES),
                max_size=25,
            ).map("".join),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_files_give_the_same_bounded_answer_twice(tmp_path_factory, texts):
    """Every tool gives the same bounded answer twice for any text."""
    files = {f"Story/{number}.md": text.encode("utf-8", "replace") for number, text in enumerate(texts)}
    workspace = stories.write(tmp_path_factory.mktemp("p"), {**files, **stories.CANON})
    for tool, args in calls("Story/0.md"):
        try:
            output = TOOLS.execute(tool, args, workspace)
        except errors.ToolFailed as failure:
            output, code = None, failure.code
            assert code in {"not_text", *UNSURE}
        if output is not None:
            check_output(output)
            assert TOOLS.execute(tool, args, workspace) == output


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        [],
        {},
        "",
        "\0",
        "../x",
        "/etc/passwd",
        ["../x"],
        [""],
        "x" * 5_000,
        ["x"] * 500,
        {"$ref": "a.b"},
        True,
        -1,
        "\ud800",
    ],
)
def test_hostile_arguments_end_in_a_failure_with_a_code(tmp_path, value):
    """Any argument of any tool leads to a failure with a known code or to a bounded output."""
    workspace = stories.write(tmp_path, {"s.md": "x"})
    for spec in TOOLS.specs().values():
        required = dict.fromkeys(spec.args_schema["required"], "s.md")
        for name in spec.args_schema["properties"]:
            args = {**{n: [v] if n.endswith("paths") else v for n, v in required.items()}, name: value}
            try:
                output = TOOLS.execute(spec.name, args, workspace) if spec.name != "task_router" else None
            except errors.ToolFailed as failure:
                told = failure.to_json()
                assert told["code"] in {"invalid_args", "path_outside_workspace", "file_not_found", "scene_not_found"}
                assert len(json.dumps(told)) < 8_000
            else:
                if output is not None:
                    check_output(output)


def test_files_in_any_encoding_are_refused_or_left_out(tmp_path):
    """A named file that is not UTF-8 fails its tool; in a folder of scenes it is left out."""
    files: dict[str, str | bytes] = {
        "Story/utf16.md": "Kael".encode("utf-16"),
        "Story/latin.md": "für Kael".encode("latin-1"),
        "Story/binary.md": bytes(range(256)),
        "Story/good.md": "Kael came.",
        "Story/large.md": "x" * (1024 * 1024 + 1),
    }
    workspace = stories.write(tmp_path, files)

    scenes = TOOLS.execute("stakes_mapper", {"scene_paths": ["Story"]}, workspace).payload["scenes"]
    assert [scene["path"] for scene in scenes] == ["Story/good.md"]
    for name, code in (
        ("utf16", "not_text"),
        ("latin", "not_text"),
        ("binary", "not_text"),
        ("large", "file_too_large"),
    ):
        with pytest.raises(errors.ToolFailed) as caught:
            TOOLS.execute("prose_analyzer", {"scene_path": f"Story/{name}.md"}, workspace)
        assert caught.value.code == code
