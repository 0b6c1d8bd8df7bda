"""The tool `reader_experience_simulator`: open loops and tension."""

from __future__ import annotations

import pytest

from app.tools.story.reader_experience_simulator import ReaderExperienceSimulator
from tests.unit.tools import stories

TOOL = ReaderExperienceSimulator()

OUTLINE = """
## Scene 1: One
- Plants: the silver coin, the old rope
## Scene 2: Two
- Pays off: the silver coin
## Scene 3: Three
- Pays off: the old rope
"""


def read(tmp_path, *texts: str, outline: str | None = None) -> dict:
    """Read scenes in their order, with or without an outline."""
    files = {f"Story/{number}.md": f"---\nscene: {number}\n---\n{text}" for number, text in enumerate(texts, 1)}
    further = {"outline_path": "outline.md"} if outline is not None else {}
    workspace = stories.write(tmp_path, {**files, "outline.md": outline or ""})
    return stories.payload(TOOL, workspace, scene_paths=["Story"], **further)


def loops(payload: dict) -> list[tuple[str, str, str]]:
    """Return kind, item and status of all loops."""
    return [(loop["kind"], loop["item"], loop["status"]) for loop in payload["open_loops"]]


@pytest.mark.parametrize(
    ("sentence", "item"),
    [
        ("She hid the silver coin in her shoe.", "silver coin"),
        ("He buried a small iron box under the tree.", "small iron box"),
        ("She tucked his letter behind the clock.", "letter"),
        ("He locked the red door.", "red door"),
        ("The cracked bell struck once, although nobody was there.", "cracked bell"),
        ("An old clock stopped for no reason.", "old clock"),
    ],
)
def test_a_thing_set_before_the_reader_opens_a_loop(tmp_path, sentence, item):
    """What is hidden, locked or moves by itself will be waited for."""
    assert loops(read(tmp_path, sentence, "Rain.")) == [("foreshadowing", item, "open")]


@pytest.mark.parametrize(
    "sentence",
    ["He hid.", "The door opened.", "She looked at the silver coin.", "The bell struck twice.", "They were hidden."],
)
def test_ordinary_gestures_open_none(tmp_path, sentence):
    """Not everything is a sign."""
    assert loops(read(tmp_path, sentence, "Rain.")) == []


@pytest.mark.parametrize(
    ("later", "status"),
    [
        ("She found the silver coin again.", "paid"),
        ("The coin was gone. It turned up in his hand.", "paid"),
        ("There lay the coin. It burned in her hand.", "paid"),
        ("There lay the silver coin.", "touched"),
        ("Rain.", "open"),
    ],
)
def test_a_thing_is_paid_when_it_comes_back_to_some_effect(tmp_path, later, status):
    """A gesture that answers pays; a mere mention touches."""
    found = read(tmp_path, "She hid the silver coin in her shoe.", later)

    assert [loop[2] for loop in loops(found)] == [status]


def test_a_thing_that_comes_back_in_its_own_scene_is_not_paid(tmp_path):
    """A reader has to wait for at least a scene."""
    assert [loop[2] for loop in loops(read(tmp_path, "She hid the coin in her shoe. She found the coin."))] == ["open"]


def test_a_thing_set_twice_is_one_loop(tmp_path):
    """The first place counts."""
    payload = read(tmp_path, "She hid the silver coin in her shoe.", "He hid the coin in a box.")

    assert len(payload["open_loops"]) == 1
    assert payload["open_loops"][0]["planted"]["path"] == "Story/1.md"


def test_the_outline_decides_where_it_speaks(tmp_path):
    """Declared plants are paid by the declared scene only; an unwritten one makes them planned."""
    texts = ("The silver coin lay by the old rope.", "There was the silver coin.")
    payload = read(tmp_path, *texts, outline=OUTLINE)

    assert loops(payload) == [
        ("foreshadowing", "the silver coin", "paid"),
        ("foreshadowing", "the old rope", "planned"),
    ]
    assert payload["open_loops"][1]["planned_for"] == "Three"
    assert payload["unpaid"] == []
    assert payload["pass"]


def test_a_declared_payoff_that_is_not_told_stays_unpaid(tmp_path):
    """The written scene had its chance."""
    payload = read(tmp_path, "The silver coin lay there.", "Rain.", "Rain.", outline=OUTLINE)

    assert loops(payload) == [("foreshadowing", "the silver coin", "open")]
    assert not payload["pass"]


def test_front_matter_can_declare_plants(tmp_path):
    """A scene's own `plants` count like the outline's."""
    workspace = stories.write(tmp_path, {"s.md": "---\nscene: 1\nplants: [the knife]\n---\nThere lay the knife.\n"})

    assert loops(stories.payload(TOOL, workspace, scene_paths=["s.md"])) == [("foreshadowing", "the knife", "open")]


