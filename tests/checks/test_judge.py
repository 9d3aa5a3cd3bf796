"""What a judge's answer says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from _ralph.checks.judge import criteria_of, read_answer
from _ralph.model import Task

WORDS = ["It is there", "It is tested", "It is fast"]


def answer(*met: bool, reason: str = "a.txt:1", **more: Any) -> str:
    entries = []
    for words, one in zip(WORDS, met, strict=False):
        entries.append({"criterion": words, "met": one, "reason": reason})
    return json.dumps({"criteria": entries, **more})


YES = answer(True, True)
TWICE = json.dumps({"criteria": [{"criterion": "It is there", "met": True}] * 2})


OF_TWO = "it judged {} of 2 criteria"


@pytest.mark.parametrize(("said", "objection", "unreadable"), [
    (YES, "", ""),
    (f"I looked.\n```json\n{YES}\n```\nThat is all. {{}}", "", ""),
    (YES.replace("It is tested", "it  is TESTED"), "", ""),
    (answer(True, False, reason="no test"), "It is tested: no test", ""),
    (answer(False), "It is there: a.txt:1", ""),
    (answer(True), "", OF_TWO.format(1)),
    (TWICE, "", OF_TWO.format(1)),
    (YES.replace("true", '"yes"'), "It is there: a.txt:1", ""),
    (YES + YES, "", "cannot be read: 2 objects"),
    ("All criteria are met. APPROVED", "", "cannot be read: 0 objects"),
    ('{"criteria": ["It is there", "It is tested"]}', "", OF_TWO.format(0)),
    ('{"criteria": [{"met": false}]}', "a criterion: no reason given", ""),
    ("{" * 50_000, "", "cannot be read"),
    (answer(True, False, reason="\x1b[31mred\nline"), "It is tested: red line", ""),
])  # fmt: skip
def test_what_an_answer_says(said: str, objection: str, unreadable: str) -> None:
    found = read_answer(said, WORDS[:2])
    assert objection in "; ".join(found.objections)
    assert bool(found.objections) is bool(objection)
    assert unreadable in found.unreadable
    assert bool(found.unreadable) is bool(unreadable)


def test_a_task_without_criteria_is_judged_by_its_title() -> None:
    assert criteria_of(Task("T1", "title", 0, {})) == ["title"]
    assert criteria_of(Task("T1", "title", 0, {}, criteria=("a", "b"))) == ["a", "b"]
