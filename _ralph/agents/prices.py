"""Dollars that an agent did not tell: an estimate, from what it told and from the prices it has shown."""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from typing import Any

from _ralph.agents.events import StreamParser
from _ralph.model import AgentResult, Outcome, Price

_DIGITS = decimal.Context(prec=3, rounding=decimal.ROUND_UP)
_CAUTIOUS = {"usd": 0.00003, "tokens": 10_000}
"""The `rate` of a row of a plan's own that says none: of the dearest model in use."""
_DEAREST = 50
"""No price is so many times a cautious one: an agent that says so is wrong, or lies."""
_SOME = 100
"""Tokens of weight from which a price is learned."""
_BYTES = 4
"""What a token is of a text, about."""


def book(
    result: AgentResult, parser: StreamParser, row: Mapping[str, Any], known: Price, prompt: int
) -> AgentResult:
    """`result` with the price that its agent has shown, and an estimate of the dollars that it did not tell:
    for requests since its last price, and for one that was under way when it was cut off.

    `known` is the dearest price that this agent has shown before, `prompt` what it was sent, in bytes.
    An agent that reports no dollars gets no estimate, nor does one that knows no price of its model.
    """
    if "dollars" not in row.get("reports", []):
        return result
    untold = sum(parser.came[message] for message in parser.meanwhile)
    told = sum(weight for message, weight in parser.came.items() if message not in parser.meanwhile)
    largest = max(parser.came.values(), default=0.0)
    own = (parser.usd or 0.0) / told if told else 0.0
    cautious = row.get("rate", _CAUTIOUS)
    own = min(own, _DEAREST * cautious["usd"])
    if result.outcome is Outcome.DONE and told >= _SOME:
        result.rate, result.request = _few(own), _few(own * largest)
    rate = max(own, known.rate) or (0.0 if told else cautious["usd"])
    estimate = untold * rate
    if _was_under_way(result, parser):
        estimate += largest * rate or known.request or (cautious["tokens"] + prompt / _BYTES) * rate
    if estimate:
        result.estimated = round(estimate, 6)
        result.usd = (parser.usd or 0.0) + result.estimated
    return result


def _was_under_way(result: AgentResult, parser: StreamParser) -> bool:
    """Whether the provider may have been at work on a request that nobody told of any more. One that gave
    no sign in all the time that there was did not answer."""
    if parser.final is not None or parser.unanswered:
        return False
    if result.outcome is Outcome.INTERRUPTED:
        return True
    killed = result.outcome is Outcome.FAILED and (result.exit or 0) < 0
    return bool(parser.came or parser.active) and (killed or result.outcome is Outcome.TIMED_OUT)


def _few(usd: float) -> float:
    """A price with the digits that mean something, rounded up."""
    return float(_DIGITS.create_decimal_from_float(usd))
