"""Limits: what a run and a plan may cost, and how long to wait for a provider."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from _ralph import text
from _ralph.errors import BadInput, Stop
from _ralph.model import NO_LIMIT, Json, Share, Spent, Task, Verdict
from _ralph.state.history import History, TaskHistory, Unavailable
from _ralph.state.records import AttemptEnded

BLOCKED_AT_ONCE = 3
"""That many tasks blocked in a row end a run in which nothing has passed."""
STUCK = 6
"""That many end any run."""
BACKOFF = (60.0, 330.0, 1800.0)
"""Seconds to wait after the first, the second and all later refusals by a provider that
names no reset."""
VAIN_WAITS = 3
JITTER = 3.0
"""Seconds over which plans that wait for the same reset are spread."""


class Used(NamedTuple):
    """What is used of a limit."""

    used: float
    limit: float
    at_least: bool = False  # an attempt was cut off


Usage = dict[str, dict[str, Used]]
"""What is used of each limit that is set, by its unit, of `run` and `plan`."""


class Limits(NamedTuple):
    """Those of a run, of each attempt and of the plan."""

    jobs: int = 1  # tasks that are worked side by side
    attempts: int = 3  # at one task, until it is retried
    iterations: int = 50  # those that follow are for one run
    hours: float = 12.0
    until: float = NO_LIMIT  # unix time
    usd: float = NO_LIMIT
    tokens: float = NO_LIMIT
    max_wait: float = 6 * 3600.0  # seconds; 0: no wait, for setup neither
    budget_usd: float = NO_LIMIT  # for the plan's life, like that of tokens
    budget_tokens: float = NO_LIMIT

    @property
    def in_tokens(self) -> bool:
        return min(self.tokens, self.budget_tokens) < NO_LIMIT

    @property
    def in_dollars(self) -> bool:
        return min(self.usd, self.budget_usd) < NO_LIMIT


def resolve(settings: Mapping[str, Any], given: Mapping[str, Any]) -> Limits:
    """The limits from prd.json's `limits` and `budget`, with those given on the command
    line."""
    named = dict(settings.get("limits", {}))
    for name, value in settings.get("budget", {}).items():
        named[f"budget_{name}"] = value
    named |= {name: value for name, value in given.items() if value is not None}
    values: Json = {}
    for name in Limits._fields:
        if isinstance(named.get(name), (int, float)):  # the schema refuses all else
            values[name] = named[name]
    return Limits(**values)


def next_time(clock: str, now: float) -> float:
    """The unix time at which local clocks next show `clock` (`07:00`)."""
    try:
        wanted = time.strptime(clock, "%H:%M")
    except ValueError:
        raise BadInput(
            f"--until: expected a time such as 07:00, found {clock!r}"
        ) from None
    year, month, day, *_ = time.localtime(now)
    for later in (0, 1, 2):  # where clocks change, an hour can be missing
        on = (year, month, day + later, *wanted[3:5], 0, 0, 0, -1)
        at = time.mktime(on)
        if at > now:
            break
    return at


def spent(limits: Limits, history: History, seconds: float, now: float) -> Stop | None:
    """The limit that is reached, if any; `seconds` is how long the run has taken."""
    run = history.this_run
    for unit, of_plan in used(limits, history)["plan"].items():
        if of_plan.used >= of_plan.limit:
            what = "dollars" if unit == "usd" else unit
            reason = f"the plan's budget in {what} is spent; to go on, raise budget.{unit} in prd.json"
            return Stop("budget", reason)
    word, more = "limit", ""
    reached = {
        text.count(limits.iterations, "iteration"): run.iterations >= limits.iterations,
        f"{limits.hours:g} hours": seconds >= limits.hours * 3600,
        "the time given with --until": now >= limits.until,
        f"${limits.usd:.2f} for this run (--max-usd)": run.usd >= limits.usd,
        f"{limits.tokens} tokens for this run (--max-tokens)": run.tokens.total
        >= limits.tokens,
    }
    last = history.last
    if run.iterations >= limits.iterations and isinstance(last, AttemptEnded):
        if last.verdict is Verdict.LIMITED:  # to go on at once would hammer it
            word, more = "limited", f"; then {last.reason}"
    for what, over in reached.items():
        if over:
            return Stop(word, f"limit reached: {what}{more}")
    allowed = STUCK if run.passed else BLOCKED_AT_ONCE
    if run.blocked_in_a_row >= allowed:
        return Stop("stuck", f"stuck: {text.count(allowed, 'task')} blocked in a row")
    return None


def used(limits: Limits, history: History, since: float = 0.0) -> Usage:
    """What the run and the plan have used of each limit that is set; `since` are the
    seconds that a run at work has taken since its last record."""
    run = history.this_run
    of_run = {
        "usd": Used(run.usd, limits.usd, run.at_least),
        "tokens": Used(run.tokens.total, limits.tokens),
        "iterations": Used(run.iterations, limits.iterations),
        "seconds": Used(round(run.seconds + since, 1), limits.hours * 3600),
    }
    of_plan = {
        "usd": Used(history.usd, limits.budget_usd, history.at_least),
        "tokens": Used(history.tokens.total, limits.budget_tokens),
    }
    found: Usage = {}
    for whose, units in {"run": of_run, "plan": of_plan}.items():
        found[whose] = {unit: of for unit, of in units.items() if of.limit < NO_LIMIT}
    return found


def share(
    limits: Limits, history: History, given: Sequence[Share], jobs: int
) -> Share | None:
    """What the next attempt may spend; `given` are the shares of those under way, and
    all shares together are never more than what is left. None if nothing is left beside
    them."""
    run, largest = history.this_run, history.largest
    usd = _part(
        min(limits.usd - run.usd, limits.budget_usd - history.usd),
        [other.usd for other in given],
        largest.usd,
        jobs,
    )
    tokens = _part(
        min(
            limits.tokens - run.tokens.total,
            limits.budget_tokens - history.tokens.total,
        ),
        [other.tokens for other in given],
        largest.tokens.total,
        jobs,
    )
    if usd is None or tokens is None:
        return None
    return Share(usd, tokens).without(Spent())


def _part(
    left: float, given: Sequence[float], largest: float, jobs: int
) -> float | None:
    """A part of what is `left`, divided by the jobs, but by no more than it can pay for
    if each takes as much as the largest attempt so far; one works alone while that is
    not known. None if nothing is left beside those that are `given`."""
    if left == NO_LIMIT:
        return NO_LIMIT
    parts = 1
    if largest:
        parts = max(min(jobs, int(left / largest)), 1)
    left -= sum(given)
    free = parts - len(given)
    if given and (free < 1 or left <= 0):
        return None
    return left / free


def attempts_at(limits: Limits, task: Task) -> int:
    """How many attempts at a task may fail before it is blocked."""
    return int(min(limits.attempts, task.limits.attempts))


def share_of(task: Task, known: TaskHistory, share: Share) -> Share:
    """What an attempt may spend that has this `share`, and keeps its task's limits."""
    own = Share(task.limits.usd, seconds=task.limits.minutes * 60).without(known.since)
    return share._replace(usd=min(share.usd, own.usd), seconds=own.seconds)


