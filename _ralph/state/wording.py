"""Words about a run: what people read in its records, on a terminal, in messages."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from _ralph import text
from _ralph.model import AgentResult, Outcome, Spent, Tokens
from _ralph.state import limits


def command_line(name: str, prd: Path, words: Iterable[str] = ()) -> str:
    """A `ralph` command for a person to copy, with the plan that it is about where that is not prd.json."""
    plan = [] if prd == Path("prd.json") else ["--prd", str(prd)]
    return shlex.join(["ralph", *name.split(), *plan, *words])


def limits_words(usage: limits.Usage, run: str) -> str:
    """What is used of each limit, from `limits.used`: `this run: $3.20 of $20.00, 4 of 50 iterations, 1 h
    10 min of 12 h 0 min; the plan: $40.10 of $100.00`; `run` is how the run is called."""
    parts = {run: usage.run, "the plan": usage.plan}
    told = [
        f"{whose}: {', '.join(_used_words(unit, one) for unit, one in units.items())}"
        for whose, units in parts.items()
        if units
    ]
    return "; ".join(told)


def _used_words(unit: str, of: limits.Used) -> str:
    if unit == "usd":
        return f"{'at least ' * of.at_least}${of.used:.2f} of ${of.limit:.2f}"
    if unit == "seconds":
        return f"{text.duration(of.used, short=True)} of {text.duration(of.limit, short=True)}"
    return f"{of.used:.0f} of {of.limit:.0f} {unit}"


def thousands(tokens: Tokens) -> str:
    """`20.3k tokens`, in and out, or nothing."""
    return f"{tokens.total / 1000:.1f}k tokens" if tokens.total else ""


def ended_words(result: AgentResult) -> str:
    """How the agent ended, where that was not well."""
    return result.reason if result.outcome is not Outcome.DONE else ""


def spent(on: Spent | AgentResult) -> str:
    """Time and dollars, or tokens where no dollars are known: `5 min 12 s, $0.42`, `12 s, 20.3k tokens`;
    `8 s, at least $0.42` if an agent was cut off."""
    cost = dollars(on.usd) or thousands(on.tokens)
    return text.duration(on.seconds) + (f", {'at least ' * on.at_least}{cost}" if cost else "")


def dollars(usd: float | None) -> str:
    """`$0.42`, at least a cent; nothing where no price was told, also by an agent that knows none of its
    model and says 0."""
    return f"${max(usd, 0.01):.2f}" if usd else ""
