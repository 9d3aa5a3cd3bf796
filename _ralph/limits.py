"""Limits: what one run and the plan's life may cost, and how long to wait for a provider."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from _ralph import text
from _ralph.ends import BadInput, Exit, Stop
from _ralph.model import AgentResult
from _ralph.progress import History

BLOCKED_IN_A_ROW = 3
BACKOFF_FIRST, BACKOFF_LAST = 60.0, 1800.0
FRUITLESS_WAITS = 3
_NAMES = ("iterations", "attempts", "hours", "usd", "tokens")


@dataclass(frozen=True)
class Limits:
    """`hours` and the other limits are for one run, `until` is a unix time, `max_wait` is in
    seconds, `budget_usd` and `budget_tokens` are for the plan's life. None means no limit."""

    iterations: int = 50
    attempts: int = 3
    hours: float = 12.0
    until: float | None = None
    usd: float | None = None
    tokens: int | None = None
    max_wait: float = 6 * 3600.0
    budget_usd: float | None = None
    budget_tokens: int | None = None

    @property
    def in_tokens(self) -> bool:
        return self.tokens is not None or self.budget_tokens is not None

    @property
    def in_dollars(self) -> bool:
        return self.usd is not None or self.budget_usd is not None


def resolve(settings: Mapping[str, Any], given: Mapping[str, Any], where: str) -> Limits:
    """The limits from prd.json's `limits` and `budget`, with those given on the command line."""
    own = {f"limits.{k}": v for k, v in settings.get("limits", {}).items()}
    life = {f"budget.{k}": v for k, v in settings.get("budget", {}).items()}
    for key, value in {**own, **life}.items():
        allowed = _NAMES if key.startswith("limits.") else ("usd", "tokens")
        if key.split(".")[1] not in allowed:
            raise BadInput(f"{where}: {key}: unknown; expected one of {', '.join(allowed)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise BadInput(f"{where}: {key}: expected a number above 0, found {value!r}")
    named = {key.removeprefix("limits."): value for key, value in own.items()}
    named |= {key.replace(".", "_"): value for key, value in life.items()}
    named |= {key: value for key, value in given.items() if value is not None}
    if odd := [key for key, value in named.items() if not math.isfinite(value)]:
        raise BadInput(f"the limit {odd[0]} is no number that could be reached")
    return Limits(**named)


def next_time(clock: str, now: float) -> float:
    """The unix time at which local clocks next show `clock` (`07:00`)."""
    try:
        wanted = time.strptime(clock, "%H:%M")
    except ValueError:
        raise BadInput(f"--until: expected a time such as 07:00, found {clock!r}") from None
    today = time.localtime(now)
    for day in (0, 1):
        at = time.mktime(
            (today.tm_year, today.tm_mon, today.tm_mday + day, wanted.tm_hour, wanted.tm_min, 0, 0, 0, -1)
        )
        if at > now:
            return at
    raise AssertionError("tomorrow comes")


def spent(limits: Limits, history: History, seconds: float, now: float) -> Stop | None:
    """The limit that forbids another attempt, if any; `seconds` is how long the run has gone."""
    run_tokens, life_tokens = history.run_tokens.total, history.tokens.total
    reached = [
        (history.run_iterations >= limits.iterations, f"{limits.iterations} iterations"),
        (seconds >= limits.hours * 3600, f"{limits.hours:g} hours"),
        (limits.until is not None and now >= limits.until, "the time given with --until"),
        (limits.usd is not None and history.run_usd >= limits.usd, f"${limits.usd or 0:.2f} for this run"),
        (limits.tokens is not None and run_tokens >= limits.tokens, f"{limits.tokens} tokens for this run"),
        (limits.budget_usd is not None and history.usd >= limits.budget_usd, "the plan's budget in dollars"),
        (
            limits.budget_tokens is not None and life_tokens >= limits.budget_tokens,
            "the plan's budget in tokens",
        ),
    ]
    for over, what in reached:
        if over:
            return Stop("limit", Exit.LEFT, f"limit reached: {what}")
    if history.blocked_in_a_row >= BLOCKED_IN_A_ROW:
        return Stop("stuck", Exit.PERSON, f"stuck: {BLOCKED_IN_A_ROW} tasks were blocked in a row")
    return None


def run_deadline(limits: Limits, seconds: float, now: float) -> float:
    """The unix time at which the run's time is up; `seconds` is how long it has gone."""
    by_hours = now + limits.hours * 3600 - seconds
    return by_hours if limits.until is None else min(by_hours, limits.until)


def usd_left(limits: Limits, history: History) -> float | None:
    """Dollars that the next attempt may spend, or None without a limit."""
    left = _left((limits.usd, history.run_usd), (limits.budget_usd, history.usd))
    return None if left is None else max(left, 0.01)


def tokens_left(limits: Limits, history: History) -> int | None:
    """Tokens that the next attempt may use, or None without a limit."""
    run, life = history.run_tokens.total, history.tokens.total
    left = _left((limits.tokens, run), (limits.budget_tokens, life))
    return None if left is None else max(int(left), 1)


def _left(*pairs: tuple[float | None, float]) -> float | None:
    """The least that is left of limits, given with what is used of each; None without any."""
    return min((limit - used for limit, used in pairs if limit is not None), default=None)


def ahead(result: AgentResult, now: float) -> float | None:
    """The reset that was told, if it is still to come; one that is over is not to be trusted."""
    return result.reset if result.reset is not None and result.reset > now else None


def wait_for(limits: Limits, result: AgentResult, history: History, now: float) -> float | Stop:
    """When to try again after a provider's limit (unix time), or the stop that ends the run."""
    reset = ahead(result, now)
    if reset is None:
        if history.fruitless_waits >= FRUITLESS_WAITS:
            return Stop(
                "limited", Exit.LATER, f"{FRUITLESS_WAITS} waits in a row brought nothing: {result.reason}"
            )
        return now + min(BACKOFF_FIRST * 5.5**history.fruitless_waits, BACKOFF_LAST, limits.max_wait)
    if reset - now > limits.max_wait:
        left = text.duration(reset - now)
        return Stop(
            "limited", Exit.LATER, f"the provider's limit ends in {left}, more than --max-wait allows"
        )
    return reset + 30
