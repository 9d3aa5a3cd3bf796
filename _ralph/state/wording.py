"""Words and objects about a run: what people read in its records, the summary for machines."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from _ralph import text
from _ralph.errors import Stop
from _ralph.model import AgentResult, Json, Outcome, Plan, Spent, Task, Tokens
from _ralph.state import limits
from _ralph.state.history import History, TaskHistory

STATES = ("passed", "open", "waiting", "failed", "blocked")
"""The states of a task in `status` and in summaries: `failed` is open still, after an attempt."""


def command_line(name: str, prd: Path, words: Iterable[str] = ()) -> str:
    """A `ralph` command for a person to copy, with the plan that it is about where that is not prd.json."""
    plan = [] if prd == Path("prd.json") else ["--prd", str(prd)]
    return shlex.join(["ralph", *name.split(), *plan, *words])


def limits_words(usage: limits.Usage, run: str) -> str:
    """What is used of each limit, from `limits.used`: `this run: $3.20 of $20.00, 4 of 50 iterations, 1 h
    10 min of 12 h 0 min; the plan: $40.10 of $100.00`; `run` is how the run is called."""
    parts = {run: usage.run, "the plan": usage.plan}
    told = [
        f"{whose}: {', '.join(_used_words(unit, one) for unit, one in units.items())}"
        for whose, units in parts.items()
        if units
    ]
    return "; ".join(told)


def _used_words(unit: str, of: limits.Used) -> str:
    if unit == "usd":
        return f"{'at least ' * of.at_least}${of.used:.2f} of ${of.limit:.2f}"
    if unit == "seconds":
        return f"{text.duration(of.used, short=True)} of {text.duration(of.limit, short=True)}"
    return f"{of.used:.0f} of {of.limit:.0f} {unit}"


def sums_words(
    plan: Plan, history: History, bounds: limits.Limits, seconds: float, usd: float, room: Sequence[str]
) -> str:
    """What stays on a terminal for the whole run, short things first; `usd` are dollars that are in no record
    yet, `room` the tasks in the clean room and in line for it."""
    run, limit = history.this_run, min(bounds.usd, bounds.budget_usd)
    spent = run.usd + usd
    now = time.time()
    ends = text.clock(limits.run_deadline(bounds, seconds, now), now)
    parts = [
        f"{sum(task.passed for task in plan.tasks)} of {len(plan.tasks)} passed",
        f"{'at least ' * run.at_least}${spent:.2f}" + (f" of ${limit:.2f}" if limit < limits.NONE else "")
        if spent or limit < limits.NONE
        else "",
        f"{text.duration(seconds, short=True)}, limit {ends}",
        f"room: {text.one_line(room[0], 20)}" if room else "",
        f"{len(room) - 1} in line" if len(room) > 1 else "",
    ]
    return " | ".join(part for part in parts if part)


def thousands(tokens: Tokens) -> str:
    """`20.3k tokens`, in and out, or nothing."""
    return f"{tokens.total / 1000:.1f}k tokens" if tokens.total else ""


def ended_words(result: AgentResult) -> str:
    """How the agent ended, where that was not well."""
    return result.reason if result.outcome is not Outcome.DONE else ""


def _state(plan: Plan, task: Task, history: History) -> str:
    """One of STATES."""
    if task.passed or task.is_blocked:
        return "passed" if task.passed else "blocked"
    if not plan.passed_ids.issuperset(task.depends_on):
        return "waiting"
    return "failed" if history.of(task).attempts else "open"


def summary(plan: Plan | None, history: History | None, stop: Stop | None, seconds: float) -> Json:
    """The object that `run --json` prints and `--notify` gets; `status --json` has its shape."""
    tasks = plan.tasks if plan else ()
    history = history or History()
    last = history.stopped
    ended = stop or ((last.stop, last.exit, last.reason) if last else (None, None, None))
    return {
        **dict(zip(("stop", "exit", "reason"), ended, strict=True)),
        "passed": sum(task.passed for task in tasks),
        "total": len(tasks),
        "iterations": history.this_run.iterations if stop else history.iteration,
        "seconds": round(seconds, 1),
        **_usd(history.this_run if stop else history),
        "tokens": asdict(history.this_run.tokens if stop else history.tokens),
        "tasks": [_task_summary(plan, task, history) for task in tasks if plan],
    }


def _usd(on: Spent) -> Json:
    """The dollars; none of them are estimated since version 0.3, and programs still find the field."""
    return {"usd": round(on.usd, 6), "usd_estimated": 0.0, "at_least": on.at_least}


def _took(on: Spent) -> Json:
    return {"seconds": round(on.seconds, 1), **_usd(on), "tokens": asdict(on.tokens)}


def _task_summary(plan: Plan, task: Task, history: History) -> Json:
    known = history.of(task)
    reason = None if task.passed else task.blocked or (known.last and known.last.reason)
    return {
        "id": task.id,
        "title": task.title,
        "state": _state(plan, task, history),
        "weak": task.passed and known.weak,
        "flaky": known.flaky,
        "changed_tests": known.tests if task.passed else [],
        "attempts": known.tried,
        "failures": known.attempts,
        **_took(known),
        "waits_for": [] if task.passed else [i for i in task.depends_on if i not in plan.passed_ids],
        "split": known.overload or None,
        "reason": reason or None,
        "question": None if task.passed else known.question or None,
        "parked": known.parked or None,
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
    """The same, a line each, where there was more than one: `aider: 2 of 5 attempts passed, $0.40`."""
    told = [
        f"{text.one_line(command, 80)}: {known.passed} of {text.count(known.attempts, 'attempt')} passed, "
        f"{spent(known)}"
        for command, known in history.agents.items()
        if known.attempts or known.usd
    ]
    return told if len(told) > 1 else []


def task_remark(told: Json) -> str:
    """What stands beside the title of a task that a summary tells of: what it waits for, or that its
    pass is weak, or changed tests."""
    if told["state"] == "waiting":
        return f"waits for {text.few(told['waits_for'])}"
    return ", ".join(["weak"] * told["weak"] + ["changed tests"] * bool(told["changed_tests"]))


def task_warnings(plan: Plan, told: Json, known: TaskHistory) -> list[str]:
    """What a person should know of a task before they do something about it, a line each."""
    warnings, reason = [], told["reason"] or ""
    if told["state"] == "blocked":
        warnings += [reason, *([f"its work: git show {known.parked}"] if known.parked else [])]
    elif known.attempts and told["state"] != "passed":
        attempts = limits.resolve(plan.settings, {}).attempts
        warnings.append(f"failed {known.attempts} of {attempts}: {reason}")
    elif reason:
        warnings.append(reason)  # it had passed, and no longer holds
    if told["flaky"]:
        warnings.append(f"flaky: {text.few(told['flaky'])}")
    if told["question"] and told["question"] not in reason:
        warnings.append(f"it asks: {told['question']}")
    if known.denials:
        warnings.append(f"denied: {'; '.join(known.denials)}")
    if known.overload:
        warnings.append(f"split this task: {known.overload}")
    return list(dict.fromkeys(text.one_line(warning, 300) for warning in warnings))


def spent(on: Spent | AgentResult) -> str:
    """Time and dollars, or tokens where no dollars are known: `5 min 12 s, $0.42`, `12 s, 20.3k tokens`;
    `8 s, at least $0.42` if an agent was cut off."""
    cost = dollars(on.usd) or thousands(on.tokens)
    return text.duration(on.seconds) + (f", {'at least ' * on.at_least}{cost}" if cost else "")


def dollars(usd: float | None) -> str:
    """`$0.42`, at least a cent; nothing where no price was told, also by an agent that knows none of its
    model and says 0."""
    return f"${max(usd, 0.01):.2f}" if usd else ""
