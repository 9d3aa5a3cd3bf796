"""The facts of a plan and of each of its tasks, which `status`, the report, `run
--json` and `--notify` draw; and the words for what was spent."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from _ralph import text
from _ralph.errors import BadInput, Stop
from _ralph.model import AgentResult, Json, Outcome, Plan, Spent, Task, Tokens
from _ralph.state import limits
from _ralph.state.history import History, TaskHistory
from _ralph.state.records import Stopped

STATES = ("passed", "open", "waiting", "failed", "blocked")
"""The states of a task: `failed` is open still, after an attempt."""


@dataclass(frozen=True)
class Fact:
    """One thing that is known about a plan: its `value` for programs, under this name,
    and `lines` for people."""

    name: str
    value: Any
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class TaskFacts:
    """One task."""

    task: Task
    known: TaskHistory
    state: str  # one of STATES
    waits_for: list[str]  # the tasks that must pass first
    reason: str  # why it has not passed
    remark: str  # short, beside the title
    warnings: list[str]  # sentences for a person

    @property
    def id(self) -> str:
        return text.one_line(self.task.id)

    @property
    def title(self) -> str:
        return text.one_line(self.task.title)

    @property
    def spent(self) -> str:
        """What its attempts took; empty before the first."""
        return spent(self.known) if self.known.seconds else ""

    def as_object(self) -> Json:
        task, known = self.task, self.known
        return {
            "id": task.id,
            "title": task.title,
            "state": self.state,
            "weak": task.passed and known.weak,
            "flaky": known.flaky,
            "changed_tests": known.tests if task.passed else [],
            "attempts": known.tried,
            "failures": known.attempts,
            **_took(known),
            "waits_for": self.waits_for,
            "split": None,  # of version 0.2
            "reason": self.reason or None,
            "question": None if task.passed else known.question or None,
            "parked": known.parked or None,
        }


def task_facts(plan: Plan, history: History) -> list[TaskFacts]:
    """The facts of every task, in the order of the plan."""
    try:
        allowed = limits.resolve(plan.settings, history.limits)
    except BadInput:  # no run would take it, and `status` shows it all the same
        allowed = limits.Limits()
    return [
        _facts(plan, task, history.of(task), limits.attempts_at(allowed, task))
        for task in plan.tasks
    ]


def _facts(plan: Plan, task: Task, known: TaskHistory, attempts: int) -> TaskFacts:
    waits_for = (
        []
        if task.passed
        else [name for name in task.depends_on if name not in plan.passed_ids]
    )
    reason = (
        "" if task.passed else task.blocked or (known.last.reason if known.last else "")
    )
    if task.passed or task.is_blocked:
        state = "passed" if task.passed else "blocked"
    else:
        state = "waiting" if waits_for else "failed" if known.attempts else "open"
    remark = (
        ", ".join(["weak"] * known.weak + ["changed tests"] * bool(known.tests))
        if task.passed
        else ""
    )
    if state == "waiting":
        remark = f"waits for {text.few(waits_for)}"
    warnings = _warnings(task, known, reason, attempts)
    return TaskFacts(task, known, state, waits_for, reason, remark, warnings)


def _warnings(task: Task, known: TaskHistory, reason: str, attempts: int) -> list[str]:
    """What a person should know of a task before they do something about it, a line
    each."""
    warnings = [reason]
    if task.is_blocked:
        warnings += [f"its work: git show {known.parked}"] * bool(known.parked)
    elif known.attempts and not task.passed:
        warnings = [f"failed {known.attempts} of {attempts}: {reason}"]
    if known.flaky:
        warnings.append(f"flaky: {text.few(known.flaky)}")
    if known.question and not task.passed and known.question not in reason:
        warnings.append(f"it asks: {known.question}")
    if known.denials:
        warnings.append(f"denied: {'; '.join(known.denials)}")
    return list(dict.fromkeys(text.one_line(line, 300) for line in warnings if line))


def summary(
    plan: Plan | None, history: History | None, stop: Stop | None, seconds: float
) -> Json:
    """The object that `run --json` prints, and part of what `--notify` gets; `status
    --json` has its shape."""
    history = history or History()
    tasks = task_facts(plan, history) if plan else []
    last = last_stop(plan, history) if plan else history.stopped
    if stop:
        last = Stopped(stop=stop.word, exit=int(stop.exit), reason=stop.reason)
    return {
        "stop": last.stop if last else None,
        "exit": last.exit if last else None,
        "reason": last.reason if last else None,
        "passed": sum(facts.task.passed for facts in tasks),
        "total": len(tasks),
        "iterations": history.this_run.iterations if stop else history.iteration,
        **_took(history.this_run if stop else history),
        "seconds": round(seconds, 1),
        "tasks": [facts.as_object() for facts in tasks],
    }


def last_stop(plan: Plan, history: History) -> Stopped | None:
    """How the last run of these tasks ended; None before one, also where another plan
    had the branch."""
    known = all(task.passed for task in plan.tasks) or any(
        history.of(task).begun for task in plan.tasks
    )
    return history.stopped if known else None


def news(
    event: str, project: str, branch: str, task: str, reason: str, so_far: Json
) -> Json:
    """The object that `--notify` gets: what happened, to which task if it is about one,
    and the summary `so_far`; `text` is all of it in one line."""
    what = f"{task} {event}" if task else event
    parts = [
        f"{project}: {what}",
        f"{so_far['passed']} of {so_far['total']} passed",
        dollars(so_far["usd"]),
    ]
    parts[0] += f": {reason}" if reason else ""
    return {
        "event": event,
        "project": project,
        "branch": branch,
        "task": task or None,
        "text": text.one_line(" | ".join(filter(None, parts)), 1000),
        **so_far,
        "reason": reason or None,
    }


def agents_summary(history: History) -> list[Json]:
    """What each agent came to, in the order in which they first worked."""
    return [
        {
            "agent": command,
            "attempts": known.attempts,
            "passed": known.passed,
            **_took(known),
        }
        for command, known in history.agents.items()
    ]


def agents_words(history: History) -> list[str]:
    """What all attempts came to and, where there was more than one agent, each of them:
    `aider: 2 of 5 attempts passed, $0.40`."""
    if not history.iteration:
        return []
    lines = [
        f"{text.one_line(command, 80)}: {known.passed} of {text.count(known.attempts, 'attempt')} passed, "
        f"{spent(known)}"
        for command, known in history.agents.items()
        if known.attempts or known.usd
    ]
    iterations = text.count(history.iteration, "iteration")
    total = f"{iterations} so far, in agents and checks: {spent(history)}"
    return [total, *(lines if len(lines) > 1 else [])]


def _took(on: Spent) -> Json:
    """What was spent; no dollars are estimated since version 0.3, and programs still
    find the field."""
    return {
        "seconds": round(on.seconds, 1),
        "usd": round(on.usd, 6),
        "usd_estimated": 0.0,
        "at_least": on.at_least,
        "tokens": asdict(on.tokens),
    }


# ---------------------------------------------------------------- words


def command_line(name: str, prd: Path, words: Iterable[str] = ()) -> str:
    """A `ralph` command for a person to copy, with the plan that it is about where that
    is not prd.json."""
    return shlex.join([*command_words(name, prd), *words])


def command_words(name: str, prd: Path) -> list[str]:
    """The words that it begins with."""
    return [
        "ralph",
        *name.split(),
        *([] if prd == Path("prd.json") else ["--prd", str(prd)]),
    ]


def limits_words(usage: limits.Usage, run: str) -> str:
    """What is used of each limit, from `limits.used`: `this run: $3.20 of $20.00, 4 of
    50 iterations, 1 h 10 min of 12 h 0 min; the plan: $40.10 of $100.00`; `run` is how
    the run is called."""
    parts = {run: usage.run, "the plan": usage.plan}
    phrases = [
        f"{whose}: {', '.join(_used_words(unit, used) for unit, used in units.items())}"
        for whose, units in parts.items()
        if units
    ]
    return "; ".join(phrases)


def _used_words(unit: str, of: limits.Used) -> str:
    if unit == "usd":
        return f"{'at least ' * of.at_least}${of.used:.2f} of ${of.limit:.2f}"
    if unit == "seconds":
        return f"{text.duration(of.used, short=True)} of {text.duration(of.limit, short=True)}"
    return f"{of.used:.0f} of {of.limit:.0f} {unit}"


def thousands(tokens: Tokens) -> str:
    """`20.3k tokens`, in and out, or nothing."""
    return f"{tokens.total / 1000:.1f}k tokens" if tokens.total else ""


def ended_words(result: AgentResult) -> str:
    """How the agent ended, where that was not well."""
    return result.reason if result.outcome is not Outcome.DONE else ""


def spent(on: Spent | AgentResult) -> str:
    """Time and dollars, or tokens where no dollars are known: `5 min 12 s, $0.42`, `12
    s, 20.3k tokens`; `8 s, at least $0.42` if an agent was cut off."""
    cost = dollars(on.usd) or thousands(on.tokens)
    return text.duration(on.seconds) + (
        f", {'at least ' * on.at_least}{cost}" if cost else ""
    )


def dollars(usd: float | None) -> str:
    """`$0.42`, at least a cent; nothing where no price is known, also from an agent
    that knows none of its model and says 0."""
    return f"${max(usd, 0.01):.2f}" if usd else ""
