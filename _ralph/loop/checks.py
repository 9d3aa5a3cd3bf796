"""Checks: run them, know what was red before, and say what an attempt's evidence is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from _ralph import text
from _ralph.model import Check, CheckResult, Plan, Task
from _ralph.process.process import Control, run_process

TAIL = 6000
"""Bytes of a failing check's output that the next prompt shows."""


def checks_for(plan: Plan, task: Task) -> list[Check]:
    """The task's own checks, then the plan's; identical commands once."""
    return _distinct([*task.checks, *plan.checks])


def every_check(plan: Plan) -> list[Check]:
    """All distinct checks of a plan that still mean something at its end (not `once`)."""
    every = [*plan.checks, *(check for task in plan.tasks for check in task.checks)]
    return _distinct(check for check in every if not check.once)


def run_checks(
    checks: Iterable[Check],
    *,
    cwd: Path,
    env: Mapping[str, str],
    control: Control,
    log: Callable[[int], Path],
    told: Callable[[CheckResult], None] = lambda _: None,
    wrap: Callable[[list[str]], list[str]] = lambda argv: argv,
) -> list[CheckResult]:
    """Run all of `checks`, also after a red one; `log(i)` is where check i's output goes, `wrap`
    puts a command into the sandbox.

    Stops early only when ralph itself is told to stop.
    """
    results: list[CheckResult] = []
    for number, check in enumerate(checks):
        argv = ["/bin/sh", "-c", check.run] if isinstance(check.run, str) else list(check.run)
        path = log(number)
        done = run_process(wrap(argv), cwd=cwd, env=env, timeout=check.timeout, control=control, out=path)
        if done.ended == "interrupted":
            break
        result = CheckResult(
            name=check.name,
            command=check.command,
            ok=done.ended == "itself" and done.exit == 0,
            exit=done.exit,
            seconds=round(done.seconds, 1),
            tail=text.redact(text.clean(text.tail(done.tail or done.error, TAIL))),
            log=str(path),
            timed_out=done.ended == "deadline",
        )
        results.append(result)
        told(result)
    return results


def _distinct(checks: Iterable[Check]) -> list[Check]:
    kept: dict[str, Check] = {}
    for check in checks:
        kept.setdefault(check.command, check)
    return list(kept.values())
