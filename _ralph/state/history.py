"""The records of progress.txt folded into the state of a plan, its tasks and its run;
and handoffs."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from _ralph import text
from _ralph.model import COUNTED, Plan, Spent, Task, Verdict
from _ralph.state import records

NEVER = float("inf")
_NO_RESET = 1800.0  # seconds for which extra usage is billed, if its reset is not known
RETRY_LOGIN = 60.0
"""Seconds after which an agent that worked in this run, and was then refused its login,
is tried once more: another program may have won a race for its token."""
_NO_ANSWER = (Verdict.LIMITED, Verdict.UNAVAILABLE, Verdict.INTERRUPTED)
LABELS = ("learned", "ruled out", "question", "next step")
"""The parts of a handoff that later attempts or people are told."""
_LABEL = re.compile(
    rf"[\s>*`-]*(\d+\.\s*)?(?P<heading>\#+\s*)?[*`]*(?P<label>{'|'.join(LABELS)})[\s*`]*"
    r"(?P<colon>:[\s*`]*)?(?P<rest>.*)",
    re.IGNORECASE,
)


class Unavailable(NamedTuple):
    """Why and until when an agent cannot be used."""

    since: float = 0.0  # the unix time at which that became known
    # The unix time at which it ends; NEVER: not in this run; 0: nobody knows
    reset: float = 0.0
    # How many in a row had no answer: the more, the later it is tried again
    tries: int = 0
    reason: str = ""


@dataclass
class RunHistory(Spent):
    """What is counted for one run; `seconds` is how long it took."""

    first: int = 0  # the number of the last iteration before it
    iterations: int = 0
    passed: int = 0
    blocked_in_a_row: int = 0
    denied: list[str] = field(
        default_factory=list
    )  # tasks whose agents were denied what they needed
    away: dict[str, Unavailable] = field(
        default_factory=dict
    )  # by the commands of agents
    waited: records.Waited = field(
        default_factory=records.Waited
    )  # the last wait for one of them
    worked: set[str] = field(default_factory=set)  # commands whose login held last
    vain: int = 0  # the waits in a row that did not help
    commit: str = ""  # where its last pass left the branch
    set_aside: dict[str, str] = field(default_factory=dict)  # tasks, and why


def _none() -> records.AttemptEnded:
    """What stands for a verdict where there is none."""
    return records.AttemptEnded(task="", iteration=0, verdict=Verdict.INTERRUPTED)


@dataclass
class TaskHistory(Spent):
    """What the records say about one task."""

    attempts: int = 0  # those that use up its limit, since the last `retry` or pass
    tried: int = 0  # all that ended with a verdict on the work
    since: Spent = field(default_factory=Spent)  # what its own limits count, since then
    last: records.AttemptEnded | None = None  # the newest attempt that counts
    newest: records.AttemptEnded = field(default_factory=_none)  # or does not
    passed: records.AttemptEnded = field(default_factory=_none)  # its last pass
    holds: bool = False  # nothing took the pass away since
    ruled_out: list[str] = field(default_factory=list)
    answered: str = ""  # the question that a person answered
    answer: str = ""
    set_back: int = 0  # how often later work broke it
    reopened: int = 0  # how often a person opened it again
    interrupted: int = 0  # how often in a row

    @property
    def blocked(self) -> bool:
        """Whether its last attempt was the last for now."""
        return bool(self.last and self.last.blocked)

    @property
    def conflicted(self) -> bool:
        """Whether its last attempt conflicted with what had landed meanwhile."""
        return bool(self.last and self.last.verdict is Verdict.CONFLICT)

    @property
    def question(self) -> str:
        """The question of its last attempt to a person, if any."""
        handoff = self.last.handoff if self.last else {}
        return handoff.get("question") or handoff.get("blocked on", "")  # as in 0.3

    @property
    def parked(self) -> str:
        """Where the work of its last attempt is parked, if it is."""
        return self.last.parked if self.last else ""

    @property
    def unfinished(self) -> records.AttemptEnded:
        """The attempt whose work (`left`, on `base`, with a `conflict`) the next one
        begins with."""
        newest = self.newest
        return newest if newest.left and newest.base and not newest.parked else _none()

    @property
    def passed_words(self) -> str:
        """How it passed: by a verdict, or by a person's edit."""
        if self.passed.iteration:
            return f"passed at iteration {self.passed.iteration}"
        return "was marked as passed"

    def start_anew(self) -> None:
        """Set the attempts and what its own limits count to zero. What was spent and
        ruled out stays."""
        self.attempts = self.interrupted = 0
        self.last = None
        self.newest = _none()
        self.since = Spent()
        self.answered = self.answer = ""


