"""The records of a plan on one axis of time: runs, attempts, waits, and what grew meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from _ralph.model import Verdict

WIDTH = 1000.0
"""Units of the axis, from the first record to the last."""
_STEPS = [unit * n for unit in (1, 60) for n in (1, 2, 5, 10, 15, 30)]
_STEPS += [unit * n for unit in (3600, 86400) for n in (1, 2, 3, 6, 12)]


@dataclass
class Span:
    """One process of ralph at work. `offset` is the time that those before it took, in seconds;
    the time between them, when nothing ran, is no part of the axis."""

    run: str
    began: float
    offset: float
    ended: float
    attempts: int = 0
    passed: int = 0
    usd: float = 0.0
    tokens: int = 0
    stop: str = ""

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def at(self, moment: float) -> float:
        """Where on the axis a unix time of this run is, in seconds."""
        return self.offset + min(max(moment - self.began, 0.0), self.seconds)


@dataclass
class Bar:
    """One attempt, or one wait, between two places on the axis, in seconds."""

    began: float
    start: float
    end: float
    verdict: str = "cut off"
    record: dict[str, Any] = field(default_factory=dict)

    def place(self, whole: float) -> tuple[float, float]:
        """x and width in units of the axis; never too thin to be seen."""
        x, width = _units(self.start, whole), _units(self.end - self.start, whole)
        return min(x, WIDTH - 1.5), max(round(width * 0.97, 1), 1.5)


@dataclass
class Timeline:
    """What is folded from the records: `take` is called once for each, oldest first.

    The series hold (seconds on the axis, value) pairs, one for each change.
    """

    tasks: frozenset[str]
    spans: list[Span] = field(default_factory=list)
    attempts: list[Bar] = field(default_factory=list)
    waits: list[Bar] = field(default_factory=list)
    passed: list[tuple[float, float]] = field(default_factory=list)
    usd: list[tuple[float, float]] = field(default_factory=list)
    tokens: list[tuple[float, float]] = field(default_factory=list)
    _proved: set[str] = field(default_factory=set)
    _open: Bar | None = None
    _until: float | None = None

    @property
    def seconds(self) -> float:
        """The time that all runs took, waits included."""
        return self.spans[-1].offset + self.spans[-1].seconds if self.spans else 0.0

    def take(self, record: dict[str, Any]) -> None:
        if record["event"] == "add":  # what a planner cost; its time is no run's
            self._spend(record, self.seconds)
            return
        if not record.get("run"):
            return  # a person's `ralph retry` between runs
        span, moment = self._span(str(record["run"]), record.get("time") or 0.0)
        if self._until is not None:
            self.waits[-1].end = max(span.at(min(moment, self._until)), self.waits[-1].start)
            self._until = None
        if record["event"] == "start":
            self._open = Bar(moment, span.at(moment), span.at(moment), record=record)
            self.attempts.append(self._open)
            span.attempts += 1
        elif record["event"] == "verdict":
            self._verdict(record, span, moment)
        elif record["event"] == "wait":
            self.waits.append(Bar(moment, span.at(moment), span.at(moment), "waiting"))
            self._until = record.get("until") or moment
        elif record["event"] == "recheck" and record.get("broken"):
            self._proved.difference_update(record["broken"])
            self.passed.append((span.at(moment), len(self._proved)))
        elif record["event"] == "stop":
            span.stop = str(record.get("reason") or record.get("stop") or "")

    def still_running(self, now: float) -> None:
        """A loop is at work: the last run, its attempt or its wait reach to this moment."""
        if self.spans:
            self.take({"event": "now", "run": self.spans[-1].run, "time": now})
            self.spans[-1].stop = "still running"
        if self._open:
            self._open.verdict, self._open.end = "running", self.seconds

    def _span(self, run: str, moment: float) -> tuple[Span, float]:
        if not self.spans or self.spans[-1].run != run:
            self.spans.append(Span(run, moment, self.seconds, moment))
        span = self.spans[-1]
        span.ended = max(span.ended, moment)
        return span, moment

    def _verdict(self, record: dict[str, Any], span: Span, moment: float) -> None:
        bar, self._open = self._open, None
        if bar is None or bar.record.get("iteration") != record["iteration"]:
            bar = Bar(moment, span.at(moment), span.at(moment))
            self.attempts.append(bar)
        elif bar.record.get("run") == record["run"]:  # else it was cut off, and judged by a later run
            bar.end = span.at(moment)
        bar.verdict, bar.record = str(record["verdict"]), record
        spent, used = self._spend(record, span.at(moment))
        span.usd, span.tokens = span.usd + spent, span.tokens + used
        key = f"{record.get('task')}\n{record.get('title')}"
        if bar.verdict == Verdict.PASSED and key in self.tasks:
            span.passed += 1
            self._proved.add(key)
            self.passed.append((span.at(moment), len(self._proved)))

    def _spend(self, record: dict[str, Any], at: float) -> tuple[float, int]:
        """Dollars and tokens of a record, put into the series."""
        tokens = record.get("tokens", {})
        spent, used = record.get("usd") or 0.0, tokens.get("input", 0) + tokens.get("output", 0)
        _grow(self.usd, at, spent)
        _grow(self.tokens, at, used)
        return spent, used


def steps(series: list[tuple[float, float]], whole: float, top: float) -> str:
    """The data of an SVG path: a line of steps through `series`, in a box of WIDTH by 100."""
    path = "M0,100"
    for at, value in series:
        path += f"H{_units(at, whole)}V{100 - round(100 * value / top, 2) if top else 100}"
    return f"{path}H{WIDTH}"


def ticks(whole: float) -> list[tuple[float, str]]:
    """At most six places on an axis of `whole` seconds, in units, and what stands there."""
    step = next((step for step in _STEPS if whole / step <= 5), whole / 5)
    unit, word = next(pair for pair in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")) if step >= pair[0])
    count = int(whole / step) if whole >= 1 else 0
    return [(_units(n * step, whole), f"{n * step / unit:g} {word}") for n in range(count + 1)]


def _grow(series: list[tuple[float, float]], at: float, by: float) -> None:
    if by:
        series.append((at, by + (series[-1][1] if series else 0.0)))


def _units(seconds: float, whole: float) -> float:
    return round(WIDTH * seconds / whole, 1) if whole else 0.0
