"""Tests of templates: the values of `{{name}}`, and that values are never read as templates."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from app.dialects.amplifier import templates
from app.domain import records


def _scope(**own):
    return templates.Scope(own=own)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("Look at {{file}}.", "Look at a.py."),
        ("{{ file }}{{file}}", "a.pya.py"),
        ("{{report.severity}} of {{report.items.1.name}}", "high of second"),
        ("{{flag}} {{count}} {{nothing}} {{share}}", "true 3 null 0.5"),
        ("{{report}}", '{"severity":"high","items":[{"name":"first"},{"name":"second"}]}'),
        ("{{items}}", '["x","y"]'),
        ("{{umlaut}}", "größer"),
        ("a } b }} c { d", "a } b }} c { d"),
        (r"Write \{{name}} and {{file}}", "Write {{name}} and a.py"),
        ("", ""),
    ],
)
def test_a_name_is_replaced_by_text_or_json(template, expected):
    """A text is inserted unchanged, any other value as JSON; dots lead into objects and lists."""
    scope = _scope(
        file="a.py",
        report={"severity": "high", "items": [{"name": "first"}, {"name": "second"}]},
        flag=True,
        count=3,
        share=0.5,
        nothing=None,
        items=["x", "y"],
        umlaut="größer",
    )

    assert templates.text(template, scope) == expected


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "it was never set"),
        ("missing.part", "it was never set"),
        ("report.weight", "there is no 'weight' in an object"),
        ("items.2", "there is no '2' in a list"),
        ("items.x", "there is no 'x' in a list"),
        ("file.name", "there is no 'name' in a text"),
        ("long.name", "there is no 'name' in a text"),
    ],
)
def test_an_undefined_variable_is_named_with_the_known_ones(name, reason):
    """The error names the variable, the reason, and the known variables."""
    blob = records.BlobRef(sha256="0", size_bytes=1, text=True)
    scope = _scope(file="a.py", report={}, items=["x", "y"], long=templates.Kept(text="t", blob=blob))
    with pytest.raises(templates.Undefined) as caught:
        templates.text(f"see {{{{{name}}}}}", scope)

    assert (caught.value.name, caught.value.reason) == (name, reason)
    assert caught.value.message("prompt").startswith(f"Undefined variable in prompt: {{{{{name}}}}}")
    assert caught.value.message("prompt").endswith("Available: file, report, items, long")


def test_inner_places_come_first_and_end():
    """Outer variables are visible inside; a loop variable hides them there, and ends with its loop."""
    outer = _scope(item="outer", kept=1)
    inner = outer.inside(item="inner", index=0)
    inner.set("result", "made")

    assert [inner.find(name) for name in ("item", "kept", "index", "result")] == ["inner", 1, 0, "made"]
    outer.leave(inner)
    assert (outer.find("item"), outer.find("result")) == ("outer", "made")
    assert "index" not in outer.names()


def test_reserved_names_are_not_offered():
    """Facts of the run and of the step can be named, but are not listed as variables."""
    facts = templates.Scope(own={"recipe": {"name": "r"}}, listed=False)
    scope = templates.Scope(own={"x": 1}, around=facts).inside(step={"id": "a"})

    assert templates.text("{{recipe.name}} {{step.id}}", scope) == "r a"
    assert scope.names() == ("x",)


def test_long_texts_stay_where_they_are():
    """A prompt refers to a long text by its blob; elsewhere the text is inserted."""
    blob = records.BlobRef(sha256="ab", size_bytes=9, text=True)
    scope = _scope(long=templates.Kept(text="long text", blob=blob), x=1)

    assert templates.parts("a {{long}} b {{x}}", scope) == ("a ", {"blob": blob.to_json()}, " b 1")
    assert templates.text("a {{long}} b", scope) == "a long text b"
    assert templates.filled({"all": "{{long}}"}, scope) == {"all": "long text"}


def test_a_single_variable_keeps_its_type():
    """A text of a single variable becomes its value; among words the value becomes text."""
    scope = _scope(files=["a", "b"], n=2)

    assert templates.filled(
        {"list": "{{files}}", "told": "{{n}} files", "deep": [{"x": " {{n}} "}], "kept": 7}, scope
    ) == {
        "list": ["a", "b"],
        "told": "2 files",
        "deep": [{"x": 2}],
        "kept": 7,
    }


@pytest.mark.parametrize("template", ["{{", "{{}}", "{{a b}}", "{{a.}}", "{{.a}}", "{{a", "x {{ y\n}}", "{{{a}}}"])
def test_broken_templates(template):
    """Opened braces without a name are a fault, with its place."""
    assert "names no variable" in str(templates.problem_of(template))


@pytest.mark.parametrize("template", ["", "}}", r"\{{", "{{a}}", "{ {a} }", "{{ a.b-c.0 }}"])
def test_sound_templates(template):
    """Closing braces alone, and escaped ones, are text."""
    assert templates.problem_of(template) is None


@hypothesis.given(st.text(), st.text(alphabet="{}\\ ab'\"or."), st.text(alphabet="{}ab "))
def test_a_value_never_changes_the_structure(value, hostile, around):
    """The value of a variable is inserted once, unchanged, and never read as a template."""
    hypothesis.assume("{{" not in around and not around.endswith("{"))
    held = value + hostile + "{{secret}}"
    scope = _scope(x=held, secret="s")

    assert templates.text(around + "{{x}}|{{x}}", scope) == f"{around}{held}|{held}"
    assert "".join(templates.parts(around + "{{x}}|{{x}}", scope)) == f"{around}{held}|{held}"
