"""The terms: plans, tasks, checks, attempts, and what is spent on them."""

from __future__ import annotations

import enum
import functools
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from _ralph.errors import BadInput


class Verdict(enum.StrEnum):
    """What ralph says of one attempt."""

    PASSED = "passed"
    FAILED = "failed"
    NO_OP = "no-op"
    TIMED_OUT = "timed-out"
    LIMITED = "limited"
    UNAVAILABLE = "unavailable"
    INTERRUPTED = "interrupted"
    CONFLICT = "conflict"
    SET_ASIDE = "set-aside"


NO_LIMIT = float("inf")
COUNTED = frozenset({Verdict.FAILED, Verdict.NO_OP, Verdict.TIMED_OUT})
"""The verdicts that use up one of a task's attempts."""


Json = dict[str, Any]
"""A JSON object from outside, or for it."""
Finding = tuple[str, str]
"""What was found, and what to do about it, in lines, and before them how much that
matters: `say`, `note`, `old` or `way` from the opening of a run, `ok`, `now`, `warning`,
`error` or `trying` from doctor alone."""
Findings = Iterable[Finding]


class Check(NamedTuple):
    """A command whose exit status 0 means green."""

    name: str
    run: str | tuple[str, ...]  # for the shell, or words to execute
    timeout: float = 600.0  # seconds
    once: bool = False  # in attempts only, not in a re-check or in `land`
    results: str = ""  # the format in which it reports single tests, if it does: junit
    starts_red: bool = False  # the plan is to mend it

    @property
    def command(self) -> str:
        """The command as a person would type it; also what makes two checks the
        same."""
        return self.run if isinstance(self.run, str) else shlex.join(self.run)


class Setup(NamedTuple):
    """The command that makes a checkout ready."""

    run: str
    when: tuple[
        str, ...
    ] = ()  # patterns of the files that it depends on; without, all do


def task_key(task_id: object, title: object) -> str:
    """The `Task.key` of a task with this id and title."""
    return f"{task_id}\n{title}"


class TaskLimits(NamedTuple):
    """What all attempts at one task may take together, until it is retried."""

    usd: float = NO_LIMIT
    minutes: float = NO_LIMIT  # of agents, checks and the judge
    attempts: float = NO_LIMIT


_NO_LIMITS = TaskLimits()


@dataclass(frozen=True)
class Task:
    """One entry of the plan's list, whatever dialect the file is written in."""

    id: str
    title: str
    index: int
    raw: Json
    criteria: tuple[str, ...] = ()
    priority: float = NO_LIMIT  # last
    depends_on: tuple[str, ...] = ()
    passed: bool = False
    blocked: str | None = None
    checks: tuple[Check, ...] = ()
    allow: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    limits: TaskLimits = _NO_LIMITS

    @property
    def key(self) -> str:
        """What history is counted by: a task whose title changed is another task."""
        return task_key(self.id, self.title)

    @property
    def is_blocked(self) -> bool:
        """Whether a person is needed before it can be worked on."""
        return self.blocked is not None and not self.passed