@pytest.mark.parametrize(
    ("following", "is_open"),
    [
        ('"Orrin keeps it."', False),
        ('"Orrin," said Mira.', False),
        ('Mira shut the book. "That was not answered."', True),
        ('"Who asks?"', True),
        ("Rain fell.", True),
        ("", True),
    ],
)
def test_a_question_stays_open_unless_the_next_to_speak_answers(tmp_path, following, is_open):
    """An answer closes it; evasion, a counter-question and silence do not."""
    question = '"Who keeps the light?" asked Kael.'
    asked = [item for _, item, _ in loops(read(tmp_path, f"{question}\n\n{following}"))]

    assert (question in asked) is is_open


def test_the_narrators_question_is_open_until_its_words_come_back(tmp_path):
    """An answer tells of the same matter."""
    question = "Who had broken the red lantern?"

    assert loops(read(tmp_path / "a", question, "Rain.")) == [("question", question, "open")]
    assert loops(read(tmp_path / "b", question, "Orrin had broken the red lantern.")) == [
        ("question", question, "paid")
    ]
    assert loops(read(tmp_path / "c", question, "Who broke the red lantern?"))[0][2] == "open"


def test_a_promise_is_open_until_its_matter_comes_back(tmp_path):
    """What is promised must be told of again."""
    promise = "Kael promised to bring the key back before morning."

    opened = read(tmp_path / "a", promise, "Rain.")
    kept = read(tmp_path / "b", promise, "Kael brought back the key in the morning.")

    assert loops(opened) == [("promise", "promised to bring the key back before morning", "open")]
    assert [loop[2] for loop in loops(kept)] == ["paid"]
    assert (opened["pass"], kept["pass"]) == (False, True)


def test_unpaid_loops_are_findings_with_their_place(tmp_path):
    """Foreshadowing and promises warn, questions hint."""
    payload = read(tmp_path, "She hid the coin in her shoe.\n\nWho would look for it there?", "Rain.")

    assert [(f["kind"], f["severity"], f["line"], f["path"]) for f in payload["unpaid"]] == [
        ("open_foreshadowing", "warning", 4, "Story/1.md"),
        ("open_question", "hint", 6, "Story/1.md"),
    ]
    assert payload["scenes"][0]["opened"] == 2
    assert payload["scenes"][0]["closed"] == 0


def test_a_payoff_is_counted_in_its_scene(tmp_path):
    """Opened here, closed there."""
    scenes = read(tmp_path, "She hid the coin in her shoe.", "She found the coin.")["scenes"]

    assert [(scene["opened"], scene["closed"]) for scene in scenes] == [(1, 0), (0, 1)]


def test_danger_and_short_sentences_are_tenser_than_calm(tmp_path):
    """The curve orders scenes as a reader would."""
    calm = "They sat together in the warm kitchen and talked for a long while about the garden and the harvest."
    tense = "He ran. Dark. Blood! Who was there? Nothing. He fell."
    payload = read(tmp_path, calm, tense)

    low, high = (scene["tension"] for scene in payload["scenes"])
    assert 0 <= low < 0.2 < 0.6 < high <= 1
    assert [point["position"] for point in payload["tension_curve"]] == [0.0, 0.5]


def test_a_scene_is_measured_in_parts(tmp_path):
    """Up to four points a scene, at rising positions."""
    curve = read(tmp_path, "\n\n".join(["Rain."] * 9), "Rain.")["tension_curve"]

    assert [point["position"] for point in curve] == [0.0, 0.167, 0.333, 0.5]


def test_a_flat_and_a_sagging_story_are_told(tmp_path):
    """Four scenes alike are flat; one between two peaks sags."""
    calm, tense = "They talked about the garden and the harvest for a while.", "He ran. Dark. Blood! Nothing. He fell."
    flat = read(tmp_path / "a", calm, calm, calm, calm)["findings"]
    sagging = read(tmp_path / "b", tense, calm, tense)["findings"]

    assert [finding["kind"] for finding in flat] == ["flat_tension"]
    assert [(finding["kind"], finding["path"]) for finding in sagging] == [("sagging_tension", "Story/2.md")]


@pytest.mark.parametrize("texts", [[""], ["", ""], ["# H"]])
def test_empty_scenes_hold_nothing_to_wait_for(tmp_path, texts):
    """No loops, no curve, no failure."""
    payload = read(tmp_path, *texts)

    assert (payload["open_loops"], payload["tension_curve"], payload["pass"]) == ([], [], True)


def test_many_loops_give_a_bounded_answer(tmp_path):
    """The payload is cut and says how many there were."""
    text = "\n\n".join(f"She hid the thing{number} coin{number} in her shoe." for number in range(350))
    payload = read(tmp_path, text, "Rain.")

    assert payload["truncated"]
    assert payload["totals"]["open_loops"] == 350
