"""What a run may cost, when it stops, and how long it waits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from _ralph.errors import BadInput, Exit, Stop
from _ralph.model import Share, Spent, Task, TaskLimits, Tokens
from _ralph.state.history import History, TaskHistory, Unavailable
from _ralph.state.limits import (
    JITTER,
    Limits,
    attempts_at,
    back,
    next_time,
    resolve,
    share,
    share_of,
    spent,
    spent_by,
    wait_for,
)  # fmt: skip
from tests.conftest import cases

NOW = 1_795_000_000.0


def fields(words: str) -> dict[str, Any]:
    """`usd=1 seconds=2` by their names; `-` is none."""
    found = {}
    for word in words.split():
        name, _, value = word.partition("=")
        if value:
            found[name] = json.loads(value)
    return found


def history(words: str) -> History:
    """What `run.usd=1` says is of the run, the rest of the plan; `tokens` is what was
    sent and got."""
    known = History()
    for name, value in fields(words).items():
        whose: Any = known
        if name.startswith("run."):
            whose, name = known.this_run, name.removeprefix("run.")
        if name == "tokens":
            value = Tokens(*value)
        setattr(whose, name, value)
    return known


# The plan's limits and budget, what was given on the command line; the limits.
@cases("""
of_run | budget | given -> wanted
- | - | - -> iterations=50 attempts=3 hours=12 max_wait=21600
iterations=7 | - | - -> iterations=7
iterations=7 | - | iterations=9 -> iterations=9
iterations=7 | - | iterations=null -> iterations=7
stuck=9 | - | - -> -
attempts=1 hours=0.5 | - | - -> attempts=1 hours=0.5
usd=3 tokens=9 | usd=100 tokens=5 | usd=4 -> usd=4 tokens=9 budget_usd=100 budget_tokens=5
- | - | max_wait=60.0 hours=1.0 -> max_wait=60 hours=1
- | - | max_wait=0.0 -> max_wait=0
iteration=5 usd="20" tokens=null | hours=1 usd=[1] | - -> -
""")
def test_resolve(of_run: str, budget: str, given: str, wanted: str) -> None:
    """What the schema refuses is no limit: `ralph status` reads a plan that no run would
    take."""
    settings = {"limits": fields(of_run), "budget": fields(budget)}
    assert resolve(settings, fields(given)) == Limits(**fields(wanted))


# The task's limits, and what was taken; its attempts, what is left of dollars and of
# seconds, and whether it is spent.
@cases("""
own | taken -> wanted
- | usd=9 seconds=1e6 -> 3, inf, inf,
attempts=2 | - -> 2, inf, inf,
attempts=9 | - -> 3, inf, inf,
usd=2 | usd=0.5 -> 3, 1.5, inf,
usd=2 | usd=2 -> 3, 0.01, inf, its limit of $2.00 is spent
minutes=90 | seconds=5399.9 -> 3, inf, 1.0,
minutes=90 | seconds=5400 -> 3, inf, 1.0, its limit of 90 minutes is used up
minutes=0.5 | seconds=10 -> 3, inf, 20.0,
usd=1 minutes=1 | usd=3 seconds=99 -> 3, 0.01, 1.0, its limit of $1.00 is spent
""")
def test_limits_of_a_task(own: str, taken: str, wanted: str) -> None:
    task = Task("T1", "x", 0, {}, limits=TaskLimits(**fields(own)))
    since = Spent(**fields(taken))
    left = share_of(task, TaskHistory(since=since), Share())
    found = f"{attempts_at(Limits(), task)}, {left.usd}, {left.seconds}"
    assert f"{found}, {spent_by(task, since)}".rstrip() == wanted


# The limits, what was used, and for how many seconds; the stop's word, and a part of
# its reason.
@cases(f"""
limits | used | seconds -> wanted
- | - | 0 ->
iterations=3 | run.iterations=2 | 0 ->
iterations=3 | run.iterations=3 | 0 -> limit: 3 iterations
iterations=3 | iteration=99 | 0 ->
hours=1 | - | 3599.9 ->
hours=1 | - | 3600 -> limit: 1 hours
hours=0.5 | - | 1800 -> limit: 0.5 hours
until={NOW + 1} | - | 0 ->
until={NOW} | - | 0 -> limit: --until
usd=1 | run.usd=0.99 usd=50 | 0 ->
usd=1 | run.usd=1 | 0 -> limit: $1.00 for this run
tokens=10 | run.tokens=[4,5] tokens=[50,50,50] | 0 ->
tokens=10 | run.tokens=[4,6] | 0 -> limit: 10 tokens for this run
budget_usd=5 | usd=4.99 | 0 ->
budget_usd=5 | usd=5 | 0 -> budget: raise budget.usd in prd.json
budget_tokens=10 | tokens=[4,5,4] | 0 ->
budget_tokens=10 | tokens=[4,6,0] | 0 -> budget: raise budget.tokens in
usd=1 budget_usd=5 | run.usd=1 usd=5 | 0 -> budget: budget in dollars is spent
- | run.blocked_in_a_row=2 | 0 ->
- | run.blocked_in_a_row=3 | 0 -> stuck: 3 tasks blocked in a row
- | run.blocked_in_a_row=5 run.passed=1 | 0 ->
- | run.blocked_in_a_row=6 run.passed=1 | 0 -> stuck: 6 tasks blocked in a row
""")
def test_spent(limits: str, used: str, seconds: str, wanted: str) -> None:
    stop = spent(Limits(**fields(limits)), history(used), float(seconds), NOW)
    if stop is None:
        assert not wanted
        return
    word, _, reason = wanted.partition(": ")
    assert stop.word == word and reason in stop.reason
    assert stop.exit is (Exit.PERSON if word in ("stuck", "budget") else Exit.LEFT)


# Why an agent cannot be used (`reset` from now on), after how many waits in vain, and the
# limits; when it is back, and until when it is waited for, or why not.
@cases("""
named | vain | of_run -> at | until
tries=1 | 0 | - -> 60 | 60
tries=2 | 0 | - -> 330 | 330
tries=3 | 2 | - -> 1800 | 1800
tries=9 | 3 | - -> 1800 | 3 waits in a row did not help: busy
tries=3 | 0 | max_wait=100 -> 100 | 100
reset=600 | 99 | - -> 600 | 600
reset=21600 | 0 | - -> 21600 | 21600
reset=21601 | 0 | - -> 21601 | more than --max-wait allows
reset=601 | 0 | max_wait=600 -> 601 | ends in 10 min 1 s
""")
def test_when_an_agent_is_back_and_how_long_it_is_waited_for(
    named: str, vain: str, of_run: str, at: str, until: str
) -> None:
    away = Unavailable(NOW, reason="busy", **fields(named))
    if away.reset:
        away = away._replace(reset=NOW + away.reset)
    limits = Limits(**fields(of_run))
    assert back(limits, away) == NOW + float(at)
    if not until.isdecimal():
        with pytest.raises(Stop, match=until) as raised:
            wait_for(limits, away, int(vain), NOW)
        assert (raised.value.word, raised.value.exit) == ("limited", Exit.LATER)
        return
    late = wait_for(limits, away, int(vain), NOW) - NOW - float(until)
    assert 0 < late <= JITTER if away.reset else late == 0


# ---------------------------------------------------------------- clocks


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


# Now, what the clock must show, and when that is; there are the nights in which Berlin's
# clocks go forward and back.
@cases("""
now | clock -> wanted
2026-11-21 22:00 | 07:00 -> 2026-11-22 07:00
2026-11-21 06:59 | 07:00 -> 2026-11-21 07:00
2026-11-21 07:00 | 07:00 -> 2026-11-22 07:00
2026-12-31 23:59 | 00:00 -> 2027-01-01 00:00
2026-02-28 12:00 | 7:05 -> 2026-03-01 07:05
2026-03-28 23:00 | 07:00 -> 2026-03-29 07:00
2026-10-24 23:00 | 07:00 -> 2026-10-25 07:00
""")
def test_next_time(zone: str, now: str, clock: str, wanted: str) -> None:
    at = next_time(clock, time.mktime(time.strptime(now, "%Y-%m-%d %H:%M")))
    assert time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) == wanted


@cases("""
clock
-
7
24:00
07:60
7am
07:00:00
tomorrow
-1:00
""")
def test_no_time(clock: str) -> None:
    wanted = "--until: expected a time such as 07:00, found "
    with pytest.raises(BadInput, match=wanted):
        next_time(clock, NOW)


# ---------------------------------------------------------------- shares


# Dollars that are left, the dearest attempt so far, the shares of those under way; and
# the share of the next one, of four jobs.
@cases("""
said -> wanted
8 0 -> 8.0
8 0 8 -> None
8 1 -> 2.0
8 1 2 -> 2.0
8 1 2 2 2 -> 2.0
8 1 2 2 2 2 -> None
5 2 -> 2.5
5 2 2.5 -> 2.5
5 2 2.5 2.5 -> None
1 2 -> 1.0
1 2 1 -> None
8 1 8 -> None
-1 2 0.5 -> None
-1 2 -> 0.01
""")
def test_the_share_of_each_worker_and_never_more_than_is_left(
    said: str, wanted: str
) -> None:
    left, largest, *given = map(float, said.split())
    known = history("usd=10 run.usd=10")
    known.largest.usd = largest
    shares = [Share(usd=one) for one in given]
    found = share(Limits(usd=10.0 + left), known, shares, 4)
    assert str(found and found.usd) == wanted
    if found and found.usd:
        assert sum(given) + found.usd <= max(left, 0.01)


def test_what_is_left_is_the_smaller_of_run_and_budget() -> None:
    known = history("usd=50 run.usd=1")
    assert share(Limits(), known, [], 1) == Share()
    assert share(Limits(budget_usd=60), known, [], 1) == Share(usd=10.0)
    assert share(Limits(usd=3, budget_usd=51), known, [], 1) == Share(usd=1.0)


def test_tokens_are_shared_like_dollars() -> None:
    known = History(largest=Spent(tokens=Tokens(100, 20)))
    both = Limits(tokens=800, usd=5)
    assert share(Limits(tokens=800), known, [], 4) == Share(tokens=200)
    assert share(both, known, [], 4) == Share(usd=5.0, tokens=200)
    assert share(both, known, [Share(usd=5.0, tokens=200)], 4) is None
