"""The records of progress.txt folded into the state of a plan, its tasks and its run; and handoffs."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from _ralph import files, text
from _ralph.model import COUNTED, Conflict, Plan, Spent, Task, Verdict
from _ralph.state import records

NEVER = float("inf")
_NO_RESET = 1800.0  # seconds for which extra usage is billed, if its reset is not known
_NO_ANSWER = (Verdict.LIMITED, Verdict.UNAVAILABLE, Verdict.INTERRUPTED)
_REMEMBERED = 100  # notes of agents: no prompt holds more
LABELS = (
    "status", "files", "decisions", "ruled out", "learned",
    "re-read", "risks", "blocked on", "found", "next step",
)  # fmt: skip
_LABEL = re.compile(
    rf"^(?:[\s>*`-]|\d+\.)*(?P<heading>\#+\s*)?[*`]*(?P<label>{'|'.join(LABELS)})[\s*`]*"
    rf"(?P<colon>:[\s*`]*)?(?P<rest>.*)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Away:
    """Why an agent cannot be used: known `since`, until its `reset` (unix times). Without a reset it is tried
    again after a while, the later the more `tries` in a row had no answer; one whose reset is NEVER cannot be
    used in this run."""

    since: float = 0.0
    reset: float = 0.0
    tries: int = 0
    reason: str = ""


@dataclass
class RunHistory(Spent):
    """What is counted for one run; `seconds` is how long it took. `away` are the agents that cannot be used,
    by their commands; `waited` is the last wait for one of them, `vain` counts those in a row that did not
    help."""

    iterations: int = 0
    passed: int = 0
    blocked_in_a_row: int = 0
    denied: list[str] = field(default_factory=list)
    away: dict[str, Away] = field(default_factory=dict)
    waited: records.Waited = field(default_factory=records.Waited)
    vain: int = 0


@dataclass
class TaskHistory(Spent):
    """What the records say about one task. `attempts` counts those that use up its limit since the last
    `retry` or pass, `last` is the newest of them, `tried` counts all that ended with a verdict on the work.
    `left` is the tree of unfinished work on the commit `base`, `conflict` what stands in it; `lacks` says
    what it needs before an agent goes on: `checks`, `judge` or nothing. `command` is its last agent; `tests`
    are those that were there before its pass, and that it changed. `commit` is that of its pass, and `proof`
    the checks that were run on it; `holds` says that nothing took the pass away since. `answered` is the
    question that a person answered with `answer`."""

    attempts: int = 0
    tried: int = 0
    flaky: list[str] = field(default_factory=list)
    last: records.AttemptEnded | None = None
    ruled_out: list[str] = field(default_factory=list)
    answered: str = ""
    answer: str = ""
    passed_at: int | None = None
    commit: str = ""
    proof: frozenset[str] = frozenset()
    holds: bool = False
    weak: bool = False
    tests: list[str] = field(default_factory=list)
    set_back: int = 0
    parked: str = ""
    left: str = ""
    base: str = ""
    lacks: str = ""
    conflict: Conflict = field(default_factory=Conflict)
    interrupted: int = 0
    denials: list[str] = field(default_factory=list)
    command: str = ""

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
        return self.last.handoff.get("blocked on", "") if self.last else ""

    @property
    def passed_words(self) -> str:
        """How it passed: by a verdict, or by a person's edit."""
        return f"passed at iteration {self.passed_at}" if self.passed_at else "was marked as passed"

    def start_anew(self) -> None:
        """Set the attempts to zero. What was spent and ruled out stays."""
        self.attempts, self.last = 0, None
        self.answered, self.answer = "", ""
        self.left, self.base, self.lacks, self.interrupted = "", "", "", 0
        self.conflict = Conflict()


@dataclass
class AgentHistory(Spent):
    """The attempts with one agent."""

    attempts: int = 0
    passed: int = 0