@dataclass(frozen=True)
class Plan:
    """prd.json as read."""

    path: Path
    text: str  # the file
    data: Any  # the JSON in it; the rest is its meaning
    list_key: str | None  # of the list of tasks; None, if that is the whole document
    tasks: tuple[Task, ...]
    project: str
    branch: str | None = None
    checks: tuple[Check, ...] = ()
    setup: Setup | None = None
    settings: Json = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What history is counted by: this file, beside its progress.txt, and its
        branchName."""
        return f"{self.path.name}@{self.branch or ''}"

    @property
    def top(self) -> Json:
        """What stands beside the list of tasks; nothing, where that is the whole
        document."""
        return self.data if isinstance(self.data, dict) else {}

    @property
    def protected(self) -> list[str]:
        """The patterns of files that an attempt may not change, unless its task allows
        it; with any, also what decides how files are checked out."""
        named = list(self.settings.get("protect", []))
        return [*named, ".gitattributes", ".gitmodules"] if named else []

    @functools.cached_property
    def passed_ids(self) -> frozenset[str]:
        """The ids of the tasks that have passed, for dependencies."""
        return frozenset(task.id for task in self.tasks if task.passed)

    def checks_for(self, task: Task, more: Iterable[Check] = ()) -> list[Check]:
        """The program of a task, in order and without duplicates: the plan's checks,
        `more`, its own."""
        return _distinct([*self.checks, *more, *task.checks])

    @property
    def every_check(self) -> list[Check]:
        """All checks that must hold at the plan's end (not `once`), without
        duplicates."""
        every = [*self.checks, *(check for task in self.tasks for check in task.checks)]
        return _distinct(check for check in every if not check.once)

    @property
    def checks_of_passed(self) -> list[Check]:
        """Those of them that must be green now: the plan's, and those of each passed
        task."""
        passed = tuple(task for task in self.tasks if task.passed)
        return replace(self, tasks=passed).every_check

    def task_with(self, key: str) -> Task | None:
        """The task with this `Task.key`, if it is still there."""
        return next((task for task in self.tasks if task.key == key), None)

    def task(self, task_id: str) -> Task:
        """The task with this id; BadInput with the known ids if there is none."""
        for task in self.tasks:
            if task.id == task_id:
                return task
        known = ", ".join(task.id for task in self.tasks[:12])
        raise BadInput(
            f"{self.path.name}: there is no task {task_id!r}; the tasks are {known}"
        )


def _distinct(checks: Iterable[Check]) -> list[Check]:
    """One check of each command: the last, as a task's own may have more time, in the
    first one's place."""
    return list({check.command: check for check in checks}.values())


@dataclass
class SingleTests:
    """What a check reported of single tests, by their names. `failed` has what each
    failure says; `uncollected` are those of them that stand for a file or package that
    could not be loaded; `unread` is why nothing could be read, in words."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    unread: str = ""
    uncollected: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [*self.passed, *self.failed, *self.skipped]


@dataclass
class CheckResult:
    """One check, run once."""

    name: str
    command: str
    ok: bool
    exit: int | None = None
    seconds: float = 0.0
    tail: str = ""  # the end of its output
    log: str = ""  # the file with all of it
    timed_out: bool = False
    recalled: bool = False  # not run again on the same files
    tests: SingleTests | None = None  # where it reports single tests
    said: str = ""  # its outcome in words, where single tests decide it

    @property
    def is_sound(self) -> bool:
        """Whether it is green, or red by single tests alone, which explain its exit
        status; where none passed, it is red as a whole."""
        if self.ok or self.tests is None or self.timed_out:
            return self.ok
        return bool(self.tests.passed and self.tests.failed)

    @property
    def outcome(self) -> str:
        if self.said:
            how = self.said
        elif self.ok:
            how = "passed"
        elif self.timed_out:
            how = "timed out"
        else:
            how = f"failed with exit {self.exit}"
        took = "as before" if self.recalled else f"{self.seconds:.1f} s"
        return f"{how} ({took})"


@dataclass
class Tokens:
    """What agents sent and got."""

    input: int = 0
    output: int = 0
    cached: int = 0  # the part of `input` that came from a cache

    @property
    def total(self) -> int:
        return self.input + self.output

    def add(self, other: Tokens) -> None:
        self.input += other.input
        self.output += other.output
        self.cached += other.cached


@dataclass(kw_only=True)
class Spent:
    """What was spent, as agents reported it."""

    usd: float = 0.0
    at_least: bool = False  # one was cut off before it could report all
    tokens: Tokens = field(default_factory=Tokens)
    seconds: float = 0.0  # of agents and checks

    def add(self, other: Spent) -> None:
        self.usd += other.usd
        self.at_least = self.at_least or other.at_least
        self.tokens.add(other.tokens)
        self.seconds = round(self.seconds + other.seconds, 3)  # 0.1 + 0.2 is 0.3


class Outcome(enum.StrEnum):
    """How an agent process ended, read from its own final event, never from its
    words."""

    DONE = "done"
    FAILED = "failed"
    LIMITED = "limited"
    UNAVAILABLE = "unavailable"
    TIMED_OUT = "timed-out"
    INTERRUPTED = "interrupted"


@dataclass
class AgentResult:
    """What one agent process did."""

    outcome: Outcome
    reason: str = ""
    text: str = ""
    session: str | None = None
    usd: float | None = None  # None: it reported no dollars
    at_least: bool = False  # cut off before it could report all that it used
    no_price: str = ""  # a sentence, if it did not report what is limited
    tokens: Tokens = field(default_factory=Tokens)
    reset: float = 0.0  # the unix time at which the provider's limit ends, if known
    overage: bool = False  # the provider bills extra usage until then
    denials: list[str] = field(default_factory=list)
    never: str = ""  # why no attempt can end well
    seconds: float = 0.0
    active: bool = False
    survivors: list[int] = field(default_factory=list)


def spent_on(
    results: Sequence[AgentResult], checks: Sequence[CheckResult] = ()
) -> Spent:
    """What agents and checks took together."""
    total = Spent(seconds=sum(check.seconds for check in checks))
    for result in results:
        total.usd += result.usd or 0.0
        total.at_least = total.at_least or result.at_least
        total.tokens.add(result.tokens)
        total.seconds += result.seconds
    total.seconds = round(total.seconds, 1)
    return total


class Share(NamedTuple):
    """What an attempt may spend of the limits, in dollars, tokens and seconds."""

    usd: float = NO_LIMIT
    tokens: float = NO_LIMIT
    seconds: float = NO_LIMIT

    def without(self, spent: Spent) -> Share:
        """What is left of it: never nothing, which would be no share."""
        return Share(
            max(self.usd - spent.usd, 0.01),
            max(self.tokens - spent.tokens.total, 1),
            max(self.seconds - spent.seconds, 1.0),
        )


@dataclass(kw_only=True)
class Judgement(Spent):
    """What the judge said of an attempt, and what that took."""

    agent: str = ""
    row: str = ""
    overage: bool = False  # as in `AgentResult`, of the row's provider
    reset: float = 0.0
    agrees: bool = False
    objections: list[str] = field(
        default_factory=list
    )  # criteria that are not met, with reasons


@dataclass(kw_only=True)
class Conflict:
    """What of a task's work conflicts with what landed meanwhile."""

    marked: list[str] = field(default_factory=list)  # files with git's conflict markers
    kept: list[str] = field(
        default_factory=list
    )  # files that stand as the branch has them
    own: str = ""  # the commit of the task's own version


