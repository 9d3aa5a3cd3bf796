"""One attempt: a function from a commit to a commit. The agent works in a workspace, in
a worker."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from _ralph import files, text
from _ralph.agents.prompt import compile_prompt, prompt_values, render_prompt
from _ralph.errors import SetupFailed, StopNow
from _ralph.git.git import BULK
from _ralph.git.merge import merge
from _ralph.git.snapshot import Changed, Entry, restore
from _ralph.git.workspace import Place, Start, changes
from _ralph.loop.before import before_work, checks_of, know_before
from _ralph.loop.candidate import check_candidate, require_verified
from _ralph.loop.changed import changed_tests
from _ralph.loop.jobs import Attempt, Worked
from _ralph.loop.landing import new_id
from _ralph.loop.opening import require_agent
from _ralph.loop.roles import ask_judge, cut_off, run_role
from _ralph.loop.run import Run
from _ralph.loop.setup import retry_setup, setup_failed
from _ralph.loop.train import Turn
from _ralph.loop.verdict import needs_checks, weigh
from _ralph.loop.worker import WorkerDied
from _ralph.model import AgentResult, CheckResult, Conflict, Outcome, Task, Verdict
from _ralph.state.history import parse_handoff
from _ralph.state.layout import trim_logs
from _ralph.state.limits import attempts_at, share_of
from _ralph.state.records import AttemptBegan


def begin(run: Run, task: Task) -> Attempt:
    """Decide where the next attempt at `task` starts, which agent works it and what it
    may spend; write the `start` record."""
    history = run.history.of(task)
    agent = run.agents.agent(task)
    require_agent(run, agent)  # the plan may have changed since
    number, iteration = history.attempts + 1, run.history.iteration + 1
    attempt = Attempt(
        task, number, iteration, agent, run.pool.free_worker, new_id(run, task)
    )
    attempt.share = (run.share or attempt.share).within(share_of(task, history))
    tip, attempt.recent = run.branch.look()
    attempt.base = require_verified(run, tip)
    if history.left:
        resume_work(run, attempt)
    trim_logs(run.paths, [other.iteration for other in run.pool.attempts])
    for old in run.paths.logs.glob(
        f"{attempt.name}[.-]*"
    ):  # an older run's would be counted as spent
        files.clear(old)
    compile_prompt(run.settings.prompt)
    run.write(
        AttemptBegan(
            iteration=attempt.iteration,
            id=attempt.id,
            attempt=attempt.number,
            task=task.id,
            title=task.title,
            command=attempt.command,
            worker=attempt.worker if attempt.worker > 1 else 0,
            base=attempt.base,
            leftover=attempt.leftover,
            conflict=attempt.conflict,
        ),
        f"iteration {attempt.iteration} | {task.id} {task.title} | attempt {attempt.number} begins",
    )
    return attempt


def resume_work(run: Run, attempt: Attempt) -> None:
    """Start from what earlier attempts at this task left, merged with the tip, with
    git's markers where that conflicts; clean in the last attempt, and if the work is
    built on commits that are no longer there."""
    history = run.history.of(attempt.task)
    before = run.branch.commit(history.left, history.base, "ralph: unfinished work\n")
    if history.lacks == "judge" or (history.lacks and before != history.base):
        attempt.leftover, attempt.base, attempt.left = (
            history.lacks,
            history.base,
            history.left,
        )
        attempt.agent = (
            run.agents.named(history.command) if history.command else attempt.agent
        )
        ended = Outcome.DONE if history.lacks == "judge" else Outcome.INTERRUPTED
        attempt.result = AgentResult(
            ended, "an attempt was cut off; what it left was checked"
        )
        return
    dropped = history.base != attempt.base and not run.branch.contains(
        history.base, attempt.base
    )
    if dropped or (is_last(run, attempt) and not history.conflicted):
        attempt.clean = True
        if before != history.base:
            attempt.earlier = run.branch.park(before, f"{attempt.name}-before")
            attempt.notices.append(
                f"it started clean; earlier work is parked at {attempt.earlier}"
            )
        return
    merged = merge(run.git, attempt.base, before)
    attempt.left, attempt.conflict = merged.tree, history.conflict
    if merged.conflicts:
        marked = [*dict.fromkeys([*history.conflict.marked, *merged.marked])]
        attempt.conflict = Conflict(marked=marked, kept=merged.kept, own=before)


def is_last(run: Run, attempt: Attempt) -> bool:
    """Whether it is the task's last attempt, which starts clean."""
    return attempt.number > 1 and attempt.number >= attempts_at(
        run.limits, attempt.task
    )


