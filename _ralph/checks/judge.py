"""What a judge said: its answer, read from its last words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from _ralph import text
from _ralph.model import Json, Task

_ANSWER = 1 << 16
"""Characters of the end of what it said in which its answer is looked for."""


@dataclass(frozen=True)
class Answer:
    """What a judge said: its objections, none where it agrees; or why its answer is
    `unreadable`, which is no yes: it is asked once more on the same work."""

    objections: list[str] = field(default_factory=list)
    unreadable: str = ""


def read_answer(said: str, criteria: Sequence[str]) -> Answer:
    """The answer in what a judge said of these criteria: one JSON object with
    `criteria`."""
    answers = []
    for one in json_objects(said[-_ANSWER:]):
        if isinstance(one.get("criteria"), list):
            answers.append(one)
    if len(answers) != 1:
        found = f"{len(answers)} objects with `criteria` instead of one"
        return Answer(unreadable=f"its answer cannot be read: {found}")
    objections = []
    judged = set()
    for entry in answers[0]["criteria"]:
        if not isinstance(entry, dict):
            continue
        criterion = _line(entry.get("criterion"))
        if criterion:
            judged.add(criterion.casefold())
        if entry.get("met") is not True:
            reason = _line(entry.get("reason")) or "no reason given"
            objections.append(f"{criterion or 'a criterion'}: {reason}")
    wanted = len(set(criteria))
    if len(judged) < wanted and not objections:
        return Answer(unreadable=f"it judged {len(judged)} of {wanted} criteria")
    return Answer(objections)


def criteria_of(task: Task) -> list[str]:
    """What must be met: the task's criteria, else its title."""
    return list(task.criteria) or [task.title]


def json_objects(said: str) -> list[Json]:
    """Every top-level JSON object in a text."""
    decoder = json.JSONDecoder()
    found = []
    at = said.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(said, at)
            found.append(value)
        except (ValueError, RecursionError):
            end = at + 1
        at = said.find("{", end)
    return found


def _line(value: object) -> str:
    return text.one_line(str(value or ""), 300)
