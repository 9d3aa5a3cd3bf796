"""Limits: what a run and a plan may cost, and how long to wait for a provider."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from _ralph import text
from _ralph.errors import BadInput, Exit, Stop
from _ralph.model import AgentResult, Json, Share, Spent
from _ralph.state.history import History, TaskHistory

BLOCKED_AT_ONCE = 3
"""That many tasks blocked in a row end a run in which nothing has passed."""
BACKOFF_FIRST, BACKOFF_LAST = 60.0, 1800.0
FRUITLESS_WAITS = 3
JITTER = 10.0
"""Seconds over which plans that wait for the same reset are spread."""
NONE = float("inf")


@dataclass
class Used:
    """What is used of a limit, and how much of that is estimated."""

    used: float
    limit: float
    estimated: float = 0


@dataclass
class Usage:
    """What the run and the plan have used of each limit that is set, by its unit."""

    run: dict[str, Used] = field(default_factory=dict)
    plan: dict[str, Used] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """`jobs` is how many tasks are worked side by side, `attempts` is for one task until it is retried,
    `budget_usd` and `budget_tokens` are for the plan's life, the others for one run. `until` is a unix time,
    `max_wait` in seconds; `stuck` tasks blocked in a row end the run. NONE means no limit."""

    jobs: int = 1
    iterations: int = 50
    attempts: int = 3
    hours: float = 12.0
    until: float = NONE
    usd: float = NONE
    tokens: float = NONE
    max_wait: float = 6 * 3600.0
    budget_usd: float = NONE
    budget_tokens: float = NONE
    stuck: int = 6

    @property
    def in_tokens(self) -> bool:
        return min(self.tokens, self.budget_tokens) < NONE

    @property
    def in_dollars(self) -> bool:
        return min(self.usd, self.budget_usd) < NONE


def resolve(settings: Mapping[str, Any], given: Mapping[str, Any]) -> Limits:
    """The limits from prd.json's `limits` and `budget`, with those given on the command line."""
    named = {**settings.get("limits", {})}
    named |= {f"budget_{name}": value for name, value in settings.get("budget", {}).items()}
    named |= {name: value for name, value in given.items() if value is not None}
    found: Json = {}
    for one in fields(Limits):
        value = named.get(one.name)
        if isinstance(value, (int, float)):  # the schema refuses anything else
            if not 0 < value < 10**12:
                raise BadInput(f"the limit {one.name} must be above 0 and below 1e12, found {value}")
            found[one.name] = value
    return Limits(**found)


def next_time(clock: str, now: float) -> float:
    """The unix time at which local clocks next show `clock` (`07:00`)."""
    try:
        wanted = time.strptime(clock, "%H:%M")
    except ValueError:
        raise BadInput(f"--until: expected a time such as 07:00, found {clock!r}") from None
    year, month, day, *_ = time.localtime(now)
    days = (time.mktime((year, month, day + later, *wanted[3:5], 0, 0, 0, -1)) for later in (0, 1, 2))
    return next(at for at in days if at > now)


def spent(limits: Limits, history: History, seconds: float, now: float) -> Stop | None:
    """The limit that is reached, if any; `seconds` is how long the run has taken."""
    run = history.this_run
    for unit, one in used(limits, history).plan.items():
        if one.used >= one.limit:
            what = "dollars" if unit == "usd" else unit
            said = f"the plan's budget in {what} is spent; to go on, raise budget.{unit} in prd.json"
            return Stop("budget", Exit.PERSON, said)
    reached = {
        text.count(limits.iterations, "iteration"): run.iterations >= limits.iterations,
        f"{limits.hours:g} hours": seconds >= limits.hours * 3600,
        "the time given with --until": now >= limits.until,
        f"${limits.usd:.2f} for this run (--max-usd)": run.usd >= limits.usd,
        f"{limits.tokens} tokens for this run (--max-tokens)": run.tokens.total >= limits.tokens,
    }
    for what, over in reached.items():
        if over:
            return Stop("limit", Exit.LEFT, f"limit reached: {what}")
    allowed = limits.stuck if run.passed else min(limits.stuck, BLOCKED_AT_ONCE)
    if run.blocked_in_a_row >= allowed:
        return Stop("stuck", Exit.PERSON, f"stuck: {text.count(allowed, 'task')} blocked in a row")
    return None


