"""The end of an attempt: its commit lands, then log and plan say so. The landed commit
is the one commit point; all that follows from it can be done twice."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import fields

from _ralph import files, text
from _ralph.errors import NeedsPerson
from _ralph.git.branch import Moved
from _ralph.loop.candidate import tip_of
from _ralph.loop.jobs import Attempt
from _ralph.loop.run import Run, notify, stand_by
from _ralph.loop.verdict import reason_to_block
from _ralph.model import (
    COUNTED,
    CheckResult,
    Conflict,
    Judgement,
    Plan,
    Task,
    Verdict,
    Work,
)
from _ralph.state import edit
from _ralph.state.history import entry_digest
from _ralph.state.limits import attempts_at
from _ralph.state.records import AttemptBegan, AttemptEnded, Failure, Rechecked, Stopped
from _ralph.state.summary import ended_words, spent

RANDOM = 32
"""Letters of an attempt's id that are random; what it is an attempt at follows."""


def new_id(run: Run, task: Task) -> str:
    """The id of an attempt: random, and what it is an attempt at."""
    return f"{uuid.uuid4().hex}{mark_of(run, task)}"


def mark_of(run: Run, task: Task) -> str:
    """The end of the ids of all attempts at a task: it is the same in a clone, and no
    other plan's."""
    plan = run.git.name_of(run.paths.prd) or run.paths.prd.name
    return files.digest(
        f"{plan}@{run.plan.branch}\n{task.key}".encode("utf-8", "surrogatepass")
    )


async def land(run: Run, attempt: Attempt) -> bool:
    """Move the branch to the commit of an attempt that passed, once nobody sits on it.
    False if somebody moved the branch: then nothing has been said yet, and the work is
    to be made and examined again."""
    await until_free(run, attempt)
    run.git.sync()
    title = (
        f"{text.one_line(attempt.task.id, 80)}: {text.one_line(attempt.task.title, 60)}"
    )
    try:
        run.branch.land(attempt.commit, attempt.tip, title)
    except Moved:
        tip_of(run)
        return False
    run.tip = attempt.commit
    return True


async def until_free(run: Run, attempt: Attempt) -> None:
    """Wait while a working tree has the branch checked out: its files would not follow.
    NeedsPerson when the run's time is up, StopNow when ralph must stop; the next start
    examines what the workspace holds."""
    seat = run.branch.seat
    if seat is None:
        return
    switch = f"{run.branch.name} is checked out in {seat}; switch away: git switch - (or git switch --detach)"
    reason = f"{attempt.task.id} passed and waits to land: {switch}"
    doing = f"waiting to land: {run.branch.name} is checked out"
    if not await stand_by(run, attempt, reason, doing, lambda: run.branch.seat is None):
        raise NeedsPerson(reason)


def note(run: Run, attempt: Attempt, by_person: bool = False) -> None:
    """Write the verdict on an attempt into the log, then mark its task in the plan, and
    tell people if it passed or is blocked. `by_person` says that it ended because a
    person was needed, which is not the task's fault."""
    run.read_plan()
    set_back_claim(run, attempt)
    by_person = by_person or bool(run.control.interrupts)
    history, allowed = (
        run.history.of(attempt.task),
        attempts_at(run.limits, attempt.task),
    )
    attempt.blocked = reason_to_block(attempt, history, allowed, by_person)
    if attempt.left and attempt.verdict is not Verdict.PASSED and not attempt.parked:
        if attempt.blocked and attempt.left != run.git.tree(attempt.base):
            attempt.parked = run.branch.park_tree(
                attempt.left, attempt.base, attempt.name
            )
        else:
            run.branch.pin_work(attempt.task.id, attempt.left)
    if attempt.result.overage or (attempt.judgement and attempt.judgement.overage):
        attempt.notices.append(
            "the subscription is used up, and the provider bills extra usage"
        )
    counted = attempt.verdict in COUNTED
    number = f", attempt {attempt.number} of {allowed}" if counted else ""
    verdict = record_of(run, attempt)
    run.write(
        verdict,
        f"iteration {attempt.iteration} | {attempt.task.id} {attempt.task.title} | {attempt.verdict}{number}",
        record_lines(attempt),
    )
    run.view.ended(attempt)
    mark(run, verdict)
    if attempt.passed or attempt.blocked:
        event = "passed" if attempt.passed else "blocked"
        notify(run, event, attempt.blocked or attempt.reason, attempt.task.id)


