"""One attempt: what happens before the agent, after it, and what its verdict leads to."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from _ralph import edit, files, prd, text
from _ralph.beside import commit_message, hold, run_all, run_hooks, run_outside, run_setup
from _ralph.checks import checks_for, decide, fixed_checks
from _ralph.ends import StopNow
from _ralph.lock import announce_again
from _ralph.model import COUNTED, AgentResult, Attempt, CheckResult, Judgement, Outcome, Task, Verdict
from _ralph.progress import parse_handoff
from _ralph.prompt import prompt_values, render_prompt
from _ralph.refusals import require_agent
from _ralph.roles import ask_judge
from _ralph.run import Run, trim_scratch
from _ralph.views import record_lines


def begin(run: Run, task: Task) -> Attempt:
    """Everything that must be known and safe before an agent may touch the tree."""
    known = run.history.of(task)
    require_agent(run, run.agent(task))  # the plan may have changed since the run began
    attempt = Attempt(task, number=known.attempts + 1, iteration=run.history.iteration + 1)
    hold(run)
    attempt.tree_before = run.tree.rest()  # what is new since the last attempt is a person's
    left, before = known.unjudged
    if left and attempt.tree_before == left:
        attempt.unjudged, attempt.tree_before = True, before
        attempt.result = AgentResult(Outcome.DONE)
    elif starts_clean(run, task):
        attempt.clean = True
        start_clean(run, attempt)
    unknown = [check for check in task.checks if check.command not in known.baseline]
    tree = left if attempt.unjudged else attempt.tree_before
    results, said = run_outside(run, unknown, "before", "before the work: ", tree)
    attempt.notices += said
    if run.control.stop_now or run.control.interrupts:
        raise StopNow
    files.clear(run.paths.handoff)
    trim_scratch(run.paths)
    run.tree.protect(list(run.plan.settings.get("protect", [])))
    run.tree.hold(attempt.tree_before)
    head = run.tree.remember()
    hold(run, run.tree.vital())
    run.write(
        "start",
        f"iteration {attempt.iteration} | {task.id} {task.title} | attempt {attempt.number} begins",
        [],
        iteration=attempt.iteration,
        attempt=attempt.number,
        task=task.id,
        title=task.title,
        baseline={result.command: result.ok for result in results},
        branch=run.branch,
        head=head,
        tree=attempt.tree_before,
        prd=run.plan_digest,
        file=run.paths.prd.name,
        by_hand=[task.key for task in run.plan.tasks if task.passed != run.history.proved(task)],
    )
    return attempt


def examine(run: Run, attempt: Attempt) -> None:
    """Say what the attempt is worth: undo what was not the agent's to change, run the checks, weigh
    what they show, ask the judge."""
    put_back(run, attempt)
    attempt.tree_after = run.tree.snapshot()
    if put_back_protected(run, attempt):
        attempt.tree_after = run.tree.snapshot()
    attempt.notices += run.tree.touched()
    attempt.notices += [
        f"{name} is a git repository of its own and not part of the work" for name in run.tree.new_nested()
    ]
    check_work(run, attempt)
    changed, attempt.changes = run.tree.changes(attempt.tree_before, attempt.tree_after)
    attempt.handoff = parse_handoff(handoff_text(run, attempt, changed))
    weigh(run, attempt)
    judge = run.judge
    attempt.unjudged = False
    if attempt.verdict is Verdict.PASSED and judge:
        ask_judge(run, attempt, judge)
        put_back(run, attempt)
        attempt.notices += run.tree.tidy(attempt.tree_after, "the judge read")


def check_work(run: Run, attempt: Attempt) -> None:
    """Run the checks and the commit hooks, unless there is nothing to check or no time for it."""
    nothing_done = attempt.tree_after == attempt.tree_before and run.tree.with_git
    no_verdict = attempt.result.outcome in (Outcome.LIMITED, Outcome.UNAVAILABLE) and nothing_done
    if not run.control.stop_now and not no_verdict:
        run.tree.hold(attempt.tree_before, attempt.tree_after)
        checks = checks_for(run.plan, attempt.task)
        attempt.checks = run_all(run, checks, attempt.name, attempt=attempt)
        attempt.notices += run.tree.tidy(attempt.tree_after)
        run_hooks(run, attempt)
        put_back(run, attempt)
    if run.control.stop_now:
        attempt.result = replace(attempt.result, outcome=Outcome.INTERRUPTED, reason="ralph was stopped")
        attempt.checks = []


def weigh(run: Run, attempt: Attempt) -> None:
    """The verdict by the evidence rule."""
    task = attempt.task
    own = {check.command for check in task.checks}
    every = {check.command for check in attempt.checks}
    green = {check.command for check in attempt.checks if check.ok}  # once green, a check binds
    binding = own | every - (run.history.red - green)
    attempt.fixed = fixed_checks(attempt.checks, own, run.history.of(task).baseline)
    attempt.verdict, attempt.reason = decide(attempt, own, binding, run.tree.with_git, run.judge is not None)
    if attempt.verdict is Verdict.PASSED:
        loose = [check.name for check in attempt.checks if not check.ok and check.command not in binding]
        attempt.notices += [
            f"{name} does not count: it was red before the work, and still is" for name in loose
        ]
    attempt.weak = attempt.verdict is Verdict.PASSED and not own


def record(run: Run, attempt: Attempt) -> None:
    """Write the verdict, the one commit point of an attempt; then do what follows from it."""
    attempt.blocked = reason_to_block(run, attempt)
    task, tree, after_text, message = attempt.task, attempt.tree_after, run.plan.text, None
    if attempt.verdict is Verdict.PASSED:
        after_text = edit.set_passed(run.plan, task, True)
        message = attempt.message or commit_message(run, attempt)
    elif attempt.blocked:
        after_text = edit.set_blocked(run.plan, task, attempt.blocked)
        tree = run.tree.clean_tree()
        attempt.parked = run.git_tree.park(attempt.name) if attempt.tree_after != tree else None
    number = f", attempt {attempt.number} of {run.limits.attempts}" if attempt.verdict in COUNTED else ""
    run.write(
        "verdict",
        f"iteration {attempt.iteration} | {task.id} {task.title} | {attempt.verdict}{number}",
        record_lines(attempt, run.agent(task)),
        **verdict_fields(attempt),
        agent=run.agent(task).name,
        head=begun_at(run),
        tree=tree,
        message=message,
        prd_before=run.plan_digest,
        prd_after=files.digest(after_text.encode()),
    )
    run.guard.release()
    run.view.ended(attempt)
    run.read_plan()  # a person's edit of this very moment is kept, and the task marked in it
    carry_out(run, live=True)


def verdict_fields(attempt: Attempt) -> dict[str, Any]:
    """What stands in a verdict record of the attempt itself."""
    result, judgement = attempt.result, attempt.judgement
    red = [check for check in attempt.checks if not check.ok]
    return {
        "iteration": attempt.iteration,
        "attempt": attempt.number,
        "task": attempt.task.id,
        "title": attempt.task.title,
        "verdict": str(attempt.verdict),
        "reason": attempt.reason,
        "weak": attempt.weak,
        "checks": {check.command: check.ok for check in attempt.checks},
        "failure": _failure(red) if red else None,
        "left": attempt.tree_after,
        "judge": judge_record(judgement) if judgement else None,
        "unjudged": attempt.unjudged,
        "session": result.session,
        "overload": result.overload,
        "reset": result.reset,
        "exit": result.exit,
        "usd": attempt.usd,
        "tokens": attempt.tokens.as_dict(),
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


def carry_out(run: Run, live: bool = False) -> None:
    """Do what the last verdict says: mark the task, commit or put the tree back.

    Doing it again is harmless. After a crash, a prd.json that is neither the one before nor
    the one after is a person's word, and stays.
    """
    verdict = run.history.pending or {}
    if verdict.get("verdict") == Verdict.PASSED or verdict.get("blocked"):
        _follow(run, verdict, live)
    run.history.pending = None


def _follow(run: Run, verdict: dict[str, Any], live: bool) -> None:
    passed, blocked = verdict["verdict"] == Verdict.PASSED, str(verdict.get("blocked") or "")
    if not live and (
        run.tree.head() != verdict["head"] or (blocked and run.tree.snapshot() != verdict["left"])
    ):  # what differs now is a person's word
        return
    task = next((task for task in run.plan.tasks if task.id == verdict["task"]), None)
    if (
        task
        and not task.passed
        and task.blocked is None
        and (live or run.plan_digest == verdict["prd_before"])
    ):
        marked = (
            edit.set_passed(run.plan, task, True) if passed else edit.set_blocked(run.plan, task, blocked)
        )
        run.rewrite(marked)
    if not run.tree.with_git:
        return
    if passed:
        run.git_tree.commit(verdict["tree"], verdict["head"], verdict["message"])
    else:
        run.git_tree.checkout(verdict["tree"])
        run_setup(run)


def put_back(run: Run, attempt: Attempt) -> None:
    """Undo what others did to the state files, the branch and protected files; name it."""
    if run.control.orphaned:
        raise StopNow
    for path, kept in run.guard.restore().items():
        said = prd.differences(run.plan, kept) if path == run.paths.prd and kept else ""
        where = f"; the other version is kept at {kept}" if kept else ""
        name = os.path.relpath(path, run.paths.root)
        attempt.restored.append(
            f"{name} ({said or 'changed during the attempt, by the agent or by you'}{where})"
        )
    attempt.restored += announce_again(run.paths, run.run_id) + run.journal.guard()
    attempt.notices += run.tree.settle(run.branch, begun_at(run), attempt.name, attempt.tree_before)


def begun_at(run: Run) -> str:
    """The commit that the attempt under way began at; `put_back` sees to it that HEAD is there."""
    return str((run.history.open_start or {}).get("head", ""))


def put_back_protected(run: Run, attempt: Attempt) -> list[str]:
    """Undo what the agent did to protected files, as far as the task does not allow it; name it."""
    patterns, allow = list(run.plan.settings.get("protect", [])), list(attempt.task.allow)
    said = run.tree.restore_protected(attempt.tree_before, attempt.tree_after, patterns, allow)
    for line in said:
        (attempt.notices if line.endswith("kept)") else attempt.restored).append(line)
    return said


def reason_to_block(run: Run, attempt: Attempt) -> str | None:
    """Why this attempt was the task's last for now, or None."""
    known = run.history.of(attempt.task)
    if attempt.verdict not in COUNTED:
        return None
    question = attempt.handoff.get("blocked on", "")
    if question and known.question == question:
        return text.one_line(f"blocked on: {question}", 500)
    if attempt.verdict is Verdict.NO_OP and known.last.get("verdict") == Verdict.NO_OP:
        return (
            "already done? two attempts changed nothing, and every check is green: "
            "set its passes to true, or give it a check that is red now"
        )
    if known.attempts + 1 >= run.limits.attempts:
        return text.one_line(
            f"{text.count(known.attempts + 1, 'failed attempt')}, the last: {attempt.reason}", 500
        )
    return None


