"""The records of progress.txt, a class for each kind of event: read from JSON that anybody may have
written, and written as JSON that says only what is not empty."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from _ralph.errors import BadInput
from _ralph.model import Judgement, Price, Spent, Verdict, Work, task_key

VERSION = 2
MOST = 10**12
"""More than that is no time, no price and no count."""
KINDS: dict[str, type[Record]] = {}
"""The classes below, by their events."""


@dataclass(kw_only=True)
class Record:
    """What all have: the unix time, the plan's key, the run that wrote it (none between runs); `branch` is
    the one that was worked on, where it is told. Every default is empty, and what is empty is not written."""

    event: ClassVar[str]
    time: float = 0.0
    plan: str = ""
    run: str = ""
    branch: str = ""

    def __init_subclass__(cls, event: str = "") -> None:
        if event:
            cls.event, KINDS[event] = event, cls


@dataclass(kw_only=True)
class OfTask(Record):
    """A record of one task, by the id and the title that it had."""

    task: str
    title: str = ""

    @property
    def key(self) -> str:
        """As `Task.key`."""
        return task_key(self.task, self.title)


@dataclass(kw_only=True)
class RunBegan(Record, event="run"):
    """`baseline` says of the plan's checks which were green before the work, `baselined` that they were
    looked at, `continues` that the run before was cut off and goes on; `base` is the branch's tip; `limits`
    are those that only this run was given, by the names in `Limits`."""

    baseline: dict[str, bool] = field(default_factory=dict)
    baselined: bool = False
    continues: bool = False
    base: str = ""
    limits: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class AttemptBegan(OfTask, event="start"):
    """The commit `base`, where it begins; `command` and `leftover` as in `Work`; the number of the `worker`,
    if it is not the first, and the prefix behind which it works, if it does so elsewhere."""

    iteration: int
    attempt: int = 0
    command: str = ""
    worker: int = 0
    launch: str = ""
    base: str = ""
    leftover: str = ""


@dataclass(kw_only=True)
class Failure:
    """The first red check, the end of its output and the file with all of it; the names of the `others`."""

    name: str = ""
    tail: str = ""
    log: str = ""
    others: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class AttemptEnded(Spent, Price, Work, OfTask, event="verdict"):
    """The verdict on an attempt, the one commit point. Only a pass has a `commit`, and only the others have
    what is `left`. `checks` says which were green; `prd_before` is the digest of the plan it was given on."""

    iteration: int
    attempt: int = 0
    agent: str = ""
    verdict: Verdict
    checks: dict[str, bool] = field(default_factory=dict)
    failure: Failure = field(default_factory=Failure)
    judge: Judgement = field(default_factory=Judgement)
    session: str = ""
    exit: int = 0
    reset: float = 0.0
    overload: str = ""
    overage: bool = False
    denials: list[str] = field(default_factory=list)
    prd_before: str = ""

    @property
    def lands(self) -> bool:
        """Whether it is a pass that ends on the branch; those of a ralph that worked in place did not."""
        return self.verdict is Verdict.PASSED and bool(self.commit)


@dataclass(kw_only=True)
class Waited(Record, event="wait"):
    """For the provider of the agent `command`, until a unix time; `backoff` where none was told."""

    until: float = 0.0
    backoff: bool = False
    command: str = ""


@dataclass(kw_only=True)
class Rechecked(Record, event="recheck"):
    """All checks once more on `commit`, those with the digest `checks_digest`: the keys of the tasks that
    were found `broken`, and the commits `since` each had passed."""

    ok: bool = False
    commit: str = ""
    checks_digest: str = ""
    broken: list[str] = field(default_factory=list)
    since: dict[str, list[str]] = field(default_factory=dict)


@dataclass(kw_only=True)
class Retried(OfTask, event="retry"):
    """A person opened the task again, and may have said something."""

    answer: str = ""


@dataclass(kw_only=True)
class Added(Spent, Record, event="add"):
    """A planner's work: `prd` is the digest of the plan that came of it, if one did."""

    prd: str = ""