def spent_by(task: Task, taken: Spent) -> str:
    """The task's own limit that is reached once its attempts have `taken` so much, in
    words; or nothing."""
    if taken.usd >= task.limits.usd:
        return f"its limit of ${task.limits.usd:.2f} is spent"
    if taken.seconds >= task.limits.minutes * 60:
        return f"its limit of {task.limits.minutes:g} minutes is used up"
    return ""


def back(limits: Limits, away: Unavailable) -> float:
    """When (unix time) an agent can be used that is `away`."""
    if away.reset or not away.tries:
        return away.reset
    pause = BACKOFF[min(away.tries, len(BACKOFF)) - 1]
    if limits.max_wait:  # 0 means that nobody waits, not that it is back at once
        pause = min(pause, limits.max_wait)
    return away.since + pause


def wait_for(limits: Limits, away: Unavailable, vain: int, now: float) -> float:
    """Until when (unix time) to wait for an agent that is `away`. Stop where it is not
    to be waited for: `vain` is how many waits in a row did not help."""
    at = back(limits, away)
    if not away.reset:
        if vain < VAIN_WAITS:
            return at
        reason = f"{VAIN_WAITS} waits in a row did not help: {away.reason}"
        raise Stop("limited", reason)
    if at - now > limits.max_wait:
        reason = f"the provider's limit ends in {text.duration(at - now)}, more than --max-wait allows"
        raise Stop("limited", reason)
    import random  # 1 ms, and rarely wanted

    return at + random.uniform(1.0, JITTER)
