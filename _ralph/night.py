"""Around the attempts: going on after a crash, choosing, waiting, the last check, the stop."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from dataclasses import replace
from typing import Any

from _ralph import attempt as attempts
from _ralph import edit, inbox, limits, prd
from _ralph.agents import recovered
from _ralph.beside import hold, run_outside, run_setup
from _ralph.checks import every_check
from _ralph.ends import BadInput, Exit, Stop
from _ralph.files import digest
from _ralph.model import Attempt, CheckResult, Plan, Task, Verdict
from _ralph.process import run_process
from _ralph.run import Run, is_starter
from _ralph.text import last_line, quote
from _ralph.views import summary


def resume(run: Run) -> None:
    """Go on where a dead run stopped: finish what it had decided, check what it had under way."""
    attempts.carry_out(run)
    take_back(run)
    start = run.history.open_start
    if start is None:
        for notice in run.notices:
            run.view.line(notice)
        return
    task = next((t for t in run.plan.tasks if (t.id, t.title) == (start["task"], start["title"])), None)
    task = task or Task(id=start["task"], title=start["title"], index=0, raw={}, passed=True)
    run.view.line(f"{task.id}: an attempt was cut off; checking what it left before paying for another")
    attempt = Attempt(task, start["attempt"], start["iteration"], tree_before=start["tree"])
    agent, scratch = run.agent(task), run.paths.scratch
    attempt.result = recovered(
        agent,
        scratch / f"{attempt.name}.out",
        scratch / f"{attempt.name}.log",
        limits.usd_left(run.limits, run.history) if "dollars" in agent.row.get("reports", []) else None,
    )
    attempt.notices = list(run.notices)
    hold(run)  # what was put back is the good state, whatever an agent did to the copies
    run_setup(run)
    attempts.examine(run, attempt)
    attempts.record(run, attempt)


def take_in_what_people_did(run: Run) -> None:
    """Read prd.json again if it changed; take the inbox; a `blocked` taken away starts anew."""
    run.read_plan()
    for message in inbox.take(run.paths):
        if message.get("event") == "stop" and message.get("run") == run.run_id:
            run.asked_to_stop = True
        if message.get("event") == "retry":
            try:
                retry_task(run, str(message.get("task")), str(message.get("answer") or ""))
            except BadInput as error:  # the task is gone from the plan since
                run.view.line(f"! ralph retry: {error}")
        if message.get("event") == "add":
            take_tasks(run, message.get("tasks"))
    for task in run.plan.tasks:
        known = run.history.tasks.get(task.key)
        if known and known.blocked and task.blocked is None:
            write_retry(run, task, "", "a person took the block away")


def choose(run: Run) -> Task | None:
    """The next task, or the one that --task names if it can be worked on."""
    if run.options.task is None:
        return prd.next_task(run.plan)
    named = run.plan.task(run.options.task)
    others = [t for t in run.plan.tasks if t.id == named.id or t.passed]
    return prd.next_task(replace(run.plan, tasks=tuple(others)))


def open_run_record(run: Run) -> None:
    """Once a run, before its first work: setup, what is red and green now, the `run` record."""
    if run.recorded:
        return
    run.recorded = True
    run_setup(run)
    baseline = None
    if not run.history.baselined or not (run.resuming or run.history.run):
        results, said = run_outside(run, list(run.plan.checks), "baseline", "before the work: ")
        run.view.lines(said)
        baseline = {result.command: result.ok for result in results}
    continues = run.history.run is not None
    what = "the run goes on" if continues else "a run begins"
    lines = [f"- red before the work: {name}" for name, ok in (baseline or {}).items() if not ok]
    run.write(
        "run",
        f"iteration {run.history.iteration} | {what}",
        lines,
        baseline=baseline,
        continues=continues,
    )


def after(run: Run, attempt: Attempt) -> Stop | None:
    """What an attempt means for the run: go on, wait, or stop."""
    result = attempt.result
    if attempt.blocked:
        notify(run, None)
    if attempt.verdict is Verdict.UNAVAILABLE:
        return Stop("unavailable", Exit.AGENT, f"the agent cannot run: {attempt.reason}")
    if stop := asked_to_stop(run):
        return stop
    if run.limits.in_dollars and attempt.tokens.total and not attempt.usd:
        who = run.agent(attempt.task).command
        reason = f"{who} named no price for its tokens, so the limit in dollars cannot be kept"
        return Stop("no-price", Exit.USAGE, reason)
    if attempt.verdict is Verdict.LIMITED:
        if run.options.no_wait or run.options.once:
            return Stop("limited", Exit.LATER, f"no attempt can be made now: {attempt.reason}")
        now = time.time()
        until = limits.wait_for(run.limits, result, run.history, now, attempt.reason)
        backoff = limits.ahead(result, now) is None
        return until if isinstance(until, Stop) else wait(run, until, backoff)
    if run.options.once:
        done = attempt.verdict is Verdict.PASSED
        return Stop("once", Exit.COMPLETE if done else Exit.LEFT, f"one attempt, as asked: {attempt.verdict}")
    return None


def wait(run: Run, until: float, backoff: bool) -> Stop | None:
    """Wait for the provider, at most until the run's own time is up; the stop that ends it, if any."""
    end = min(until, limits.run_deadline(run.limits, run.seconds, time.time()))
    clock = time.strftime("%H:%M:%S", time.localtime(end))

    def note(backoff: bool) -> None:
        run.write("wait", f"waiting until {clock} for the provider", [], until=round(end), backoff=backoff)

    def woken() -> bool:
        return run.control.stop_now or run.control.interrupts > 0 or inbox.waiting(run.paths) > 0

    note(backoff)
    run.view.line(f"waiting for the provider until {clock}")
    run.view.doing(f"waiting until {clock}")
    notify(run, None)
    while not asked_to_stop(run):
        run.control.sleep(end, woken)
        if not inbox.waiting(run.paths):
            break
        take_in_what_people_did(run)
        note(backoff=False)  # it is the same wait that goes on
    run.view.doing("")
    return asked_to_stop(run)


