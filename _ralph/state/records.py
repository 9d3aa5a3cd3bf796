"""The records of progress.txt: a dataclass for each kind of event, and their lines."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from _ralph import codec
from _ralph.errors import BadInput, Stop
from _ralph.model import NO_LIMIT, Conflict, Json, Judgement, Spent, Verdict, task_key

VERSION = 2
KINDS: dict[str, type[Record]] = {}
"""The classes below, by their events."""
MACHINE_LINE = re.compile(rb"<!-- ralph (\{.*\}) -->\r?\n?")


@dataclass(kw_only=True)
class Record:
    """What all have. What has its default is not written."""

    event: ClassVar[str]
    time: float = 0.0  # unix time
    plan: str = ""  # as `Plan.key`
    run: str = ""  # the id of the run that wrote it, if one did
    branch: str = ""  # on which its work lands

    def __init_subclass__(cls, event: str = "") -> None:
        if event:
            cls.event, KINDS[event] = event, cls


@dataclass(kw_only=True)
class OfTask(Record):
    """A record about one task: the id and the title that it had."""

    task: str
    title: str = ""

    @property
    def key(self) -> str:
        """As `Task.key`."""
        return task_key(self.task, self.title)


@dataclass(kw_only=True)
class RunBegan(Record, event="run"):
    """A run begins."""

    continues: bool = False  # the run before was killed, and goes on
    base: str = ""  # the branch's tip
    limits: dict[str, float] = field(
        default_factory=dict
    )  # of this run alone, by their names in `Limits`


@dataclass(kw_only=True)
class AttemptBegan(OfTask, event="start"):
    """An attempt begins: its task is claimed until the verdict."""

    iteration: int
    id: str = ""  # random, and in the commit that passes
    attempt: int = 0
    command: str = ""  # the agent, as a person named it
    worker: int = 1  # the number of its loop
    base: str = ""  # the commit that it begins at
    share_usd: float = NO_LIMIT  # what it may spend
    share_tokens: float = NO_LIMIT
    lost: bool = False  # its commit is on the branch, and the log lacked it


@dataclass(kw_only=True)
class Failure:
    """The first red check."""

    name: str = ""
    tail: str = ""  # the end of its output
    log: str = ""
    others: list[str] = field(default_factory=list)  # the names of the other red ones


@dataclass(kw_only=True)
class AttemptEnded(Spent, OfTask, event="verdict"):
    """The verdict on an attempt. A pass has landed; only a pass has a `commit`, only
    the others have what is `left`."""

    iteration: int
    attempt: int = 0
    command: str = ""  # the agent, as a person named it
    agent: str = ""  # the row that knows it
    verdict: Verdict
    checks: dict[str, bool] = field(
        default_factory=dict
    )  # which were green, by their commands
    failure: Failure = field(default_factory=Failure)
    judge: Judgement = field(default_factory=Judgement)
    session: str = ""
    reset: float = 0.0
    overage: bool = False
    denials: list[str] = field(default_factory=list)
    uncounted: bool = False  # no agent had started, or a person stopped it
    beside: list[str] = field(default_factory=list)  # checks that are red beside a pass
    not_run: list[str] = field(default_factory=list)  # lines: tests that guard no more
    base: str = ""  # the commit that it began at
    left: str = ""  # the tree of what its agent left
    commit: str = ""  # the candidate, and what lands
    reason: str = ""
    weak: bool = False
    denied: bool = False
    blocked: str = ""  # why the task needs a person
    parked: str = ""  # the ref of work that did not pass
    flaky: list[str] = field(
        default_factory=list
    )  # checks that were red and green on the same files
    tests: list[str] = field(default_factory=list)  # those that it changed
    restored: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    handoff: dict[str, str] = field(default_factory=dict)
    conflict: Conflict = field(default_factory=Conflict)  # what it began with


@dataclass(kw_only=True)
class Waited(Record, event="wait"):
    """The run waits for an agent's provider."""

    until: float = 0.0  # unix time
    backoff: bool = False  # that is a guess
    command: str = ""  # the agent


@dataclass(kw_only=True)
class Rechecked(Record, event="recheck"):
    """All checks were run again on `commit`."""

    ok: bool = False
    commit: str = ""
    checks_digest: str = ""
    broken: list[str] = field(
        default_factory=list
    )  # the keys of tasks whose own checks are red
    since: dict[str, list[str]] = field(
        default_factory=dict
    )  # the commits since each of them passed
    # their red checks, and without a key the first of all
    failures: dict[str, Failure] = field(default_factory=dict)
    flaky: list[str] = field(default_factory=list)
    red: list[str] = field(default_factory=list)  # checks, and how each ended
    old: list[str] = field(default_factory=list)  # old failures of single tests


@dataclass(kw_only=True)
class Retried(OfTask, event="retry"):
    """A person unblocked the task, perhaps with an answer."""

    answer: str = ""


@dataclass(kw_only=True)
class Added(Spent, Record, event="add"):
    """A planner's work."""


@dataclass(kw_only=True)
class Landed(Record, event="land"):
    """A person let the work land."""


@dataclass(kw_only=True)
class Stopped(Record, event="stop"):
    """How a run ended, as in `Stop`."""

    stop: str = ""
    exit: int = 0
    reason: str = ""


def stopped_by(stop: Stop) -> Stopped:
    """The record of a stop."""
    return Stopped(stop=stop.word, exit=int(stop.exit), reason=stop.reason)


def from_json(entry: Json) -> Record:
    """The record of a machine line with a known event. BadInput if a field is missing
    or has a wrong type."""
    try:
        return codec.from_json(KINDS[entry["event"]], entry)
    except ValueError as error:
        why = f"the record {entry['event']} is damaged ({error}); move the file away"
        raise BadInput(f"progress.txt: {why}") from None


def to_json(record: Record) -> Json:
    """What the machine line of a record holds."""
    return {"v": VERSION, "event": record.event, **codec.to_json(record)}


def parse(lines: Iterable[bytes]) -> Iterator[Json]:
    """The machine lines with a known event, oldest first, as JSON objects."""
    for line in lines:
        if match := MACHINE_LINE.fullmatch(line):
            with contextlib.suppress(ValueError, RecursionError):
                entry = json.loads(match[1].decode())
                if entry.get("v") == VERSION and str(entry.get("event")) in KINDS:
                    yield entry