async def work(run: Run, attempt: Attempt) -> None:
    """Run the agent in a worker. If the worker is killed, only this attempt is lost."""
    try:
        worked = await retry_setup(run, attempt, lambda: _work(run, attempt))
    except WorkerDied as error:
        attempt.result = cut_off(run, attempt.agent, attempt.name, str(error))
        salvage(run, attempt)
    except StopNow:  # before its agent had begun
        attempt.result = AgentResult(Outcome.INTERRUPTED, "ralph was stopped")
    else:
        take(run, attempt, worked)
    attempt.noticed = attempt.notices
    attempt.handoff = parse_handoff(attempt.handoff_text)


async def _work(run: Run, attempt: Attempt) -> Worked:
    """What the agent left; it is not started if the attempt cannot pass."""
    await know_before(run, attempt)
    if attempt.cannot_pass:
        result = AgentResult(Outcome.FAILED, "its agent was not started")
        return Worked(result=result, left=attempt.left, notices=attempt.notices)
    return await run.in_worker(
        lambda inside: work_here(inside, attempt), Worked, attempt.worker
    )


def take(run: Run, attempt: Attempt, worked: Worked) -> None:
    """Copy what a worker found into the attempt. What waits for the clean room is
    protected from `git gc`; in there it is as a candidate."""
    attempt.result, attempt.began, attempt.said = (
        worked.result,
        worked.began,
        worked.said,
    )
    attempt.left, attempt.tree = worked.left, worked.tree
    attempt.changed, attempt.changes = worked.changed, worked.changes
    attempt.restored, attempt.protected, attempt.notices = (
        worked.restored,
        worked.protected,
        worked.notices,
    )
    if attempt.left and (run.pool.train.line or attempt.left != attempt.tree):
        run.branch.pin_attempt(attempt.worker, attempt.left)


def work_here(run: Run, attempt: Attempt) -> Worked:
    """Prepare the workspace, run the agent there between two snapshots; what it
    left."""
    if attempt.leftover:
        return _worked(run, attempt, attempt.left)
    place, base = (
        run.places.workspace(attempt.worker, attempt.task.allow),
        run.git.tree(attempt.base),
    )
    tree = (
        put_back(run, attempt, attempt.left)[0] if attempt.left else base
    )  # the prompt says what
    run.view.doing("preparing the workspace")
    red = prepare_workspace(run, place, tree, attempt.base, attempt.name)
    if red and (
        tree == base
        or prepare_workspace(run, place, base, attempt.base, f"{attempt.name}-tip")
    ):
        raise SetupFailed(setup_failed(red))
    if red and (red := prepare_workspace(run, place, tree, attempt.base, attempt.name)):
        attempt.notices.append(
            f"setup {red.outcome} in the workspace, on the task's unfinished work"
        )
    copies = place.copy_state()
    files.clear(run.paths.handoff(attempt.worker))
    results = files.clear(run.paths.results(attempt.worker))
    prompt, env = prompt_for(run, attempt, red), run.places.env(place.root)
    env |= attempt.variables(run.paths) | {"RALPH_RESULTS": str(results)}
    start = Start(attempt.id, tree, place.settle(tree))
    if {start.tree, start.snapshot} != {base}:
        run.branch.pin_attempt(attempt.worker, start.tree, start.snapshot)
    place.note_start(start)
    attempt.began = time.time()
    run.view.doing(
        f"attempt {attempt.number} of {attempts_at(run.limits, attempt.task)}"
    )
    attempt.result = run_role(
        run, attempt.agent, prompt, attempt.name, env, attempt.share, place.root
    )
    if run.control.orphaned:
        raise StopNow
    return _left_behind(run, attempt, place, start, copies)


