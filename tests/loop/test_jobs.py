"""Attempts, jobs and results: what follows from their fields."""

from __future__ import annotations

import pytest
from _ralph.loop.jobs import Attempt, Checked

from _ralph.agents.registry import PLAIN, Agent
from _ralph.model import AgentResult, CheckResult, Judgement, Outcome, Task, Tokens


def attempt(task: str = "US-003") -> Attempt:
    return Attempt(
        Task(task, "t", 0, {}), 1, 17, Agent("plain", ("my agent", "-x"), PLAIN)
    )


def checks(words: str) -> list[CheckResult]:
    return [
        CheckResult(word, word, word.startswith("ok"), 0, 1.5) for word in words.split()
    ]


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("US-003", "0017-US-003"),
        ("a/b c", "0017-a-b-c"),
        ("日本", "0017-task"),
        ("../x", "0017-x"),
    ],
)
def test_the_files_of_an_attempt_are_named_after_it(task: str, name: str) -> None:
    assert attempt(task).name == name


def test_its_agent_is_the_one_that_a_person_named() -> None:
    assert attempt().command == "'my agent' -x"


def test_agent_checks_and_judge_were_all_paid_for() -> None:
    one = attempt()
    one.result = AgentResult(
        Outcome.DONE, usd=0.5, tokens=Tokens(10, 2, 1), seconds=4.0
    )
    one.checks = checks("ok1 red2")
    assert (one.spent.usd, one.spent.at_least, one.spent.seconds) == (0.5, False, 7.0)
    one.judgement = Judgement(
        usd=0.25, at_least=True, tokens=Tokens(1, 1, 0), seconds=1.0
    )
    assert (one.spent.usd, one.spent.tokens, one.spent.seconds) == (
        0.75,
        Tokens(11, 3, 1),
        8.0,
    )
    assert one.spent.at_least


@pytest.mark.parametrize(
    ("words", "red"), [("", []), ("ok1", []), ("red1 ok2 red3", ["red1", "red3"])]
)
def test_the_red_checks_of_a_job(words: str, red: list[str]) -> None:
    assert [one.name for one in Checked(checks=checks(words)).red] == red
