"""Checks: which ones apply, and the result of one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from _ralph import text
from _ralph.model import Check, CheckResult, Plan, Task
from _ralph.process.process import ProcessResult

TAIL = 6000
"""Bytes of a red check's output that the next prompt shows."""


def checks_for(plan: Plan, task: Task) -> list[Check]:
    """The task's own checks, then the plan's, without duplicates."""
    return _distinct([*task.checks, *plan.checks])


def every_check(plan: Plan) -> list[Check]:
    """All checks of a plan that must hold at its end (not `once`), without duplicates."""
    every = [*plan.checks, *(check for task in plan.tasks for check in task.checks)]
    return _distinct(check for check in every if not check.once)


def result_of(check: Check, done: ProcessResult, log: Path) -> CheckResult:
    """The result of a check from that of its process, whose output is in `log`."""
    return CheckResult(
        name=check.name,
        command=check.command,
        ok=done.ended == "itself" and done.exit == 0,
        exit=done.exit,
        seconds=round(done.seconds, 1),
        tail=text.redact(text.clean(text.tail(done.tail, TAIL))),
        log=str(log),
        timed_out=done.ended == "deadline",
    )


def _distinct(checks: Iterable[Check]) -> list[Check]:
    kept: dict[str, Check] = {}
    for check in checks:
        kept.setdefault(check.command, check)
    return list(kept.values())
