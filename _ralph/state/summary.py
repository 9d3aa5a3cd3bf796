"""What is known of a plan, its last run and its tasks, which `status`, the report, `run
--json` and `--notify` show; and the words for what was spent."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from _ralph import text
from _ralph.errors import Stop
from _ralph.model import AgentResult, Json, Plan, Spent, Task, Tokens
from _ralph.state import limits, prd
from _ralph.state.history import History, TaskHistory
from _ralph.state.records import Stopped, stopped_by


class TaskFacts(NamedTuple):
    """One task."""

    task: Task
    known: TaskHistory
    state: str  # passed, open, waiting, blocked; failed: open, after an attempt
    waits_for: list[str]  # the tasks that must pass first
    reason: str  # why it has not passed
    remark: str  # short, beside the title
    warnings: list[str]  # sentences for a person

    @property
    def id(self) -> str:
        return text.one_line(self.task.id)

    @property
    def spent(self) -> str:
        """What its attempts took; empty before the first."""
        return spent(self.known) if self.known.tried else ""

    def as_object(self) -> Json:
        """The task as `--json` prints it."""
        passed = self.known.passed if self.task.passed else None
        return {
            "id": self.task.id,
            "title": self.task.title,
            "state": self.state,
            "weak": bool(passed and passed.weak),
            "flaky": self.known.newest.flaky,
            "changed_tests": passed.tests if passed else [],
            "attempts": self.known.tried,
            "failures": self.known.attempts,
            **_took(self.known, self.known.seconds),
            "waits_for": self.waits_for,
            "reason": self.reason or None,
            "question": self.known.question or None,
            "parked": self.known.parked or None,
        }


@dataclass
class Worker:
    """What one loop does now."""

    worker: int  # its number, and that of its workspace
    task: str
    attempt: int
    agent: str
    since: str  # local time
    seconds: float  # since then
    workspace: str


@dataclass
class Running:
    """The loop at work on a plan."""

    pid: int
    since: str  # local time
    stopping: bool  # `ralph stop` was called
    rechecking: bool  # all checks run once more in a fresh checkout
    workers: list[Worker]


class Summary(NamedTuple):
    """A plan and its last run. Texts and objects are made from this alone."""

    tasks: list[TaskFacts]
    last: Stopped | None  # how the last run ended
    iterations: int  # of one run or of all, like what was spent
    spent: Spent
    seconds: float
    usage: limits.Usage
    running: Running | None
    final_check_due: bool
    branch: str
    next: str  # the id of the next task

    @property
    def passed(self) -> int:
        return sum(facts.task.passed for facts in self.tasks)

    def as_object(self) -> Json:
        """What `status --json` and `run --json` print, and part of what `--notify`
        gets; docs/status.md has its fields."""
        last = self.last
        used: Json = {}
        for whose, units in self.usage.items():
            used[whose] = {unit: of._asdict() for unit, of in units.items()}
        return {
            "stop": last and last.stop,
            "exit": last and last.exit,
            "reason": last and last.reason,
            "passed": self.passed,
            "total": len(self.tasks),
            "iterations": self.iterations,
            **_took(self.spent, self.seconds),
            "tasks": [facts.as_object() for facts in self.tasks],
            "limits": used,
            "running": self.running and asdict(self.running),
            "final_check_due": self.final_check_due,
            "branch": self.branch or None,
            "next": self.next or None,
        }


def summarize(
    plan: Plan | None,
    history: History | None,
    stop: Stop | None = None,
    seconds: float | None = None,
    running: Running | None = None,
) -> Summary:
    """What is known of a plan, if it could be read: of its last run, which has taken so
    many `seconds` and may end with `stop`, or without `seconds` of all its runs."""
    history = history or History()
    counted: Spent = history
    iterations = history.iteration
    if seconds is not None:
        counted = history.this_run
        iterations = history.this_run.iterations
    tasks: list[TaskFacts] = []
    usage: limits.Usage = {"run": {}, "plan": {}}
    final_check_due = False
    ready: list[Task] = []
    if plan:
        tasks = task_facts(plan, history)
        since = 0.0
        if running and history.run and history.last:
            since = max(time.time() - history.last.time, 0.0)
        allowed = limits.resolve(plan.settings, history.limits)
        usage = limits.used(allowed, history, since)
        is_due = history.unchecked and plan.every_check and not history.run
        final_check_due = bool(is_due)
        ready = prd.ready_tasks(plan)
    return Summary(
        tasks=tasks,
        last=stopped_by(stop) if stop else history.stopped,
        iterations=iterations,
        spent=counted,
        seconds=counted.seconds if seconds is None else seconds,
        usage=usage,
        running=running,
        final_check_due=final_check_due,
        branch=history.branch,
        next=ready[0].id if ready else "",
    )


def task_facts(plan: Plan, history: History) -> list[TaskFacts]:
    """The facts of every task, in the order of the plan."""
    allowed = limits.resolve(plan.settings, history.limits)
    return [
        _facts(plan, task, history.of(task), limits.attempts_at(allowed, task))
        for task in plan.tasks
    ]


def _facts(plan: Plan, task: Task, known: TaskHistory, attempts: int) -> TaskFacts:
    waits_for: list[str] = []
    remarks = []
    reason = ""
    if task.passed:
        state = "passed"
        if known.passed.weak:
            remarks.append("weak")
        if known.passed.tests:
            remarks.append("changed tests")
        if known.passed.beside:
            remarks.append(f"beside red: {text.few(known.passed.beside)}")
    else:
        waits_for = [name for name in task.depends_on if name not in plan.passed_ids]
        if task.blocked:
            reason = task.blocked
        elif known.last:
            reason = known.last.reason
        if task.is_blocked:
            state = "blocked"
        elif waits_for:
            state = "waiting"
            remarks.append(f"waits for {text.few(waits_for)}")
        elif known.attempts:
            state = "failed"
        else:
            state = "open"
    warnings = _warnings(task, known, reason, attempts)
    return TaskFacts(
        task, known, state, waits_for, reason, ", ".join(remarks), warnings
    )


def _warnings(task: Task, known: TaskHistory, reason: str, attempts: int) -> list[str]:
    """What a person should know of a task before they do something about it, a line
    each."""
    warnings = []
    if known.attempts and not task.passed and not task.is_blocked:
        reason = f"failed {known.attempts} of {attempts}: {reason}"
    if reason:
        warnings.append(reason)
    if task.is_blocked and known.parked:
        warnings.append(f"its work: git show {known.parked}")
    if task.passed:
        warnings += known.passed.not_run
    if known.newest.flaky:
        warnings.append(f"flaky: {text.few(known.newest.flaky)}")
    if known.question and not task.passed and known.question not in reason:
        warnings.append(f"it asks: {known.question}")
    if known.newest.denials:
        warnings.append(f"its agent was denied: {'; '.join(known.newest.denials)}")
    lines = [text.one_line(warning, 300) for warning in warnings]
    return list(dict.fromkeys(lines))  # a question can be the reason as well


def news(event: str, project: str, task: str, reason: str, so_far: Summary) -> Json:
    """The object that `--notify` gets: what happened, to which task if it is about one,
    and the summary `so_far`; `text` is all of it in one line."""
    what = f"{task} {event}" if task else event
    if reason:
        what += f": {reason}"
    words = f"{project}: {what} | {so_far.passed} of {len(so_far.tasks)} passed"
    if cost := dollars(so_far.spent.usd):
        words += f" | {cost}"
    return {
        "event": event,
        "project": project,
        "task": task or None,
        "text": text.one_line(words, 1000),
        **so_far.as_object(),
        "reason": reason or None,
    }


def _took(on: Spent, seconds: float) -> Json:
    return {
        "seconds": round(seconds, 1),
        "usd": round(on.usd, 6),
        "at_least": on.at_least,
        "tokens": asdict(on.tokens),
    }


# ---------------------------------------------------------------- words


def command_line(name: str, prd: Path, words: Iterable[str] = ()) -> str:
    """A `ralph` command for a person to copy, with the plan that it is about where that
    is not prd.json."""
    plan = [] if prd == Path("prd.json") else ["--prd", str(prd)]
    return shlex.join(["ralph", *name.split(), *plan, *words])


def limits_words(usage: limits.Usage, run: str) -> str:
    """What is used of each limit, from `limits.used`: `this run: $3.20 of $20.00, 4 of
    50 iterations, 1 h 10 min of 12 h 0 min; the plan: $40.10 of $100.00`; `run` is how
    the run is called."""
    phrases = []
    for whose, units in ((run, usage["run"]), ("the plan", usage["plan"])):
        parts = [_used_words(unit, used) for unit, used in units.items()]
        if parts:
            phrases.append(f"{whose}: {', '.join(parts)}")
    return "; ".join(phrases)


def _used_words(unit: str, of: limits.Used) -> str:
    if unit == "usd":
        return f"{_at_least(of)}${of.used:.2f} of ${of.limit:.2f}"
    if unit == "seconds":
        used = text.duration(of.used, short=True)
        return f"{used} of {text.duration(of.limit, short=True)}"
    return f"{of.used:.0f} of {of.limit:.0f} {unit}"


def _at_least(on: limits.Used | Spent | AgentResult) -> str:
    return "at least " if on.at_least else ""


def thousands(tokens: Tokens) -> str:
    """`20.3k tokens`, in and out, or nothing."""
    return f"{tokens.total / 1000:.1f}k tokens" if tokens.total else ""


def spent(on: Spent | AgentResult) -> str:
    """Time and dollars, or tokens where no dollars are known: `5 min 12 s, $0.42`, `12
    s, 20.3k tokens`; `8 s, at least $0.42` if an agent was cut off."""
    words = text.duration(on.seconds)
    if cost := dollars(on.usd) or thousands(on.tokens):
        words += f", {_at_least(on)}{cost}"
    return words


def dollars(usd: float | None) -> str:
    """`$0.42`, at least a cent; nothing where no price is known, also from an agent
    that knows none of its model and says 0."""
    return f"${max(usd, 0.01):.2f}" if usd else ""
