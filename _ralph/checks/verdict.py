"""The verdict: what binds, what is evidence of work, and when a task is blocked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from _ralph import text
from _ralph.checks.evidence import Evidence
from _ralph.checks.judge import Answer
from _ralph.checks.suite import Comparison, Kind
from _ralph.model import COUNTED, AgentResult, Outcome, Verdict

INTERRUPTIONS = 3
"""Interrupted attempts in a row that block a task: it may never fit into the time it
gets."""
FLAKY = "flaky, red and green on the same files"
_LAST_WORDS = 300
"""Characters of what an agent said at its end."""
_KEPT_AWAY = {
    Outcome.INTERRUPTED: Verdict.INTERRUPTED,
    Outcome.LIMITED: Verdict.LIMITED,
    Outcome.UNAVAILABLE: Verdict.UNAVAILABLE,
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that a verdict rests on. `changed` says that the candidate's files differ
    from those of the commit that it is made on. `evidence` is what is known of all
    checks that must be green, and of commit hooks. `naming` says what of it would be
    green on this machine alone. `left_out` is what was changed and is no part of the
    work, `protected` those of it that an `allow` could let in; `ignored` what was made
    and git ignores. `judge` says that a judge must agree to a pass."""

    result: AgentResult
    changed: bool
    evidence: Sequence[Evidence]
    naming: Sequence[str] = ()
    left_out: Sequence[str] = ()
    protected: Sequence[str] = ()
    ignored: Sequence[str] = ()
    judge: bool = False


@dataclass(frozen=True)
class Decision:
    """What ralph says of an attempt. `weak`: nothing turned green for it. `beside`: the
    plan's checks that are red and do not bind. `flaky`: checks and tests that were red
    and green on the same files. `not_run`: lines that name tests which guarded, and do
    not run. `denied`: the agent was denied what it needed, and did nothing."""

    verdict: Verdict
    reason: str = ""
    weak: bool = False
    beside: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    denied: bool = False
    notices: list[str] = field(default_factory=list)


def kept_away(result: AgentResult, changed: bool = False) -> Verdict | None:
    """The verdict if an agent of any role could not do its part, which is no failure. A
    timeout without any output or change is a provider that did not answer."""
    if result.outcome is Outcome.TIMED_OUT and not result.active and not changed:
        return Verdict.LIMITED
    return _KEPT_AWAY.get(result.outcome)


def decide(case: Case) -> Decision:
    """The verdict on an attempt, before its judge. A pass needs every binding check
    green and evidence of work: something that turned green, and files that differ; or,
    weak, from an agent that ended well, files that differ."""
    verdict, reason = _verdict(case)
    passed = verdict is Verdict.PASSED
    proof = False
    beside = []
    flaky = []
    notices = []
    lost: list[str] = []
    unloaded: list[str] = []
    for one in case.evidence:
        name = one.result.name
        if not (one.binds or one.result.ok):
            beside.append(name)
        if one.flaky:
            flaky.append(name)
        tests = one.tests or Comparison()
        if one.turned or (one.mended and not tests.names(Kind.NEW)):
            proof = True
        if tests.names(Kind.FLAKY):
            flaky.append(text.few(tests.names(Kind.FLAKY)))
        let_go = tests.names(Kind.LET_GO)
        if let_go:
            gone = text.count(len(let_go), "test")
            notices.append(f"{gone} gone, as `allow` lets it: {text.few(let_go)}")
        lost += tests.names(Kind.LOST)
        unloaded += tests.uncollected
    notices += [f"{FLAKY}: {name}" for name in flaky]
    not_run = []
    if lost:
        gone = text.count(len(lost), "test")
        names = text.few(lost)
        not_run.append(f"{gone} green on an earlier commit, and not run: {names}")
    if unloaded:
        not_run.append(f"cannot be loaded, and tests nothing: {text.few(unloaded)}")
    notices += not_run
    if case.evidence and not passed:
        ignored = "is ignored by git and not part of the work"
        notices += [f"{name} {ignored}" for name in case.ignored[:6]]
    weak = passed and bool(not_run or not proof)
    denied = bool(case.result.denials) and not (passed or case.changed)
    return Decision(verdict, reason, weak, beside, flaky, not_run, denied, notices)


