"""The verdict: what counts as evidence of work, and when a task is blocked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace

from _ralph import text
from _ralph.loop.jobs import Attempt
from _ralph.loop.suite import Change
from _ralph.model import COUNTED, AgentResult, Outcome, Verdict
from _ralph.state.history import TaskHistory
from _ralph.state.limits import spent_by

INTERRUPTIONS = 3
"""Interrupted attempts in a row that block a task: it may never fit into the time it
gets."""
_KEPT_AWAY = {
    Outcome.INTERRUPTED: Verdict.INTERRUPTED,
    Outcome.LIMITED: Verdict.LIMITED,
    Outcome.UNAVAILABLE: Verdict.UNAVAILABLE,
}


@dataclass(frozen=True)
class Before:
    """What is known of the checks from before an attempt's work, by their commands:
    which of the task's own were green before its first attempt, which are green on the
    commit that the candidate is made on (those of the plan also if they are red by
    single tests alone), which were red and green on the same files, and how single
    tests changed."""

    own: Mapping[str, bool] = field(default_factory=dict)
    tip: Mapping[str, bool] = field(default_factory=dict)
    flaky: Collection[str] = ()
    suites: Mapping[str, Change] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """What a verdict rests on. `changed`: the candidate's files differ from those of
    the commit that it is made on. `proved`: something binds or has turned green, or a
    judge comes after. `complete`: every check of the task's own ran. `red`: the first
    binding check that is red, in words. `turned`: an own check was red before the work
    and is green now. `suite`: the plan's checks that were red before and still are.
    `left_out`: what was changed and is no part of the work, in words."""

    result: AgentResult
    changed: bool
    proved: bool = True
    complete: bool = True
    red: str = ""
    turned: bool = False
    suite: str = ""
    left_out: str = ""


def needs_checks(attempt: Attempt) -> bool:
    """Whether there is anything to check: changes, or an agent that could work and made
    none."""
    if attempt.changes_tree or attempt.leftover:
        return True
    return attempt.result.outcome not in _KEPT_AWAY


def weigh(attempt: Attempt, before: Before, judge: bool) -> None:
    """Put the verdict into the attempt; `judge` says whether a judge must agree to a
    pass."""
    own = {check.command for check in attempt.task.checks}
    broken = {
        command
        for command, change in before.suites.items()
        if change.breaks or change.silent
    }
    red_before = (
        {command for command, ok in before.tip.items() if not ok} - own - broken
    )
    suite = [
        check.name
        for check in attempt.checks
        if not check.ok and check.command in red_before
    ]
    red = [
        check
        for check in attempt.checks
        if not check.ok and check.command not in red_before
    ]
    green = {check.command for check in attempt.checks if check.ok}
    steady = green - {*before.flaky}
    whole = steady - {
        command for command, change in before.suites.items() if change.new
    }
    turned = {command for command in own & steady if before.own.get(command) is False}
    turned -= {
        command for command in own if before.tip.get(command)
    }  # by what landed meanwhile
    tests = [name for change in before.suites.values() for name in change.turned]
    repaired = (red_before & whole) | {
        command
        for command, change in before.suites.items()
        if change.recovered and command in steady
    }
    named = f"{text.few(attempt.naming)} names a checkout of ralph, which a clone does not have"
    binding = {check.command for check in attempt.checks} & {
        *own,
        *before.tip,
    } - red_before
    facts = Facts(
        attempt.result,
        changed=attempt.changes_tree,
        proved=bool(binding or judge or tests or red_before & steady),
        complete=own <= {check.command for check in attempt.checks},
        red=named
        if attempt.naming
        else f"{red[0].name} {red[0].outcome}"
        if red
        else "",
        turned=bool(turned or tests),
        suite=text.few(suite),
        left_out=attempt.left_out,
    )
    attempt.verdict, attempt.reason = decide(facts)
    passed = attempt.verdict is Verdict.PASSED
    attempt.flaky = [
        check.name for check in attempt.checks if check.command in before.flaky
    ]
    attempt.flaky += [
        text.few(change.flaky) for change in before.suites.values() if change.flaky
    ]
    attempt.denied = (
        not passed and bool(attempt.result.denials) and not attempt.changes_tree
    )
    attempt.weak = passed and bool(suite or not (turned or tests or repaired))
    attempt.notices = [
        *dict.fromkeys([*attempt.notices, *_notices(attempt, before, suite)])
    ]


def _notices(attempt: Attempt, before: Before, suite: list[str]) -> list[str]:
    """What a person should know beside the verdict; `suite` are the plan's checks that
    are red as before."""
    said = [f"flaky, red and green on the same files: {name}" for name in attempt.flaky]
    let_go = [name for change in before.suites.values() for name in change.let_go]
    if let_go:
        said.append(
            f"{text.count(len(let_go), 'test')} gone, as `allow` lets it: {text.few(let_go)}"
        )
    if attempt.passed and suite:
        said.append(f"the suite is red: {text.few(suite)}; it was so before the work")
    if attempt.checks and not attempt.passed:
        said += [
            f"{name} is ignored by git and not part of the work"
            for name in attempt.ignored[:6]
        ]
    return said


def decide(facts: Facts) -> tuple[Verdict, str]:
    """The verdict and the reason for it. A pass needs every binding check green, and
    evidence: an own check that turned green and files that differ or, from an agent
    that ended well, files that differ."""
    result, changed = facts.result, facts.changed
    green = facts.proved and facts.complete and not facts.red
    if green and changed and facts.turned:
        return Verdict.PASSED, ""
    if early := _no_verdict(result, changed):
        return early
    if facts.left_out and not changed:
        return Verdict.FAILED, f"all that it changed is left out: {facts.left_out}"
    if facts.red and result.outcome is Outcome.FAILED and not changed:
        return (
            Verdict.FAILED,
            f"the agent ended with an error and changed nothing: {result.reason}",
        )
    if facts.red:
        return (
            Verdict.FAILED,
            facts.red if changed else f"it changed nothing: {facts.red}",
        )
    if not facts.proved:
        still = f"the suite was red before the work and still is ({facts.suite})"
        return Verdict.FAILED, f"not proven: {still}; add a check to this task"
    if result.outcome is not Outcome.DONE:
        return Verdict.FAILED, f"the agent ended with an error: {result.reason}"
    if green and changed:
        return Verdict.PASSED, ""
    return Verdict.NO_OP, "every check is green, and nothing shows that work was done"


def kept_away(result: AgentResult, changed: bool = False) -> Verdict | None:
    """The verdict if an agent of any role could not do its part, which is no failure. A
    timeout without any output or change is a provider that did not answer."""
    if result.outcome is Outcome.TIMED_OUT and not result.active and not changed:
        return Verdict.LIMITED
    return _KEPT_AWAY.get(result.outcome)


def _no_verdict(result: AgentResult, changed: bool) -> tuple[Verdict, str] | None:
    """The verdict that follows from how the agent ended, whatever the checks say, if
    any does."""
    timed_out = result.outcome is Outcome.TIMED_OUT
    if away := kept_away(result, changed):
        return away, f"{result.reason}, in silence" if timed_out else result.reason
    if timed_out:
        return Verdict.TIMED_OUT, result.reason
    if result.denials and not changed:
        return (
            Verdict.FAILED,
            f"permission was denied and nothing was done: {result.denials[0]}",
        )
    return None


def weigh_judge(attempt: Attempt, result: AgentResult, objections: list[str]) -> None:
    """The verdict on an attempt that passes by evidence, after its judge ended with
    `result`."""
    if away := kept_away(result):
        attempt.unjudged = True
        attempt.verdict, attempt.reason = away, f"the judge: {result.reason}"
        attempt.result = replace(
            attempt.result, outcome=result.outcome, reset=result.reset
        )
    elif result.outcome is not Outcome.DONE:
        attempt.verdict, attempt.reason = (
            Verdict.FAILED,
            f"the judge did not finish: {result.reason}",
        )
    elif objections:
        attempt.verdict, attempt.reason = (
            Verdict.FAILED,
            f"the judge says no: {objections[0]}",
        )


def reason_to_block(
    attempt: Attempt, known: TaskHistory, attempts: int, by_person: bool
) -> str:
    """Why this attempt blocks its task, or nothing. `known` is the task's history
    before it, `attempts` the limit; `by_person` says that a person interrupted it."""
    if never := attempt.cannot_pass or attempt.refused:
        return never
    taken = deepcopy(known.since)
    taken.add(attempt.spent)
    if not attempt.passed and (spent := spent_by(attempt.task, taken)):
        return text.one_line(
            f"{spent}, the last attempt: {attempt.verdict}: {attempt.reason}", 500
        )
    if (
        attempt.verdict is Verdict.INTERRUPTED
        and not attempt.leftover
        and not by_person
        and known.interrupted + 1 >= INTERRUPTIONS
    ):
        return text.one_line(
            f"interrupted {INTERRUPTIONS} times in a row, the last: {attempt.reason}",
            500,
        )
    if attempt.verdict not in COUNTED:
        return ""
    question = attempt.handoff.get("question", "")
    if question and known.question == question:
        return text.one_line(f"it asks: {question}", 500)
    if (
        attempt.verdict is Verdict.NO_OP
        and known.last
        and known.last.verdict is Verdict.NO_OP
    ):
        return (
            "already done? two attempts changed nothing, and every check is green: "
            "set its passes to true, or give it a check that is red now"
        )
    if known.attempts + 1 >= attempts:
        return text.one_line(
            f"{text.count(known.attempts + 1, 'failed attempt')}, the last: {attempt.reason}",
            500,
        )
    return ""