@dataclass
class History(Spent):
    """The state of a plan, from its records alone: `apply` is called for each.

    `planned` is the digest of the prd.json that `ralph plan` wrote; `overage` says until when the provider of
    an agent bills extra usage, by the name of its row; `agents` goes by commands, and so does `dearest`, the
    most dollars that an agent took for one attempt; `largest` is what attempts took at most; `limits` are
    those of this run alone; `unchecked` counts the passes since the last re-check, and `flaky` names the
    checks that were red and green in it; `last` is the newest record; `open_starts` are the attempts under
    way, by iteration, `begun` the ids of all.
    """

    iteration: int = 0
    tasks: defaultdict[str, TaskHistory] = field(default_factory=lambda: defaultdict(TaskHistory))
    learned: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    planned: str = ""
    branch: str = ""
    open_starts: dict[int, records.AttemptBegan] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    run: records.RunBegan | None = None
    stopped: records.Stopped | None = None
    this_run: RunHistory = field(default_factory=RunHistory)
    rechecked: tuple[str, str] | None = None
    unchecked: int = 0
    overage: dict[str, Away] = field(default_factory=dict)
    dearest: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    largest: Spent = field(default_factory=Spent)
    agents: defaultdict[str, AgentHistory] = field(default_factory=lambda: defaultdict(AgentHistory))
    limits: dict[str, float] = field(default_factory=dict)
    last: records.Record | None = None

    def apply(self, record: records.Record) -> None:
        """Take in the next record of the plan."""
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
            case records.Added():  # the tasks are in prd.json; the cost of the planner is the plan's
                self.add(record)
                self.planned = record.prd or self.planned
            case records.Stopped():
                self.run, self.stopped = None, record
        self.last = record
        self.branch = (record.branch or self.branch).removeprefix("refs/heads/")

    def _lasted(self, record: records.Record) -> float:
        """The seconds from the last record to this one in which a loop worked or waited."""
        if self.last is None:
            return 0.0
        until = self.last.until if isinstance(self.last, records.Waited) else self.last.time
        same = record.run and record.run == self.last.run
        return max((record.time if same else min(record.time, until)) - self.last.time, 0.0)

    def of(self, task: Task | records.OfTask) -> TaskHistory:
        return self.tasks[task.key]

    def proved(self, task: Task) -> bool:
        """Whether a verdict says that it passed; otherwise a person marked it."""
        known = self.tasks.get(task.key)
        return known is not None and known.passed_at is not None

    def holds(self, task: Task) -> bool:
        """Whether a verdict says that it passed by all of its checks, and nothing took that away since."""
        known = self.tasks.get(task.key)
        proof = known.proof if known and known.holds and known.commit else None
        return proof is not None and proof.issuperset(check.command for check in task.checks)

    def opened(self, plan: Plan) -> list[records.Retried]:
        """Records of the tasks that a person unblocked, where there is none yet."""
        still = [task for task in plan.tasks if task.blocked is None and not task.passed]
        opened = [task for task in still if task.key in self.tasks and self.of(task).blocked]
        return [records.Retried(task=task.id, title=task.title, answer=self._answer(task)) for task in opened]

    def _answer(self, task: Task) -> str:
        """What a person answered to a task that they unblocked: the last of its notes, if it had asked
        something, and was not only unblocked."""
        last, asked = self.of(task).last, self.of(task).question
        return last_note(task) if last and asked and last.task_before != entry_digest(task) else ""

    def _run(self, record: records.RunBegan) -> None:
        self.limits = record.limits
        if not record.continues:
            self.run, self.stopped, self.this_run = record, None, RunHistory()

    def _start(self, record: records.AttemptBegan) -> None:
        self.open_starts[record.iteration] = record
        self.begun.add(record.id)
        self.iteration = record.iteration
        self.this_run.iterations += not record.leftover  # no agent runs then
        self.of(record).command = record.command

    def _verdict(self, record: records.AttemptEnded) -> None:
        start = self.open_starts.pop(record.iteration, None)
        task, verdict = self.of(record), record.verdict
        agent = self.agents[record.command or record.agent]
        lasted, on_its_work = self.this_run.seconds, verdict in COUNTED or verdict is Verdict.PASSED
        for spent in (self, self.this_run, task, agent):
            spent.add(record)
        self.this_run.seconds = lasted
        agent.attempts += on_its_work
        agent.passed += verdict is Verdict.PASSED
        self._prices(record)
        self._bills_extra(record)
        self._provider(record, start.time if start else record.time)
        task.flaky = record.flaky
        self._work_left(task, record)
        task.denials = record.denials
        for known, *labels in ((self.learned, "decisions", "learned"), (task.ruled_out, "ruled out")):
            known += [record.handoff[label] for label in labels if record.handoff.get(label)]
            del known[:-_REMEMBERED]
        task.tried += on_its_work
        if verdict in COUNTED:
            task.attempts += 1
            task.last, task.parked = record, record.parked
        if verdict is Verdict.PASSED:
            task.start_anew()
            task.passed_at, task.weak, task.tests = record.iteration, record.weak, record.tests
            task.commit, task.proof, task.holds = record.commit, frozenset(record.checks), True
            self.unchecked += 1
        elif verdict is Verdict.CONFLICT or record.blocked:
            task.last, task.parked = record, record.parked or task.parked
        self._in_a_row(record)

    def _prices(self, record: records.AttemptEnded) -> None:
        """What agent and judge took for one attempt, at most."""
        of_judge, largest = record.judge.usd, self.largest
        for command, usd in ((record.command, record.usd - of_judge), (record.judge.agent, of_judge)):
            self.dearest[command] = max(self.dearest[command], usd)
        tokens = max(largest.tokens, record.tokens, key=lambda one: one.total)
        self.largest = Spent(usd=max(largest.usd, record.usd), tokens=tokens)

    def _bills_extra(self, record: records.AttemptEnded) -> None:
        """Until when the providers of its agent and its judge bill extra usage."""
        reason = "the provider bills extra usage; --allow-overage permits it"
        for name, one in ((record.agent, record), (record.judge.row, record.judge)):
            if one.overage:
                reset = one.reset or record.time + _NO_RESET
                self.overage[name] = Away(record.time, reset, reason=reason)

    def _provider(self, record: records.AttemptEnded, began: float) -> None:
        """Whether its agent, or the judge that it lacks, can be used again. An attempt that `began` before
        the limit was known says nothing new, but for a later reset."""
        run, command = self.this_run, record.judge.agent if record.unjudged else record.command
        known = run.away.get(command, Away())
        if record.tokens.output or record.verdict not in _NO_ANSWER:
            run.vain, known = 0, replace(known, tries=0)
        if record.verdict is Verdict.UNAVAILABLE:
            known = Away(record.time, NEVER, reason=record.reason)
        elif record.verdict is Verdict.LIMITED and record.reset:
            known = Away(record.time, max(known.reset, record.reset), reason=record.reason)
        elif record.verdict is Verdict.LIMITED and began >= known.since:
            known = Away(record.time, tries=known.tries + 1, reason=record.reason)
        run.away[command] = known

    def _work_left(self, task: TaskHistory, record: records.AttemptEnded) -> None:
        """The work that the next attempt at this task begins with."""
        goes_on = record.base and not record.parked and record.verdict is not Verdict.PASSED
        task.left, task.base = (record.left, record.base) if goes_on else ("", "")
        task.conflict = record.conflict if goes_on else Conflict()
        interrupted = record.verdict is Verdict.INTERRUPTED
        unchecked = interrupted and task.left and not record.leftover and not record.checks
        task.lacks = "judge" if record.unjudged else "checks" if unchecked else ""
        if interrupted:
            task.interrupted += not record.leftover
        elif record.verdict not in (Verdict.LIMITED, Verdict.UNAVAILABLE):
            task.interrupted = 0

    def _in_a_row(self, record: records.AttemptEnded) -> None:
        """Count what ends a run early: tasks blocked in a row, waits that did not help."""
        run, verdict = self.this_run, record.verdict
        run.blocked_in_a_row += bool(record.blocked)
        if verdict is Verdict.PASSED:
            run.blocked_in_a_row, run.passed = 0, run.passed + 1
        if record.denied:
            run.denied = [*(key for key in run.denied if key != record.key), record.key]
        elif verdict in COUNTED or verdict is Verdict.PASSED:
            run.denied = []

    def _recheck(self, record: records.Rechecked) -> None:
        self.unchecked, self.flaky = 0, record.flaky
        if record.ok:
            self.rechecked = (record.commit, record.checks_digest)
        for key in record.broken:
            task = self.tasks[key]
            task.start_anew()
            task.holds = False
            task.set_back += 1
            since, passed = "; ".join(record.since.get(key, [])), task.passed_words
            task.last = records.AttemptEnded(
                task=key.partition("\n")[0],
                iteration=task.passed_at or 0,
                verdict=Verdict.FAILED,
                reason=f"it {passed}, and later work broke it: {since}",
                failure=record.failures.get(key, records.Failure()),
                blocked="conflicting" if task.set_back > 1 else "",
            )

    def reopen(self, record: records.Retried) -> None:
        """Let a task begin anew, with a person's answer to what it had asked."""
        task = self.of(record)
        answer = (task.question, record.answer) if record.answer else (task.answered, task.answer)
        task.start_anew()
        task.holds = False
        (task.answered, task.answer), task.set_back = answer, 0