def put_back(
    run: Run, attempt: Attempt, tree: str, changed: Changed | None = None
) -> tuple[str, dict[str, Entry], list[str]]:
    """`tree` with what is protected as in the base, from which `changed` tells it apart
    if that is known, but for what the task may change; what that is, as it was, and the
    new files under protected patterns that stay."""
    allow = attempt.task.allow
    return restore(
        run.git,
        attempt.base,
        tree,
        run.plan.protected,
        allow,
        run.places.state(allow),
        changed,
    )


def _left_behind(
    run: Run, attempt: Attempt, place: Place, start: Start, copies: dict[str, bytes]
) -> Worked:
    """What an attempt left in its workspace, where `copies` of ralph's own files were
    put."""
    if not place.exists:
        place.open()
        gone = "the workspace was removed or replaced, or the machine restarted; all work in it is lost"
        return Worked(
            result=attempt.result,
            left=attempt.left,
            notices=[*attempt.notices, gone],
            began=attempt.began,
        )
    handoff = files.read_regular(run.paths.handoff(attempt.worker), 65536) or b""
    changed = _changed_copies(place, copies)
    removed = place.remove_unusable(start.tree)
    after, refused = place.snapshot(start.tree)
    left, work, left_out, large = place.work(start, after)
    worked = _worked(
        run, attempt, left, work if start.tree == run.git.tree(attempt.base) else None
    )
    worked.restored += left_out
    for name in changed:
        line = f"{text.one_line(name)} (a copy; what is changed in it does not count)"
        worked.restored.append(line)
    rulebook = run.git.name_of(run.paths.rulebook)
    worked.protected += [rulebook] if rulebook in changed else []
    worked.notices += [*removed, *refused, *large]
    worked.said = text.redact(handoff.decode("utf-8", "replace"))
    return worked


def _worked(
    run: Run, attempt: Attempt, left: str, changed: Changed | None = None
) -> Worked:
    """The result of an attempt that left this tree: the tree itself, and without what
    does not count."""
    tree, back, new = put_back(run, attempt, left, changed)
    lines = [f"{text.one_line(name)} is new under a protected pattern" for name in new]
    left_out = " (new and protected; left out)"
    names, changed_lines = changes(run.git, run.git.tree(attempt.base), tree)
    return Worked(
        result=attempt.result,
        left=left,
        tree=tree,
        changed=names,
        changes=changed_lines,
        restored=[
            text.one_line(name) + left_out * (not was.exists)
            for name, was in back.items()
        ],
        protected=[text.one_line(name) for name in back],
        notices=[*attempt.notices, *lines],
        began=attempt.began,
    )


def _changed_copies(place: Place, copies: dict[str, bytes]) -> list[str]:
    """Which of the copies of ralph's own files in a workspace the agent changed."""
    changed = []
    for name, data in copies.items():
        if files.read_regular(place.root / name, len(data) + 1) != data:
            changed.append(name)
    return changed


def salvage(run: Run, attempt: Attempt) -> None:
    """Take what an attempt left that was cut off, if its agent had started. If the
    worker that takes it is killed, too, this work is lost."""
    place = run.places.workspace(attempt.worker, attempt.task.allow)
    start = place.noted_start()
    if start is None or start.attempt != attempt.id:
        return

    def look(inside: Run) -> Worked:
        place.remove_lock()
        return _left_behind(inside, attempt, place, start, {})

    with contextlib.suppress(WorkerDied):
        take(run, attempt, run.wait(run.in_worker(look, Worked)))


