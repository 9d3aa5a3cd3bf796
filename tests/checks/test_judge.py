"""What a judge's answer says."""

from __future__ import annotations

from _ralph.checks.judge import criteria_of, read_answer
from _ralph.model import Task
from tests.conftest import cases

YES = """{"criteria": [
    {"criterion": "It is there", "met": true, "reason": "a.txt:1"},
    {"criterion": "It is tested", "met": true, "reason": "a.txt:2"}
]}"""


@cases(r"""
said -> objection -> unreadable
YES
I looked. ```json YES ``` That is all. {}
{"criteria": [{"criterion": "It is there", "met": true}, {"criterion": "it  is TESTED", "met": true}]}
{"criteria": [{"criterion": "It is there", "met": true}, {"criterion": "It is tested", "met": false, "reason": "no test"}]} -> It is tested: no test
{"criteria": [{"criterion": "It is there", "met": false, "reason": "a.txt:1"}]} -> It is there: a.txt:1
{"criteria": [{"criterion": "It is there", "met": true}]} -> -> it judged 1 of 2 criteria
{"criteria": [{"criterion": "It is there", "met": true}, {"criterion": "it  is THERE", "met": true}]} -> -> it judged 1 of 2 criteria
{"criteria": [{"criterion": "It is there", "met": "yes", "reason": "a.txt:1"}, {"criterion": "It is tested", "met": true}]} -> It is there: a.txt:1
YESYES -> -> cannot be read: 2 objects
All criteria are met. APPROVED -> -> cannot be read: 0 objects
{"criteria": ["It is there", "It is tested"]} -> -> it judged 0 of 2 criteria
{"criteria": [{"met": false}]} -> a criterion: no reason given
{{{{ -> -> cannot be read
{"criteria": [{"criterion": "It is there", "met": true}, {"criterion": "It is tested", "met": false, "reason": "\u001b[31mred\u000aline"}]} -> It is tested: red line
""")
def test_what_an_answer_says(said: str, objection: str, unreadable: str) -> None:
    said = said.replace("YES", YES).replace("{{{{", "{" * 50_000)
    found = read_answer(said, ["It is there", "It is tested"])
    assert objection in "; ".join(found.objections)
    assert bool(found.objections) is bool(objection)
    assert unreadable in found.unreadable
    assert bool(found.unreadable) is bool(unreadable)


def test_a_task_without_criteria_is_judged_by_its_title() -> None:
    assert criteria_of(Task("T1", "title", 0, {})) == ["title"]
    assert criteria_of(Task("T1", "title", 0, {}, criteria=("a", "b"))) == ["a", "b"]