@dataclass
class History(Spent):
    """The state of a plan, from its records alone: `apply` is called for each."""

    last: records.Record | None = None
    branch: str = ""  # on which its work landed last
    iteration: int = 0
    tasks: defaultdict[str, TaskHistory] = field(
        default_factory=lambda: defaultdict(TaskHistory)
    )
    learned: list[str] = field(default_factory=list)
    open_starts: dict[int, records.AttemptBegan] = field(
        default_factory=dict
    )  # attempts under way
    begun: set[str] = field(default_factory=set)  # the ids of all attempts
    run: records.RunBegan | None = None  # of the one that has not stopped, the last
    stopped: records.Stopped | None = None
    this_run: RunHistory = field(default_factory=RunHistory)
    counted_run: str = ""  # its id
    limits: dict[str, float] = field(default_factory=dict)  # of this run alone
    recheck: records.Rechecked | None = None  # the last final check
    reopened: int = 0  # how often people opened tasks again
    unchecked: int = 0  # the passes since the last re-check
    overage: dict[str, Unavailable] = field(
        default_factory=dict
    )  # who bills extra usage, by rows
    dearest: defaultdict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # dollars of one attempt
    largest: Spent = field(default_factory=Spent)  # what attempts took at most

    def apply(self, record: records.Record) -> None:
        """Take in the next record of the plan."""
        if self.run is None and isinstance(record, records.AttemptEnded):
            # of an attempt that another run began, before this one has its record
            if record.run != self.counted_run:
                self.this_run = RunHistory(first=self.iteration)
                self.counted_run = record.run
        self.this_run.seconds = round(self.this_run.seconds + self._lasted(record), 3)
        match record:
            case records.RunBegan():
                self._run(record)
            case records.AttemptBegan():
                self._start(record)
            case records.AttemptEnded():
                self._verdict(record)
            case records.Waited():
                self.this_run.waited = record
                self.this_run.vain += record.backoff
            case records.Rechecked():
                self._recheck(record)
            case records.Retried():
                self.reopen(record)
                self.this_run.blocked_in_a_row = 0
            # the tasks are in prd.json; the cost of the planner is the plan's
            case records.Added():
                self.add(record)
            case records.Stopped():
                self.run, self.stopped = None, record
        self.last = record
        self.branch = (record.branch or self.branch).removeprefix("refs/heads/")

    def _lasted(self, record: records.Record) -> float:
        """The seconds from the last record to this one, if a loop worked or waited
        meanwhile: nobody knows for how long a run that was killed went on."""
        if self.last is None or record.run != self.last.run:
            return 0.0
        return max(record.time - self.last.time, 0.0)

    def of(self, task: Task | records.OfTask) -> TaskHistory:
        return self.tasks[task.key]

    def holds(self, task: Task) -> bool:
        """Whether a verdict says that it passed by all of its checks, and nothing took
        that away since."""
        history = self.of(task)
        commands = {check.command for check in task.checks}
        proved = commands <= history.passed.checks.keys()
        return bool(history.holds and history.passed.commit and proved)

    def opened(self, plan: Plan) -> list[records.Retried]:
        """Records of the tasks that a person unblocked, where there is none yet."""
        found = []
        for task in plan.tasks:
            is_open = task.blocked is None and not task.passed
            if is_open and self.of(task).blocked:
                found.append(records.Retried(task=task.id, title=task.title))
        return found

    def _run(self, record: records.RunBegan) -> None:
        self.limits = record.limits
        if record.continues:
            self.this_run.commit = ""  # the start looked at where the branch is now
        elif record.run != self.counted_run or not record.run:
            self.this_run = RunHistory(first=self.iteration)
        self.run, self.stopped = record, None
        self.counted_run = record.run

    def _start(self, record: records.AttemptBegan) -> None:
        self.open_starts[record.iteration] = record
        self.begun.add(record.id)
        self.iteration = record.iteration
        if not record.lost:  # no agent runs then
            self.this_run.iterations += 1

    def _verdict(self, record: records.AttemptEnded) -> None:
        start = self.open_starts.pop(record.iteration, None)
        task, run, verdict = self.of(record), self.this_run, record.verdict
        lasted = run.seconds  # it is not the sum of its attempts'
        for spent in (self, run, task, task.since):
            spent.add(record)
        run.seconds = lasted
        self._prices(record)
        self._bills_extra(record)
        self._provider(record, start.time if start else record.time)
        if learned := record.handoff.get("learned"):
            self.learned.append(learned)
        if ruled_out := record.handoff.get("ruled out"):
            task.ruled_out.append(ruled_out)
        if verdict is Verdict.PASSED:
            task.start_anew()
            task.tried += 1
            task.passed, task.holds = record, True
            self.unchecked += 1
            run.commit = record.commit
        elif verdict in COUNTED:
            task.tried += 1
            task.attempts += 1
            task.last = record
        elif verdict is Verdict.CONFLICT or record.blocked:
            task.last = record
        task.newest = record
        if verdict is Verdict.INTERRUPTED:
            task.interrupted += not record.uncounted
        elif verdict not in _NO_ANSWER:
            task.interrupted = 0
        if verdict is Verdict.SET_ASIDE:
            run.set_aside[record.key] = record.reason
        no_agent_worked = record.uncounted and not record.seconds
        if no_agent_worked and record.iteration > run.first:
            run.iterations -= 1
        self._in_a_row(record)

    def _prices(self, record: records.AttemptEnded) -> None:
        """What agent and judge took for one attempt, at most."""
        judge = record.judge
        own = record.usd - judge.usd
        self.dearest[record.command] = max(self.dearest[record.command], own)
        self.dearest[judge.agent] = max(self.dearest[judge.agent], judge.usd)
        self.largest.usd = max(self.largest.usd, record.usd)
        if record.tokens.total > self.largest.tokens.total:
            self.largest.tokens = record.tokens

    def _bills_extra(self, record: records.AttemptEnded) -> None:
        """Until when the providers of its agent and its judge bill extra usage."""
        reason = "the provider bills extra usage; --allow-overage permits it"
        for row, worked in ((record.agent, record), (record.judge.row, record.judge)):
            if worked.overage:
                reset = worked.reset or record.time + _NO_RESET
                self.overage[row] = Unavailable(record.time, reset, reason=reason)

    def _provider(self, record: records.AttemptEnded, began: float) -> None:
        """Whether its agent, or the judge that it lacks, can be used again. An attempt
        that `began` before the limit was known says nothing new, but for a later
        reset."""
        run, command = self.this_run, record.command
        away = run.away.get(command) or Unavailable()
        if record.verdict in (Verdict.SET_ASIDE, Verdict.CONFLICT):
            return
        if record.tokens.output or record.verdict not in _NO_ANSWER:
            run.vain = 0
            away = Unavailable() if began >= away.since else away._replace(tries=0)
        if record.verdict not in _NO_ANSWER:
            run.worked |= {command, record.judge.agent}
        if record.verdict is Verdict.UNAVAILABLE and command in run.worked:
            run.worked.remove(command)
            reset = record.time + RETRY_LOGIN
            away = Unavailable(record.time, reset, reason=record.reason)
        elif record.verdict is Verdict.UNAVAILABLE and began >= away.since:
            away = Unavailable(record.time, NEVER, reason=record.reason)
        elif record.verdict is Verdict.LIMITED and record.reset:
            reset = max(away.reset, record.reset)
            away = Unavailable(record.time, reset, reason=record.reason)
        elif record.verdict is Verdict.LIMITED and began >= away.since:
            away = Unavailable(record.time, tries=away.tries + 1, reason=record.reason)
        run.away[command] = away

    def _in_a_row(self, record: records.AttemptEnded) -> None:
        """Count what ends a run early: tasks blocked, or denied, in a row."""
        run, passed = self.this_run, record.verdict is Verdict.PASSED
        run.blocked_in_a_row += bool(record.blocked)
        if passed:
            run.blocked_in_a_row = 0
            run.passed += 1
        if record.denied:
            run.denied = [*dict.fromkeys((*run.denied, record.key))]
        elif passed or record.verdict in COUNTED:
            run.denied = []

    def _recheck(self, record: records.Rechecked) -> None:
        self.unchecked = 0
        self.recheck = record
        for key in record.broken:
            task = self.tasks[key]
            task.start_anew()
            task.holds = False
            task.set_back += 1
            since = "; ".join(record.since.get(key, []))
            task.last = records.AttemptEnded(
                task=key.partition("\n")[0],
                iteration=task.passed.iteration,
                verdict=Verdict.FAILED,
                reason=f"it {task.passed_words}, and later work broke it: {since}",
                failure=record.failures.get(key, records.Failure()),
                blocked="conflicting" if task.set_back > 1 else "",
            )

    def reopen(self, record: records.Retried) -> None:
        """Let a task begin anew, with a person's answer to what it had asked."""
        task = self.of(record)
        question, answered, answer = task.question, task.answered, task.answer
        task.start_anew()
        task.answered, task.answer = answered, answer
        if record.answer:
            task.answered, task.answer = question, record.answer
        task.holds = False
        task.set_back = 0
        task.reopened += 1
        self.reopened += 1


def parse_handoff(source: str) -> dict[str, str]:
    """The parts of a handoff with the `LABELS`, each clipped to 1,500 bytes; `none`
    counts as nothing."""
    parts: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.clean(source).splitlines()[:400]:
        match = _LABEL.fullmatch(line[:200])
        if match and (match["colon"] or (match["heading"] and not match["rest"])):
            current = parts.setdefault(match["label"].lower(), [])
            line = match["rest"] + line[200:]
            if line.startswith("(") and line.endswith(")"):
                continue  # the template's own placeholder
        if line.strip():
            current.append(line.strip())
    found = {}
    for label, lines in parts.items():
        body = text.clip("\n".join(lines), 1500)
        if body.strip(" .-*").lower() not in ("", "none", "nothing", "n/a"):
            found[label] = body
    return found


def newest(entries: list[str], size: int) -> list[str]:
    """The newest distinct entries that fit in `size` bytes, oldest first."""
    kept: list[str] = []
    for entry in reversed(entries):
        if entry in kept:
            continue
        size -= len(entry.encode("utf-8", "replace"))
        if size < 0:
            break
        kept.append(entry)
    return kept[::-1]
