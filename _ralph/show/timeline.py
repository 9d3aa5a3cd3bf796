"""The records of a plan on a time axis: runs, attempts, waits, and how many tasks had
passed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from _ralph.model import Spent, Verdict
from _ralph.state.records import (
    Added,
    AttemptBegan,
    AttemptEnded,
    Rechecked,
    Record,
    Stopped,
    Waited,
)

Place = tuple[float, Record]
"""A record, and where it stands on the axis, in seconds."""


@dataclass
class Span(Spent):
    """A run, an attempt or a wait: what it spent; its `seconds` are those of the
    axis."""

    began: float  # unix time
    start: float  # on the axis
    record: Record  # its last
    word: str = "cut off"  # its verdict, or how it ended
    attempts: int = 0
    passed: int = 0
    worker: int = 1
    worked: float = 0.0  # seconds in agents and checks, side by side or not

    def take_in(self, at: float, record: Record) -> None:
        """Go on to `record`."""
        if isinstance(record, AttemptEnded):
            self.add(record)
            self.worked += record.seconds
        self.record, self.seconds = record, at - self.start


def axis(records: Sequence[Record]) -> list[Place]:
    """What runs wrote. The time between runs is not on the axis, nor is time that a
    clock was set back."""
    places: list[Place] = []
    for record in records:
        if record.run and not isinstance(
            record, Added
        ):  # else a planner's, or a person's between runs
            at, before = places[-1] if places else (0.0, record)
            lasted = record.time - before.time if record.run == before.run else 0.0
            places.append((at + max(lasted, 0.0), record))
    return places


def runs(places: Sequence[Place]) -> list[Span]:
    """The processes of ralph, oldest first, and what came of each."""
    spans: list[Span] = []
    for at, record in places:
        if not spans or spans[-1].record.run != record.run:
            spans.append(Span(record.time, at, record))
        run = spans[-1]
        run.take_in(at, record)
        run.attempts += isinstance(record, AttemptBegan)
        run.passed += (
            isinstance(record, AttemptEnded) and record.verdict is Verdict.PASSED
        )
        if isinstance(record, Stopped):
            run.word = record.reason or run.word
    return spans


def attempts(places: Sequence[Place], running: Collection[int] = ()) -> list[Span]:
    """The attempts, oldest first; those that are `running`, by iteration, and those
    that were cut off end with their run."""
    spans: dict[int, Span] = {}
    ends = {record.run: at for at, record in places}
    for at, record in places:
        if isinstance(record, (AttemptBegan, AttemptEnded)):
            attempt = spans.setdefault(record.iteration, Span(record.time, at, record))
            attempt.take_in(at, record)
            if isinstance(record, AttemptEnded):
                attempt.word = record.verdict
            else:
                attempt.worker = record.worker or 1
    for iteration, attempt in spans.items():
        if isinstance(attempt.record, AttemptBegan):
            attempt.seconds = ends[attempt.record.run] - attempt.start
            attempt.word = "running" if iteration in running else attempt.word
    return list(spans.values())


def waits(places: Sequence[Place]) -> list[Span]:
    """The waits for a provider, each until its end, an attempt with the same agent or
    the end of its run; with other agents, others may work meanwhile."""
    spans = []
    for number, (at, record) in enumerate(places):
        if isinstance(record, Waited):
            later = (end for end, other in places[number + 1 :] if _ends(record, other))
            lasted = min(
                max(record.until - record.time, 0.0), next(later, places[-1][0]) - at
            )
            spans.append(Span(record.time, at, record, "waiting", seconds=lasted))
    return spans


def _ends(wait: Waited, other: Record) -> bool:
    """Whether a wait is over with this record."""
    goes_on = isinstance(other, (AttemptBegan, Waited)) and wait.command in (
        "",
        other.command,
    )
    return goes_on or other.run != wait.run


def passes(places: Sequence[Place], tasks: set[str]) -> list[tuple[float, int]]:
    """How many of `tasks` had passed, from each change on."""
    proved: set[str] = set()
    series = [(0.0, 0)]
    for at, record in places:
        if (
            isinstance(record, AttemptEnded)
            and record.verdict is Verdict.PASSED
            and record.key in tasks
        ):
            proved.add(record.key)
        elif isinstance(record, Rechecked):
            proved.difference_update(record.broken)
        if len(proved) != series[-1][1]:
            series.append((at, len(proved)))
    return series
