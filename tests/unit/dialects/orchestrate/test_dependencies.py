"""Tests of dependencies: missing files, and how a prompt lists the files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialects.orchestrate import dependencies
from app.dialects.orchestrate.dependencies import CAP_BYTES, Injection

FITTING = {"*.md": ["b.md", "a.md"], "b*": ["b.md"], "docs": ["docs"], "none": []}


def _file(path, text=None, *, required=True, size=None):
    size_bytes = size if size is not None else len((text or "").encode())
    return dependencies.File(path=path, required=required, size_bytes=size_bytes, text=text)


def _list(*files, prompt="Do it.\n", **more):
    return dependencies.composed(prompt, Injection(mode="list", **more), files)


def _content(*files, prompt="Do it.\n", **more):
    return dependencies.composed(prompt, Injection(mode="content", **more), files)


def _details(made):
    return made.truncation["truncation_details"]


def test_missing_patterns():
    """A required pattern without a file is missing, and so is one that was not searched."""
    assert dependencies.missing(["*.md", "none", "what", "none"], FITTING) == ["none", "what"]


def test_files_of_patterns():
    """Each path is listed once, in the order of its bytes; a file that any required pattern matches is required."""
    found = dependencies.files(["b*"], ["*.md", "docs", "none"], {**FITTING, "b*": ["b.md", "Z", "é", "z"]})

    assert list(found.items()) == [
        ("Z", True), ("a.md", False), ("b.md", True), ("docs", False), ("z", True), ("é", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("depends_on", "injection"),
    [
        (None, Injection()),
        ({}, Injection()),
        ({"inject": False}, Injection()),
        ({"inject": True}, Injection(mode="list")),
        ({"inject": {}}, Injection()),
        ({"inject": {"mode": "content", "position": "append"}}, Injection(mode="content", append=True)),
        ({"inject": {"mode": "list", "instruction": "Read:"}}, Injection(mode="list", instruction="Read:")),
    ],
)
def test_true_inserts_the_list_before_the_prompt(depends_on, injection):
    """`true` inserts a list before the prompt; without a mode no list is inserted."""
    assert dependencies.injection(depends_on) == injection


def test_a_list():
    """Names are listed under the instruction, before the prompt, in order."""
    made = _list(_file("b.md"), _file("a.md"))

    assert made.truncation is None
    assert made.prompt == (
        "The following files are required inputs for this task:\n- a.md\n- b.md\n\nDo it.\n"
    )  # fmt: skip


def test_a_list_with_optional_files():
    """A list with optional files has a heading for each of the two kinds."""
    optional = _file("a.md", required=False)

    assert _list(_file("b.md"), optional, instruction="Read:").prompt == (
        "Read:\nRequired:\n- b.md\nOptional (if available):\n- a.md\n\nDo it.\n"
    )
    assert _list(optional, instruction="Read:").prompt == "Read:\nOptional (if available):\n- a.md\n\nDo it.\n"


def test_contents():
    """Each file is included whole, under its name and size."""
    made = _content(_file("b", "two\nlines\n"), _file("a", "one"), _file("c", "x" * 2048))

    assert made.truncation is None
    assert made.prompt == (
        "The following file contents are provided for context:\n\n"
        "=== File: a (3 bytes) ===\none\n\n"
        "=== File: b (10 bytes) ===\ntwo\nlines\n\n"
        f"=== File: c (2 KiB) ===\n{'x' * 2048}\n\n"
        "Do it.\n"
    )


def test_behind_the_prompt():
    """With `append` the files follow the prompt after a blank line."""
    assert _list(_file("a"), prompt="Do.\n", append=True, instruction="Read:").prompt == "Do.\n\nRead:\n- a\n"
    assert _list(_file("a"), prompt="Do.", append=True, instruction="Read:").prompt == "Do.\n\nRead:\n- a\n"
    assert _list(_file("a"), prompt="", append=True, instruction="Read:").prompt == "Read:\n- a"


@pytest.mark.parametrize("mode", ["list", "content", "none"])
def test_a_prompt_without_files_is_unchanged(mode):
    """Without files, and in the mode `none`, a prompt is unchanged."""
    files = [_file("a", "x")] if mode == "none" else []

    assert dependencies.composed("p", Injection(mode=mode), files) == dependencies.Composed(prompt="p")


def test_folders_have_no_contents():
    """A folder is listed by name, but left out where contents are included."""
    assert "- docs\n" in _list(_file("docs")).prompt
    assert "docs" not in _content(_file("docs"), _file("a", "x")).prompt


def test_a_list_that_is_too_long():
    """Names beyond the cap are counted but not listed, and the state records this."""
    files = [_file(f"folder/{'x' * 1000}/{index:04}") for index in range(400)]
    made = _list(*files)
    details = _details(made)

    assert made.truncation["injection_truncated"] is True
    assert details["files_shown"] + details["files_omitted"] == 400
    assert made.prompt.count("- folder/") == details["files_shown"]
    assert details["shown_size"] <= CAP_BYTES < details["total_size"]
    assert details["files_truncated"] == 0
    assert made.prompt.endswith(f"[... {details['files_omitted']} more files truncated (397 KiB total)]\n\nDo it.\n")


def test_contents_that_are_too_long():
    """The file that does not fit is cut, with the size that is shown; later files are only named."""
    files = [
        _file("a", "a" * 1000),
        _file("b", "é" * 200_000),
        *(_file(f"c{index:02}", "x" * 5000) for index in range(15)),
    ]
    made = _content(*files)
    details = _details(made)

    assert (details["files_shown"], details["files_truncated"], details["files_omitted"]) == (2, 1, 15)
    assert details["total_size"] == 1000 + 400_000 + 15 * 5000
    assert CAP_BYTES - 1000 < details["shown_size"] <= CAP_BYTES
    shown = details["shown_size"] - 1000
    assert f"=== File: b ({shown}/400000 bytes) ===\né" in made.prompt
    assert (
        f"é\n[... truncated: {round(shown / 1024)} KiB of 391 KiB shown]\n\n=== Files not shown (15 files, 73 KiB) ==="
        in made.prompt
    )
    assert made.prompt.endswith("- c09 (5 KiB)\n[... 5 more files]\n\nDo it.\n")


def test_a_file_that_was_not_read_whole():
    """A file that was not read whole is shown as its beginning, with both sizes."""
    made = _content(_file("a", "beginning", size=3_000_000), _file("b", "x"))

    assert "=== File: a (9/3000000 bytes) ===\nbeginning\n[... truncated: 9 bytes of 2930 KiB shown]" in made.prompt
    assert "=== File: b (1 bytes) ===\nx" in made.prompt
    assert _details(made) == {
        "total_size": 3_000_001,
        "shown_size": 10,
        "files_shown": 2,
        "files_truncated": 1,
        "files_omitted": 0,
    }


FILES = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=8), st.text(), st.booleans()
    ),
    unique_by=lambda file: file[0],
    max_size=6,
).map(lambda files: [_file(path, text, required=required) for path, text, required in files])


@given(st.text(), FILES, st.sampled_from(["list", "content"]), st.booleans(), st.randoms())
def test_the_prompt_itself_is_whole(prompt, files, mode, append, random):
    """The prompt is at one end, byte for byte, for any order of the files."""
    wanted = Injection(mode=mode, append=append)
    made = dependencies.composed(prompt, wanted, files)
    shuffled = list(files)
    random.shuffle(shuffled)

    assert made.prompt.startswith(prompt) if append else made.prompt.endswith(prompt)
    assert all(file.path in made.prompt for file in files)
    assert mode == "list" or all((file.text or "").removesuffix("\n") in made.prompt for file in files)
    assert dependencies.composed(prompt, wanted, shuffled) == made
    assert made.truncation is None


@given(st.lists(st.integers(0, 150_000), min_size=1, max_size=6))
def test_never_more_than_the_cap(sizes):
    """For any sizes, the shown part stays within the cap, and every file is shown, cut or omitted."""
    files = [_file(f"f{index}", "y" * size) for index, size in enumerate(sizes)]
    made = _content(*files, prompt="")

    assert len(made.prompt) <= CAP_BYTES + 1000
    if made.truncation is None:
        assert sum(sizes) <= CAP_BYTES
    else:
        details = _details(made)
        assert details["files_shown"] + details["files_omitted"] == len(sizes)
        assert details["shown_size"] < details["total_size"] == sum(sizes)
