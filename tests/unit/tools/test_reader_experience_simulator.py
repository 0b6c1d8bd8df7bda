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
    """Return kind, item and status of each loop."""
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
    """A thing that is hidden or locked, or moves by itself, opens a loop of foreshadowing."""
    assert loops(read(tmp_path, sentence, "Rain.")) == [("foreshadowing", item, "open")]


@pytest.mark.parametrize(
    "sentence",
    ["He hid.", "The door opened.", "She looked at the silver coin.", "The bell struck twice.", "They were hidden."],
)
def test_ordinary_gestures_open_none(tmp_path, sentence):
    """Ordinary gestures open no loop."""
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
    """A thing that returns with a gesture of effect pays its loop; a mere mention only touches it."""
    found = read(tmp_path, "She hid the silver coin in her shoe.", later)

    assert [loop[2] for loop in loops(found)] == [status]


def test_a_thing_that_comes_back_in_its_own_scene_is_not_paid(tmp_path):
    """A thing that returns in its own scene does not pay its loop."""
    assert [loop[2] for loop in loops(read(tmp_path, "She hid the coin in her shoe. She found the coin."))] == ["open"]


def test_a_thing_set_twice_is_one_loop(tmp_path):
    """A thing that is planted twice is one loop, with the first place."""
    payload = read(tmp_path, "She hid the silver coin in her shoe.", "He hid the coin in a box.")

    assert len(payload["open_loops"]) == 1
    assert payload["open_loops"][0]["planted"]["path"] == "Story/1.md"


def test_the_outline_decides_where_it_speaks(tmp_path):
    """A declared plant is paid by the declared scene only, and is planned while that scene is not written."""
    texts = ("The silver coin lay by the old rope.", "There was the silver coin.")
    payload = read(tmp_path, *texts, outline=OUTLINE)

    assert loops(payload) == [
        ("foreshadowing", "the silver coin", "paid"),
        ("foreshadowing", "the old rope", "planned"),
    ]
    assert payload["open_loops"][1]["planned_for"] == "Three"
    assert payload["unpaid"] == []
    assert payload["pass"]


def test_a_payoff_missing_from_its_scene_leaves_the_loop_open(tmp_path):
    """A declared payoff that its scene does not contain leaves the loop open."""
    payload = read(tmp_path, "The silver coin lay there.", "Rain.", "Rain.", outline=OUTLINE)

    assert loops(payload) == [("foreshadowing", "the silver coin", "open")]
    assert not payload["pass"]


def test_front_matter_can_declare_plants(tmp_path):
    """Plants in the front matter of a scene open loops."""
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
    """The answer of the next speaker closes a question; evasion, a counter-question and silence do not."""
    question = '"Who keeps the light?" asked Kael.'
    asked = [item for _, item, _ in loops(read(tmp_path, f"{question}\n\n{following}"))]

    assert (question in asked) is is_open


def test_the_narrators_question_is_open_until_its_words_come_back(tmp_path):
    """A question of the narrator is open until a sentence that is not a question repeats its words."""
    question = "Who had broken the red lantern?"

    assert loops(read(tmp_path / "a", question, "Rain.")) == [("question", question, "open")]
    assert loops(read(tmp_path / "b", question, "Orrin had broken the red lantern.")) == [
        ("question", question, "paid")
    ]
    assert loops(read(tmp_path / "c", question, "Who broke the red lantern?"))[0][2] == "open"


def test_a_promise_is_open_until_its_matter_comes_back(tmp_path):
    """A promise is open until its words return."""
    promise = "Kael promised to bring the key back before morning."

    opened = read(tmp_path / "a", promise, "Rain.")
    kept = read(tmp_path / "b", promise, "Kael brought back the key in the morning.")

    assert loops(opened) == [("promise", "promised to bring the key back before morning", "open")]
    assert [loop[2] for loop in loops(kept)] == ["paid"]
    assert (opened["pass"], kept["pass"]) == (False, True)


def test_unpaid_loops_are_findings_with_their_place(tmp_path):
    """Unpaid loops are findings with their places: foreshadowing is a warning, a question is a hint."""
    payload = read(tmp_path, "She hid the coin in her shoe.\n\nWho would look for it there?", "Rain.")

    assert [(f["kind"], f["severity"], f["line"], f["path"]) for f in payload["unpaid"]] == [
        ("open_foreshadowing", "warning", 4, "Story/1.md"),
        ("open_question", "hint", 6, "Story/1.md"),
    ]
    assert payload["scenes"][0]["opened"] == 2
    assert payload["scenes"][0]["closed"] == 0


def test_a_payoff_is_counted_in_its_scene(tmp_path):
    """A loop counts as opened in its scene and as closed in the scene of its payoff."""
    scenes = read(tmp_path, "She hid the coin in her shoe.", "She found the coin.")["scenes"]

    assert [(scene["opened"], scene["closed"]) for scene in scenes] == [(1, 0), (0, 1)]


def test_danger_and_short_sentences_are_tenser_than_calm(tmp_path):
    """A scene with danger and short sentences has a higher tension than a calm one."""
    calm = "They sat together in the warm kitchen and talked for a long while about the garden and the harvest."
    tense = "He ran. Dark. Blood! Who was there? Nothing. He fell."
    payload = read(tmp_path, calm, tense)

    low, high = (scene["tension"] for scene in payload["scenes"])
    assert 0 <= low < 0.2 < 0.6 < high <= 1
    assert [point["position"] for point in payload["tension_curve"]] == [0.0, 0.5]


def test_a_scene_is_measured_in_parts(tmp_path):
    """A scene has up to four points of tension, at rising positions."""
    curve = read(tmp_path, "\n\n".join(["Rain."] * 9), "Rain.")["tension_curve"]

    assert [point["position"] for point in curve] == [0.0, 0.167, 0.333, 0.5]


def test_flat_and_sagging_stories_are_findings(tmp_path):
    """Four scenes of equal tension are flat, and a calm one between two peaks sags."""
    calm, tense = "They talked about the garden and the harvest for a while.", "He ran. Dark. Blood! Nothing. He fell."
    flat = read(tmp_path / "a", calm, calm, calm, calm)["findings"]
    sagging = read(tmp_path / "b", tense, calm, tense)["findings"]

    assert [finding["kind"] for finding in flat] == ["flat_tension"]
    assert [(finding["kind"], finding["path"]) for finding in sagging] == [("sagging_tension", "Story/2.md")]


@pytest.mark.parametrize("texts", [[""], ["", ""], ["# H"]])
def test_empty_scenes_hold_nothing_to_wait_for(tmp_path, texts):
    """Empty scenes have no loops and no curve, and pass."""
    payload = read(tmp_path, *texts)

    assert (payload["open_loops"], payload["tension_curve"], payload["pass"]) == ([], [], True)


def test_many_loops_give_a_bounded_answer(tmp_path):
    """The payload of many loops is cut, and the totals count all of them."""
    text = "\n\n".join(f"She hid the thing{number} coin{number} in her shoe." for number in range(350))
    payload = read(tmp_path, text, "Rain.")

    assert payload["truncated"]
    assert payload["totals"]["open_loops"] == 350
