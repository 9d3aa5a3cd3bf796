"""The records of progress.txt, a dataclass for each kind of event. Their JSON holds only what is not empty,
and is checked when it is read: anybody may have written it."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from _ralph.errors import BadInput
from _ralph.model import Conflict, Json, Judgement, Spent, Verdict, Work, task_key

VERSION = 2
MOST = 10**12
"""Larger numbers are refused: none of them is a time, a price or a count."""
Kind = TypeVar("Kind")
KINDS: dict[str, type[Record]] = {}
"""The classes below, by their events."""


@dataclass(kw_only=True)
class Record:
    """What all have: the unix time, the plan's key, the id of the run that wrote it (empty between runs) and
    its branch. Every default is empty, and what is empty is not written."""

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
    """A record about one task: the id and the title that it had."""

    task: str
    title: str = ""

    @property
    def key(self) -> str:
        """As `Task.key`."""
        return task_key(self.task, self.title)


@dataclass(kw_only=True)
class RunBegan(Record, event="run"):
    """`continues` says that the run before was killed and goes on; `base` is the branch's tip; `limits` are
    those of this run alone, by their names in `Limits`."""

    continues: bool = False
    base: str = ""
    limits: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class AttemptBegan(OfTask, event="start"):
    """`base`, `command`, `leftover` and `conflict` as in `Work`; `id` is random, and stands in the commit
    that lands; the number of the `worker`, if it is not the first."""

    iteration: int
    id: str = ""
    attempt: int = 0
    command: str = ""
    worker: int = 0
    conflict: Conflict = field(default_factory=Conflict)
    base: str = ""
    leftover: str = ""


@dataclass(kw_only=True)
class Failure:
    """The first red check, the end of its output, and its log; the names of the `others`."""

    name: str = ""
    tail: str = ""
    log: str = ""
    others: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class AttemptEnded(Spent, Work, OfTask, event="verdict"):
    """The verdict on an attempt; a pass has landed. `command` is the agent, as a person named it, and
    `agent` the row that knows it. Only a pass has a `commit`, only the others have what is `left`. `checks`
    says which were green; `task_before` is the digest of the task's entry in prd.json at that time."""

    iteration: int
    attempt: int = 0
    command: str = ""
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
    task_before: str = ""


@dataclass(kw_only=True)
class Waited(Record, event="wait"):
    """For the provider of the agent `command`, until a unix time; `backoff` if that is a guess."""

    until: float = 0.0
    backoff: bool = False
    command: str = ""


@dataclass(kw_only=True)
class Rechecked(Record, event="recheck"):
    """All checks, with the digest `checks_digest`, were run again on `commit`: the keys of the tasks that are
    `broken`, for each of them its red check (`failures`) and the commits `since` it passed; the names of the
    checks that are `flaky`."""

    ok: bool = False
    commit: str = ""
    checks_digest: str = ""
    broken: list[str] = field(default_factory=list)
    since: dict[str, list[str]] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    flaky: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Retried(OfTask, event="retry"):
    """A person unblocked the task, perhaps with an answer."""

    answer: str = ""


@dataclass(kw_only=True)
class Added(Spent, Record, event="add"):
    """A planner's work: `prd` is the digest of the plan that it wrote, if it did."""

    prd: str = ""


@dataclass(kw_only=True)
class Landed(Record, event="land"):
    """A person let the work land: their branch `onto` is at `commit`."""

    onto: str = ""
    commit: str = ""


@dataclass(kw_only=True)
class Stopped(Record, event="stop"):
    """How a run ended, as in `Stop`; `unmarked` are the keys of tasks whose marks it could not write."""

    stop: str = ""
    exit: int = 0
    reason: str = ""
    unmarked: list[str] = field(default_factory=list)


def from_json(found: Json) -> Record:
    """The record of a machine line with a known event. Unknown fields are ignored, and null is as if the
    field were missing. BadInput if a field is missing or has a wrong type."""
    try:
        return made(KINDS[found["event"]], found)
    except ValueError as error:
        iteration = found.get("iteration")
        where = f" of iteration {iteration}" if type(iteration) is int else ""
        raise BadInput(
            f"progress.txt: the record {found['event']}{where} is damaged ({error}); move the file away"
        ) from None


def to_json(record: Record) -> Json:
    """What the machine line of a record holds."""
    return {"v": VERSION, "event": record.event, **as_json(record)}


def made(kind: type[Kind], found: object) -> Kind:
    """The dataclass `kind` of a JSON object; ValueError names the field that is wrong."""
    readers, _, needed = _fields(kind)  # type: ignore[arg-type]  # a class can be hashed
    given: Json = {}
    for name, value in _exactly(dict, found).items():
        if name in readers and value is not None:
            try:
                given[name] = readers[name](value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    if missing := needed - given.keys():
        raise ValueError(f"no {min(missing)}")
    return kind(**given)


def as_json(value: Any) -> Any:
    """A dataclass as a JSON object for `made`, without the fields that are as by default. Numbers are capped:
    some come from agents."""
    if is_dataclass(value):
        defaults = _fields(value.__class__)[1]
        parts = {name: getattr(value, name) for name in defaults}
        return {name: as_json(part) for name, part in parts.items() if part != defaults[name]}
    if isinstance(value, list):
        return [as_json(one) for one in value]
    if isinstance(value, dict):
        return {key: as_json(one) for key, one in value.items()}
    if type(value) in (int, float):
        return min(value, MOST)
    return str(value) if isinstance(value, Path) else value


@functools.cache
def _fields(kind: Any) -> tuple[dict[str, Callable[[Any], Any]], Json, set[str]]:
    """A reader and the default for each field; the names of those that are required. Cached: a file can hold
    many thousand records."""
    hints, defaults = get_type_hints(kind), {}
    for one in fields(kind):
        defaults[one.name] = one.default if one.default_factory is MISSING else one.default_factory()
    needed = {name for name, default in defaults.items() if default is MISSING}
    return {name: _reader(hints[name]) for name in defaults}, defaults, needed


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Makes a value of this type from its JSON; ValueError for any other."""
    if type(None) in get_args(hint):
        return _reader(get_args(hint)[0])
    if isinstance(hint, type) and is_dataclass(hint):
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


def _exactly(kind: type[Kind], value: object) -> Kind:
    if not isinstance(value, kind):
        raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


def _number(kind: Any, value: Any) -> Any:
    least = -MOST if kind is int else 0  # an exit status can be below zero
    if type(value) not in (kind, int) or not least <= value <= MOST:
        raise ValueError(f"expected a number from {least} to {MOST}")
    return value
