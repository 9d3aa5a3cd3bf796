"""After an attempt: its record, the mark in the plan, the landing. All of it can be done twice."""

from __future__ import annotations

from dataclasses import fields

from _ralph import files, text
from _ralph.git.branch import Moved
from _ralph.loop.candidate import check_now, tip_of
from _ralph.loop.jobs import Attempt, CheckJob
from _ralph.loop.room import merged
from _ralph.loop.run import Run
from _ralph.loop.verdict import reason_to_block
from _ralph.model import COUNTED, Judgement, Plan, Task, Verdict, Work
from _ralph.state import edit
from _ralph.state.history import entry_digest
from _ralph.state.records import AttemptEnded, Failure, Landed, Rechecked
from _ralph.state.wording import ended_words, spent


def record(run: Run, attempt: Attempt, by_person: bool = False) -> None:
    """Write the verdict, the one commit point of an attempt; then apply it. `by_person` says that it ended
    because a person was needed, which is not the task's fault."""
    run.read_plan()
    set_back_claim(run, attempt)
    by_person = by_person or bool(run.control.interrupts)
    known = run.history.of(attempt.task)
    attempt.blocked = reason_to_block(attempt, known, run.limits.attempts, by_person)
    if attempt.verdict is Verdict.PASSED and attempt.commit != attempt.tip and run.branch.signs:
        tree = run.git.tree(attempt.commit)
        attempt.commit = run.branch.commit(tree, attempt.tip, attempt.message, sign=True)
        run.branch.pin_candidate(attempt.commit)
    elif attempt.left and attempt.verdict is not Verdict.PASSED and not attempt.parked:
        if attempt.blocked and attempt.left != run.git.tree(attempt.base):
            attempt.parked = run.branch.park_tree(attempt.left, attempt.base, attempt.name)
        else:
            run.branch.pin_work(attempt.task.id, attempt.left)
    if attempt.result.overage or (attempt.judgement and attempt.judgement.overage):
        attempt.notices.append("the subscription is used up, and the provider bills extra usage")
    counted = attempt.verdict in COUNTED
    number = f", attempt {attempt.number} of {run.limits.attempts}" if counted else ""
    run.write(
        record_of(run, attempt),
        f"iteration {attempt.iteration} | {attempt.task.id} {attempt.task.title} | {attempt.verdict}{number}",
        record_lines(attempt),
    )
    run.view.ended(attempt)
    apply_verdict(run, live=True)
    set_back(run)


def set_back_claim(run: Run, attempt: Attempt) -> None:
    """Set back a `passes` that became true during the attempt without a verdict."""
    now = run.plan.task_with(attempt.task.key)
    if now and now.passed and attempt.verdict is not Verdict.PASSED:
        run.edit(lambda plan: edit.set_passed(plan, now, False))
        attempt.restored.append(f"{run.paths.prd.name} ({now.id} had been set to pass during the attempt)")


def record_of(run: Run, attempt: Attempt) -> AttemptEnded:
    """The verdict record of the attempt."""
    result, passed = attempt.result, attempt.verdict is Verdict.PASSED
    now = run.plan.task_with(attempt.task.key)
    work = {one.name: getattr(attempt, one.name) for one in fields(Work)}
    work |= dict.fromkeys(("left",) if passed else ("tip", "commit", "message"), "")
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
        failure=failure_of(attempt),
        judge=attempt.judgement or Judgement(),
        session=result.session or "",
        rate=result.rate,
        request=result.request,
        exit=result.exit or 0,
        reset=result.reset or 0.0,
        overload=result.overload,
        overage=result.overage,
        denials=result.denials[:20],
        task_before=entry_digest(now) if now else "",
    )


def failure_of(attempt: Attempt) -> Failure:
    """The first check of an attempt that is red, and the names of the others."""
    red = [check for check in attempt.checks if not check.ok]
    if not red:
        return Failure()
    others = [check.name for check in red[1:]]
    return Failure(name=red[0].name, tail=red[0].tail, log=red[0].log, others=others)


def apply_verdict(run: Run, live: bool = False) -> None:
    """Land the work and mark the task, as the last verdict says: a mark never stands before its work.
    Earlier verdicts have landed, and may lack their marks. Harmless if done twice.

    After a crash, `live` is False, and what a person has edited in the task since the verdict wins.
    """
    pending = run.history.pending
    for verdict in pending:
        if verdict is pending[-1] and verdict.lands:
            if live or run.branch.commit_at(verdict.commit):
                land(run, verdict)
            else:  # a clone has only what was pushed
                reject_landing(run, verdict, run.tip, "its commit is not in this repository")
        if verdict.key in run.history.broken:
            continue
        task = task_of(run.plan, verdict)
        as_it_was = live or (task and entry_digest(task) == verdict.task_before)
        if task and as_it_was and not task.passed and (verdict.lands or task.blocked is None):
            mark(run, task, verdict)
    run.history.pending = []


def task_of(plan: Plan, verdict: AttemptEnded) -> Task | None:
    """The task that a verdict is about. A person may have given it another id meanwhile, or another title:
    then the checks of its own show that it is the same one."""
    same = [task for task in plan.tasks if task.key == verdict.key]
    moved = [task for task in plan.tasks if task.title == verdict.title]
    retitled = [task for task in plan.tasks if task.id == verdict.task and task.checks]
    known = [task for task in retitled if has_run_checks_of(task, verdict)]
    return next((found[0] for found in (same, moved, known) if len(found) == 1), None)


def has_run_checks_of(task: Task, verdict: AttemptEnded) -> bool:
    """Whether all checks of the task's own were run: a person may have changed them meanwhile."""
    return all(check.command in verdict.checks for check in task.checks)


