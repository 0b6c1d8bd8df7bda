"""Degenerate replies, and as many sound replies that resemble them."""

from __future__ import annotations

import json
import time

import pytest

from app.agents import degeneration
from app.agents.degeneration import Asked

ROLE = (
    "You are the critic of a writing team and speak for the reader. You say plainly what works, what does not, and"
    " why. You name the one change that would help most. You do not rewrite. If nothing is wrong, answer: The scene"
    " holds up and nothing in it has to be changed today."
)
INSTRUCTIONS = "\n\nRead the draft below as a reader would. Say in three sentences whether it holds your interest."
DRAFT = "Kael came down to the harbour before dawn. Rain stood on the stones. Nobody had lit the lamp in the tower. "
PROMPT = f"Task: Draft scene 22\n\n{DRAFT * 3}{INSTRUCTIONS}"
ASKED = Asked(system=ROLE, prompt=PROMPT, instructions=INSTRUCTIONS)

LINES = "The harbour lay still under the rain.\nNobody had lit the lamp.\nKael counted the steps again.\n"
REFRAIN = "\n".join(f"{verse} nights upon the water,\n\nO the lamp, the lamp is dark,\nO the lamp is dark.\n"
                    for verse in ("Seven", "Nine", "Eleven", "Twelve", "Thirteen"))  # fmt: skip
CODE = "```python\n" + "    pass\n" * 40 + "```"
TABLE = "| name | age |\n| --- | --- |\n" + "| unknown | unknown |\n" * 60
SONG = LINES * 1 + "Na na na, hey, the tide comes in again!\n" * 4

ECHOES = {
    "role": ROLE,
    "role in the first person": ROLE.replace("You are", "I am").replace("You ", "I "),
    "beginning of the role": "You are the critic of a writing team and speak for the reader.",
    "role marked up": f"> **{ROLE}**",
    "role behind a word": f"Sure! {ROLE}",
    "role three times": f"{ROLE}\n\n" * 3,
    "role as far as it went": ROLE[:200],
    "role with a remark": f"{ROLE} I will do my best.",
    "instructions": INSTRUCTIONS,
    "instructions as far as they went": INSTRUCTIONS[:60],
    "prompt": PROMPT,
    "prompt in capitals": PROMPT.upper(),
    "role and prompt": f"{ROLE}\n\n{PROMPT}",
}
ENDLESS = {
    "a sentence": "The rain falls on the stones. " * 40,
    "sentences by turns": LINES * 12,
    "lines": "The lamp is dark tonight.\n" * 40,
    "behind a beginning": DRAFT + "And then he waits by the door. " * 40,
    "the last one torn": ("He waits by the old door. " * 40)[:-9],
    "with a last line": "He waits by the old door. " * 40 + "\nThe end.",
    "one word": "rain " * 200,
    "a word without blanks": "haha" * 100,
    "without blanks": "雨が降っています。" * 60,
    "marks": "!" * 500,
    "bullets by the hundred": "- The man is happy here.\n" * 400,
    "megabytes": "The rain falls on the stones. " * 200_000,
}
CUT = {
    "bullets": "Notes:\n\n" + "- The man is happy with his new house.\n" * 40,
    "table rows": "| a | b |\n" + "| the man | the house |\n" * 60,
    "code": "```\n" + "    total = total + 1\n" * 80,
    "behind a text": LINES + "".join(f"Line {n} differs from the others. " for n in range(8)) + "And so it goes. " * 20,
    "numbers": "0, " * 2_000,
    "fields": "The Lantern Tower: no contradiction\n" * 20,
}
SOUND = {
    "yes": "yes",
    "one mark": "…",
    "blank": "",
    "laughter": "Ha ha ha ha ha ha ha!",
    "assent": "Yes, yes, yes, a thousand times yes!",
    "numbered": "".join(f"{n}. The scene is fine.\n" for n in range(1, 60)),
    "a poem": REFRAIN,
    "a song": SONG,
    "a rule": "A title\n" + "-" * 300 + "\nA text that says something more than nothing.",
    "a page": "".join(f"The {n}th night was darker than the one before it. " for n in range(200)),
    "a draft given back": DRAFT * 3,
    "the answer that was worded": "The scene holds up and nothing in it has to be changed today.",
    "some words of the instructions": "Three sentences would not do. It holds my interest as a reader would wish.",
    "the answer behind the question": f"{PROMPT}\n\nIt holds my interest, since the dark tower is never explained.",
    "the word of the role": "Critic.",
    "dialogue": '"No." "No?" "No." "No?" "No." She laughed, and so did he, and neither of them meant it.',
}
EQUAL_LINES = {
    "a checklist": "- [ ] open\n" * 30,
    "equal bullets": "- No contradiction found.\n" * 30,
    "a table": TABLE,
    "fields": "status: nothing to report\n" * 30,
    "code": CODE,
    "code without a fence": "if x:\n" + "    items.append(None)\n" * 30,
    "zeros": "0,0,0,0,0,0,0,0\n" * 200,
    "json": json.dumps({"rows": [{"name": None, "age": None}] * 300}),
}


@pytest.mark.parametrize("name", ECHOES)
def test_an_echo_is_degenerate(name: str) -> None:
    """A reply that only repeats the prompt is degenerate, also with other words around it."""
    found = degeneration.find(ECHOES[name], ASKED)

    assert found is not None
    assert found.facts.keys() == {"echoes"}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_repetition_is_degenerate(name: str) -> None:
    """A reply that mostly repeats itself is degenerate, even if it ended by itself."""
    assert degeneration.find(ENDLESS[name], ASKED) is not None


@pytest.mark.parametrize("name", CUT)
def test_a_reply_cut_off_in_its_loop_is_degenerate(name: str) -> None:
    """A repetition at the end is degenerate only if the reply was cut off."""
    assert degeneration.find(CUT[name], ASKED, cut_off=True) is not None
    assert degeneration.find(CUT[name], ASKED) is None


@pytest.mark.parametrize("name", [*SOUND, *EQUAL_LINES])
def test_a_sound_reply_is_none(name: str) -> None:
    """Short words, lists, tables, code, refrains, prompted answers and returned texts are not degenerate."""
    assert degeneration.find((SOUND | EQUAL_LINES)[name], ASKED) is None


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_reply_that_was_cut_off_is_none(name: str) -> None:
    """A sound reply is not degenerate if it was cut off."""
    assert degeneration.find(SOUND[name], ASKED, cut_off=True) is None


@pytest.mark.parametrize("unit", ["a", "ab ", "(", "x\n", "`", "- ", "é ", "1 "])
@pytest.mark.parametrize("last", ["", "b"])
def test_a_long_reply_takes_linear_time(unit: str, last: str) -> None:
    """A megabyte of any repeated text is judged within five seconds."""
    began = time.process_time()
    degeneration.find(unit * (1_000_000 // len(unit)) + last, ASKED, cut_off=True)

    assert time.process_time() - began < 5
