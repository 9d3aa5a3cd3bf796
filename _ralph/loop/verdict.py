"""The verdict: what counts as evidence of work, and when a task is blocked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from _ralph import text
from _ralph.loop.jobs import Attempt
from _ralph.model import COUNTED, AgentResult, CheckResult, Outcome, Verdict
from _ralph.state.history import History, TaskHistory

INTERRUPTIONS = 3
"""Interrupted attempts in a row that block a task: it may never fit into the time it gets."""
_KEPT_AWAY = {
    Outcome.INTERRUPTED: Verdict.INTERRUPTED,
    Outcome.LIMITED: Verdict.LIMITED,
    Outcome.UNAVAILABLE: Verdict.UNAVAILABLE,
}


def needs_checks(attempt: Attempt) -> bool:
    """Whether there is anything to check: changes, or an agent that could work and made none."""
    if attempt.commit != attempt.tip or attempt.leftover:
        return True
    return attempt.result.outcome not in _KEPT_AWAY


def weigh(attempt: Attempt, history: History, judge: bool) -> None:
    """Put the verdict into the attempt; `judge` says whether a judge must agree to a pass."""
    own = {check.command for check in attempt.task.checks}
    green = {check.command for check in attempt.checks if check.ok}
    ran = {check.command for check in attempt.checks}
    binding = own | green | ran - history.red  # all but what was red before the work, and never green
    attempt.fixed = fixed_checks(
        attempt.checks, own, {**attempt.baseline, **history.of(attempt.task).baseline}
    )
    attempt.verdict, attempt.reason = decide(attempt, own, binding, judge)
    passed = attempt.verdict is Verdict.PASSED
    attempt.denied = not passed and bool(attempt.result.denials) and attempt.commit == attempt.tip
    attempt.weak = passed and not attempt.fixed and not history.red & green
    if passed:
        loose = [check.name for check in attempt.checks if not check.ok and check.command not in binding]
        attempt.notices += [
            f"{name} does not count: it was red before the work and still is" for name in loose
        ]
    elif attempt.checks and attempt.ignored:
        attempt.notices += [
            f"{name} is ignored by git and not part of the work" for name in attempt.ignored[:6]
        ]


def decide(attempt: Attempt, own: set[str], binding: set[str], judge: bool = False) -> tuple[Verdict, str]:
    """The verdict on an attempt and the reason for it, from evidence alone.

    `own` and `binding` are check commands; with a `judge`, there may be none. A pass needs every binding
    check green, and evidence of work: an own check that was red before the first attempt
    (`attempt.fixed`) or, from an agent that ended well, a candidate that differs from the tip.
    """
    result, changed = attempt.result, attempt.commit != attempt.tip
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
        return (
            Verdict.FAILED,
            f"nothing proves it: what was red before the work still is ({names}); give it a check of its own",
        )
    if result.outcome is not Outcome.DONE:
        return Verdict.FAILED, f"the agent ended with an error: {result.reason}"
    if green and changed:
        return Verdict.PASSED, ""
    return Verdict.NO_OP, "every check is green, and nothing shows that work was done"


def fixed_checks(checks: Sequence[CheckResult], own: set[str], baseline: Mapping[str, bool]) -> bool:
    """Whether an own check turned green that was red before the first attempt."""
    return any(check.ok and check.command in own and baseline.get(check.command) is False for check in checks)


def kept_away(result: AgentResult, changed: bool = False) -> Verdict | None:
    """The verdict if an agent of any role could not do its part, which is no failure. A timeout without any
    output or change is a provider that did not answer."""
    if result.outcome is Outcome.TIMED_OUT and not result.active and not changed:
        return Verdict.LIMITED
    return _KEPT_AWAY.get(result.outcome)


def _no_verdict(result: AgentResult, changed: bool) -> tuple[Verdict, str] | None:
    """The verdict that follows from how the agent ended, whatever the checks say, if any does."""
    timed_out = result.outcome is Outcome.TIMED_OUT
    if away := kept_away(result, changed):
        return away, f"{result.reason}, in silence" if timed_out else result.reason
    if timed_out:
        return Verdict.TIMED_OUT, result.reason
    if result.denials and not changed:
        return Verdict.FAILED, f"permission was denied and nothing was done: {result.denials[0]}"
    return None


def weigh_judge(attempt: Attempt, result: AgentResult, objections: list[str]) -> None:
    """The verdict on an attempt that passes by evidence, after its judge ended with `result`."""
    if away := kept_away(result):
        attempt.unjudged = True
        attempt.verdict, attempt.reason = away, f"the judge: {result.reason}"
        attempt.result = replace(attempt.result, outcome=result.outcome, reset=result.reset)
    elif result.outcome is not Outcome.DONE:
        attempt.verdict, attempt.reason = Verdict.FAILED, f"the judge did not finish: {result.reason}"
    elif objections:
        attempt.verdict, attempt.reason = Verdict.FAILED, f"the judge says no: {objections[0]}"


def reason_to_block(attempt: Attempt, known: TaskHistory, attempts: int, by_person: bool) -> str:
    """Why this attempt blocks its task, or nothing. `known` is the task's history before it, `attempts` the
    limit; `by_person` says that a person interrupted it."""
    if (
        attempt.verdict is Verdict.INTERRUPTED
        and not attempt.leftover
        and not by_person
        and known.interrupted + 1 >= INTERRUPTIONS
    ):
        return text.one_line(f"interrupted {INTERRUPTIONS} times in a row, the last: {attempt.reason}", 500)
    if attempt.verdict not in COUNTED:
        return ""
    question = attempt.handoff.get("blocked on", "")
    if question and known.question == question:
        return text.one_line(f"it asks: {question}", 500)
    if attempt.verdict is Verdict.NO_OP and known.last and known.last.verdict is Verdict.NO_OP:
        return (
            "already done? two attempts changed nothing, and every check is green: "
            "set its passes to true, or give it a check that is red now"
        )
    if known.attempts + 1 >= attempts:
        return text.one_line(
            f"{text.count(known.attempts + 1, 'failed attempt')}, the last: {attempt.reason}", 500
        )
    return ""
