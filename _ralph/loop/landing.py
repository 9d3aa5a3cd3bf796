"""The end of an attempt: the branch moves to its commit, then log and plan say so. That
commit is the one commit point; all that follows from it can be done twice."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

from _ralph import text
from _ralph.checks.verdict import reason_to_block
from _ralph.errors import Exit, Stop
from _ralph.git.branch import AWAY, Moved
from _ralph.loop.loop import Loop
from _ralph.loop.stages import Examined
from _ralph.model import (
    COUNTED,
    CheckResult,
    Judgement,
    Task,
    Verdict,
)
from _ralph.state import edit
from _ralph.state.limits import attempts_at, spent_by
from _ralph.state.records import AttemptEnded, Failure
from _ralph.state.summary import spent

_SHOWN = ("- restored", "- notice", "- denied", "- changed tests")
"""Lines of a verdict that are shown while it is made, too."""


def advance(loop: Loop, examined: Examined) -> bool:
    """Move the branch to the commit of an attempt that passed, once nobody sits on it.
    False if somebody moved the branch: then nothing has been said yet, and the work is
    to be made and examined again."""
    task = examined.begun.task
    wait_until_free(loop, task)
    loop.git.sync()
    why = f"{text.one_line(task.id, 80)}: {text.one_line(task.title, 60)}"
    try:
        loop.branch.land(examined.commit, examined.candidate.tip, why)
    except Moved:
        loop.tip()
        return False
    return True


def wait_until_free(loop: Loop, task: Task) -> None:
    """Wait while a working tree has the branch checked out: its files would not follow.
    Where the run ends meanwhile, the next start examines the work again."""
    seat = loop.branch.seat
    if seat is not None:
        where = f"{loop.branch.name} is checked out in {seat}"
        loop.view.doing(f"waiting: {where}")
        said = f"{task.id} passed and waits: {where}; {AWAY}"
        loop.stand_by(said, lambda: loop.branch.seat is None, task.id)


def note(loop: Loop, examined: Examined) -> None:
    """Write the verdict on an attempt into the log, and mark its task in the plan. What
    gives a mark goes into the log first, what takes one away, or blocks, into the plan:
    so a kill between the two never looks like a person's hand."""
    begun = examined.begun
    decision = examined.decision
    loop.read()
    if loop.trouble and not examined.passed:
        # to block a task takes a plan that can be read; a pass is marked later
        loop.wait_for_plan()
    with loop.plan_locked():
        blocked = why_blocked(loop, examined)
        parked = keep_work(loop, examined, blocked)
        now = loop.plan.task_with(begun.task.key)
        claims = now is not None and now.passed and not examined.passed
        if now and claims and not loop.trouble:
            loop.mark(lambda plan: edit.set_passed(plan, now, False))
        if now and blocked and now.blocked is None:
            loop.mark(lambda plan: edit.set_blocked(plan, now, blocked))
        record = record_of(loop, examined, blocked, parked)
        if claims:
            claim = f"{begun.task.id} had been set to pass during the attempt"
            record.restored.append(f"{loop.paths.prd.name} ({claim})")
        number = ""
        if decision.verdict in COUNTED:
            most = attempts_at(loop.limits, begun.task)
            number = f", attempt {begun.number} of {most}"
        lines = record_lines(examined, record)
        loop.write(record, f"{begun.headline} | {decision.verdict}{number}", lines)
        if examined.passed and not loop.trouble:
            mark_passed(loop, record)
    loop.view.lines([line[2:] for line in lines if line.startswith(_SHOWN)])
    loop.view.verdict(record, spent(examined.result))
    loop.view.task("")
    if examined.passed:
        loop.pending.append(("passed", decision.reason, begun.task.id))
    elif blocked:
        loop.pending.append(("blocked", blocked, begun.task.id))
    loop.last_stop = stop_after(loop, examined)


def stop_after(loop: Loop, examined: Examined) -> Stop | None:
    """The stop that an attempt means for the run, if any."""
    verdict = examined.decision.verdict
    result = examined.result
    if result.no_price:
        return Stop("no-price", result.no_price)
    if not loop.options.once or verdict is Verdict.INTERRUPTED:
        return None
    if verdict in (Verdict.LIMITED, Verdict.UNAVAILABLE):
        reason = f"no attempt can be made now: {examined.decision.reason}"
        return Stop(str(verdict), reason)
    passed = Exit.COMPLETE if examined.passed else None
    return Stop("once", f"one attempt, as asked: {verdict}", passed)


def why_blocked(loop: Loop, examined: Examined) -> str:
    """Why an attempt blocks its task, or nothing."""
    if examined.result.never:  # no work of any agent could pass
        return examined.result.never
    begun = examined.begun
    history = loop.history.of(begun.task)
    decision = examined.decision
    taken = deepcopy(history.since)
    taken.add(examined.spent)
    own_limit = "" if examined.passed else spent_by(begun.task, taken)
    interruptions = 0
    if decision.verdict is Verdict.INTERRUPTED and not examined.worked.by_person:
        interruptions = history.interrupted + 1
    question = examined.handoff.get("question", "")
    last = history.last
    return reason_to_block(
        decision.verdict,
        decision.reason,
        spent=own_limit,
        interruptions=interruptions,
        asks=question if question and history.question == question else "",
        no_op_before=bool(last and last.verdict is Verdict.NO_OP),
        attempts=history.attempts + 1,
        most=attempts_at(loop.limits, begun.task),
    )


