"""What a worker shows goes as events to the loop's view, and no more of it than a
person can read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _ralph.loop.attempt import begin, work_here
from _ralph.loop.jobs import Worked
from _ralph.loop.run import Run
from _ralph.loop.view import Reporter

from _ralph.agents.events import StreamParser
from _ralph.loop import view as module
from _ralph.model import CheckResult
from _ralph.process.process import Control
from _ralph.show.live import Terminal
from tests.conftest import Repo
from tests.scripts import RESULT, plan, speaker


def reporter(
    stays: bool = True, verbose: bool = False
) -> tuple[Reporter, list[tuple[Any, ...]]]:
    """A reporter, and what it sends, by names and arguments."""
    sent: list[tuple[Any, ...]] = []
    return Reporter(
        lambda event: sent.append((event["name"], *event["args"])), stays, verbose
    ), sent


def test_all_that_a_worker_shows_is_sent() -> None:
    view, sent = reporter()
    view.line("words", "  ", "red")
    view.doing("testing")
    view.check(CheckResult("test", "make test", False, 1, 0.5), "before: ")
    assert sent[:2] == [("line", "words", "  ", "red"), ("doing", "testing")]
    assert (
        sent[2][0] == "check"
        and CheckResult(**sent[2][1]).exit == 1
        and sent[2][2] == "before: "
    )


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
    assert (
        3 <= sum(len(one[2]) for one in sent) <= 3 * 40
    )  # a second may have passed meanwhile
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


LOOKS = '{"type":"assistant","message":{"content":[{"type":"text","text":"I look at prices"}]}}'


@pytest.mark.parametrize(("level", "told"), [(0, True), (-1, False)])
def test_a_log_has_a_line_now_and_then_of_what_an_attempt_does(
    repo: Repo, opened: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, level: int, told: bool
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "_SIGN_OF_LIFE", 3.0)
    plan(repo, {"checks": ["false"]})
    words = f"print('''{LOOKS}''', flush=True); time.sleep(6); print('''{RESULT}''')"
    run = opened(agent=(speaker(repo, words),))
    with (tmp_path / "log").open("w") as log:
        run.view = Terminal(log, level)
        one = begin(run, run.plan.tasks[0])
        run.wait(run.in_worker(lambda inside: work_here(inside, one), Worked, 1))
    line = r"^\S+ \S+ +attempt 1 of 3 \| [\d.]+ s \| [\d.]+ s ago: I look at prices$"
    assert bool(re.search(line, (tmp_path / "log").read_text(), re.MULTILINE)) is told


def test_a_terminal_with_a_status_has_no_such_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SIGN_OF_LIFE", 0.0)
    for stays in (True, False):
        view, sent = reporter(stays)
        view.watch(StreamParser([], False))
        view.tick()
        assert [one[0] for one in sent] == ["used" if stays else "line"]


def test_a_log_wakes_nobody_each_second() -> None:
    assert (
        290 < reporter(stays=False)[0].tick() <= 300
        and reporter(stays=True)[0].tick() == 1.0
    )
    for pause, fewest, most in ((0.2, 3, 5), (60.0, 1, 1)):
        ticks: list[float] = []

        def tick(ticks: list[float] = ticks, pause: float = pause) -> float:
            ticks.append(time.monotonic())
            return pause

        control = Control()
        control.on_tick = tick
        control.sleep(time.time() + 0.9, lambda: False)
        assert fewest <= len(ticks) <= most