def mark(run: Run, task: Task, verdict: AttemptEnded) -> None:
    """Mark the task in the plan as passed or blocked."""
    if verdict.blocked:
        run.edit(lambda plan: edit.set_blocked(plan, task, verdict.blocked))
    elif verdict.lands and has_run_checks_of(task, verdict):
        run.edit(lambda plan: edit.set_passed(plan, task, True))


def land(run: Run, verdict: AttemptEnded) -> None:
    """Move the branch to the verified commit. If somebody moved it first, merge with the new tip and check
    again; if that is red, set the pass back."""
    commit, tip = verdict.commit, verdict.tip
    title = f"{text.one_line(verdict.task, 80)}: {text.one_line(verdict.title, 60)}"
    if commit == tip:
        return
    while True:
        try:
            run.branch.land(commit, tip, title)
            break
        except Moved:
            run.tip = run.tip if run.tip != commit else tip
            tip = tip_of(run)
            tree, conflicts = merged(run.git, tip, commit)
            red = f"it conflicts in {text.few(conflicts)}" if not tree else ""
            if tree:
                commit = run.branch.commit(tree, tip, verdict.message, sign=run.branch.signs)
                run.branch.pin_candidate(commit)
                red = "" if commit == tip else recheck_task(run, verdict, commit)
            if red:
                reject_landing(run, verdict, commit, red)
                return
            files.sync_all(run.git.common)  # the new commit, which no record made durable
    run.tip = commit
    if commit != verdict.commit:
        landed = Landed(task=verdict.task, title=verdict.title, iteration=verdict.iteration, commit=commit)
        run.write(landed, f"{title} | landed on the new tip")


def recheck_task(run: Run, verdict: AttemptEnded, commit: str) -> str:
    """Check a passed task's commit on a new tip; what is red, if anything."""
    task = task_of(run.plan, verdict)
    checks = run.plan.checks_for(task) if task else list(run.plan.checks)
    name = f"{verdict.iteration:04}-merged"
    job = CheckJob(commit=commit, checks=checks, name=name, label="on the new tip: ")
    red = [one for one in check_now(run, job).red if one.command not in run.history.red]
    return ", ".join(f"{one.name} {one.outcome}" for one in red)


def reject_landing(run: Run, verdict: AttemptEnded, commit: str, why: str) -> None:
    """Record that a pass does not hold on the branch, and park its work if that is here."""
    here = run.branch.commit_at(verdict.commit)
    kept = [f"parked: {run.branch.park(here, f'{verdict.iteration:04}-conflict')}"] if here else []
    said = f"{verdict.task} passed, but that does not hold on {run.branch.name}: {why}"
    run.view.line("! " + "; ".join([said, *kept]), color="yellow")
    found = Rechecked(broken=[verdict.key], since={verdict.key: [why]}, commit=commit)
    run.write(found, said, [f"- {line}" for line in kept])


def set_back(run: Run) -> None:
    """Set back the passes that the last record found broken, in one write. Harmless if done twice."""
    broken = [task for task in run.plan.tasks if task.key in run.history.broken]
    run.history.broken = []
    if passed := [task for task in broken if task.passed]:
        for task in passed:
            run.view.line(f"{task.id} {run.history.of(task).passed_words}, broken since")
        run.edit(lambda plan: edit.set_passed(plan, passed, False))
    if again := [task for task in broken if run.history.of(task).blocked and task.blocked is None]:
        reason = "conflicting: it passed twice, and each time later work broke it"
        run.edit(lambda plan: edit.set_blocked(plan, again, reason))


def record_lines(attempt: Attempt) -> list[str]:
    """The lines of an attempt in progress.txt: each part begins with a label, and its further lines, as all
    that an agent wrote, are quoted."""
    result, judgement = attempt.result, attempt.judgement
    failed = attempt.verdict is not Verdict.PASSED
    red = next((check for check in attempt.checks if failed and not check.ok), None)
    handoff = [f"\n{label}: {body}" for label, body in attempt.handoff.items()]
    command, ended = text.one_line(attempt.command, 80), ended_words(result) or "ended well"
    parts = [
        ("agent", f"{command}, {spent(result)}, {ended}"),
        ("session", attempt.agent.reopen(result.session)),
        ("split this task", result.overload),
        ("judge", _judge_words(judgement) if judgement else ""),
        ("checks", ", ".join(f"{check.name} {check.outcome}" for check in attempt.checks)),
        ("changes", attempt.changes),
        ("changed tests", text.few(attempt.tests)),
        ("reason", attempt.reason),
        *(("restored", line) for line in attempt.restored),
        *(("notice", line) for line in attempt.notices),
        ("denied", "; ".join(result.denials)),
        ("failure", f"{red.name}\n{text.tail(red.tail, 2000)}" if red else ""),
        ("handoff", "".join(handoff)),
        ("blocked", attempt.blocked),
        ("parked", attempt.parked and f"{attempt.parked}; back with: git cherry-pick {attempt.parked}"),
        ("still running after KILL", ", ".join(map(str, result.survivors))),
    ]
    lines = []
    for label, body in parts:
        if body:
            first, _, rest = body.partition("\n")
            lines += [f"- {label}: {text.one_line(first, 500)}".rstrip(), *text.quote(rest)]
    return lines


def _judge_words(judgement: Judgement) -> str:
    said = "agrees" if judgement.agrees else "does not agree"
    told = f"{text.one_line(judgement.agent, 80)} {said}, {spent(judgement)}"
    return "\n".join([told, *judgement.objections])
