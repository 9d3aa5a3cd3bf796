"""What a worker shows goes as events to the loop's view, and no more of it than a person can read."""

from __future__ import annotations

from typing import Any

from _ralph.agents.events import StreamParser
from _ralph.loop.view import Reporter
from _ralph.model import CheckResult


def reporter(stays: bool = True, verbose: bool = False) -> tuple[Reporter, list[tuple[Any, ...]]]:
    """A reporter, and what it sends, by names and arguments."""
    sent: list[tuple[Any, ...]] = []
    return Reporter(lambda event: sent.append((event["name"], *event["args"])), stays, verbose), sent


def test_all_that_a_worker_shows_is_sent() -> None:
    view, sent = reporter()
    view.line("words", "  ", "red")
    view.doing("testing")
    view.check(CheckResult("test", "make test", False, 1, 0.5), "before: ")
    assert sent[:2] == [("line", "words", "  ", "red"), ("doing", "testing")]
    assert sent[2][0] == "check" and CheckResult(**sent[2][1]).exit == 1 and sent[2][2] == "before: "


def test_what_an_agent_uses_is_sent_until_something_else_is_done() -> None:
    view, sent = reporter()
    view.watch(StreamParser([], False))
    view.tick()
    assert [one[0] for one in sent] == ["used"]
    view.doing("running checks")
    view.tick()
    assert [one[0] for one in sent] == ["used", "doing"]


def test_an_agent_that_talks_fast_is_not_shown_line_by_line() -> None:
    view, sent = reporter()
    agent = StreamParser([], False)
    view.watch(agent)
    assert agent.listen is not None
    for number in range(1000):
        agent.listen("text", f"{number}\n" * 9)
    assert 3 <= sum(len(one[2]) for one in sent) <= 3 * 40  # a second may have passed meanwhile
    assert all(len(one[2]) <= 3 for one in sent)


def test_retries_are_shown_now_and_then() -> None:
    view, sent = reporter(stays=False)
    agent = StreamParser([], False)
    view.watch(agent)
    assert agent.retry is not None
    for _ in range(50):
        agent.retry("overloaded; attempt 2 of 10")
        agent.retry("overloaded; attempt 3 of 10")
    assert sent == [("line", "overloaded; attempt 2 of 10", "  ", "yellow")]