@dataclass(kw_only=True)
class Landed(OfTask, event="land"):
    """What passed was put on a tip that had moved, checked there again, and landed as `commit`."""

    iteration: int = 0
    commit: str = ""


@dataclass(kw_only=True)
class Stopped(Record, event="stop"):
    """How a run ended, as in `Stop`."""

    stop: str = ""
    exit: int = 0
    reason: str = ""


def from_json(found: dict[str, Any]) -> Record:
    """The record that a machine line of a known event says. What a newer ralph added is passed over, null
    is as if it were not there. BadInput where something is missing, or nobody could print or count it."""
    try:
        record: Record = made(KINDS[found["event"]], found)
    except ValueError as error:
        iteration = found.get("iteration")
        where = f" of iteration {iteration}" if type(iteration) is int else ""
        raise BadInput(
            f"progress.txt: the record {found['event']}{where} is damaged ({error}); move the file away"
        ) from None
    return record


def to_json(record: Record) -> dict[str, Any]:
    """What the machine line of a record holds."""
    return {"v": VERSION, "event": record.event, **_said(record)}


def made(kind: Any, found: Any) -> Any:
    """The dataclass `kind` of a JSON object; ValueError names the field that is wrong."""
    readers, needed, nullable = _fields(kind)
    given: dict[str, Any] = dict.fromkeys(nullable & needed)
    for name, value in _exactly(dict, found).items():
        if name in readers and value is not None:
            try:
                given[name] = readers[name](value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    if missing := needed - given.keys():
        raise ValueError(f"no {min(missing)}")
    return kind(**given)


def _said(part: Any) -> dict[str, Any]:
    """A dataclass as a JSON object that `made` can read: numbers that an agent made up are cut."""
    readers, needed, _ = _fields(part.__class__)
    said = {}
    for name in readers:
        value = getattr(part, name)
        if is_dataclass(value):
            value = _said(value)
        elif type(value) in (int, float):
            value = min(value, MOST)
        if value or name in needed:
            said[name] = value
    return said


@functools.cache
def _fields(kind: Any) -> tuple[dict[str, Callable[[Any], Any]], set[str], set[str]]:
    """What reads the JSON of each field, the names of those that must be there, and of those that may be
    None. Made once for each kind, for a file can hold many thousand records."""
    hints = get_type_hints(kind)
    needed = {one.name for one in fields(kind) if one.default is one.default_factory}  # neither is there
    nullable = {name for name, hint in hints.items() if type(None) in get_args(hint)}
    return {one.name: _reader(hints[one.name]) for one in fields(kind)}, needed, nullable


def _reader(hint: Any) -> Callable[[Any], Any]:
    """What makes a value of this type of its JSON, with a ValueError for any other."""
    if type(None) in get_args(hint):
        return _reader(get_args(hint)[0])
    if is_dataclass(hint):
        return functools.partial(made, hint)
    if hint is Path:
        return lambda value: _path(_exactly(str, value))
    if get_origin(hint) is list:
        entry = _reader(get_args(hint)[0])
        return lambda value: [entry(one) for one in _exactly(list, value)]
    if get_origin(hint) is dict:
        entry = _reader(get_args(hint)[1])
        return lambda value: {
            key: entry(one) for key, one in _exactly(dict, value).items() if one is not None
        }
    if issubclass(hint, enum.Enum):
        return lambda value: hint(_exactly(str, value))
    return functools.partial(_number if hint in (int, float) else _exactly, hint)


def _path(value: str) -> Path:
    if "\0" in value:
        raise ValueError("expected a path, found a null character")
    return Path(value)


def _exactly(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


def _number(kind: Any, value: Any) -> Any:
    least = -MOST if kind is int else 0  # an exit status can be below zero
    if type(value) not in (kind, int) or not least <= value <= MOST:
        raise ValueError(f"expected a number from {least} to {MOST}")
    return value
