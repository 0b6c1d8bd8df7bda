"""
Claims: what is read off prose, and above all what is not.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tools import canon, claims, documents
from app.tools.cast import Cast

CARDS = [
    "---\nname: Kael Arden\nkind: character\naliases: [Kael, the courier]\npronouns: he/him\n---\n",
    "---\nname: Mira Voss\nkind: character\naliases: [Mira]\npronouns: she/her\n---\n",
    "---\nname: Orrin Hale\nkind: character\npronouns: he/him\n---\n",
    "---\nname: the Lantern Tower\nkind: place\n---\n- Location: Gull Rock\n",
    "---\nname: the brass key\nkind: item\nowner: Mira Voss\nmaterial: brass\n---\n",
    "---\nname: the Long Storm\nkind: event\ndate: 12 October 1893\n---\n",
]

WORDS = [
    "Kael", "Mira", "Kael's", "his", "her", "green", "eyes", "were", "was", "dead", ",", ".", '"', "said", "brass key",
    "12 October", "the Long Storm", "of", "seventeen", "left-handed", "\n\n", "\n", "stands on Heron Point",
]  # fmt: skip


def read(text: str, pov: str | None = None, cards: list[str] | None = None) -> list[claims.Claim]:
    """
    Return the claims of a text about the small cast.
    """
    cast = Cast(canon.of_document(documents.parse(card, path="x.md")) for card in cards or CARDS)
    return claims.of_document(documents.parse(text, path="scene.md"), cast, pov=pov)


def told(text: str, pov: str | None = None) -> list[tuple[str, str, str]]:
    """
    Return subject, attribute and value of the claims.
    """
    return [(claim.subject, claim.attribute, claim.value) for claim in read(text, pov)]


@pytest.mark.parametrize(
    ("text", "subject", "colour"),
    [
        ("Kael's green eyes searched the tower.", "Kael Arden", "green"),
        ("Kael's tired, pale grey eyes closed.", "Kael Arden", "grey"),
        ("Mira looked up, and her brown eyes were wet.", "Mira Voss", "brown"),
        ("Kael’s eyes were a deep blue.", "Kael Arden", "blue"),
        ("Kael had green eyes and no hat.", "Kael Arden", "green"),
        ("Mira, whose hazel eyes missed nothing, nodded.", "Mira Voss", "hazel"),
        ("Kael was grey-eyed and thin.", "Kael Arden", "grey"),
        ("They met the green-eyed Mira.", "Mira Voss", "green"),
        ("Kael's blue-grey eyes narrowed.", "Kael Arden", "blue-grey"),
        ("Kael's gray eyes narrowed.", "Kael Arden", "grey"),
        ("The courier's green eyes narrowed.", "Kael Arden", "green"),
        ("Kael nodded. His green eyes were calm.", "Kael Arden", "green"),
        ("Mira bowed to Kael, and his green eyes were calm.", "Kael Arden", "green"),
    ],
)
def test_the_colour_of_eyes_is_read_with_its_bearer(text, subject, colour):
    """
    By possessive, by pronoun, by `had`, `with` and `whose`, and by `grey-eyed`.
    """
    assert (subject, "eye_colour", colour) in told(text)


@pytest.mark.parametrize(
    "text",
    [
        "Kael looked into the green eyes of the cat.",
        "Kael met a stranger's green eyes.",
        "Green eyes stared from the dark.",
        "Kael's red eyes burned from weeping.",
        "Kael did not have green eyes.",
        "Mira and a woman with green eyes stood there.",
        "Kael's eyes were wet.",
        "Somebody's eyes were green.",
        "Kael thought of green hills and closed his eyes.",
    ],
)
def test_no_colour_is_read_where_the_bearer_is_another_or_unclear(text):
    """
    Strangers, cats, moods and denials make no claim about the cast.
    """
    assert [claim for claim in told(text) if claim[1] == "eye_colour"] == []


def test_the_colour_of_hair_has_its_own_attribute():
    """
    Hair may be red where eyes may not.
    """
    assert told("Mira's red hair blew about.") == [("Mira Voss", "hair_colour", "red")]
    assert told("Kael's hair was black.") == [("Kael Arden", "hair_colour", "black")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Kael signed the book with his right hand.", ("Kael Arden", "hand", "right")),
        ("Mira wrote slowly, using her left hand.", ("Mira Voss", "hand", "left")),
        ("Kael drew the map with his good left hand.", ("Kael Arden", "hand", "left")),
        ("Kael was left-handed.", ("Kael Arden", "hand", "left")),
        ("Mira, right-handed and proud of it, laughed.", ("Mira Voss", "hand", "right")),
    ],
)
def test_the_hand_is_read_from_what_takes_skill(text, expected):
    """
    Writing, signing and drawing tell which hand is the better one.
    """
    assert expected in told(text)


@pytest.mark.parametrize(
    "text",
    [
        "Kael held the lamp in his right hand.",
        "Kael was not left-handed.",
        "Kael signed the book.",
        "He wrote to Kael. Mira raised her right hand.",
        "The left-handed smith waved at Kael.",
    ],
)
def test_no_hand_is_read_from_what_any_hand_can_do(text):
    """
    Holding and raising say nothing; a denial neither.
    """
    assert [claim for claim in told(text) if claim[1] == "hand"] == []


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("Mira was fifty-two, and tired.", "52"),
        ("Mira was 52 years old.", "52"),
        ("Mira, 52, said nothing.", "52"),
        ("Mira had just turned thirty.", "30"),
        ("Mira stood up. She was forty.", "40"),
        ("Mira was only nineteen when it happened.", "19"),
    ],
)
def test_an_age_is_read_in_figures_and_words(text, age):
    """
    After `was`, between commas, and by a pronoun.
    """
    assert ("Mira Voss", "age", age) in told(text)


@pytest.mark.parametrize(
    "text",
    [
        "Mira was seventeen miles away.",
        "Mira was one of them.",
        "Mira was two.",
        "Mira's twenty boats came in.",
        "Mira had twenty boats.",
    ],
)
def test_a_number_that_is_no_age_is_not_read_as_one(text):
    """
    Miles, boats and `one of them` are no ages.
    """
    assert [claim for claim in told(text) if claim[1] == "age"] == []


@pytest.mark.parametrize(
    "text",
    [
        '"You are late," said Orrin.',
        '"You are late," Orrin said.',
        'Orrin said, "You are late."',
        '"Late?" asked old Orrin.',
    ],
)
def test_who_speaks_is_alive(text):
    """
    A speaker is seen alive, however the speech is ascribed.
    """
    found = [claim for claim in read(text) if claim.attribute == "status"]

    assert [(claim.subject, claim.value, claim.is_shown) for claim in found] == [("Orrin Hale", "alive", True)]


@pytest.mark.parametrize(
    "text",
    [
        '"Orrin said it to me," said Kael.',
        "Orrin said nothing.",
        'Kael remembered what Orrin had said. "Late," he thought.',
        '"He was a friend," said Kael, as Orrin always said of strangers.',
        "Nobody spoke of Orrin.",
    ],
)
def test_who_is_only_spoken_of_is_not_a_speaker(text):
    """
    A name within speech, a memory and silence show nobody alive.
    """
    assert [c for c in read(text) if c.subject == "Orrin Hale" and c.attribute == "status"] == []


@pytest.mark.parametrize(
    "text",
    [
        "When she looked again, Orrin was dead.",
        "Orrin is two nights dead.",
        "Orrin had died in the night.",
        "They stood at Orrin's grave.",
        "Kael spoke of the death of Orrin.",
    ],
)
def test_a_death_is_read(text):
    """
    By `was dead`, `died`, and by grave and death.
    """
    assert ("Orrin Hale", "status", "dead") in told(text)


@pytest.mark.parametrize(
    "text",
    [
        "Orrin was dead tired.",
        "Orrin was nearly dead.",
        "Orrin was not dead.",
        "If Orrin died, all was lost.",
        "It was quiet as if Orrin were dead.",
        "Orrin would have died for it.",
    ],
)
def test_no_death_is_read_from_what_is_not_so(text):
    """
    Tiredness, conditions, denials and comparisons kill nobody.
    """
    assert [claim for claim in told(text) if claim[2] == "dead"] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Lantern Tower stands on Heron Point.", ("the Lantern Tower", "location", "Heron Point")),
        ("The Lantern Tower was built on Gull Rock.", ("the Lantern Tower", "location", "Gull Rock")),
        ("Mira lives in Varn.", ("Mira Voss", "location", "Varn")),
        ("Kael's brass key was warm.", ("the brass key", "owner", "Kael Arden")),
        ("The brass key belonged to Orrin.", ("the brass key", "owner", "Orrin Hale")),
        ("He took the iron key.", ("the brass key", "material", "iron")),
        ("The Long Storm of 14 October came.", ("the Long Storm", "date", "14 October")),
        ("On 14 October, the Long Storm came.", ("the Long Storm", "date", "14 October")),
        ("Kael was born on 4 March 1861.", ("Kael Arden", "born", "4 March 1861")),
    ],
)
def test_places_owners_materials_and_dates_are_read(text, expected):
    """
    What stands where, who has what, of what it is made, and when it was.
    """
    assert expected in told(text)


@pytest.mark.parametrize(
    ("text", "attribute"),
    [
        ("Kael stood on Heron Point.", "location"),
        ("Kael sat in Varn.", "location"),
        ("Kael looked at the brass key.", "owner"),
        ("He found an iron key.", "material"),
        ("On 3 March Kael spoke of the Long Storm.", "date"),
        ("Kael came home on 6 March 1894.", "born"),
        ("Nobody was born. On 14 October Kael left.", "born"),
    ],
)
def test_what_only_stands_near_is_no_claim(text, attribute):
    """
    Where someone stands, another key, and a date in the same sentence say nothing of a fact.
    """
    assert [claim for claim in told(text) if claim[1] == attribute] == []


def test_a_pronoun_means_the_subject_of_the_sentence_before():
    """
    Within a paragraph, `his` leads back to the last man who was a subject, not to the last name.
    """
    text = "Kael nodded at Orrin. Then he signed with his right hand."

    assert ("Kael Arden", "hand", "right") in told(text)


def test_a_pronoun_at_the_head_of_a_paragraph_means_the_subject_of_the_last_one():
    """
    The paragraph before is looked at, but none before that.
    """
    assert told("Kael came.\n\nHis green eyes were open.") == [("Kael Arden", "eye_colour", "green")]
    assert told("Kael came.\n\nIt rained.\n\nHis green eyes were open.") == []


def test_without_a_name_a_pronoun_means_the_point_of_view():
    """
    The one through whose eyes a scene is told is there even if he is not named.
    """
    assert told("His green eyes were open.", pov="Kael") == [("Kael Arden", "eye_colour", "green")]
    assert told("Her green eyes were open.", pov="Kael") == []
    assert told("His green eyes were open.", pov="Nobody known") == []


def test_a_pronoun_between_two_unknown_people_means_nobody():
    """
    Where a card gives no pronoun and two could be meant, no claim is made.
    """
    cards = [f"---\nname: {name}\nkind: character\n---\n" for name in ("Ada", "Ben")]

    assert read("Ada met Ben and her green eyes shone.", cards=cards) == []
    assert len(read("Ada slept and her green eyes closed.", cards=cards)) == 1


def test_claims_know_their_place_and_whether_they_are_spoken():
    """
    File, line and sentence are given; what a character says is marked.
    """
    found = read("Night fell.\n\nOver the\nrock Kael's green eyes went.\n\n\"Kael's blue eyes are fine,\" said Mira.")
    colours = [claim for claim in found if claim.attribute == "eye_colour"]

    assert [(claim.value, claim.line, claim.is_spoken) for claim in colours] == [("green", 4, False), ("blue", 6, True)]
    assert colours[0].quote == "Over the rock Kael's green eyes went."
    assert colours[0].path == "scene.md"


def test_the_longest_name_wins_and_small_words_stay_small():
    """
    `Kael Arden` is one mention; a name of small words fits at the head of a sentence; `mira` is no name.
    """
    cast = Cast(canon.of_document(documents.parse(card, path="x.md")) for card in CARDS)
    mentions = cast.mentions("Kael Arden met mira. The brass key fell. The courier's hat.")

    assert [(m.entity.name, m.is_possessive) for m in mentions] == [
        ("Kael Arden", False),
        ("the brass key", False),
        ("Kael Arden", True),
    ]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.sampled_from(WORDS),
        max_size=40,
    )
)
def test_any_text_gives_claims_about_the_cast_in_the_order_of_their_lines(words):
    """
    No order of words breaks the rules; every claim names someone of the cast and a line of the text; twice the same.
    """
    text = " ".join(words)
    found = read(text, pov="Kael")
    lines = text.count("\n") + 1

    assert found == read(text, pov="Kael")
    assert [claim.line for claim in found] == sorted(claim.line for claim in found)
    assert {claim.subject for claim in found} <= {"Kael Arden", "Mira Voss", "the brass key", "the Long Storm"}
    assert all(1 <= claim.line <= lines for claim in found)
