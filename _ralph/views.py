"""What a person sees: event lines, the status table, the summary for machines."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from _ralph import text
from _ralph.agents import Agent
from _ralph.model import AgentResult, Attempt, CheckResult, Outcome, Plan, Stop, Task, Verdict
from _ralph.progress import History

STATES = ("passed", "open", "waiting", "failed", "blocked")
"""The states of a task in `status` and in summaries: `failed` is open still, after an attempt."""


class View:
    """Prints a run as it goes, one line an event. A closed pipe or a full disk under the log
    never stops the loop."""

    def __init__(self, stream: TextIO | None = None, level: int = 0) -> None:
        self._stream = stream or sys.stdout
        self._level = level
        self._patience = 2.0
        try:
            self._live = self._stream.isatty()
        except (OSError, ValueError):
            self._live = False

    def line(self, words: str, indent: str = "") -> None:
        """One line, stamped with the time; `words` is cleaned of anything but text."""
        if self._level >= 0:
            stamp = time.strftime("%H:%M:%S" if self._live else "%Y-%m-%d %H:%M:%S")
            self._write(f"{stamp} {indent}{text.one_line(words, 400)}")

    def last(self, words: str, failed: bool) -> None:
        """The line that a run ends with; after a failure also where nothing else is printed."""
        if failed and self._level < 0:
            self._level, self._stream = 0, sys.stderr
        self.line(words)

    def agent(self, kind: str, words: str) -> None:
        """What the agent says and uses, as it comes: on a terminal, or everywhere with -v."""
        if self._level > 0 or (self._live and self._level == 0):
            mark = "  $ " if kind == "tool" else "  | "
            lines = words.splitlines() if self._level > 0 else words.strip().splitlines()[:3]
            for line in lines:
                self._write(mark + text.one_line(line, 110))

    def check(self, result: CheckResult, label: str = "") -> None:
        why = "" if result.ok or label else f": {text.last_line(result.tail)}"
        self.line(f"{label}check {result.name}: {result.outcome}{why}", "  ")

    def started(self, attempt: Attempt, of: int, agent: str) -> None:
        self.line(
            f"iteration {attempt.iteration} | {attempt.task.id} {text.one_line(attempt.task.title, 50)} | "
            f"attempt {attempt.number} of {of} | {agent}"
        )

    def ended(self, attempt: Attempt) -> None:
        for notice in [*(f"restored: {line}" for line in attempt.restored), *attempt.notices]:
            self.line(f"! {notice}", "  ")
        reason = attempt.reason or ended_words(attempt.result)
        weak = " (weak: it has no check of its own)" if attempt.weak else ""
        self.line(
            f"{attempt.verdict}{weak}{f': {reason}' if reason else ''} | {spent_words(attempt.result)}", "  "
        )
        if attempt.result.denials:
            self.line(f"denied: {'; '.join(attempt.result.denials)}", "  ")
        if attempt.result.overload:
            self.line(f"split this task: {attempt.result.overload}", "  ")
        if attempt.blocked:
            self.line(f"blocked: {attempt.blocked}", "  ")

    def _write(self, line: str) -> None:
        try:
            if not select.select([], [self._stream.fileno()], [], self._patience)[1]:
                self._patience = 0.0  # nobody reads: lines are lost, the loop goes on
                return
            self._patience = 2.0
            print(line.encode("utf-8", "replace").decode("utf-8"), file=self._stream, flush=True)
        except UnicodeEncodeError:
            print(line.encode("ascii", "replace").decode("ascii"), file=self._stream, flush=True)
        except (OSError, ValueError):
            self._level = -1


def spent_words(result: AgentResult) -> str:
    """`5 min 12 s, $0.42, 18204 in / 2110 out tokens`, as far as it is known."""
    parts = [text.duration(result.seconds)]
    if result.usd is not None:
        parts.append(f"${result.usd:.2f}")
    if result.tokens.input or result.tokens.output:
        parts.append(f"{result.tokens.input} in / {result.tokens.output} out tokens")
    return ", ".join(parts)


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
    bar = "#" * (24 * passed // total)
    lines = [f"{plan.project}: {passed} of {total} passed  [{bar:.<24}]", ""]
    for task in plan.tasks:
        state = "next" if task is upcoming else task_state(plan, task, history)
        lines.append(f"{state:8}{text.clean(task.id):{width}}  {text.one_line(task.title, 60)}")
        if note := _note(plan, task, history):
            lines.append(f"{'':{8 + width}}  {note}")
    spent = f", ${history.usd:.2f}" if history.usd else ""
    lines += ["", f"{text.count(history.iteration, 'iteration')} so far{spent}"]
    if running:
        on = f", on {text.one_line(running['task'])}" if running.get("task") else ""
        lines.append(f"a loop is running since {running['since']} (pid {running['pid']}){on}")
    elif history.stopped:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(history.stopped["time"]))
        lines.append(f"the last run stopped at {at}: {text.one_line(history.stopped.get('reason', ''), 300)}")
    return lines


def _task_summary(plan: Plan, task: Task, history: History) -> dict[str, Any]:
    known = history.tasks.get(task.key)
    last = known.last if known else None
    return {
        "id": task.id,
        "title": task.title,
        "state": task_state(plan, task, history),
        "attempts": len(known.iterations) if known else 0,
        "usd": round(known.usd, 6) if known else 0.0,
        "reason": task.blocked or (last.get("reason") if last and not task.passed else None),
    }


def _note(plan: Plan, task: Task, history: History) -> str:
    """The line under a task in the status table, if there is something to say."""
    known, state = history.tasks.get(task.key), task_state(plan, task, history)
    if state == "blocked":
        parked = f"; parked: {known.parked}" if known and known.parked else ""
        return f"{text.one_line(task.blocked or '', 200)}{parked}"
    if state == "waiting":
        done = {other.id for other in plan.tasks if other.passed}
        return f"waits for {', '.join(d for d in task.depends_on if d not in done)}"
    if state == "failed" and known:
        reason = text.one_line((known.last or {}).get("reason", ""), 200)
        return f"{text.count(known.attempts, 'failed attempt')}, the last: {reason}"
    return "weak: it has no check of its own" if state == "passed" and known and known.weak else ""


def record_lines(attempt: Attempt, agent: Agent) -> list[str]:
    """What a person reads of an attempt in progress.txt; everything an agent wrote is quoted."""
    result = attempt.result
    command, ended = text.one_line(agent.command, 80), ended_words(result) or "ended well"
    lines = [f"- agent: {command}, {spent_words(result)}, {ended}"]
    if again := agent.reopen(result.session):
        lines.append(f"- session: {text.one_line(again)}")
    if result.overload:
        lines.append(f"- split this task: {result.overload}")
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
