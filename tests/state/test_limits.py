"""What a run may cost, when it stops, and how long it waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from _ralph.errors import BadInput, Exit, Stop
from _ralph.model import Share, Spent, Task, TaskLimits, Tokens
from _ralph.state.history import NEVER, History, RunHistory, TaskHistory, Unavailable
from _ralph.state.limits import (
    JITTER,
    NONE,
    Limits,
    attempts_at,
    back,
    next_time,
    resolve,
    run_deadline,
    share,
    share_of,
    spent,
    spent_by,
    wait_for,
)  # fmt: skip

NOW = 1_795_000_000.0


def history(**known: Any) -> History:
    """What `run_...` says is of the run, the rest of the plan."""
    run = {
        key.removeprefix("run_"): known.pop(key)
        for key in list(known)
        if key.startswith("run_")
    }
    return History(this_run=RunHistory(**run), **known)


@pytest.mark.parametrize(("settings", "given", "wanted"), [
    ({}, {}, Limits(iterations=50, attempts=3, hours=12, max_wait=6 * 3600)),
    ({"limits": {"iterations": 7}}, {}, Limits(iterations=7)),
    ({"limits": {"iterations": 7}}, {"iterations": 9}, Limits(iterations=9)),
    ({"limits": {"stuck": 9}}, {}, Limits(stuck=9)),
    ({"limits": {"iterations": 7}}, {"iterations": None}, Limits(iterations=7)),
    ({"limits": {"attempts": 1, "hours": 0.5}}, {}, Limits(attempts=1, hours=0.5)),
    ({"limits": {"usd": 2.5, "tokens": 9}}, {}, Limits(usd=2.5, tokens=9)),
    ({"budget": {"usd": 100, "tokens": 5}}, {}, Limits(budget_usd=100, budget_tokens=5)),
    ({"limits": {"usd": 3}, "budget": {"usd": 100}}, {"usd": 4}, Limits(usd=4, budget_usd=100)),
    ({}, {"max_wait": 60.0, "hours": 1.0}, Limits(max_wait=60, hours=1)),
])  # fmt: skip
def test_resolve(
    settings: dict[str, Any], given: dict[str, Any], wanted: Limits
) -> None:
    assert resolve(settings, given) == wanted


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 10**400, 0, -1])
def test_limits_that_could_never_be_reached_are_refused(number: float) -> None:
    """What else may stand in prd.json says the schema."""
    for settings, given in (({"limits": {"usd": number}}, {}), ({}, {"usd": number})):
        with pytest.raises(BadInput, match="the limit usd must be above 0"):
            resolve(settings, given)


def test_what_the_schema_refuses_is_no_limit() -> None:
    """`ralph status` reads a plan that no run would take."""
    odd = {
        "limits": {"iteration": 5, "usd": "20", "tokens": None},
        "budget": {"hours": 1, "usd": [1]},
    }
    assert resolve(odd, {}) == Limits()


# One line a case: the task's limits and what was taken; its attempts, what is left of
# dollars and seconds, and whether it is spent.
@pytest.mark.parametrize(("own", "taken", "attempts", "left", "over"), [
    ({}, {"usd": 9.0, "seconds": 1e6}, 3, (None, NONE), ""),
    ({"attempts": 2}, {}, 2, (None, NONE), ""),
    ({"attempts": 9}, {}, 3, (None, NONE), ""),  # the smaller of both
    ({"usd": 2}, {"usd": 0.5}, 3, (1.5, NONE), ""),
    ({"usd": 2}, {"usd": 2.0}, 3, (0.01, NONE), "its limit of $2.00 is spent"),
    ({"minutes": 90}, {"seconds": 5399.9}, 3, (None, 1.0), ""),
    ({"minutes": 90}, {"seconds": 5400.0}, 3, (None, 1.0), "its limit of 90 minutes is used up"),
    ({"minutes": 0.5}, {"seconds": 10.0}, 3, (None, 20.0), ""),
    ({"usd": 1, "minutes": 1}, {"usd": 3.0, "seconds": 99.0}, 3, (0.01, 1.0), "its limit of $1.00 is spent"),
])  # fmt: skip
def test_limits_of_a_task(
    own: dict[str, Any],
    taken: dict[str, Any],
    attempts: int,
    left: tuple[Any, float],
    over: str,
) -> None:
    task, since = Task("T1", "x", 0, {}, limits=TaskLimits(**own)), Spent(**taken)
    assert attempts_at(Limits(), task) == attempts
    share = share_of(task, TaskHistory(since=since))
    assert (share.usd, share.seconds) == left
    assert spent_by(task, since) == over


@pytest.mark.parametrize(("one", "other", "wanted"), [
    (Share(), Share(), Share()),
    (Share(usd=5), Share(usd=2), Share(usd=2)),
    (Share(usd=1, tokens=7), Share(usd=2, seconds=9), Share(1, 7, 9)),
    (Share(), Share(usd=2, seconds=9), Share(2, None, 9)),
])  # fmt: skip
def test_the_smaller_of_task_and_run_holds(
    one: Share, other: Share, wanted: Share
) -> None:
    assert one.within(other) == wanted


@pytest.mark.parametrize(("limits", "wanted"), [
    (Limits(), False), (Limits(usd=1), True), (Limits(budget_usd=1), True),
    (Limits(tokens=1, budget_tokens=1), False),
])  # fmt: skip
def test_limits_in_dollars(limits: Limits, wanted: bool) -> None:
    assert limits.in_dollars is wanted


# One line a case: the limits, what was used, for how many seconds; the stop's word and
# a fragment.
@pytest.mark.parametrize(("limits", "used", "seconds", "word", "fragment"), [
    (Limits(), {}, 0, None, ""),
    (Limits(iterations=3), {"run_iterations": 2}, 0, None, ""),
    (Limits(iterations=3), {"run_iterations": 3}, 0, "limit", "3 iterations"),
    (Limits(iterations=3), {"iteration": 99}, 0, None, ""),  # earlier runs do not count
    (Limits(hours=1), {}, 3599.9, None, ""),
    (Limits(hours=1), {}, 3600, "limit", "1 hours"),
    (Limits(hours=0.5), {}, 1800, "limit", "0.5 hours"),
    (Limits(until=NOW + 1), {}, 0, None, ""),
    (Limits(until=NOW), {}, 0, "limit", "--until"),
    (Limits(usd=1), {"run_usd": 0.99}, 0, None, ""),
    (Limits(usd=1), {"run_usd": 1.0}, 0, "limit", "$1.00 for this run"),
    (Limits(usd=1), {"usd": 50.0}, 0, None, ""),
    (Limits(tokens=10), {"run_tokens": Tokens(4, 5)}, 0, None, ""),
    (Limits(tokens=10), {"run_tokens": Tokens(4, 6)}, 0, "limit", "10 tokens for this run"),
    (Limits(tokens=10), {"tokens": Tokens(50, 50, 50)}, 0, None, ""),
    (Limits(budget_usd=5), {"usd": 4.99}, 0, None, ""),
    (Limits(budget_usd=5), {"usd": 5.0}, 0, "budget", "raise budget.usd in prd.json"),
    # cached is a part of input
    (Limits(budget_tokens=10), {"tokens": Tokens(4, 5, 4)}, 0, None, ""),
    (Limits(budget_tokens=10), {"tokens": Tokens(4, 6, 0)}, 0, "budget", "raise budget.tokens in"),
    (Limits(usd=1, budget_usd=5), {"run_usd": 1.0, "usd": 5.0}, 0, "budget", "budget in dollars is spent"),
    (Limits(), {"run_blocked_in_a_row": 2}, 0, None, ""),
    (Limits(), {"run_blocked_in_a_row": 3}, 0, "stuck", "3 tasks blocked in a row"),
    (Limits(), {"run_blocked_in_a_row": 5, "run_passed": 1}, 0, None, ""),
    (Limits(), {"run_blocked_in_a_row": 6, "run_passed": 1}, 0, "stuck", "6 tasks blocked in a row"),
    (Limits(stuck=1), {"run_blocked_in_a_row": 1}, 0, "stuck", "1 task blocked in a row"),
    (Limits(stuck=9), {"run_blocked_in_a_row": 3}, 0, "stuck", "3 tasks blocked in a row"),
    (Limits(stuck=9), {"run_blocked_in_a_row": 8, "run_passed": 1}, 0, None, ""),
])  # fmt: skip
def test_spent(
    limits: Limits,
    used: dict[str, Any],
    seconds: float,
    word: str | None,
    fragment: str,
) -> None:
    stop = spent(limits, history(**used), seconds, NOW)
    assert (stop.word if stop else None) == word
    if stop:
        assert fragment in stop.reason
        assert stop.exit is (Exit.PERSON if word in ("stuck", "budget") else Exit.LEFT)


@pytest.mark.parametrize(("limits", "gone", "wanted"), [
    (Limits(hours=2), 0, NOW + 7200),
    (Limits(hours=2), 7000, NOW + 200),
    (Limits(hours=2, until=NOW + 60), 0, NOW + 60),
    (Limits(hours=2, until=NOW + 9000), 0, NOW + 7200),
])  # fmt: skip
def test_run_deadline(limits: Limits, gone: float, wanted: float) -> None:
    assert run_deadline(limits, gone, NOW) == wanted


@pytest.mark.parametrize(("limits", "used", "wanted"), [
    (Limits(), {"usd": 5.0, "run_usd": 5.0}, None),
    (Limits(usd=3), {"usd": 50.0, "run_usd": 1.0}, 2.0),
    (Limits(budget_usd=60), {"usd": 50.0, "run_usd": 1.0}, 10.0),
    (Limits(usd=3, budget_usd=51), {"usd": 50.0, "run_usd": 1.0}, 1.0),
    # nothing is left, and 0 could mean no limit
    (Limits(usd=1), {"run_usd": 1.5}, 0.01),
])  # fmt: skip
def test_what_is_left_of_dollars(
    limits: Limits, used: dict[str, Any], wanted: float | None
) -> None:
    assert share(limits, history(**used), [], 1) == Share(usd=wanted)


@pytest.mark.parametrize(("away", "limits", "wanted"), [
    (Unavailable(), Limits(), 0),
    (Unavailable(NOW, reset=NOW + 600), Limits(), NOW + 600),
    (Unavailable(NOW, reset=NEVER), Limits(), NEVER),
    (Unavailable(NOW, tries=1), Limits(), NOW + 60),
    (Unavailable(NOW, tries=2), Limits(), NOW + 330),
    (Unavailable(NOW, tries=3), Limits(), NOW + 1800),
    (Unavailable(NOW, tries=9), Limits(), NOW + 1800),
    (Unavailable(NOW, tries=3), Limits(max_wait=100), NOW + 100),
    (Unavailable(NOW, tries=0), Limits(), 0),  # it has answered since
])  # fmt: skip
def test_when_an_agent_is_back(
    away: Unavailable, limits: Limits, wanted: float
) -> None:
    assert back(limits, away) == wanted


@pytest.mark.parametrize(("away", "vain", "limits", "wanted"), [
    (Unavailable(NOW, tries=1), 0, Limits(), 60),
    (Unavailable(NOW, tries=3), 2, Limits(), 1800),
    (Unavailable(NOW, tries=4, reason="busy"), 3, Limits(), "3 waits in a row did not help: busy"),
    (Unavailable(NOW, NOW + 600), 0, Limits(), 600),
    (Unavailable(NOW, NOW + 600), 99, Limits(), 600),  # a time that was told is not a guess
    (Unavailable(NOW, NOW + 6 * 3600), 0, Limits(), 6 * 3600),
    (Unavailable(NOW, NOW + 6 * 3600 + 1), 0, Limits(), "more than --max-wait allows"),
    (Unavailable(NOW, NOW + 601), 0, Limits(max_wait=600), "ends in 10 min 1 s"),
])  # fmt: skip
def test_how_long_an_agent_is_waited_for(
    away: Unavailable, vain: int, limits: Limits, wanted: float | str
) -> None:
    if isinstance(wanted, str):
        with pytest.raises(Stop, match=wanted) as raised:
            wait_for(limits, away, vain, NOW)
        assert (raised.value.word, raised.value.exit) == ("limited", Exit.LATER)
        return
    late = wait_for(limits, away, vain, NOW) - NOW - wanted
    assert 0 < late <= JITTER < 4 if away.reset else late == 0


def test_plans_that_wait_for_one_reset_do_not_wake_in_one_second() -> None:
    found = {wait_for(Limits(), Unavailable(NOW, NOW + 5), 0, NOW) for _ in range(50)}
    assert len({int(at) for at in found if isinstance(at, float)}) > 1


@pytest.fixture(
    params=[
        "UTC0",
        "CET-1CEST,M3.5.0,M10.5.0/3",
        "NST3:30NDT,M3.2.0,M11.1.0",
        "NZST-12NZDT,M9.5.0,M4.1.0/3",
    ]
)
def zone(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(("now", "clock", "wanted"), [
    ("2026-11-21 22:00", "07:00", "2026-11-22 07:00"),
    ("2026-11-21 06:59", "07:00", "2026-11-21 07:00"),
    ("2026-11-21 07:00", "07:00", "2026-11-22 07:00"),
    ("2026-12-31 23:59", "00:00", "2027-01-01 00:00"),
    ("2026-02-28 12:00", "7:05", "2026-03-01 07:05"),
    # the night in which Berlin's clocks go forward
    ("2026-03-28 23:00", "07:00", "2026-03-29 07:00"),
    ("2026-10-24 23:00", "07:00", "2026-10-25 07:00"),  # and back
])  # fmt: skip
def test_next_time(zone: str, now: str, clock: str, wanted: str) -> None:
    at = next_time(clock, time.mktime(time.strptime(now, "%Y-%m-%d %H:%M")))
    assert time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) == wanted


@pytest.mark.parametrize(
    "clock", ["", "7", "24:00", "07:60", "7am", "07:00:00", "tomorrow", "-1:00"]
)
def test_no_time(clock: str) -> None:
    with pytest.raises(
        BadInput, match=r"--until: expected a time such as 07:00, found "
    ):
        next_time(clock, NOW)


@pytest.mark.parametrize(("left", "largest", "given", "jobs", "wanted"), [
    # nobody knows what an attempt takes: the first one is alone
    (8.0, 0.0, [], 4, 8.0),
    (8.0, 0.0, [8.0], 4, None),
    (8.0, 1.0, [], 4, 2.0),
    (8.0, 1.0, [2.0], 4, 2.0),
    (8.0, 1.0, [2.0, 2.0, 2.0], 4, 2.0),
    (8.0, 1.0, [2.0, 2.0, 2.0, 2.0], 4, None),
    (5.0, 2.0, [], 4, 2.5),  # it pays for two
    (5.0, 2.0, [2.5], 4, 2.5),
    (5.0, 2.0, [2.5, 2.5], 4, None),
    (1.0, 2.0, [], 4, 1.0),  # not even for one, but nobody else needs it
    (1.0, 2.0, [1.0], 4, None),
    (8.0, 1.0, [8.0], 4, None),
    (-1.0, 2.0, [0.5], 4, None),
    (-1.0, 2.0, [], 4, 0.01),
])  # fmt: skip
def test_the_share_of_each_worker_and_never_more_than_is_left(
    left: float, largest: float, given: list[float], jobs: int, wanted: float | None
) -> None:
    known = history(usd=10.0, run_usd=10.0, largest=Spent(usd=largest))
    found = share(
        Limits(usd=10.0 + left), known, [Share(usd=one) for one in given], jobs
    )
    assert (found and found.usd) == wanted
    assert found is None or sum(given) + (found.usd or 0.0) <= max(left, 0.01)


def test_tokens_are_shared_like_dollars() -> None:
    known = history(largest=Spent(tokens=Tokens(100, 20)))
    assert share(Limits(tokens=800), known, [], 4) == Share(tokens=200)
    assert share(Limits(tokens=800, usd=5), known, [], 4) == Share(usd=5.0, tokens=200)
    assert (
        share(Limits(tokens=800, usd=5), known, [Share(usd=5.0, tokens=200)], 4) is None
    )