def note_lost(run: Run, landed: dict[str, str]) -> None:
    """Note the start of what has landed (commits by the ids of attempts) and the log
    does not know: it was taken back with `git checkout` or `git stash`, or a clone has
    an older one."""
    if landed.keys() <= run.history.begun:
        return
    newest = {own[RANDOM:]: own for own in reversed(landed)}
    for task in run.plan.tasks:
        own = newest.get(mark_of(run, task), "")
        if own and own not in run.history.begun:
            number, commit = run.history.iteration + 1, landed[own][:12]
            run.write(
                AttemptBegan(
                    task=task.id,
                    title=task.title,
                    iteration=number,
                    id=own,
                    leftover="checks",
                ),
                f"iteration {number} | {task.id} {task.title} | {commit} has landed, and these notes lack it",
            )


def note_landed(run: Run, attempt: Attempt, commit: str) -> None:
    """Note the pass of an attempt that has landed, and whose verdict the log lacks."""
    attempt.verdict, attempt.commit = Verdict.PASSED, commit
    attempt.tip = run.branch.commit_at(f"{commit}^")
    attempt.reason = "it had landed, and its verdict was not noted"
    attempt.checks = [
        CheckResult(check.name, check.command, True, 0, 0.0)
        for check in attempt.task.checks
    ]
    note(run, attempt)


def set_back_claim(run: Run, attempt: Attempt) -> None:
    """Set back a `passes` that became true during the attempt without a verdict."""
    now = run.plan.task_with(attempt.task.key)
    if now and now.passed and attempt.verdict is not Verdict.PASSED:
        run.edit(edit.set_passed, now, False)
        attempt.restored.append(
            f"{run.paths.prd.name} ({now.id} had been set to pass during the attempt)"
        )


def mark(run: Run, verdict: AttemptEnded) -> None:
    """Mark the task of a verdict in the plan, as passed or blocked."""
    task = task_of(run.plan, verdict)
    if task is None or task.passed:
        return
    if verdict.blocked and task.blocked is None:
        run.edit(edit.set_blocked, task, verdict.blocked)
    elif verdict.verdict is Verdict.PASSED and all(
        check.command in verdict.checks for check in task.checks
    ):
        run.edit(edit.set_passed, task, True)


def task_of(plan: Plan, verdict: AttemptEnded) -> Task | None:
    """The task that a verdict is about: a person may have given it another title or id
    meanwhile."""
    same = [task for task in plan.tasks if task.key == verdict.key]
    retitled = [task for task in plan.tasks if task.id == verdict.task and task.checks]
    moved = [task for task in plan.tasks if task.title == verdict.title]
    return next(
        (tasks[0] for tasks in (same, retitled, moved) if len(tasks) == 1), None
    )


def restore_marks(run: Run) -> None:
    """Mark the tasks again that passed and landed, and that the plan no longer marks:
    after `git checkout prd.json`, `git stash`, an editor's old buffer, or a kill right
    after the landing. `ralph retry` and the re-check take a pass away for good."""
    lost = [
        task for task in run.plan.tasks if not task.passed and run.history.holds(task)
    ]
    lost = [task for task in lost if run.branch.has_landed(run.history.of(task).commit)]
    for task in lost:
        run.view.line(
            f"{task.id} {run.history.of(task).passed_words}: marked again in {run.paths.prd.name}; "
            f"`ralph retry {task.id}` opens it",
            color="yellow",
        )
    if lost:
        run.edit(edit.set_passed, lost, True)


def set_back(run: Run, recheck: Rechecked) -> None:
    """Take the marks of the tasks that a re-check found broken, in one write; block
    those that it found broken before."""
    broken = [task for task in run.plan.tasks if task.key in recheck.broken]
    if passed := [task for task in broken if task.passed]:
        for task in passed:
            run.view.line(
                f"{task.id} {run.history.of(task).passed_words}, broken since"
            )
        run.edit(edit.set_passed, passed, False)
    if again := [
        task for task in broken if run.history.of(task).blocked and task.blocked is None
    ]:
        reason = "conflicting: it passed twice, and each time later work broke it"
        run.edit(edit.set_blocked, again, reason)
        for task in again:
            notify(run, "blocked", reason, task.id)