def keep_work(loop: Loop, examined: Examined, blocked: str) -> str:
    """Protect what did not pass: a blocked task's work is parked, other work waits for
    the next attempt. The ref of what is parked."""
    worked = examined.worked
    begun = examined.begun
    parked = examined.candidate.parked
    if not worked.left or examined.passed or parked:
        return parked
    if blocked and worked.left != loop.git.tree(begun.base):
        return loop.branch.park_tree(worked.left, begun.base, begun.name)
    loop.branch.pin_work(begun.task.id, worked.left)
    return ""


def mark_passed(loop: Loop, record: AttemptEnded) -> None:
    """Mark the task of a verdict as passed, if that is by all of its checks."""
    task = loop.plan.task_with(record.key)
    if task is None or task.passed:
        return
    if all(check.command in record.checks for check in task.checks):
        loop.mark(lambda plan: edit.set_passed(plan, task, True))


def restore_marks(loop: Loop) -> None:
    """Mark the tasks again that passed and whose commit is on the branch, and that the
    plan no longer marks: after `git checkout prd.json`, `git stash`, an editor's old
    buffer, or a kill right after the branch moved. `ralph retry` and the final check
    take a pass away for good. Under the plan's lock."""
    if loop.trouble:
        return
    lost = []
    for task in loop.plan.tasks:
        known = loop.history.of(task)
        if task.passed or not loop.history.holds(task):
            continue
        if not loop.branch.has_landed(known.passed.commit):
            continue
        lost.append(task)
        marked = f"marked again in {loop.paths.prd.name}"
        said = f"{task.id} {known.passed_words}: {marked}; "
        said += f"`ralph retry {task.id}` opens it"
        loop.view.line(said, color="yellow")
    if lost:
        loop.mark(lambda plan: edit.set_passed(plan, lost, True))


# ---------------------------------------------------------------- the record


def record_of(
    loop: Loop, examined: Examined, blocked: str, parked: str
) -> AttemptEnded:
    """The verdict record of an attempt."""
    worked = examined.worked
    begun = examined.begun
    decision = examined.decision
    result = examined.result
    judgement = examined.judgement or Judgement()
    notices = [*worked.notices, *examined.notices]
    record = replace(
        begun.ended(decision.verdict, decision.reason),
        **vars(examined.spent),
        weak=decision.weak,
        beside=decision.beside,
        not_run=decision.not_run,
        denied=decision.denied,
        flaky=decision.flaky,
        tests=first_lines(examined.tests),
        restored=first_lines(worked.restored),
        notices=first_lines([*dict.fromkeys(notices)]),
        handoff=dict(examined.handoff),
        blocked=blocked,
        parked=parked,
        base=begun.base,
        checks={check.command: check.ok for check in examined.checks},
        failure=failure_of(examined.binding_first),
        judge=judgement,
        session=result.session or "",
        reset=result.reset,
        overage=result.overage,
        denials=result.denials[:20],
        uncounted=worked.by_person and decision.verdict is Verdict.INTERRUPTED,
    )
    if examined.passed:
        record.commit = examined.commit
    else:
        record.left = worked.left
        record.conflict = begun.conflict
    return record


def first_lines(lines: Sequence[str]) -> list[str]:
    """The first line of each of these, of at most twenty."""
    return [line.split("\n")[0] for line in lines[:20]]


def failure_of(checks: Sequence[CheckResult]) -> Failure:
    """The first of these checks that is red, and the names of the others."""
    red = [check for check in checks if not check.ok]
    if not red:
        return Failure()
    others = [check.name for check in red[1:]]
    return Failure(name=red[0].name, tail=red[0].tail, log=red[0].log, others=others)


def record_lines(examined: Examined, record: AttemptEnded) -> list[str]:
    """The lines of an attempt in progress.txt: each part begins with a label, and its
    further lines, as all that an agent wrote, are quoted."""
    result = examined.result
    judgement = examined.judgement
    command = text.one_line(record.command, 80)
    ended = result.reason or "ended well"
    judge = ""
    if judgement:
        who = text.one_line(judgement.agent, 80)
        verdict = "agrees" if judgement.agrees else "does not agree"
        said = f"{who} {verdict}, {spent(judgement)}"
        judge = "\n".join([said, *judgement.objections])
    checks = ", ".join(f"{check.name} {check.outcome}" for check in examined.checks)
    failure = ""
    if record.failure.name and not examined.passed:
        tail = text.tail(record.failure.tail, 2000)
        failure = f"{record.failure.name}\n{tail}"
    handoff = examined.worked.handoff.strip()
    back = f"{record.parked}; back with: git cherry-pick {record.parked}"
    parts = [
        ("agent", f"{command}, {spent(result)}, {ended}"),
        ("session", examined.begun.agent.reopen(result.session)),
        ("judge", judge),
        ("checks", checks),
        ("changes", text.few(examined.worked.changed)),
        ("changed tests", text.few(record.tests)),
        ("flaky", text.few(record.flaky)),
        ("reason", record.reason),
        *(("restored", line) for line in record.restored),
        *(("notice", line) for line in record.notices),
        ("denied", "; ".join(record.denials)),
        ("failure", failure),
        ("handoff", f"\n{handoff}" if handoff else ""),
        ("blocked", record.blocked),
        ("parked", back if record.parked else ""),
        ("still running after KILL", ", ".join(map(str, result.survivors))),
    ]
    lines = []
    for label, body in parts:
        if body:
            first, _, rest = body.partition("\n")
            lines.append(f"- {label}: {text.one_line(first, 500)}".rstrip())
            lines += text.quote(rest)
    return lines
