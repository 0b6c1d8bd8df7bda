"""Open loops: the expectations that a story raises in its reader, and where it fulfils them.

A loop is opened by an unanswered question, by a promise, or by a thing that is introduced with a marked gesture
(foreshadowing). It is paid when the thing returns with a gesture that answers, touched when it only returns, and
planned when the outline pays it off in a scene that is not written yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from app.tools.story import loop_signs, matching, outline_matching
from app.tools.story.outlines import Outline, PlannedScene
from app.tools.story.scenes import Scene

_SAME_MATTER = 0.6
_MAX_LOOPS = 400
_FEWEST_TERMS = 2


def find(scenes: Sequence[Scene], outline: Outline | None) -> list[loop_signs.Loop]:
    """Return the loops of the scenes in the order in which they are opened."""
    story = _Story(scenes, outline)
    opened = [*_declared(story), *(loop for line in story.lines for loop in loop_signs.opened_by(line))]
    distinct = _merged(sorted(opened, key=lambda loop: _position(loop.planted)))
    return [_followed(loop, story) for loop in distinct[:_MAX_LOOPS]]


class _Story:
    def __init__(self, scenes: Sequence[Scene], outline: Outline | None) -> None:
        self.scenes = scenes
        self.planned = outline_matching.of_scenes(outline, scenes) if outline else [None] * len(scenes)
        self.payoffs = [
            (frozenset(matching.terms(payoff)), planned)
            for planned in (outline.scenes if outline else ())
            for payoff in planned.entries("payoffs")
        ]
        self.lines = [line for index, scene in enumerate(scenes) for line in loop_signs.lines(index, scene)]
        self._by_term: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines):
            for term in sorted(line.terms):
                self._by_term.setdefault(term, []).append(number)

    def with_any(self, terms: Iterable[str]) -> Iterator[tuple[loop_signs.Line, loop_signs.Line | None]]:
        """Yield the sentences that contain one of the terms, each with the sentence that follows it."""
        numbers = {number for term in terms for number in self._by_term.get(term, ())}
        for number in sorted(numbers):
            yield self.lines[number], self.lines[number + 1] if number + 1 < len(self.lines) else None


def _declared(story: _Story) -> Iterator[loop_signs.Loop]:
    for index, (scene, planned) in enumerate(zip(story.scenes, story.planned, strict=True)):
        declared = (*scene.document.entries("plants", "foreshadows"), *(planned.entries("plants") if planned else ()))
        for item in declared:
            terms = tuple(matching.terms(item))
            here = (
                line.place
                for line, _ in story.with_any(terms[-1:])
                if line.place.scene == index and set(terms) <= line.terms
            )
            first = next(here, None)
            if first is not None:
                yield loop_signs.Loop(kind="foreshadowing", item=item, terms=terms, planted=first)


def _merged(loops: Sequence[loop_signs.Loop]) -> list[loop_signs.Loop]:
    kept: list[loop_signs.Loop] = []
    by_head: dict[str, list[loop_signs.Loop]] = {}
    for loop in loops:
        if loop.kind == "foreshadowing":
            known = by_head.setdefault(loop.terms[-1], [])
            if any(_is_same(loop, other) for other in known):
                continue
            known.append(loop)
        kept.append(loop)
    return kept


def _is_same(loop: loop_signs.Loop, other: loop_signs.Loop) -> bool:
    return set(loop.terms) <= set(other.terms) or set(other.terms) <= set(loop.terms)


def _followed(loop: loop_signs.Loop, story: _Story) -> loop_signs.Loop:
    return _followed_thing(loop, story) if loop.kind == "foreshadowing" else _followed_matter(loop, story)


def _followed_matter(loop: loop_signs.Loop, story: _Story) -> loop_signs.Loop:
    if len(loop.terms) < _FEWEST_TERMS:
        return loop
    wanted = list(loop.terms)
    for line, _ in story.with_any(wanted):
        is_later = _position(line.place) > _position(loop.planted)
        if is_later and not loop_signs.is_question(line) and matching.overlap(wanted, set(line.terms)) >= _SAME_MATTER:
            return replace(loop, status="paid", payoff=line.place)
    return loop


def _followed_thing(loop: loop_signs.Loop, story: _Story) -> loop_signs.Loop:
    declared = next((planned for terms, planned in story.payoffs if set(loop.terms) <= terms), None)
    if declared is not None and all(planned is None or planned.index != declared.index for planned in story.planned):
        return replace(loop, status="planned", planned_for=declared.title)
    touched: loop_signs.Place | None = None
    for line, following in story.with_any(loop.terms[-1:]):
        # In its own scene a thing is still being introduced.
        if line.place.scene > loop.planted.scene:
            touched = line.place
            if _pays(line, following, declared, story):
                return replace(loop, status="paid", payoff=line.place)
    return replace(loop, status="touched", payoff=touched) if touched else loop


def _pays(
    line: loop_signs.Line, following: loop_signs.Line | None, declared: PlannedScene | None, story: _Story
) -> bool:
    """Decide by the outline if it names the scene that pays; otherwise by later uses of the thing."""
    if declared is None:
        return loop_signs.answers(line, following)
    planned = story.planned[line.place.scene]
    return planned is not None and planned.index == declared.index


def _position(place: loop_signs.Place) -> tuple[int, int]:
    return place.scene, place.sentence
