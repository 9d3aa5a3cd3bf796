"""What follows from an attempt: its record, the mark, the landing. All of it can be done again."""

from __future__ import annotations

import functools
import time
from dataclasses import fields
from typing import Any

from _ralph import files, text
from _ralph.agents.registry import Agent
from _ralph.git.branch import Moved
from _ralph.loop.candidate import run_checks_on, tip_of
from _ralph.loop.checks import checks_for
from _ralph.loop.room import merged
from _ralph.loop.run import Run
from _ralph.loop.verdict import reason_to_block
from _ralph.loop.worker import WorkerDied
from _ralph.model import COUNTED, Attempt, Judgement, Plan, Task, Verdict, Work
from _ralph.state import edit
from _ralph.state.limits import ahead
from _ralph.state.records import AttemptEnded, Failure, Landed, Rechecked
from _ralph.state.wording import ended_words, spent


def record(run: Run, attempt: Attempt) -> None:
    """Write the verdict, the one commit point of an attempt; then do what follows from it."""
    run.read_plan()
    take_back_claim(run, attempt)
    attempt.blocked = reason_to_block(run, attempt)
    if attempt.verdict is Verdict.PASSED and attempt.commit != attempt.tip and run.branch.signs:
        attempt.commit = run.branch.commit(attempt.tree, attempt.tip, attempt.message, sign=True)
    elif attempt.left and attempt.blocked and not attempt.parked:
        attempt.parked = run.branch.park(attempt.left, attempt.base, attempt.name)
    if attempt.left and attempt.verdict is not Verdict.PASSED and not attempt.parked:
        run.branch.hold(attempt.task.id, attempt.left)
    if attempt.result.overage:
        attempt.notices.append("the subscription is used up, and the provider bills extra usage")
    counted = attempt.verdict in COUNTED
    number = f", attempt {attempt.number} of {run.limits.attempts}" if counted else ""
    run.write(
        record_of(run, attempt),
        f"iteration {attempt.iteration} | {attempt.task.id} {attempt.task.title} | {attempt.verdict}{number}",
        record_lines(attempt, run.named(attempt.command)),
    )
    run.view.ended(attempt)
    carry_out(run, live=True)
    set_back(run)


def take_back_claim(run: Run, attempt: Attempt) -> None:
    """A pass that stands in prd.json though no verdict gave it, set while this very task was worked on,
    is taken back: only ralph says that its work passes."""
    now = next((task for task in run.plan.tasks if task.key == attempt.task.key), None)
    if now and now.passed and attempt.verdict is not Verdict.PASSED:
        run.edit(lambda plan: edit.set_passed(plan, now, False))
        attempt.restored.append(f"{run.paths.prd.name} ({now.id} had been set to pass during the attempt)")


def record_of(run: Run, attempt: Attempt) -> AttemptEnded:
    """The verdict record of the attempt."""
    result, passed = attempt.result, attempt.verdict is Verdict.PASSED
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
        agent=run.named(attempt.command).name,
        verdict=attempt.verdict,
        checks={check.command: check.ok for check in attempt.checks},
        failure=failure_of(attempt),
        judge=attempt.judgement or Judgement(),
        session=result.session or "",
        rate=result.rate,
        request=result.request,
        exit=result.exit or 0,
        reset=ahead(result, time.time()) or 0.0,
        overload=result.overload,
        overage=result.overage,
        denials=result.denials[:20],
        prd_before=run.plan_digest,
    )


def failure_of(attempt: Attempt) -> Failure:
    """The first check of an attempt that is red, and the names of the others."""
    red = [check for check in attempt.checks if not check.ok]
    if not red:
        return Failure()
    others = [check.name for check in red[1:]]
    return Failure(name=red[0].name, tail=red[0].tail, log=red[0].log, others=others)


def carry_out(run: Run, live: bool = False) -> None:
    """Do what the last verdict says: mark the task, land its work. Doing it again is harmless.

    After a crash, a prd.json that changed since the verdict is a person's word, and stays.
    """
    verdict = run.history.pending
    if verdict and (verdict.lands or verdict.blocked):
        task = next((task for task in run.plan.tasks if task.id == verdict.task), None)
        untouched = live or run.plan_digest == verdict.prd_before
        if task and verdict.lands:  # a person can have given it other checks meanwhile
            untouched = untouched and all(check.command in verdict.checks for check in task.checks)
        if task and untouched and not task.passed and task.blocked is None:
            run.edit(functools.partial(mark, task, verdict))
        if verdict.lands:
            land(run, verdict)
    run.history.pending = None


