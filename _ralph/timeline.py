"""The records of a plan on one axis of time: runs, attempts, waits, and how many tasks had passed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from _ralph.model import Tokens, Verdict, task_key

Record = dict[str, Any]


@dataclass
class Span:
    """A run, an attempt or a wait: from `start` to `end` on the axis, in seconds. It began at the unix
    time `began`; `record` is its last, `word` its verdict or how it ended."""

    began: float
    start: float
    end: float
    record: Record
    word: str = "cut off"
    attempts: int = 0
    passed: int = 0
    usd: float = 0.0
    tokens: Tokens = field(default_factory=Tokens)

    @property
    def seconds(self) -> float:
        return self.end - self.start


def axis(records: list[Record]) -> list[Record]:
    """What runs wrote, each with its place `at`, in seconds. The time between runs, when nothing ran, is
    no part of the axis; nor is the time that a clock was set back."""
    places: list[Record] = []
    for record in records:
        if record.get("run") and record["event"] != "add":  # else a planner's, or a person's between runs
            before: Record = places[-1] if places else {"at": 0.0, "run": ""}
            lasted = _time(record) - _time(before) if record["run"] == before["run"] else 0.0
            places.append({**record, "at": before["at"] + max(lasted, 0.0)})
    return places


def runs(places: list[Record]) -> list[Span]:
    """The processes of ralph, oldest first, and what came of each."""
    found: list[Span] = []
    for record in places:
        if not found or found[-1].record["run"] != record["run"]:
            found.append(_span(record))
        run = found[-1]
        run.end, run.record = record["at"], record
        run.attempts += record["event"] == "start"
        run.passed += record.get("verdict") == Verdict.PASSED
        run.usd += record.get("usd") or 0.0
        run.tokens.add(Tokens(**record.get("tokens", {})))
        if record["event"] in ("stop", "now"):
            run.word = record.get("reason") or run.word
    return found


def attempts(places: list[Record]) -> list[Span]:
    """The attempts, oldest first."""
    found: dict[int, Span] = {}
    for record in places:
        if "iteration" in record:
            attempt = found.setdefault(record["iteration"], _span(record))
            attempt.end, attempt.record = record["at"], record
            attempt.word = record.get("verdict", attempt.word)
            attempt.usd = record.get("usd") or 0.0
            attempt.tokens = Tokens(**record.get("tokens", {}))
    return list(found.values())


def waits(places: list[Record]) -> list[Span]:
    """The waits for a provider, each until its end or the next record."""
    found = []
    for record, later in zip(places, [*places[1:], *places[-1:]], strict=True):
        if record["event"] == "wait":
            asked = max((record.get("until") or 0.0) - _time(record), 0.0)
            end = min(record["at"] + asked, later["at"])
            found.append(Span(_time(record), record["at"], end, record, "waiting"))
    return found


def passes(places: list[Record], tasks: set[str]) -> list[tuple[float, int]]:
    """How many of `tasks` had passed, from each change on."""
    proved: set[str] = set()
    series = [(0.0, 0)]
    for record in places:
        key = task_key(record.get("task"), record.get("title"))
        if record.get("verdict") == Verdict.PASSED and key in tasks:
            proved.add(key)
        proved.difference_update(record.get("broken") or [])
        if len(proved) != series[-1][1]:
            series.append((record["at"], len(proved)))
    return series


def _span(record: Record) -> Span:
    return Span(_time(record), record["at"], record["at"], record)


def _time(record: Record) -> float:
    return record.get("time") or 0.0
