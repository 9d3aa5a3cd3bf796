"""What is left of a run for readers: records for people, the summary for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _ralph import limits, text
from _ralph.ends import Stop
from _ralph.model import AgentResult, Attempt, Outcome, Plan, Task, Tokens, Verdict
from _ralph.progress import History, TaskHistory

if TYPE_CHECKING:  # `status` needs none of what agents need
    from _ralph.agents import Agent

STATES = ("passed", "open", "waiting", "failed", "blocked")
"""The states of a task in `status` and in summaries: `failed` is open still, after an attempt."""


def spent_words(result: AgentResult) -> str:
    """What an agent process cost: `5 min 12 s, $0.42, 18204 in / 2110 out tokens`."""
    return spent(result.seconds, result.usd, result.tokens)


def tokens_words(tokens: Tokens) -> str:
    """`18204 in / 2110 out tokens`, or nothing."""
    return f"{tokens.input} in / {tokens.output} out tokens" if tokens.total else ""


def ended_words(result: AgentResult) -> str:
    """How the agent ended, where that was not well."""
    return result.reason if result.outcome is not Outcome.DONE else ""


def task_state(plan: Plan, task: Task, history: History) -> str:
    """One of STATES."""
    if task.passed:
        return "passed"
    if task.blocked is not None:
        return "blocked"
    if not plan.passed_ids.issuperset(task.depends_on):
        return "waiting"
    known = history.tasks.get(task.key)
    return "failed" if known and known.attempts else "open"


def summary(plan: Plan | None, history: History | None, stop: Stop | None, seconds: float) -> dict[str, Any]:
    """The object that `run --json` prints and `--notify` gets; `status --json` has its shape."""
    tasks = plan.tasks if plan else ()
    history = history or History("")
    ended = history.stopped or {}
    return {
        "stop": stop.word if stop else ended.get("stop"),
        "exit": int(stop.exit) if stop else ended.get("exit"),
        "reason": stop.reason if stop else ended.get("reason"),
        "passed": sum(task.passed for task in tasks),
        "total": len(tasks),
        "iterations": history.this_run.iterations if stop else history.iteration,
        "seconds": round(seconds, 1),
        "usd": round(history.this_run.usd if stop else history.usd, 6),
        "tokens": (history.this_run.tokens if stop else history.tokens).as_dict(),
        "tasks": [_task_summary(plan, task, history) for task in tasks if plan],
    }


def _task_summary(plan: Plan, task: Task, history: History) -> dict[str, Any]:
    known = history.tasks.get(task.key) or TaskHistory()
    reason = None if task.passed else task.blocked or (known.last or {}).get("reason")
    return {
        "id": task.id,
        "title": task.title,
        "state": task_state(plan, task, history),
        "weak": task.passed and known.weak,
        "attempts": known.tried,
        "failures": known.attempts,
        "seconds": round(known.seconds, 1),
        "usd": round(known.usd, 6),
        "tokens": known.tokens.as_dict(),
        "waits_for": [] if task.passed else [i for i in task.depends_on if i not in plan.passed_ids],
        "split": known.overload or None,
        "reason": reason or None,
        "question": None if task.passed else known.question or None,
        "parked": known.parked or None,
    }


def task_remark(plan: Plan, task: Task, history: History) -> str:
    """What stands beside a task's title: what it waits for, or that its pass is weak."""
    state = task_state(plan, task, history)
    if state == "waiting":
        return f"waits for {text.few([other for other in task.depends_on if other not in plan.passed_ids])}"
    return "weak" if state == "passed" and (history.tasks.get(task.key) or TaskHistory()).weak else ""


def task_warnings(plan: Plan, task: Task, history: History) -> list[str]:
    """What a person should know of a task before they do something about it, a line each."""
    known, warnings = history.tasks.get(task.key) or TaskHistory(), []
    reason = str((known.last or {}).get("reason") or "")
    if task.blocked is not None and not task.passed:
        warnings.append(task.blocked)
        warnings += [f"its work: git show {known.parked}"] * bool(known.parked)
    elif known.attempts and not task.passed:
        attempts = limits.resolve(plan.settings, {}).attempts
        warnings.append(f"failed {known.attempts} of {attempts}: {reason}")
    elif reason and not task.passed:
        warnings.append(reason)  # it had passed, and no longer holds
    if known.question and not task.passed and known.question not in (task.blocked or ""):
        warnings.append(f"it asks: {known.question}")
    if known.denials:
        warnings.append(f"denied: {'; '.join(known.denials)}")
    if known.overload:
        warnings.append(f"split this task: {known.overload}")
    return [text.one_line(warning, 300) for warning in warnings]


def task_notes(plan: Plan, task: Task, history: History) -> list[str]:
    """Remark and warnings, where there is room for both."""
    remark = task_remark(plan, task, history)
    return [*([remark] if remark else []), *task_warnings(plan, task, history)]


def spent(seconds: float, usd: float | None, tokens: Tokens) -> str:
    """Time, dollars and tokens, as far as they are known."""
    parts = [text.duration(seconds), "" if usd is None else f"${usd:.2f}", tokens_words(tokens)]
    return ", ".join(part for part in parts if part)


def record_lines(attempt: Attempt, agent: Agent) -> list[str]:
    """What a person reads of an attempt in progress.txt; everything an agent wrote is quoted."""
    result = attempt.result
    command, ended = text.one_line(agent.command, 80), ended_words(result) or "ended well"
    lines = [f"- agent: {command}, {spent_words(result)}, {ended}"]
    if again := agent.reopen(result.session):
        lines.append(f"- session: {text.one_line(again)}")
    if result.overload:
        lines.append(f"- split this task: {result.overload}")
    if judgement := attempt.judgement:
        said = "agrees" if judgement.agrees else "does not agree"
        lines.append(
            f"- judge: {text.one_line(judgement.command, 80)} {said}, {spent_words(judgement.result)}"
        )
        lines += text.quote("\n".join(judgement.objections))
    if attempt.checks:
        told = ", ".join(f"{check.name} {check.outcome}" for check in attempt.checks)
        lines.append(f"- checks: {text.one_line(told, 500)}")
    if attempt.changes:
        lines.append(f"- changes: {attempt.changes}")
    if attempt.reason:
        lines.append(f"- reason: {text.one_line(attempt.reason, 300)}")
    for title, entries in (("restored", attempt.restored), ("notice", attempt.notices)):
        for entry in entries:
            first, _, rest = entry.partition("\n")
            lines += [f"- {title}: {text.one_line(first, 300)}", *text.quote(rest)]
    if result.denials:
        lines.append(f"- denied: {text.one_line('; '.join(result.denials), 300)}")
    if attempt.verdict is not Verdict.PASSED and (red := [check for check in attempt.checks if not check.ok]):
        lines += [f"- failure: {text.one_line(red[0].name)}", *text.quote(text.tail(red[0].tail, 2000))]
    if attempt.handoff:
        told = "\n".join(f"{label}: {body}" for label, body in attempt.handoff.items())
        lines += ["- handoff:", *text.quote(told)]
    if attempt.blocked:
        lines.append(f"- blocked: {text.one_line(attempt.blocked, 500)}")
    if attempt.parked:
        lines.append(f"- parked: {attempt.parked}; back with: git cherry-pick {attempt.parked}")
    if result.survivors:
        lines.append(f"- still running after KILL: {result.survivors}")
    return lines