def mark(task: Task, verdict: AttemptEnded, plan: Plan) -> str:
    """The text of the plan in which the task is marked as the verdict says."""
    if verdict.lands:
        return edit.set_passed(plan, task, True)
    return edit.set_blocked(plan, task, verdict.blocked)


def land(run: Run, verdict: AttemptEnded) -> None:
    """Move the branch to the verified commit. Where somebody moved it first, what lands is put on the
    new tip and checked again; if it does not hold there, the pass is taken back."""
    commit, tip = verdict.commit, verdict.tip
    title = f"{verdict.task}: {text.one_line(verdict.title, 60)}"
    if commit == tip:
        return
    again = False
    while True:
        try:
            if again:
                files.sync_all(run.git.common)  # the new commit, which no record made durable
            run.branch.land(commit, tip, title)
        except Moved:
            run.tip, again = run.tip if run.tip != commit else tip, True
            now = tip_of(run)
            tree, conflicts = merged(run.git, now, commit)
            red = f"it conflicts in {text.few(conflicts)}" if not tree else ""
            if tree:
                tip, commit = now, run.branch.commit(tree, now, verdict.message)
                red = "" if commit == tip else recheck_task(run, verdict, commit)
            if red:
                refuse(run, verdict, commit, red)
                return
            continue
        run.tip = commit
        if again:
            landed = Landed(
                task=verdict.task, title=verdict.title, iteration=verdict.iteration, commit=commit
            )
            run.write(landed, f"{title} | landed on the new tip")
        return


def recheck_task(run: Run, verdict: AttemptEnded, commit: str) -> str:
    """Check a passed task's commit again, merged with a new tip; what is red, or nothing."""
    task = next((task for task in run.plan.tasks if task.id == verdict.task), None)
    checks = checks_for(run.plan, task) if task else list(run.plan.checks)
    name = f"{verdict.iteration:04}-merged"

    def look(inside: Run) -> dict[str, Any]:
        results = run_checks_on(inside, inside.room(), commit, checks, name, "on the new tip: ")
        return {
            "red": [
                f"{r.name} {r.outcome}" for r in results if not r.ok and r.command not in inside.history.red
            ]
        }

    try:
        return ", ".join(run.wait(run.in_worker(look))["red"])
    except WorkerDied as error:
        return str(error)


def refuse(run: Run, verdict: AttemptEnded, commit: str, why: str) -> None:
    """Note that a pass does not hold on what was committed meanwhile; its work is parked."""
    kept = run.branch.keep(verdict.commit, f"{verdict.iteration:04}-conflict")
    said = f"{verdict.task} passed, and does not hold on what was committed meanwhile: {why}"
    run.view.line(f"! {said}; its work is kept at {kept}", color="yellow")
    found = Rechecked(broken=[verdict.key], since={verdict.key: [why]}, commit=commit)
    run.write(found, said, [f"- parked: {kept}"])


def set_back(run: Run) -> None:
    """Take back the passes that the last records found broken, in one write; doing it again is harmless."""
    broken = [task for task in run.plan.tasks if task.key in run.history.broken and task.passed]
    run.history.broken = []
    if not broken:
        return
    for task in broken:
        run.view.line(f"{task.id} {run.history.of(task).passed_words}, broken since")
    run.edit(lambda plan: edit.set_passed(plan, broken, False))
    if again := [task for task in broken if run.history.of(task).blocked]:
        reason = "conflicting: it passed twice, and each time later work broke it"
        run.edit(lambda plan: edit.set_blocked(plan, again, reason))


def record_lines(attempt: Attempt, agent: Agent) -> list[str]:
    """What a person reads of an attempt in progress.txt: the first line of each part behind its label,
    the others quoted; everything an agent wrote is."""
    result, judgement = attempt.result, attempt.judgement
    failed = attempt.verdict is not Verdict.PASSED
    red = next((check for check in attempt.checks if failed and not check.ok), None)
    handoff = [f"\n{label}: {body}" for label, body in attempt.handoff.items()]
    command, ended = text.one_line(agent.command, 80), ended_words(result) or "ended well"
    parts = [
        ("agent", f"{command}, {spent(result)}, {ended}"),
        ("session", agent.reopen(result.session)),
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
