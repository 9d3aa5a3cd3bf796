"""progress.txt: its records, a dataclass for each kind of event, and the file, to which
they are appended durably and which is never rewritten."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from _ralph import files, text
from _ralph.codec import as_json, made
from _ralph.errors import BadInput
from _ralph.model import Json, Judgement, Plan, Spent, Verdict, Work, task_key

VERSION = 2
KINDS: dict[str, type[Record]] = {}
"""The classes below, by their events."""
_RECORD = re.compile(rb"<!-- ralph (\{.*\}) -->\r?\n?")
_HEADER = re.compile(rb"## \d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*\|")
_CUT_OFF = b"    | (the record above was cut off)\n"


@dataclass(kw_only=True)
class Record:
    """What all have. Every default is empty, and what is empty is not written."""

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
    worker: int = 0  # the number of its loop, if it is not the first
    base: str = ""  # the commit that it begins at
    share_usd: float | None = None  # what it may spend
    share_tokens: int | None = None
    lost: bool = False  # its commit is on the branch, and the log lacked it


@dataclass(kw_only=True)
class Failure:
    """The first red check."""

    name: str = ""
    tail: str = ""  # the end of its output
    log: str = ""
    others: list[str] = field(default_factory=list)  # the names of the other red ones


@dataclass(kw_only=True)
class AttemptEnded(Spent, Work, OfTask, event="verdict"):
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
    exit: int = 0
    reset: float = 0.0
    overage: bool = False
    denials: list[str] = field(default_factory=list)
    uncounted: bool = False  # no agent had started, or a person stopped it
    beside: list[str] = field(default_factory=list)  # checks that are red beside a pass
    task_before: str = ""  # the digest of the task's entry in prd.json at that time


@dataclass(kw_only=True)
class Waited(Record, event="wait"):
    """The run waits for an agent's provider."""

    until: float = 0.0  # unix time
    backoff: bool = False  # that is a guess
    command: str = ""  # the agent
    reason: str = ""  # where it is not for an agent


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
    failures: dict[str, Failure] = field(default_factory=dict)  # their red checks
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

    prd: str = ""  # the digest of the plan that it wrote, if it did


@dataclass(kw_only=True)
class Landed(Record, event="land"):
    """A person let the work land."""

    onto: str = ""  # their branch
    commit: str = ""


@dataclass(kw_only=True)
class Stopped(Record, event="stop"):
    """How a run ended, as in `Stop`."""

    stop: str = ""
    exit: int = 0
    reason: str = ""


def from_json(entry: Json) -> Record:
    """The record of a machine line with a known event. BadInput if a field is missing
    or has a wrong type."""
    try:
        return made(KINDS[entry["event"]], entry)
    except ValueError as error:
        iteration = entry.get("iteration")
        where = f" of iteration {iteration}" if type(iteration) is int else ""
        raise BadInput(
            f"progress.txt: the record {entry['event']}{where} is damaged ({error}); move the file away"
        ) from None


def to_json(record: Record) -> Json:
    """What the machine line of a record holds."""
    return {"v": VERSION, "event": record.event, **as_json(record)}


# ---------------------------------------------------------------- the file


class Journal:
    """progress.txt. People may edit it; agents only see a copy."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> list[str]:
        """Terminate a record that was cut off; a line about it. BadInput if it is no
        file."""
        self.require_file()
        torn = False
        for line in self._lines():
            if _HEADER.match(line):
                torn = True
            elif line == _CUT_OFF or _RECORD.fullmatch(line):
                torn = False
        if torn:
            files.append(self.target, b"\n" + _CUT_OFF)
        return ["a record in progress.txt was cut off; its text was kept"] * torn

    def require_file(self) -> None:
        """BadInput if there is something that is no file."""
        if os.path.lexists(self.target) and files.read_regular(self.target, 0) is None:
            raise BadInput(f"{self.path} is not a regular file; move it away")

    def records(self, plan: Plan) -> Iterator[Record]:
        """The records of a plan, oldest first, as they are read: the file can be larger
        than the memory. Other text is ignored; BadInput for a damaged record, and for a
        plan that only version 0.2 has worked.
        """
        ours, others = False, set()
        for entry in parse(self._lines()):
            if entry.get("plan") == plan.key:
                ours = True
                yield from_json(entry)
            else:
                others.add(str(entry.get("plan")))
        if not ours:
            self.require_not_0_2(plan, others)

    def require_not_0_2(self, plan: Plan, keys: Collection[str]) -> None:
        """BadInput if only version 0.2 has worked a plan, of which the file has no
        record: `keys` are those of the plans that it has records of."""
        # 0.2 wrote the project's name in place of the file's.
        if f"{plan.project}@{plan.branch or ''}" in keys:
            raise BadInput(
                f"{self.path.name} was written by version 0.2; "
                f"finish that plan with 0.3, or move {self.path.name} away"
            )

    def whole_lines(self, start: int) -> tuple[list[bytes], int]:
        """The lines from this byte on that are whole, and where the next one begins."""
        file = files.open_regular(self.target)
        if file is None:
            return [], start
        with file:
            file.seek(start)
            data = file.read()
        end = data.rfind(b"\n") + 1
        return [line + b"\n" for line in data[:end].split(b"\n")[:-1]], start + end

    def _lines(self) -> Iterator[bytes]:
        """The lines of the file with their ends."""
        file = files.open_regular(self.target)
        if file is not None:
            with file:
                yield from file

    def append(
        self, record: Record, headline: str, lines: Sequence[str] = ()
    ) -> Record:
        """Append a record with the current time, in one write, and fsync it; the record
        as it will be read. OSError if it could not be made durable; BadInput, before
        anything is written, if it could not be read again."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S %z")
        head = f"## {stamp[:-2]}:{stamp[-2:]} | {text.one_line(headline, 300)}"
        machine = json.dumps(
            to_json(replace(record, time=round(time.time(), 3))), ensure_ascii=True
        )
        as_read = from_json(json.loads(machine))
        lines = [line.replace("\n", " ").replace("\r", " ") for line in lines]
        shown = machine.replace("<", "\\u003c").replace(">", "\\u003e")
        block = "\n".join(["", head, *lines, f"<!-- ralph {shown} -->", ""]).encode(
            "utf-8", "replace"
        )
        files.append(self.target, block)
        return as_read

    @property
    def target(self) -> Path:
        """The file itself: `path` may be a person's link to it."""
        return Path(os.path.realpath(self.path))


def parse(lines: Iterable[bytes]) -> Iterator[Json]:
    """The machine lines with a known event, oldest first, as JSON objects."""
    for line in lines:
        if match := _RECORD.fullmatch(line):
            with contextlib.suppress(ValueError, RecursionError):
                entry = json.loads(match[1].decode())
                if entry.get("v") == VERSION and str(entry.get("event")) in KINDS:
                    yield entry
