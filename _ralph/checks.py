"""Checks: run them, know what was red before, and say what an attempt's evidence is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from _ralph import text
from _ralph.model import AgentResult, Attempt, Check, CheckResult, Outcome, Plan, Task, Verdict
from _ralph.process import Control, run_process

TAIL = 6000
"""Bytes of a failing check's output that the next prompt shows."""
_KEPT_AWAY = {
    Outcome.INTERRUPTED: Verdict.INTERRUPTED,
    Outcome.LIMITED: Verdict.LIMITED,
    Outcome.UNAVAILABLE: Verdict.UNAVAILABLE,
}


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


def decide(
    attempt: Attempt, own: set[str], binding: set[str], with_git: bool, judge: bool = False
) -> tuple[Verdict, str]:
    """The verdict on an attempt and the reason for it, from evidence alone.

    `own` and `binding` are check commands; with a `judge` to come, a plan may have none at all.
    The agent's outcome can only take a pass away: a
    pass needs every binding check green and a trace of work, either an own check that was red
    before the first attempt (`attempt.fixed`) or, from an agent that ended well, a changed tree.
    """
    result, changed = attempt.result, attempt.tree_after != attempt.tree_before
    bound = [check for check in attempt.checks if check.command in binding]
    red = [check for check in bound if not check.ok]
    proof = bool(bound) or (judge and not attempt.checks)
    green = proof and not red and {check.command for check in bound} >= own
    if green and attempt.fixed:
        return Verdict.PASSED, ""
    if early := _no_verdict(result, changed):
        return early
    if red and result.outcome is Outcome.FAILED and not changed:
        return Verdict.FAILED, f"the agent ended with an error and changed nothing: {result.reason}"
    if red:
        return Verdict.FAILED, f"{red[0].name} {red[0].outcome}"
    if not proof:
        names = ", ".join(check.name for check in attempt.checks)
        return Verdict.FAILED, f"no check binds: what was red before the work began still is ({names})"
    if result.outcome is not Outcome.DONE:
        return Verdict.FAILED, f"the agent ended with an error: {result.reason}"
    if green and changed and with_git:
        return Verdict.PASSED, ""
    return Verdict.NO_OP, "every check is green, and nothing shows that work was done"


def fixed_checks(checks: Sequence[CheckResult], own: set[str], baseline: Mapping[str, bool]) -> bool:
    """Whether an own check that was red before the first attempt is green now."""
    return any(check.ok and check.command in own and baseline.get(check.command) is False for check in checks)


def kept_away(result: AgentResult, changed: bool = False) -> Verdict | None:
    """The verdict where an agent of any role could not do its part: its end is nobody's failure. A
    deadline without a word or a deed is a provider that did not answer."""
    if result.outcome is Outcome.TIMED_OUT and not result.active and not changed:
        return Verdict.LIMITED
    return _KEPT_AWAY.get(result.outcome)


def _no_verdict(result: AgentResult, changed: bool) -> tuple[Verdict, str] | None:
    """What an agent's end means where no pass is possible, before any check counts."""
    timed_out = result.outcome is Outcome.TIMED_OUT
    if away := kept_away(result, changed):
        return away, f"{result.reason}, in silence" if timed_out else result.reason
    if timed_out:
        return Verdict.TIMED_OUT, result.reason
    if result.denials and not changed:
        return Verdict.UNAVAILABLE, f"permission was denied and nothing was done: {result.denials[0]}"
    return None


def _distinct(checks: Iterable[Check]) -> list[Check]:
    kept: dict[str, Check] = {}
    for check in checks:
        kept.setdefault(check.command, check)
    return list(kept.values())
