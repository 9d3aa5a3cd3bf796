"""What one run of an agent has said and used so far, and how a stranger's JSON is
read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from _ralph.model import Json, Outcome, Tokens

_MOST = 10**15
_DENIALS = 100
_GIVEN = ("command", "file_path", "filePath", "path", "url")
_SHOWN = (*_GIVEN, "pattern", "query")
Usage = tuple[list[object], list[object], object]
"""What a request took, as it was told: tokens sent and received, each as numbers that
add up, and those of the sent ones that came from a cache."""


@dataclass
class Turn:
    """What an agent said and used so far. The module of each agent has a function that
    reads one event into it."""

    session: str = ""
    text: str = ""  # its last message
    final: Outcome | None = None  # what its last event says; None while it goes on
    presumed: Outcome | None = None  # to assume if no last event comes
    reason: str = ""
    reset: object = None  # when its limit ends, as it was told
    overage: bool = False  # its provider bills extra usage
    usd: float | None = None
    tokens: Tokens = field(default_factory=Tokens)
    asked: Tokens = field(default_factory=Tokens)  # requests that no result has counted
    asking: Tokens = field(default_factory=Tokens)  # the last one, not among them
    message: object = None  # its answer
    untold: set[str] = field(default_factory=set)  # units that should have been counted
    denials: list[str] = field(default_factory=list)
    background: set[str] = field(default_factory=set)  # its own tasks that still run
    stop_hooks: int = 0  # how often a Stop hook did not let it end
    never: str = ""  # why no attempt can end well
    active: bool = False  # it said something, or used a tool
    # Of the event that was read last:
    words: list[tuple[str, str]] = field(default_factory=list)  # `say` or `tool`
    retry: str = ""  # it repeats a request
    quiet: bool = False  # no sign of life
    stop: bool = False  # it cannot succeed
    unfinished: str | None = None  # the line so far, of a message in fragments

    def say(self, words: str) -> None:
        """Words of the agent."""
        self.active = True
        self.words.append(("say", words))

    def use(self, tool: str, given: object) -> None:
        """A tool in use, and what it was given, as far as that is told in words."""
        shown = [tool, *(string(given, name) for name in _SHOWN)]
        words = " ".join(filter(None, shown))
        if words:
            self.active = True
            self.words.append(("tool", words))

    def deny(self, tool: str, given: object) -> None:
        """A tool that was denied, and what it was to be used on."""
        told = [string(given, name) for name in _GIVEN]
        parts = [part for part in (tool, *told) if part]
        if parts and len(self.denials) < _DENIALS:
            self.denials.append(": ".join(parts[:2]))

    def end(self, outcome: Outcome) -> None:
        """An event that says how it ended. One that says why it cannot run can be
        followed by one that does not."""
        if self.final is not Outcome.UNAVAILABLE or outcome is Outcome.DONE:
            self.final = outcome
        if outcome is Outcome.DONE:
            self.active = True

    def fail(
        self, message: str, cannot_run: re.Pattern[str], limited: re.Pattern[str]
    ) -> None:
        """An event that says that it failed, with the words of its provider."""
        self.reason = message
        if cannot_run.search(message):
            self.end(Outcome.UNAVAILABLE)
        elif limited.search(message):
            self.end(Outcome.LIMITED)
            self.reset = message
        else:
            self.end(Outcome.FAILED)

    def cannot_succeed(self, outcome: Outcome, reason: str) -> None:
        """An event after which it need not go on."""
        self.presumed, self.reason = outcome, reason
        self.stop = True

    def refuse_login(self) -> None:
        """An answer of 401 or 403, after which it would try in vain for minutes."""
        reason = "not logged in: the provider answered 401 or 403"
        self.cannot_succeed(Outcome.UNAVAILABLE, reason)

    def request(self, message: object, usage: Usage) -> None:
        """Count one request until a result counts it; each part of its answer, a
        `message`, tells it again."""
        if message != self.message:
            self.asked.add(self.asking)
            self.message = message
        self.asking = tokens(usage)

    def count(self, usage: Usage) -> None:
        """Count the tokens of a result, which has all requests before it."""
        told = [value for value in (*usage[0], *usage[1]) if value is not None]
        if not told or None in map(amount, told):
            self.untold.add("tokens")
        used = tokens(usage)
        self.tokens.add(used)
        if used.total:
            self.asked, self.asking = Tokens(), Tokens()

    def pay(self, usd: object, total: bool = False) -> None:
        """Count dollars, of all so far with `total`."""
        cost = amount(usd)
        if cost is None:
            self.untold.add("dollars")
        elif total:
            self.usd = max(self.usd or 0.0, cost)
        else:
            self.usd = (self.usd or 0.0) + cost

    @property
    def used(self) -> Tokens:
        """The tokens that results have counted, and those of requests since."""
        total = Tokens()
        for used in (self.tokens, self.asked, self.asking):
            total.add(used)
        return total


def get(value: object, *keys: str) -> Any:
    """What stands in nested objects under these keys; None where nothing does."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def string(value: object, *keys: str) -> str:
    """A string in nested objects; empty where there is none."""
    found = get(value, *keys)
    return found if isinstance(found, str) else ""


def objects(value: object, *keys: str) -> list[Json]:
    """The objects in a list, or in an object, in nested objects."""
    found = get(value, *keys)
    if isinstance(found, dict):
        found = [*found.values()]
    if not isinstance(found, list):
        return []
    return [entry for entry in found if isinstance(entry, dict)]


def amount(value: object) -> float | None:
    """A number that can be counted; None for anything else. With NaN, no limit would
    ever be reached."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= _MOST else None


def tokens(usage: Usage) -> Tokens:
    """The tokens of these numbers, as far as they can be counted."""
    sent, received, cached = usage
    sums = []
    for values in (sent, received, [cached]):
        sums.append(sum(int(amount(value) or 0) for value in values))
    return Tokens(*sums)