def prepare_workspace(
    run: Run, place: Place, tree: str, head: str, name: str
) -> CheckResult | None:
    """Check out `tree` in a workspace, with HEAD at `head`. One that belongs to another
    stamp is made anew, with `setup`; the result of that if it is red. Nothing that
    setup made is work."""
    stamp, (noted, made_before) = run.places.stamp(tree), place.noted()
    if noted != stamp:
        place.remove()
    place.remove_unusable(tree)
    new = place.reset(tree)
    run.places.furnish(place, head)
    if not new:
        place.hide(made_before)
        return None
    result = run.places.set_up(place, name)
    made = place.made_by_setup() if result else []
    place.hide(made)
    if result:
        place.remove_unusable(tree)
    if result and not result.ok:
        return result
    if result and place.git("diff", "--name-only", tree, check=False, timeout=BULK):
        # what setup did to tracked files the next checkout undoes, so the place is used
        # once
        stamp = ""
    place.note(stamp, dict.fromkeys(made))
    return None


def prompt_for(run: Run, attempt: Attempt, red_setup: CheckResult | None = None) -> str:
    """The prompt of this attempt; `red_setup` is what `setup` said, if it is red on the
    task's work."""
    task, history = attempt.task, run.history.of(attempt.task)
    checks = checks_of(run, task)
    own = run.results.before.get(task.key, {})
    others = [other.task for other in run.pool.attempts if other.task is not task]
    before = [run.results.newest(attempt.base, check.command) for check in checks]
    red = {result.command for result in before if result and not result.ok}
    red |= {command for command, ok in own.items() if not ok}
    failing = [
        result.tests
        for result in before
        if result and result.tests and result.tests.failed
    ]
    values = prompt_values(
        run.plan, task, run.history, run.paths, checks,
        handoff=run.paths.handoff(attempt.worker),
        attempts=attempts_at(run.limits, task),
        reads_rulebook="AGENTS.md" in attempt.agent.row.get("reads", []),
        recent=attempt.recent,
        beside=[f"{other.id}: {other.title}" for other in others],
        clean_start=attempt.clean or not attempt.left,
        red_before=[check.command for check in checks if check.command in red],
        failing_before=[", ".join(tests.failed) for tests in failing],
        setup_failed=red_setup.tail if red_setup else "",
        parked=run.branch.commit_at(attempt.earlier or (history.last.parked if history.last else "")),
        conflict=attempt.conflict,
    )  # fmt: skip
    return render_prompt(run.settings.prompt, values)


def preview(run: Run, task: Task) -> str:
    """The prompt that an attempt would get now; nothing is run."""
    history = run.history
    attempt = Attempt(
        task,
        history.of(task).attempts + 1,
        history.iteration + 1,
        run.agents.agent(task),
    )
    attempt.base, attempt.left = run.branch.tip() or "HEAD", history.of(task).left
    attempt.recent = run.branch.recent(attempt.base)
    attempt.clean = is_last(run, attempt)
    return prompt_for(run, attempt)


async def examine(run: Run, turn: Turn) -> None:
    """Check a candidate in its clean room; the verdict is put into the attempt."""
    attempt = turn.attempt
    attempt.tests = changed_tests(run, attempt)
    if run.control.stop_now:
        attempt.result = replace(
            attempt.result, outcome=Outcome.INTERRUPTED, reason="ralph was stopped"
        )
    elif needs_checks(attempt):
        await check_candidate(run, turn)
    attempt.handoff = parse_handoff(attempt.handoff_text)
    weigh(attempt, before_work(run, attempt), judge=run.agents.judge is not None)
    attempt.unjudged = False
    run.results.forget_old_tests(run.pool.train.rooms)
    if attempt.verdict is Verdict.FAILED and attempt.base != attempt.tip:
        between = "; ".join(run.branch.log(f"{attempt.base}..{attempt.tip}"))
        attempt.notices.append(
            f"checked on top of what was committed meanwhile: {between}"
        )
    turn.end()
    if turn.ahead:
        run.view.doing("in line to land", attempt.worker)


async def judge(run: Run, attempt: Attempt) -> None:
    """Ask the judge, if there is one, about work that passes by evidence."""
    if attempt.passed and run.agents.judge:
        await ask_judge(run, attempt, run.agents.judge)