def _verdict(case: Case) -> tuple[Verdict, str]:
    """The verdict, and the reason for any but a pass."""
    result = case.result
    red = text.few(case.naming)
    turned = False
    proved = case.judge
    for one in case.evidence:
        turned = turned or one.turned
        proved = proved or one.turned or one.guards
        if one.red and not red:
            red = f"{one.result.name} {one.result.outcome}"
    if turned and case.changed and not red:
        return Verdict.PASSED, ""

    # whatever the checks say, it follows from how the agent ended
    away = kept_away(result, case.changed)
    if away or result.outcome is Outcome.TIMED_OUT:
        return away or Verdict.TIMED_OUT, result.reason
    words = text.one_line(result.text[-_LAST_WORDS:], _LAST_WORDS)
    last_words = f"; its last words: {words}" if words else ""
    if not case.changed and result.denials:
        why = f"permission was denied and nothing was done: {result.denials[0]}"
        ways = "allow it in the agent's settings, or use --wrap or --full-permissions"
        return Verdict.FAILED, f"{why}; {ways}"
    if not case.changed and case.left_out:
        return Verdict.FAILED, _all_left_out(case)

    # it failed by itself, or by its checks
    if result.outcome is not Outcome.DONE and not (red and case.changed):
        return Verdict.FAILED, f"the agent ended with an error: {result.reason}"
    if red and not case.changed:
        return Verdict.FAILED, f"it changed nothing: {red}{last_words}"
    if red:
        return Verdict.FAILED, red
    if not proved:
        return Verdict.FAILED, _not_proved(case)
    if case.changed:
        return Verdict.PASSED, ""
    reason = "every check that binds is green, and nothing shows that work was done"
    return Verdict.NO_OP, reason + last_words


def _all_left_out(case: Case) -> str:
    """What was changed and left out, and the `allow` that lets in what can be."""
    reason = f"all that it changed is left out: {text.few(case.left_out)}"
    if not case.protected:
        return reason
    names = json.dumps([*case.protected][:5])
    return f'{reason}; a task that has to change it says so: "allow": {names}'


def _not_proved(case: Case) -> str:
    """Why nothing shows that the work is right."""
    red = [one.result.name for one in case.evidence if not one.result.ok]
    why = "no check was green before the work"
    if red:
        why = f"the suite was red before the work and still is ({text.few(red)})"
    return f"not proven: {why}; add a check to this task"


def after_judge(decision: Decision, result: AgentResult, answer: Answer) -> Decision:
    """The verdict on an attempt that passes by `decision`, once its judge ended with
    `result` and said `answer`."""
    away = kept_away(result)
    no = [one for one in (answer.unreadable, *answer.objections) if one]
    if away:
        reason = f"the judge: {result.reason}"
    elif result.outcome is not Outcome.DONE:
        reason = f"the judge did not finish: {result.reason}"
    elif no:
        reason = f"the judge says no: {no[0]}"
    else:
        return decision
    verdict = away or Verdict.FAILED
    return replace(decision, verdict=verdict, reason=reason, weak=False)


def reason_to_block(
    verdict: Verdict,
    reason: str,
    *,
    spent: str = "",
    interruptions: int = 0,
    asks: str = "",
    no_op_before: bool = False,
    attempts: int = 1,
    most: int = 3,
) -> str:
    """Why an attempt with this verdict and reason blocks its task, or nothing.

    `spent` is the task's own limit that is reached, as `limits.spent_by` says.
    `interruptions` counts them in a row, with this one; 0, where a person stopped it or
    its agent had not started. `asks` is a question that it asked in the attempt before,
    too. `no_op_before` says that the attempt before was one. `attempts` are those that counted since it was opened, with
    this one, of at `most`.
    """
    why = ""
    if verdict is not Verdict.PASSED and spent:
        why = f"{spent}, the last attempt: {verdict}: {reason}"
    elif verdict is Verdict.INTERRUPTED and interruptions >= INTERRUPTIONS:
        why = f"interrupted {INTERRUPTIONS} times in a row, the last: {reason}"
    elif verdict not in COUNTED:
        return ""
    elif asks:
        why = f"it asks: {asks}"
    elif verdict is Verdict.NO_OP and no_op_before:
        return (
            "already done? two attempts changed nothing, and every check is green: "
            "set its passes to true, or give it a check that is red now"
        )
    elif attempts >= most:
        why = f"{text.count(attempts, 'failed attempt')}, the last: {reason}"
    return text.one_line(why, 500)
