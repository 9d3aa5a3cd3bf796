"""What a person reads afterwards: the status table, records, the summary for machines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from _ralph import text
from _ralph.agents import Agent
from _ralph.model import AgentResult, Attempt, Outcome, Plan, Stop, Task, Tokens, Verdict
from _ralph.progress import History, TaskHistory

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
    done = {other.id for other in plan.tasks if other.passed}
    if not done.issuperset(task.depends_on):
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
        "iterations": history.run_iterations if stop else history.iteration,
        "seconds": round(seconds, 1),
        "usd": round(history.run_usd if stop else history.usd, 6),
        "tokens": (history.run_tokens if stop else history.tokens).as_dict(),
        "tasks": [_task_summary(plan, task, history) for task in tasks if plan],
    }


def status_lines(plan: Plan, history: History, running: Mapping[str, Any] | None) -> list[str]:
    """The status table, a line each: every task, what is next, what a loop does now."""
    from _ralph.prd import next_task

    upcoming = next_task(plan)
    passed, total = sum(task.passed for task in plan.tasks), len(plan.tasks)
    width = max(len(task.id) for task in plan.tasks)
    titles = max(len(text.one_line(task.title, 60)) for task in plan.tasks)
    bar = "#" * (24 * passed // total)
    lines = [f"{plan.project}: {passed} of {total} passed  [{bar:.<24}]", ""]
    for task in plan.tasks:
        state = "next" if task is upcoming else task_state(plan, task, history)
        known = history.tasks.get(task.key)
        cost = spent(known.seconds, known.usd or None, known.tokens) if known and known.iterations else ""
        title = text.one_line(task.title, 60)
        lines.append(f"{state:8}{text.clean(task.id):{width}}  {title:{titles}}  {cost}".rstrip())
        lines += [f"{'':{8 + width}}  {note}" for note in task_notes(plan, task, history)]
    so_far = f": {spent(history.seconds, history.usd or None, history.tokens)}" if history.iteration else ""
    lines += ["", f"{text.count(history.iteration, 'iteration')} so far{so_far}"]
    if running:
        on = f", on {text.one_line(running['task'])}" if running.get("task") else ""
        lines.append(f"a loop is running since {running['since']} (pid {running['pid']}){on}")
    elif history.stopped:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(history.stopped.get("time", 0)))
        lines.append(
            f"the last run stopped at {at}: {text.one_line(history.stopped.get('reason') or '', 300)}"
        )
    return lines


def _task_summary(plan: Plan, task: Task, history: History) -> dict[str, Any]:
    known = history.tasks.get(task.key)
    last = known.last if known else None
    return {
        "id": task.id,
        "title": task.title,
        "state": task_state(plan, task, history),
        "attempts": known.tried if known else 0,
        "usd": round(known.usd, 6) if known else 0.0,
        "tokens": (known.tokens if known else Tokens()).as_dict(),
        "split": known.overload or None if known else None,
        "reason": task.blocked or (last.get("reason") if last and not task.passed else None),
    }


def task_notes(plan: Plan, task: Task, history: History) -> list[str]:
    """The lines under a task in the status table and on the report's page."""
    known, state = history.tasks.get(task.key) or TaskHistory(), task_state(plan, task, history)
    notes = []
    if state == "blocked":
        parked = f"; parked: {known.parked}" if known.parked else ""
        notes.append(f"{text.one_line(task.blocked or '', 200)}{parked}")
    if state == "waiting":
        done = {other.id for other in plan.tasks if other.passed}
        notes.append(text.one_line(f"waits for {', '.join(d for d in task.depends_on if d not in done)}"))
    if state == "failed":
        reason = text.one_line((known.last or {}).get("reason") or "", 200)
        notes.append(f"{text.count(known.attempts, 'failed attempt')}, the last: {reason}")
    if state == "passed" and known.weak:
        notes.append("weak: it has no check of its own")
    if known.denials:
        notes.append(text.one_line(f"denied: {'; '.join(known.denials)}"))
    if known.overload:
        notes.append(text.one_line(f"split this task: {known.overload}"))
    return notes


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