HANDOFF = ".ralph-handoff.md"
"""The file at the top of a workspace in which an agent writes what the next one should
know. It is not below `.git`, where some agents' own sandboxes let nobody write."""
RESULTS = ".ralph-results"
"""Where an agent's own runs of the checks report single tests, beside the handoff."""
LEFT_OUT = (HANDOFF, RESULTS)
"""What no work holds."""


class Paths(NamedTuple):
    """Where everything of one plan lies."""

    root: Path  # home: the top of the working tree
    prd: Path
    progress: Path
    rulebook: Path
    logs: Path  # in `.ralph` beside prd.json
    private: Path  # in git's own folder
    places: Path  # outside of home: the folders in which agents and checks work

    @property
    def report(self) -> Path:
        return self.logs.with_name("report.html")

    def workspace(self, number: int = 1) -> Path:
        """Where the agent of the loop of this number works."""
        return self.places / f"work-{number}"

    @property
    def rooms(self) -> list[Path]:
        """The clean room under all its names that are there, the newest last: more than
        one while the branch is checked once more. A new one has a new name, as tools
        keep things elsewhere by the path."""
        return sorted(self.places.glob("room-*"), key=_number_of)

    @property
    def room(self) -> Path:
        """The clean room."""
        rooms = self.rooms
        return rooms[-1] if rooms else self.places / "room-1"

    @property
    def next_room(self) -> Path:
        """The name of the next clean room."""
        rooms = self.rooms
        number = _number_of(rooms[-1]) + 1 if rooms else 1
        return self.places / f"room-{number}"

    @property
    def landing(self) -> Path:
        """Where `ralph land` checks; it is there only meanwhile."""
        return self.places / f"land-{os.getpid()}"

    @property
    def role(self) -> Path:
        """Where a judge or a planner reads."""
        return self.places / "role"

    def index_of(self, place: Path) -> Path:
        """Git's index of a place; what is noted of that stands beside it."""
        return self.private / f"{place.name}.index"

    def handoff(self, number: int = 1) -> Path:
        """Where the agent of a loop writes what the next one should know."""
        return self.workspace(number) / HANDOFF

    def results(self, number: int) -> Path:
        """Where what that agent runs reports single tests."""
        return self.workspace(number) / RESULTS


def _number_of(room: Path) -> int:
    number = room.name.partition("-")[2]
    return int(number) if number.isdecimal() else 0
