"""An agent's output, parsed line by line with the rules of its row in agents.json."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _ralph import text
from _ralph.model import Json, Outcome, Tokens

_SEARCHED = 10_000
_SPOKEN = 1 << 17
"""Characters that are kept of a text in fragments."""
_TYPE = re.compile(rb'\{"type": ?"([a-z_.]+)"[,}]')
_FIELD = re.compile(r"\{([\w.*]+)\}")
LAST_WORD, BACKGROUND = 60.0, 660.0
"""Seconds of silence in which an agent must exit after its final result; and with a
task of its own open, which Claude Code itself ends after 600, to go on with what that
said."""
_MOST = 10**15  # a few hundred digits would be no float any more
_SAVED = {"add", "total", "meanwhile", "set", "overage", "final"}
_UNITS = {"dollars": ("usd",), "tokens": ("input", "output")}
"""What can be limited, and the sums that count it."""
Listener = Callable[[str, str], None]
"""Gets what the agent does as it does it: a kind (`say` or `tool`) and one line."""


@dataclass
class StreamParser:
    """Applies a row's rules, in order, to each event; the last matching rule wins.

    An event is a line of JSON. With `text`, every printed line is the event `{"line":
    "..."}`, and only the agent's own log is JSON: what it prints could be anything.
    Without rules (a plain command), lines only go to the listener.
    """

    rules: list[Json]
    text: bool = False
    usd_left: float | None = (
        None  # the process is stopped once this or `tokens_left` is used up
    )
    tokens_left: int | None = None
    listen: Listener | None = None  # gets words and tools
    raw: Callable[[str], None] | None = None  # gets every line
    retry: Callable[[str], None] = lambda _: None  # gets each repeated request
    heard: float = field(
        default_factory=time.monotonic
    )  # the last sign of life, in monotonic seconds
    facts: dict[str, list[Any]] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    meanwhile: dict[str, Tokens] = field(
        default_factory=dict
    )  # requests that no result has counted yet
    unmeasured: set[str] = field(
        default_factory=set
    )  # units that an event should have counted, and did not
    final: str | None = None  # the outcome that its last event gives
    outcome: str | None = None  # the one to assume if that never comes
    overage: bool = False  # the provider bills extra usage
    events: int = 0
    active: bool = False
    overspent: str = ""
    spoken: str = ""  # the text so far, of one in fragments
    unfinished: str = ""  # its last line
    unanswered: str = ""  # what the provider does not answer, until it does
    open: set[str] = field(default_factory=set)  # its own background tasks
    doing: str = ""  # what was said or done last
    news: bool = True  # something changed that is saved

    def __post_init__(self) -> None:
        """Index the rules by the type of event: most events match none of them."""
        kinds = {"", *(kind for rule in self.rules for kind in _kinds(rule))}
        self._rules_of = {
            kind: [
                rule for rule in self.rules if not (its := _kinds(rule)) or kind in its
            ]
            for kind in kinds
        }

    @property
    def reads_lines(self) -> bool:
        """Whether lines are needed: without rules and listeners, any output is only a
        sign of life."""
        return bool(self.rules or self.listen or self.raw)

    def line(self, raw: bytes, printed: bool = True) -> str | None:
        """Parse one line, `printed` or from the agent's own log. The answer is for
        `run_process`: `stop`, `quiet` (no sign of life) or None."""
        if self.raw is not None and printed:
            self.raw(raw.decode("utf-8", "replace"))
        answer = self._line(raw, printed)
        if answer != "quiet":
            self.heard = time.monotonic()
        return answer

    def _line(self, raw: bytes, printed: bool) -> str | None:
        if not self.rules:
            self.active = self.active or bool(raw.strip())
            last = raw.rstrip().rpartition(b"\n")[2]  # it can be more than a line
            self._hear("say", last[:2000].decode("utf-8", "replace"))
            return None
        if (
            not self.text
            and (kind := _TYPE.match(raw))
            and not self._rules_for(kind[1].decode())
        ):
            self.events += 1  # not parsed: most of the output is that of tools
            return None
        event = (
            {"line": raw[:2000].decode("utf-8", "replace")}
            if self.text and printed
            else _event(raw)
        )
        if event is None:
            return "quiet"
        self.events += not (self.text and printed)
        answer = None
        for rule in self._rules_for(str(event.get("type", ""))):
            if all(
                _matches(pick(event, path), wanted)
                for path, wanted in rule["when"].items()
            ):
                answer = self._apply(rule, event) or answer
        self.overspent = self.overspent or self._overspent()
        return "stop" if self.overspent else answer

    def _rules_for(self, kind: str) -> list[Json]:
        return self._rules_of.get(kind, self._rules_of[""])

    def fact(self, name: str) -> str:
        """What was last set as `name`, joined."""
        if name == "text" and self.spoken:
            return self.spoken
        return " ".join(
            str(value) for value in self.facts.get(name, []) if value is not None
        )

    def tokens(self) -> Tokens:
        """The tokens that results have counted, and those of requests since."""
        total = Tokens(**{key: int(self.sums.get(key, 0)) for key in vars(Tokens())})
        for request in self.meanwhile.values():
            total.add(request)
        return total

    @property
    def usd(self) -> float | None:
        """The dollars that the agent reported, or None."""
        return self.sums.get("usd")

    @property
    def session(self) -> str | None:
        return text.one_line(self.fact("session"), 100) or None

    @property
    def reset(self) -> float | None:
        """The unix time at which a limit ends, as it was told last."""
        return text.moment(next(iter(self.facts.get("reset", [])), None), time.time())

    @property
    def has_ended(self) -> bool:
        """Whether it said its final result, so that it only has to exit."""
        return self.final in ("done", "failed")

    def silence(self, idle: float | None) -> float | None:
        """The seconds of silence after which it is ended, at most `idle`."""
        if not self.has_ended:
            return idle
        last = BACKGROUND if self.open else LAST_WORD
        return last if idle is None else min(last, idle)

    def was_cut_off(self, outcome: Outcome) -> bool:
        """Whether an agent that ended so was cut off before it said what it had used.
        One that its provider did not answer has used nothing."""
        if not self.rules or self.final is not None:
            return False
        if outcome is Outcome.INTERRUPTED:
            return self.active or not self.unanswered
        died = outcome is Outcome.FAILED and self.outcome in (None, "done")
        return self.active and (died or outcome is Outcome.TIMED_OUT)

    def unreported(self, outcome: Outcome) -> str:
        """The unit that is limited, and that an agent which ended so did not report;
        empty if there is none. An agent that does not know the price of its model
        reports zero, too."""
        if not self.rules or outcome in (Outcome.LIMITED, Outcome.UNAVAILABLE):
            return ""
        limited = {"dollars": self.usd_left, "tokens": self.tokens_left}
        told = {"dollars": self.usd, "tokens": self.tokens().total}
        ended = self.final is not None and (
            outcome is Outcome.DONE or any(told.values())
        )
        missing = self.unmeasured | {unit for unit in told if ended and not told[unit]}
        return next(
            (unit for unit in limited if limited[unit] is not None and unit in missing),
            "",
        )

    def _apply(self, rule: Json, event: Json) -> str | None:
        if not rule.get("fragment") and self.spoken:
            self._hear("say", self.unfinished)
            self.facts["text"] = [self.spoken]
            self.spoken = self.unfinished = ""
        for name, paths in rule.get("set", {}).items():
            values = next(
                (picked for path in _listed(paths) if (picked := pick(event, path))), []
            )
            if values or name == "denials":
                self.facts[name] = values
        for name, path in rule.get("collect", {}).items():
            self.facts[name] = self.facts.get(name, []) + pick(event, path)
        for name, paths in rule.get("add", {}).items():
            self.sums[name] = self.sums.get(name, 0) + _amount(event, paths)
        for name, paths in rule.get("total", {}).items():
            if any(map(_is_amount, (n for path in paths for n in pick(event, path)))):
                self.sums[name] = max(self.sums.get(name, 0), _amount(event, paths))
        self._count(rule, event)
        self._measure(rule, event)
        self.open.update(
            map(str, pick(event, rule["opens"]) if "opens" in rule else [])
        )
        self.open.difference_update(
            map(str, pick(event, rule["closes"]) if "closes" in rule else [])
        )
        self.overage = rule.get("overage", self.overage)
        self.news = self.news or bool(_SAVED & rule.keys())
        if "final" in rule and not (
            self.final == "unavailable" and rule["final"] in ("failed", "limited")
        ):
            self.final = rule[
                "final"
            ]  # an event that says why can be followed by one that does not
            self.active = self.active or self.final == "done"
        self.outcome = rule.get("outcome", self.outcome)
        if "reason" in rule:
            self.facts["reason"] = [rule["reason"]]
        self._tell(rule, event)
        return "stop" if rule.get("stop") else "quiet" if rule.get("quiet") else None

    def _count(self, rule: Json, event: Json) -> None:
        """Count the tokens of one request, each message once; a result counts all
        before it."""
        if "add" in rule:
            if _tokens(event, rule["add"]).total:  # else it counted nothing
                self.meanwhile.clear()
        elif spent := rule.get("meanwhile"):
            self.meanwhile[str(pick(event, spent["of"]))] = _tokens(event, spent)

    def _measure(self, rule: Json, event: Json) -> None:
        """Note the units that this event should have counted: one that is missing, or
        is no amount, would otherwise be nothing."""
        for unit, names in _UNITS.items():
            counts = (
                rule.get(kind, {}).get(name, [])
                for kind in ("add", "total")
                for name in names
            )
            paths = [path for count in counts for path in count]
            amounts = [
                value
                for path in paths
                for value in pick(event, path)
                if value is not None
            ]
            if paths and not (amounts and all(map(_is_amount, amounts))):
                self.unmeasured.add(unit)

    def _tell(self, rule: Json, event: Json) -> None:
        """Tell the listener, in whole lines, even if the agent prints fragments of
        them."""
        for words in pick(event, rule["say"]) if "say" in rule else []:
            self.active = True
            self._hear(
                "say", self._join(str(words)) if rule.get("fragment") else str(words)
            )
        entries, *paths = rule.get("tool", ["", ""])
        for entry in pick(event, entries) if "tool" in rule else []:
            if words := " ".join(
                str(word) for path in paths for word in pick(entry, path)
            ):
                self.active = True
                self._hear("tool", words)
        for words in pick(event, rule["show"]) if "show" in rule else []:
            self._hear("say", str(words))
        if "retry" in rule and self.outcome != "unavailable":
            words = _FIELD.sub(
                lambda path: " ".join(map(str, pick(event, path[1]))), rule["retry"]
            )
            self.unanswered = f"the provider does not answer, {text.one_line(text.redact(words), 200)}"
            self.retry(self.unanswered)
        elif {"say", "tool", "final"} & rule.keys():
            self.unanswered = ""

    def _join(self, fragment: str) -> str:
        """The lines that `fragment` completes; the end of the text so far is the fact
        `text`."""
        self.spoken = (self.spoken + fragment)[-_SPOKEN:]
        *lines, rest = (self.unfinished + fragment).split("\n")
        self.unfinished = rest[:_SEARCHED]
        return "\n".join(lines)

    def _hear(self, kind: str, words: str) -> None:
        if not words.strip():
            return
        self.doing, self.news = words, True
        if self.listen is not None:
            self.listen(kind, words)

    def _overspent(self) -> str:
        """The limit that is used up, if any."""
        if self.usd_left is not None and (self.usd or 0) > self.usd_left:
            return "dollars"
        if self.tokens_left is not None and self.tokens().total > self.tokens_left:
            return "tokens"
        return ""


def _kinds(rule: Json) -> list[str]:
    """The types of event that a rule is for; empty if it is for any."""
    return [kind for kind in _listed(rule["when"].get("type")) if isinstance(kind, str)]


def pick(event: Any, path: str) -> list[Any]:
    """The values at a dotted path; `*` is every entry of a list or an object, and an
    empty path the event."""
    step, _, rest = path.partition(".")
    if not step:
        return [event]
    if step == "*":
        return [value for entry in _entries(event) for value in pick(entry, rest)]
    return pick(event[step], rest) if isinstance(event, dict) and step in event else []


def _event(raw: bytes) -> Json | None:
    if not raw.lstrip().startswith(b"{"):
        return None
    try:
        event = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _matches(values: list[object], wanted: object) -> bool:
    """Whether a value is the one wanted, one of those wanted, or a text that the
    pattern matches."""
    if isinstance(wanted, dict):
        texts = [value[:_SEARCHED] for value in values if isinstance(value, str)]
        return any(re.search(wanted["match"], text) for text in texts)
    options = _listed(wanted)
    return any(
        value == option and type(value) is type(option)
        for value in values
        for option in options
    )


def _tokens(event: Json, paths: dict[str, list[str]]) -> Tokens:
    return Tokens(
        **{key: int(_amount(event, paths.get(key, []))) for key in vars(Tokens())}
    )


def _amount(event: Json, paths: list[str]) -> float:
    return sum(
        float(min(n, _MOST))
        for path in paths
        for n in pick(event, path)
        if _is_amount(n)
    )


def _is_amount(value: object) -> bool:
    """Whether it can be counted: with NaN, no limit would ever be reached."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value < float("inf")
    )


def _entries(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]
