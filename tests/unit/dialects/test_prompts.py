"""Tests of prompt templates: variants, placeholders and the parts of a micro-step template."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialects.control_room import prompts, refs
from app.domain import library
from tests.unit.dialects import bench

TIERS: tuple[library.Tier, ...] = ("t1", "t3", "t5")


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        (("t1", "t3", "t5"), ("t1", "t3", "t5")),
        (("t1", "t3"), ("t1", "t3", "t3")),
        (("t1", "t5"), ("t1", "t1", "t5")),
        (("t3", "t5"), ("t3", "t3", "t5")),
        (("t1",), ("t1", "t1", "t1")),
        (("t3",), ("t3", "t3", "t3")),
        (("t5",), ("t5", "t5", "t5")),
    ],
)
def test_the_nearest_variant_replaces_a_missing_one(there, chosen):
    """T3 replaces a missing T5, and T1 a missing T3; if neither exists, the remaining one is used."""
    template = library.PromptTemplate(prompt_type="x", label="x", variants=dict.fromkeys(there, "text"))

    assert tuple(prompts.variant(template, tier) for tier in TIERS) == chosen


def test_placeholders_are_cut_out():
    """A template is split into text and references, in order; spaces inside the braces are ignored."""
    cut = prompts.pieces("A {{one}}{{ two.x[0] }} {b} {{{three}}} }}")

    assert [piece if isinstance(piece, str) else piece.text for piece in cut] == [
        "A ",
        "one",
        "two.x[0]",
        " {b} {",
        "three",
        "} }}",
    ]


@pytest.mark.parametrize(
    "template", ["{{", "a\n{{b", "{{}}", "{{ }}", "{{a..b}}", "{{a{b}}}", "{{a\nb}}", "{{a}} {{b}"]
)
def test_a_brace_without_a_reference_is_refused(template):
    """Braces that begin a placeholder without a reference are a fault, and its line is named."""
    with pytest.raises(ValueError, match=r"line [0-9]+"):
        prompts.pieces(template)


@given(st.text(st.sampled_from("{}a.[0] \n"), max_size=30))
def test_any_template_is_cut_without_loss_or_refused(template):
    """Any template is refused, or split into pieces that form the template again."""
    try:
        cut = prompts.pieces(template)
    except ValueError:
        return
    again = "".join(piece if isinstance(piece, str) else f"{{{{{piece.text}}}}}" for piece in cut)

    assert again.replace(" ", "") == template.replace(" ", "")


TOKENS = ["{{plan}}", "{{text.lines[0]}}", "{{", "}}", "{", "}", "x", "$ref", "\n"]


@given(st.lists(st.lists(st.sampled_from(TOKENS)).map("".join), min_size=2, max_size=2))
def test_contents_of_slots_are_injected_once(texts):
    """The content of a slot is inserted unchanged: no placeholder in it is expanded."""
    values = dict(zip(("plan", "text"), texts, strict=True))
    template = "A{{plan}}B{{text}}C{{plan}}"
    injected = [piece if isinstance(piece, str) else values[piece.root] for piece in prompts.pieces(template)]

    assert prompts.joined(injected) == (f"A{texts[0]}B{texts[1]}C{texts[0]}",)


def test_handles_stay_apart():
    """Neighbouring texts become one part, and a handle stays a separate part."""
    blob = {"blob": {"sha256": "x"}}

    assert prompts.joined(["a", "b", blob, "", "c"]) == ("ab", blob, "c")
    assert prompts.joined([blob]) == (blob,)


@pytest.mark.parametrize(
    ("value", "text"), [("plain", "plain"), (3, "3"), (True, "true"), ([1, "ä"], '[1,"ä"]'), ({"a": []}, '{"a":[]}')]
)
def test_values_in_prompts(value, text):
    """A text is inserted unchanged, any other value as JSON."""
    assert prompts.text_of(refs.read("slot.x"), value) == text


def test_the_limit_counts_bytes():
    """A value may have exactly 32 kB at most."""
    assert len(prompts.text_of(refs.read("s.x"), "ä" * 16_384)) == 16_384
    with pytest.raises(refs.BrokenReference, match="32770 bytes"):
        prompts.text_of(refs.read("s.x"), "ä" * 16_385)


def test_the_parts_of_a_t1_template():
    """A template has three parts in order, without the blank lines around them."""
    parts = prompts.micro_parts("\n--- triage\nA?\n\n---  finding \r\nB --- c\n--- evidence\nC\n")

    assert parts == {"triage": "A?", "finding": "B --- c", "evidence": "C"}


@pytest.mark.parametrize(
    "template",
    [
        "text",
        "--- triage\nA\n--- finding\nB",
        "--- finding\nB\n--- triage\nA\n--- evidence\nC",
        "intro\n--- triage\nA\n--- finding\nB\n--- evidence\nC",
        "--- triage\n--- finding\nB\n--- evidence\nC",
        "--- triage\nA\n--- finding\nB\n--- evidence\nC\n--- more\nD",
        "--- triage\nA\n--- triage\nA\n--- finding\nB",
    ],
)
def test_a_t1_template_must_have_its_three_parts(template):
    """Missing, repeated, misplaced, additional and empty parts are refused, and so is text before the first."""
    with pytest.raises(ValueError, match="--- triage, --- finding, --- evidence"):
        prompts.micro_parts(template)


@pytest.mark.parametrize(
    ("template", "tier", "codes"),
    [
        ("{{plan}} {{text.x}} {{task.description}} {{task.args.a}}", "t3", []),
        ("{{other}} {{other}} {{plam.x}}", "t3", ["unknown_slot", "unknown_slot"]),
        ("{{task.args.b}}", "t3", ["undeclared_arg"]),
        ("{{task}} {{task.arg.x}}", "t3", ["unreachable_ref_root", "unreachable_ref_root"]),
        ("{{plan", "t5", ["invalid_template"]),
        ("{{plan}}", "t1", ["invalid_template"]),
        ("--- triage\n{{plan}}\n--- finding\n{{x}}\n--- evidence\n{{text}}", "t1", ["unknown_slot"]),
    ],
)
def test_a_template_may_name_only_input_slots_and_the_task(template, tier, codes):
    """A template may name only the step's input slots and the task."""
    found = prompts.problems(template, tier, ["plan", "text"], ["a"])

    assert [code for code, _ in found] == codes


def test_every_tier_has_an_order():
    """Every set of variants has one for each tier."""
    for size in (1, 2, 3):
        for there in itertools.combinations(TIERS, size):
            template = library.PromptTemplate(prompt_type="x", label="x", variants=dict.fromkeys(there, "text"))

            assert all(prompts.variant(template, tier) in there for tier in TIERS)


def test_the_frozen_recipe_has_agents_and_variants():
    """The frozen recipe has agents by archetype with their contracts, and for each step the variant to use."""
    registry = bench.stock({"write": {"t3": "three {{plan}}", "t5": "five {{plan}}"}}, {"writer": "t5"})
    frozen = bench.DIALECT.freeze(bench.parsed(bench.RECIPE), registry)

    assert frozen["agents"]["writer"] == bench.agent("writer", "t5").to_json()
    assert frozen["prompts"] == {
        "brief": {"tier": "t3", "template": bench.PROMPTS["make_plan"]["t3"]},
        "draft": {"tier": "t5", "template": "five {{plan}}"},
    }