def replay(found: Iterable[records.Record]) -> History:
    """The state of a plan after these records of it."""
    history = History()
    for record in found:
        history.apply(record)
    return history


def entry_digest(task: Task) -> str:
    """The digest of a task's entry in prd.json."""
    return files.digest(json.dumps(task.raw).encode())


def last_note(task: Task) -> str:
    """The last line, or the last entry, of a task's notes."""
    notes = task.raw.get("notes") or ""
    said = [str(note) for note in notes] if isinstance(notes, list) else str(notes).splitlines()
    return said[-1] if said else ""


def parse_handoff(source: str) -> dict[str, str]:
    """The labelled parts of a handoff, each clipped to 1,500 bytes; `none` counts as nothing."""
    parts: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.clean(source).splitlines()[:400]:
        match = _LABEL.match(line[:200])
        if match and (match["colon"] or (match["heading"] and not match["rest"])):
            current = parts.setdefault(match["label"].lower(), [])
            line = match["rest"] + line[200:]
            if line.startswith("(") and line.endswith(")"):
                continue  # the template's own placeholder
        if current is not None and line.strip():
            current.append(line.strip())
    cut = {label: text.clip("\n".join(lines), 1500) for label, lines in parts.items()}
    return {
        label: body
        for label, body in cut.items()
        if body.strip(" .-*").lower() not in ("", "none", "nothing", "n/a")
    }


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