def finish(run: Run) -> Stop | None:
    """Nothing is left to try: say what is blocked, or check the whole once more. None goes on."""
    only = run.options.task
    left = [task for task in run.plan.tasks if not task.passed and only in (None, task.id)]
    if left:
        blocked = [task for task in left if task.blocked]
        told = "; ".join(f"{task.id}: {task.blocked}" for task in blocked[:5])
        told = told or f"{left[0].id} waits for {', '.join(left[0].depends_on)}"
        return Stop("blocked", Exit.PERSON, f"{len(left)} left, and a person is needed: {told}")
    if only:
        return Stop("complete", Exit.COMPLETE, f"{only} passes")
    checks = every_check(run.plan)
    tree, names = run.tree.snapshot(), digest("\0".join(check.command for check in checks).encode())
    if not checks or (run.history.rechecked == (tree, names) and run.tree.with_git):
        return Stop("complete", Exit.COMPLETE, "every task passes")
    open_run_record(run)
    run.view.line("every task passes; all checks once more")
    results, said = run_outside(run, checks, "recheck", tree=tree)
    run.view.lines(said)
    return settle_recheck(run, [result for result in results if not result.ok], tree, names)


def settle_recheck(run: Run, red: list[CheckResult], tree: str, names: str) -> Stop | None:
    """Take back passes that no longer hold; a second time, the task is blocked as conflicting."""
    commands = {result.command for result in red}
    broken = [task for task in run.plan.tasks if commands & {check.command for check in task.checks}]
    told = ", ".join(f"{result.name} {result.outcome}" for result in red) or "all green"
    since = {task.key: run.tree.recent(run.history.of(task).passed_at) for task in broken}
    lines = []
    for task in broken:
        lines.append(f"- {task.id} passed at iteration {run.history.of(task).passed_at}, broken since")
        lines += quote("\n".join(since[task.key]))
    run.write(
        "recheck", f"all checks once more | {told}", lines,
        ok=not red, tree=tree, checks_digest=names, broken=list(since), since=since,
    )  # fmt: skip
    take_back(run)
    if broken:
        return None
    if red:
        return Stop("red-checks", Exit.PERSON, f"every task is done, but not all checks are green: {told}")
    return Stop("complete", Exit.COMPLETE, "every task passes, and all checks are green")


def take_back(run: Run) -> None:
    """Set back what the last re-check found broken; doing it again is harmless."""
    for task in [task for task in run.plan.tasks if task.key in run.history.broken and task.passed]:
        run.view.line(f"{task.id} passed at iteration {run.history.of(task).passed_at}, broken since")
        run.rewrite(edit.set_passed(run.plan, task, False))
        if run.history.of(task).blocked:
            reason = "conflicting: it passed twice, and each time later work broke it"
            run.rewrite(edit.set_blocked(run.plan, run.plan.task(task.id), reason))
    run.history.broken = []


