"""Estimates of dollars that an agent did not report, from its tokens and the prices it has shown."""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from typing import Any

from _ralph.agents.events import StreamParser
from _ralph.model import AgentResult, Outcome, Price

_DIGITS = decimal.Context(prec=3, rounding=decimal.ROUND_UP)
_CAUTIOUS = {"usd": 0.00003, "tokens": 10_000}
"""The `rate` of a row without one: that of the most expensive model in use."""
_HIGHEST = 50
"""A price of more than so many times the cautious one is not believed."""
_ENOUGH = 100
"""The weight in tokens that it takes to learn a price."""
_BYTES = 4
"""Bytes of text in a token, about."""


def book(
    result: AgentResult, parser: StreamParser, row: Mapping[str, Any], known: Price, prompt: int
) -> AgentResult:
    """`result` with the price that its agent has shown, and an estimate of the dollars that it did not
    report: for requests since its last report, and for one that was under way when it was stopped.

    `known` is the highest price that this agent has shown before, `prompt` the size of its prompt in bytes.
    There is no estimate for an agent that reports no dollars, or does not know the price of its model.
    """
    if "dollars" not in row.get("reports", []):
        return result
    unreported = sum(parser.came[message] for message in parser.meanwhile)
    reported = sum(weight for message, weight in parser.came.items() if message not in parser.meanwhile)
    largest = max(parser.came.values(), default=0.0)
    cautious = row.get("rate", _CAUTIOUS)
    own = min((parser.usd or 0.0) / reported, _HIGHEST * cautious["usd"]) if reported else 0.0
    if result.outcome is Outcome.DONE and reported >= _ENOUGH:
        result.rate, result.request = _rounded(own), _rounded(own * largest)
    rate = max(own, known.rate) or (0.0 if reported else cautious["usd"])
    estimate = unreported * rate
    if _was_under_way(result, parser):
        estimate += largest * rate or known.request or (cautious["tokens"] + prompt / _BYTES) * rate
    if estimate:
        result.estimated = round(estimate, 6)
        result.usd = (parser.usd or 0.0) + result.estimated
    return result


def _was_under_way(result: AgentResult, parser: StreamParser) -> bool:
    """Whether the provider may have worked on a request that was never reported: not if it did not answer
    at all, nor while a tool runs."""
    if parser.final is not None or parser.unanswered or parser.at_tool:
        return False
    if result.outcome is Outcome.INTERRUPTED:
        return True
    killed = result.outcome is Outcome.FAILED and (result.exit or 0) < 0
    return bool(parser.came or parser.active) and (killed or result.outcome is Outcome.TIMED_OUT)


def _rounded(usd: float) -> float:
    """A price rounded up to three digits."""
    return float(_DIGITS.create_decimal_from_float(usd))