def redo_marks(run: Run) -> None:
    """Write the marks that the last run did not come to: it was killed between a record
    and its mark, or could not write the plan and says so in its last record. A block
    that is not marked looks like one that a person took away."""
    last = run.history.last
    if isinstance(last, AttemptEnded) and (
        last.blocked or run.branch.has_landed(last.commit)
    ):
        mark(run, last)
    elif isinstance(last, Rechecked):
        set_back(run, last)
    elif isinstance(last, Stopped):
        for task in run.plan.tasks:
            ended = run.history.of(task).last
            if task.key in last.unmarked and ended:
                mark(run, ended)


def record_of(run: Run, attempt: Attempt) -> AttemptEnded:
    """The verdict record of the attempt."""
    result, passed = attempt.result, attempt.verdict is Verdict.PASSED
    now = run.plan.task_with(attempt.task.key)
    work = {one.name: getattr(attempt, one.name) for one in fields(Work)}
    work |= dict.fromkeys(("left",) if passed else ("tip", "commit"), "")
    if passed:
        work["conflict"] = Conflict()
    for name in ("restored", "notices", "tests"):
        work[name] = [line.split("\n")[0] for line in work[name][:20]]
    return AttemptEnded(
        **vars(attempt.spent),
        **work,
        iteration=attempt.iteration,
        attempt=attempt.number,
        task=attempt.task.id,
        title=attempt.task.title,
        command=attempt.command,
        agent=attempt.agent.name,
        verdict=attempt.verdict,
        checks={check.command: check.ok for check in attempt.checks},
        failure=failure_of(attempt.checks),
        judge=attempt.judgement or Judgement(),
        session=result.session or "",
        exit=result.exit or 0,
        reset=result.reset or 0.0,
        overage=result.overage,
        denials=result.denials[:20],
        task_before=entry_digest(now) if now else "",
    )


def failure_of(checks: Sequence[CheckResult]) -> Failure:
    """The first of these checks that is red, and the names of the others."""
    red = [check for check in checks if not check.ok]
    if not red:
        return Failure()
    others = [check.name for check in red[1:]]
    return Failure(name=red[0].name, tail=red[0].tail, log=red[0].log, others=others)


def record_lines(attempt: Attempt) -> list[str]:
    """The lines of an attempt in progress.txt: each part begins with a label, and its
    further lines, as all that an agent wrote, are quoted."""
    result, judgement = attempt.result, attempt.judgement
    failed = attempt.verdict is not Verdict.PASSED
    red = next((check for check in attempt.checks if failed and not check.ok), None)
    handoff = attempt.handoff_text.strip()
    command, ended = (
        text.one_line(attempt.command, 80),
        ended_words(result) or "ended well",
    )
    parts = [
        ("agent", f"{command}, {spent(result)}, {ended}"),
        ("session", attempt.agent.reopen(result.session)),
        ("judge", _judge_words(judgement) if judgement else ""),
        (
            "checks",
            ", ".join(f"{check.name} {check.outcome}" for check in attempt.checks),
        ),
        ("changes", attempt.changes),
        ("changed tests", text.few(attempt.tests)),
        ("flaky", text.few(attempt.flaky)),
        ("reason", attempt.reason),
        *(("restored", line) for line in attempt.restored),
        *(("notice", line) for line in attempt.notices),
        ("denied", "; ".join(result.denials)),
        ("failure", f"{red.name}\n{text.tail(red.tail, 2000)}" if red else ""),
        ("handoff", f"\n{handoff}" if handoff else ""),
        ("blocked", attempt.blocked),
        (
            "parked",
            attempt.parked
            and f"{attempt.parked}; back with: git cherry-pick {attempt.parked}",
        ),
        ("still running after KILL", ", ".join(map(str, result.survivors))),
    ]
    lines = []
    for label, body in parts:
        if body:
            first, _, rest = body.partition("\n")
            lines += [
                f"- {label}: {text.one_line(first, 500)}".rstrip(),
                *text.quote(rest),
            ]
    return lines


def _judge_words(judgement: Judgement) -> str:
    verdict = "agrees" if judgement.agrees else "does not agree"
    line = f"{text.one_line(judgement.agent, 80)} {verdict}, {spent(judgement)}"
    return "\n".join([line, *judgement.objections])
