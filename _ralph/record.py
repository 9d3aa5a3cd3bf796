"""What follows from an attempt: its record, the mark, the landing. All of it can be done again."""

from __future__ import annotations

from typing import Any

from _ralph import edit, files, text
from _ralph.candidate import run_checks_on, tip_of
from _ralph.checks import checks_for
from _ralph.landing import Moved
from _ralph.model import COUNTED, Attempt, CheckResult, Judgement, Verdict
from _ralph.room import merged
from _ralph.run import Run
from _ralph.verdict import reason_to_block
from _ralph.views import record_lines
from _ralph.worker import WorkerDied, in_worker


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
        "verdict",
        f"iteration {attempt.iteration} | {attempt.task.id} {attempt.task.title} | {attempt.verdict}{number}",
        record_lines(attempt, run.agent(attempt.task)),
        **verdict_fields(attempt),
        agent=run.agent(attempt.task).name,
        prd_before=run.plan_digest,
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


def verdict_fields(attempt: Attempt) -> dict[str, Any]:
    """What stands in a verdict record of the attempt itself."""
    result, judgement = attempt.result, attempt.judgement
    red = [check for check in attempt.checks if not check.ok]
    passed = attempt.verdict is Verdict.PASSED
    return {
        "iteration": attempt.iteration,
        "attempt": attempt.number,
        "task": attempt.task.id,
        "title": attempt.task.title,
        "verdict": str(attempt.verdict),
        "reason": attempt.reason,
        "weak": attempt.weak,
        "denied": attempt.denied,
        "checks": {check.command: check.ok for check in attempt.checks},
        "baseline": attempt.baseline,
        "failure": _failure(red) if red else None,
        "base": attempt.base,
        "left": "" if passed else attempt.left,
        "leftover": attempt.leftover,
        "tip": attempt.tip if passed else "",
        "commit": attempt.commit if passed else "",
        "message": attempt.message if passed else "",
        "judge": judge_record(judgement) if judgement else None,
        "unjudged": attempt.unjudged,
        "session": result.session,
        "overload": result.overload,
        "reset": result.reset,
        "overage": result.overage,
        "exit": result.exit,
        "usd": attempt.usd,
        "tokens": {key: value for key, value in attempt.tokens.as_dict().items() if value},
        "seconds": round(attempt.seconds, 1),
        "denials": result.denials[:20],
        "restored": [line.split("\n")[0] for line in attempt.restored],
        "notices": [line.split("\n")[0] for line in attempt.notices[:20]],
        "handoff": attempt.handoff,
        "blocked": attempt.blocked,
        "parked": attempt.parked,
    }


def judge_record(judgement: Judgement) -> dict[str, Any]:
    """What stands in a verdict record of the judge's part in it."""
    result = judgement.result
    return {
        "agent": judgement.command,
        "agrees": judgement.agrees,
        "objections": judgement.objections[:20],
        "session": result.session,
        "usd": result.usd,
        "tokens": result.tokens.as_dict(),
        "seconds": round(result.seconds, 1),
    }


def _failure(red: list[CheckResult]) -> dict[str, Any]:
    first = red[0]
    others = [check.name for check in red[1:]]
    return {"name": first.name, "tail": first.tail, "log": first.log, "others": others}


def carry_out(run: Run, live: bool = False) -> None:
    """Do what the last verdict says: mark the task, land its work. Doing it again is harmless.

    After a crash, a prd.json that changed since the verdict is a person's word, and stays.
    """
    verdict = run.history.pending or {}
    passed = verdict.get("verdict") == Verdict.PASSED and "commit" in verdict
    blocked = str(verdict.get("blocked") or "")
    if not (passed or blocked):
        run.history.pending = None
        return
    task = next((task for task in run.plan.tasks if task.id == verdict["task"]), None)
    untouched = live or run.plan_digest == verdict.get("prd_before")
    if task and untouched and not task.passed and task.blocked is None:
        mark = task
        run.edit(
            lambda plan: (
                edit.set_passed(plan, mark, True) if passed else edit.set_blocked(plan, mark, blocked)
            )
        )
    if passed:
        land(run, verdict)
    run.history.pending = None


def land(run: Run, verdict: dict[str, Any]) -> None:
    """Move the branch to the verified commit. Where somebody moved it first, what lands is put on the
    new tip and checked again; if it does not hold there, the pass is taken back."""
    commit, tip, message = str(verdict["commit"]), str(verdict["tip"]), str(verdict.get("message") or "")
    title = f"{verdict['task']}: {text.one_line(str(verdict['title']), 60)}"
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
                tip, commit = now, run.branch.commit(tree, now, message)
                red = "" if commit == tip else recheck_task(run, verdict, commit)
            if red:
                refuse(run, verdict, commit, red)
                return
            continue
        run.tip = commit
        if again:
            run.write("land", f"{title} | landed on the new tip", [], commit=commit, task=verdict["task"],
                      title=verdict["title"], iteration=verdict["iteration"])  # fmt: skip
        return


def recheck_task(run: Run, verdict: dict[str, Any], commit: str) -> str:
    """Check a passed task's commit again, merged with a new tip; what is red, or nothing."""
    task = next((task for task in run.plan.tasks if task.id == verdict["task"]), None)
    checks = checks_for(run.plan, task) if task else list(run.plan.checks)
    name = f"{verdict['iteration']:04}-merged"

    def look(inside: Run) -> dict[str, Any]:
        results = run_checks_on(inside, inside.room(), commit, checks, name, "on the new tip: ")
        return {
            "red": [
                f"{r.name} {r.outcome}" for r in results if not r.ok and r.command not in inside.history.red
            ]
        }

    try:
        return ", ".join(in_worker(run, look)["red"])
    except WorkerDied as error:
        return str(error)


def refuse(run: Run, verdict: dict[str, Any], commit: str, why: str) -> None:
    """Note that a pass does not hold on what was committed meanwhile; its work is parked."""
    key = f"{verdict['task']}\n{verdict['title']}"
    kept = run.branch.keep(str(verdict["commit"]), f"{verdict['iteration']:04}-conflict")
    said = f"{verdict['task']} passed, and does not hold on what was committed meanwhile: {why}"
    run.view.line(f"! {said}; its work is kept at {kept}", color="yellow")
    run.write("recheck", said, [f"- parked: {kept}"], broken=[key], since={key: [why]}, commit=commit)


def set_back(run: Run) -> None:
    """Take back the passes that the last records found broken, in one write; doing it again is harmless."""
    broken = [task for task in run.plan.tasks if task.key in run.history.broken and task.passed]
    run.history.broken = []
    if not broken:
        return
    for task in broken:
        run.view.line(f"{task.id} passed at iteration {run.history.of(task).passed_at}, broken since")
    run.edit(lambda plan: edit.set_passed(plan, broken, False))
    if again := [task for task in broken if run.history.of(task).blocked]:
        reason = "conflicting: it passed twice, and each time later work broke it"
        run.edit(lambda plan: edit.set_blocked(plan, again, reason))