def used(limits: Limits, history: History) -> Usage:
    """What the run and the plan have used of each limit that is set."""
    run = history.this_run
    of_run = {
        "usd": Used(run.usd, limits.usd, run.estimated),
        "tokens": Used(run.tokens.total, limits.tokens),
        "iterations": Used(run.iterations, limits.iterations),
        "seconds": Used(round(run.seconds, 1), limits.hours * 3600),
    }
    of_plan = {
        "usd": Used(history.usd, limits.budget_usd, history.estimated),
        "tokens": Used(history.tokens.total, limits.budget_tokens),
    }
    given = ({unit: one for unit, one in units.items() if one.limit < NONE} for units in (of_run, of_plan))
    return Usage(*given)


def run_deadline(limits: Limits, seconds: float, now: float) -> float:
    """The unix time at which the run's time is up; `seconds` is how long it has taken."""
    return min(now + limits.hours * 3600 - seconds, limits.until)


def share(
    limits: Limits, history: History, given: Sequence[Share], workers: int, task: TaskHistory | None = None
) -> Share | None:
    """What the next attempt may spend; `given` are the shares of those under way, and all shares together are
    never more than what is left. None if the rest is less than an attempt takes on average: then it waits
    for the others. A task that was interrupted counts as twice what it has spent."""
    run, tried, free = history.this_run, max(history.tried, 1), workers - len(given)
    needs = task if task and task.interrupted else Spent()
    usd = min(limits.usd - run.usd, limits.budget_usd - history.usd) - sum(one.usd or 0 for one in given)
    usd = _part(usd, free, max(history.usd / tried, 2 * needs.usd), beside=bool(given))
    tokens = min(limits.tokens - run.tokens.total, limits.budget_tokens - history.tokens.total)
    tokens -= sum(one.tokens or 0 for one in given)
    average = max(history.tokens.total / tried, 2 * needs.tokens.total)
    tokens = _part(tokens, free, average, beside=bool(given))
    if given and min(usd, tokens) <= 0:
        return None
    return Share(
        max(usd, 0.01) if limits.in_dollars else None, max(int(tokens), 1) if limits.in_tokens else None
    )


def _part(left: float, workers: int, average: float, beside: bool) -> float:
    """The part of `left` for one of so many workers; 0 if it is less than `average` and others are `beside`
    it."""
    if left == NONE:
        return left
    enough_for = max(left, 0.0) / average if average > 0 else float(workers)
    if enough_for < 1 and beside:
        return 0.0
    return left / max(min(workers, int(enough_for)), 1)


def ahead(result: AgentResult, now: float) -> float | None:
    """The time of the reset, if it is known and still to come."""
    return result.reset if result.reset is not None and result.reset > now else None


def wait_for(limits: Limits, result: AgentResult, waits: int, now: float, reason: str) -> float | Stop:
    """When to try again (unix time) after a provider's limit, described by `reason`, or the stop that ends
    the run; `waits` is how many waits in a row did not help."""
    reset = ahead(result, now)
    if reset is None:
        if waits >= FRUITLESS_WAITS:
            said = f"{FRUITLESS_WAITS} waits in a row did not help: {reason}"
            return Stop("limited", Exit.LATER, said)
        return now + min(BACKOFF_FIRST * 5.5**waits, BACKOFF_LAST, limits.max_wait)
    if reset - now > limits.max_wait:
        said = f"the provider's limit ends in {text.duration(reset - now)}, more than --max-wait allows"
        return Stop("limited", Exit.LATER, said)
    return reset + random.uniform(1.0, JITTER)