def asked_to_stop(run: Run) -> Stop | None:
    """The stop that a signal or `ralph stop` asks for."""
    ends = {
        signal.SIGTERM: Stop("terminated", Exit.TERMINATED, "terminated"),
        signal.SIGHUP: Stop("hung-up", Exit.HANGUP, "hung up"),
    }
    if run.control.stop_signal in ends:
        return ends[signal.Signals(run.control.stop_signal)]
    if run.control.interrupts:
        return Stop("interrupted", Exit.INTERRUPTED, "interrupted")
    return Stop("asked", Exit.LEFT, "stopped, as `ralph stop` asked") if run.asked_to_stop else None


def retry_task(run: Run, task_id: str, answer: str) -> None:
    """Open a task again: its attempts start at zero, and `answer` stands in the next prompt."""
    task = run.plan.task(task_id)
    write_retry(run, task, answer, "retry")
    run.rewrite(edit.set_open(run.plan, task))
    if run.history.open_start:  # the safety copies of the attempt that was cut off would undo it
        hold(run)


def write_retry(run: Run, task: Task, answer: str, why: str) -> None:
    lines = ["- answer:", *quote(answer)] if answer else []
    run.write(
        "retry", f"{task.id} {task.title} | {why}", lines, task=task.id, title=task.title, answer=answer
    )


def take_tasks(run: Run, entries: Any) -> None:
    """Add what `ralph add` left for the loop; what the plan cannot hold any more is kept in the notes."""
    try:
        add_tasks(run, entries)
    except (BadInput, TypeError, AttributeError) as error:
        run.view.line(f"! ralph add: {error}")
        kept = quote(json.dumps(entries, indent=2, ensure_ascii=False))
        run.write("add", f"not added: {error}", kept)


def new_entries(plan: Plan, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of `entries` that are no tasks of the plan yet; one whose id was taken meanwhile loses it."""
    known = {(task.raw.get("id"), task.title) for task in plan.tasks}
    ids = {task.id for task in plan.tasks}
    new = [entry for entry in entries if (entry.get("id"), prd.title_of(entry)) not in known]
    return [{k: v for k, v in entry.items() if k != "id" or str(v) not in ids} for entry in new]


def add_tasks(run: Run, entries: list[dict[str, Any]]) -> list[Task]:
    """Take tasks into the plan, all but those that stand there already; the new ones. BadInput, and
    nothing is done, if the plan would not hold with them."""
    new = new_entries(run.plan, entries)
    if not new:
        return []
    candidate = prd.read(edit.add_tasks(run.plan, new, in_place_of_all=is_starter(run.plan)), run.plan.path)
    run.rewrite(run.admitted(candidate).text)
    added = list(run.plan.tasks[-len(new) :])
    for task in added:
        run.write("add", f"{task.id} {task.title} | added", [], task=task.id, title=task.title)
    if run.history.open_start:  # the safety copies of the attempt that was cut off would undo it
        hold(run)
    return added


def notify(run: Run, stop: Stop | None) -> None:
    """Tell --notify's command; it has 30 seconds, and its failure changes nothing."""
    if run.options.notify:
        payload = json.dumps(summary(run.plan, run.history, stop, run.seconds)).encode()
        told = run_process(
            ["/bin/sh", "-c", run.options.notify], cwd=run.paths.root, env=run.env(), timeout=30,
            control=run.control, stdin=payload, out=run.log("notify.log"),
        )  # fmt: skip
        if told.exit != 0:
            run.view.line(f"! --notify ended with exit {told.exit}: {last_line(told.tail)}")


def close_run(run: Run, stop: Stop) -> None:
    """The last record, the notes committed so that the tree ends clean, people told."""
    if not run.journal.attempt_is_open:
        run.guard.release()
    if stop.word != "error":
        with contextlib.suppress(BadInput):  # the next start says what is wrong with the plan
            take_in_what_people_did(run)
    if run.recorded or run.history.run:
        run.write(
            "stop",
            f"iteration {run.history.iteration} | stopped: {stop.reason}",
            [],
            stop=stop.word,
            exit=int(stop.exit),
            reason=stop.reason,
        )
    if run.tree.with_git and run.tree.branch() == run.branch:
        run.git_tree.commits.notes("ralph: notes\n")
    run.control.stop_signal = None  # it was obeyed; only another one cuts the notice short
    notify(run, stop)