def prompt_for(run: Run, task: Task, clean: bool) -> str:
    """Exactly what the agent is sent for `task` now, in an attempt that starts `clean` or does not."""
    own = run.history.of(task).baseline
    checks = checks_for(run.plan, task)
    red = [c.command for c in checks if own.get(c.command) is False]
    red += [c.command for c in run.plan.checks if c.command in run.history.red]
    values = prompt_values(
        run.plan, task, run.history, run.paths, checks,
        attempts=run.limits.attempts,
        reads_rulebook="AGENTS.md" in run.agent(task).row.get("reads", []),
        recent=run.tree.recent(),
        clean_start=clean,
        red_before=red,
    )  # fmt: skip
    return render_prompt(run.template(), values)


def starts_clean(run: Run, task: Task) -> bool:
    """Whether the next attempt at `task` starts from the last good commit: its last one does, and any
    that comes after work on another task."""
    number = run.history.of(task).attempts + 1
    last = number > 1 and number >= run.limits.attempts
    return run.tree.with_git and (last or run.history.worked not in ("", task.key))


def start_clean(run: Run, attempt: Attempt) -> None:
    """Go to the last good commit; what was there is parked."""
    clean = run.tree.clean_tree()
    if clean == attempt.tree_before:
        return
    attempt.parked = run.git_tree.park(f"{attempt.name}-before")
    run.view.line(f"{attempt.task.id} starts clean; earlier work is kept at {attempt.parked}")
    run.git_tree.checkout(clean)
    run_setup(run)
    attempt.tree_before = run.tree.snapshot()


def handoff_text(run: Run, attempt: Attempt, changed: list[str]) -> str:
    """The handoff file, else a <handoff> block in the last message, else what is known anyway."""
    written = (files.read_regular(run.paths.handoff, 65536) or b"").decode("utf-8", "replace")
    if written.strip():
        return text.redact(written)
    _, begun, block = attempt.result.text[-65536:].rpartition("<handoff>")
    if begun and "</handoff>" in block:
        return block.partition("</handoff>")[0]
    red = [check.name for check in attempt.checks if not check.ok]
    left = f"files: {', '.join(changed[:20])}\n" if changed else ""
    return left + (f"next step: make this check green: {red[0]}" if red else "")


def _failure(red: list[CheckResult]) -> dict[str, Any]:
    first = red[0]
    others = [check.name for check in red[1:]]
    return {"name": first.name, "tail": first.tail, "log": first.log, "others": others}
