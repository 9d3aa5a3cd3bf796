"""The candidate: the work as a commit on the tip of the branch, and what the clean room says of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from _ralph import files, text
from _ralph.agents.prompt import compile_line, render_line
from _ralph.errors import NeedsPerson, StopNow
from _ralph.git.git import BULK, Late
from _ralph.git.merge import merge, still_marked
from _ralph.git.snapshot import restore
from _ralph.git.workspace import changes
from _ralph.loop.jobs import Attempt, Checked, CheckJob
from _ralph.loop.results import Results, up_to
from _ralph.loop.room import HOOKS, Room, run_hook
from _ralph.loop.run import Run
from _ralph.loop.verdict import Before, kept_away
from _ralph.loop.worker import Job, WorkerDied
from _ralph.model import Check, CheckResult, Outcome, Task, Verdict

_MESSAGE = 1 << 16
_HOOKS = (*HOOKS, ".pre-commit-config.yaml")
"""Names of files that commit hooks are made of."""


def make_candidate(run: Run, attempt: Attempt) -> bool:
    """Merge the work with the tip of the branch; False, with the verdict, if they conflict, or if it still
    has the markers of an earlier conflict."""
    attempt.tip = attempt.commit = tip_of(run)
    if not attempt.tree:
        return True
    message = commit_message(run, attempt)
    made = run.branch.commit(attempt.tree, attempt.base, message)
    if made == attempt.base:
        return True
    attempt.message = message
    if left := still_marked(run.git, attempt.tree, attempt.conflict.marked):
        attempt.verdict = Verdict.FAILED
        attempt.reason = f"conflict markers are left in {text.few(left)}"
        attempt.parked = run.branch.park(made, attempt.name)  # the next attempt starts clean
        return False
    if attempt.tip != attempt.base:
        found = merge(run.git, attempt.tip, made)
        if found.conflicts:
            attempt.verdict = Verdict.CONFLICT
            attempt.reason = f"it conflicts with what landed meanwhile: {text.few(found.conflicts)}"
            return False
        made = run.branch.commit(found.tree, attempt.tip, attempt.message)
    run.branch.pin_candidate(made)
    attempt.commit = made
    attempt.changed, attempt.changes = changes(run.git, attempt.tip, made)
    if named := names_places(run, attempt.tip, made):
        attempt.verdict = Verdict.FAILED
        attempt.reason = f"{text.few(named)} names a checkout of ralph, which a clone does not have"
        return False
    return True


def names_places(run: Run, tip: str, commit: str) -> list[str]:
    """The files in which the work names a checkout by its path: what follows it would be green on this
    machine alone."""
    folder = re.escape(str(run.paths.places))
    words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", "-G", folder, tip, commit)
    return run.git.names(*words, timeout=BULK)


def tip_of(run: Run) -> str:
    """The commit that the branch is at. NeedsPerson if it was deleted or rewritten during the run."""
    tip = run.branch.tip()
    if tip == run.tip or (tip and not run.tip) or (tip and run.branch.contains(run.tip, tip)):
        run.tip = tip
        return tip
    kept = run.branch.park(run.tip, "verified")
    what = "rewritten" if tip else "deleted"
    raise NeedsPerson(
        f"the branch {run.branch.name} was {what} during the run; its verified work is at {kept}; "
        f"set the branch to where ralph should continue, then run it again"
    )


async def check_candidate(run: Run, attempt: Attempt) -> None:
    """Put into the attempt what commit hooks and checks say of its candidate."""
    try:
        if attempt.changes_tree:
            await know_tip(run, attempt)
        found = await _look(run, attempt)
    except (WorkerDied, StopNow) as error:
        reason = str(error) if isinstance(error, WorkerDied) else "ralph was stopped"
        attempt.result = replace(attempt.result, outcome=Outcome.INTERRUPTED, reason=reason)
        return
    attempt.checks, attempt.commit, attempt.message = found.checks, found.commit, found.message
    attempt.ignored = found.ignored or attempt.ignored
    hooks = [name for name in attempt.changed if Path(name).name in _HOOKS]
    attempt.notices += [f"the attempt changed {name}, which commit hooks are made of" for name in hooks]
    attempt.notices += found.notices


async def _look(run: Run, attempt: Attempt) -> Checked:
    """What the checks of the task say of the candidate. Before the task is given up, what is red runs again.
    With the ignored files that may be the reason where nothing passes."""
    job = CheckJob(
        commit=attempt.commit,
        checks=checks_of(run, attempt.task),
        name=attempt.name,
        env=run.names(attempt),
        tip=attempt.tip if attempt.changes_tree else "",
        message=attempt.message,
        allow=attempt.task.allow,
        again=attempt.changes_tree and run.site.hooked,
    )
    found = await examined(run, job, attempt.worker)
    gives_up = attempt.number >= run.limits.attempts
    if found.red and gives_up and kept_away(attempt.result, attempt.changes_tree) is None:
        found = await _once_more(run, attempt, job, found)
    if found.red or found.commit == attempt.tip:
        looked = run.in_worker(lambda inside: Checked(ignored=ignored_by(inside, attempt)), Checked)
        found.ignored = (await looked).ignored
    return found


async def _once_more(run: Run, attempt: Attempt, job: CheckJob, found: Checked) -> Checked:
    """Run what is red once more: the program up to there. What of the plan is red again runs on the tip, too:
    where it is red now, it does not bind (a database that died in the night)."""
    red = [result for result in found.red if result.command in {check.command for check in job.checks}]
    if not red:
        return found
    job = replace(job, commit=found.commit, tip="", checks=up_to(job.checks, red), again=True)
    second = await examined(run, replace(job, name=f"{job.name}-again"), attempt.worker)
    found = replace(found, checks=better(found.checks, second.checks))
    own = {check.command for check in attempt.task.checks}
    left = [result for result in found.red if result in second.checks and result.command not in own]
    if left and found.commit != attempt.tip:
        tip = replace(job, commit=attempt.tip, checks=up_to(job.checks, left), name=f"{job.name}-tip")
        await examined(run, replace(tip, label="before the work: "), attempt.worker)
    return found


def better(first: list[CheckResult], second: list[CheckResult]) -> list[CheckResult]:
    """The results of two runs: what is green in either is green."""
    again = {result.command: result for result in second}
    return [result if result.ok else again.get(result.command, result) for result in first]


def checks_of(run: Run, task: Task) -> list[Check]:
    """The program of a task: the plan's checks, then its own. A task that was set back once must keep the own
    checks of all passed tasks, too."""
    others = run.plan.tasks if run.history.of(task).set_back else ()
    kept = [check for other in others if other.passed for check in other.checks if not check.once]
    return run.plan.checks_for(task, kept)


async def know_before(run: Run, attempt: Attempt) -> None:
    """Run the task's own checks behind the plan's before its first attempt in this run, on the tip as it is
    when the room is free: mostly what it holds. The attempt cannot start if one of them can only be red here.
    NeedsPerson if `setup` is red."""
    before, own = run.results.before.get(attempt.task.key, {}), attempt.task.checks
    if before.keys() >= {check.command for check in own}:
        return
    checks, env = run.plan.checks_for(attempt.task), run.names(attempt)
    async with run.turn(attempt):
        job = baseline_job(tip_of(run), checks, f"{attempt.name}-before", env)
        found = require_setup(run, await examined(run, job, attempt.worker))
    said = {result.command: result for result in found.checks}
    results = [said[check.command] for check in own if check.command in said]
    attempt.notices += found.notices
    attempt.cannot_start = next((cannot_start(result) for result in results if result.missing), "")
    if not attempt.cannot_start:
        run.results.before[attempt.task.key] = {result.command: result.ok for result in results} | before


async def know_tip(run: Run, attempt: Attempt) -> None:
    """Run the plan's checks on the commit that the candidate is made on, if nobody has."""
    job = baseline_job(attempt.tip, list(run.plan.checks), f"{attempt.name}-tip", {})
    if run.plan.checks:
        require_setup(run, await examined(run, job, attempt.worker))


def known_before(run: Run, attempt: Attempt) -> Before:
    """What is known of the attempt's checks from before its work."""
    results, commands = run.results, [check.command for check in checks_of(run, attempt.task)]
    tip = {command: results.newest(attempt.tip, command) for command in commands}
    return Before(
        own=results.before.get(attempt.task.key, {}),
        tip={command: result.ok for command, result in tip.items() if result},
        flaky={
            command
            for command in commands
            for commit in (attempt.base, attempt.tip, attempt.commit)
            if results.is_flaky(commit, command)
        },
    )


def ignored_by(run: Run, attempt: Attempt) -> list[str]:
    """What the attempt made in the workspace that git ignores."""
    place = run.workspace(attempt.worker)
    found = place.ignored_since(attempt.began) if attempt.began and place.exists else []
    return [text.one_line(name) for name in found[:20]]


def check_commit(run: Run, job: CheckJob) -> Checked:
    """Check a commit in the clean room. If `setup` is red, it is the only result. StopNow if ralph was
    stopped."""
    run.view.doing("running checks")
    paths = run.paths
    room = run.room(paths.landing if job.landing else paths.next_room if job.anew else paths.room, job.env)
    try:
        found = _check(run, job, room)
    except Late as error:  # a file of terabytes, from a hook or a check
        found = Checked(commit=job.commit, message=job.message)
        found.checks = [CheckResult("git", "git", False, None, 0.0, str(error), timed_out=True)]
    finally:
        for old in [paths.landing] if job.landing else paths.rooms[:-1]:
            run.room(old).remove()
    if run.control.stop_now:
        raise StopNow
    found.notices = room.notices
    return found


def _check(run: Run, job: CheckJob, room: Room) -> Checked:
    """Run the commit hooks, then all checks on the commit as the hooks rewrote it."""
    found, hooked = Checked(commit=job.commit, message=job.message), list[CheckResult]()
    if job.known and room.go_on(job.commit):
        left = [check for check in job.checks if check.command not in job.known]
        found.checks = room.run(left, job.name, job.label)
        return found
    setup = room.prepare(found.commit, job.name)
    for _ in range(2 if job.tip else 0):  # a hook that rewrites files and fails runs again
        if setup or not room.site.hooks(room.path)[0]:
            break
        before = found.commit
        hooked = _run_hooks(run, job, room, found)
        setup = room.prepare(found.commit, job.name)
        if found.commit == before or all(result.ok for result in hooked):
            break
    found.checks = [setup] if setup else room.run(job.checks, job.name, job.label) + hooked
    return found


def _run_hooks(run: Run, job: CheckJob, room: Room, found: Checked) -> list[CheckResult]:
    """Run the commit hooks in the room; `found` gets the commit that they make."""
    names, folder = room.site.hooks(room.path)
    results: list[CheckResult] = []
    with room.at(job.tip):
        path = room.path / ".git/COMMIT_EDITMSG"
        path.write_text(found.message, encoding="utf-8")
        for hook in names:
            result = run_hook(hook, folder, room, path, job.name)
            results += [result] if result else []
        said = files.read_regular(path, _MESSAGE) if room.place.exists else None
        if said is None:  # a hook in the tree can be the agent's
            gone = "it removed the checkout or the commit message"
            return [replace(result, ok=False, tail=gone) for result in results]
        message, tree = said.decode("utf-8", "replace"), room.rewritten()
    trailers = found.message.rpartition("\n\n")[2]
    if results and ("\0" in message or not message.strip()):
        return [replace(results[-1], ok=False, tail="it left a commit message that git refuses")]
    if trailers.rstrip() not in message:  # the hook left them out, or wrote more than is read
        message = f"{message.rstrip()}\n\n{trailers}"
    tree, _, _ = restore(run.git, job.tip, tree, run.plan.protected, job.allow, run.state(job.allow))
    if message != found.message or tree != run.git.tree(found.commit):
        found.commit, found.message = run.branch.commit(tree, job.tip, message), message
        run.branch.pin_candidate(found.commit)
    return results


def checking(run: Run, job: CheckJob, number: int = 0) -> Job[Checked]:
    """Begin a `CheckJob` in a worker."""
    return run.in_worker(lambda inside: check_commit(inside, job), Checked, number)


async def examined(run: Run, job: CheckJob, number: int) -> Checked:
    """The results of a `CheckJob`: as remembered for these files, else from the clean room."""
    results = remembered(run)
    if found := results.recall(job):
        return found
    begun = results.begin(job)
    return results.end(begun, await checking(run, begun, number))


def examined_now(run: Run, job: CheckJob) -> Checked:
    """The same, before anything else goes on."""
    results = remembered(run)
    if found := results.recall(job):
        return found
    begun = results.begin(job)
    return results.end(begun, check_now(run, begun))


def remembered(run: Run) -> Results:
    """The results of this run, as long as all that checks see beside a tree is the same."""
    copied = [files.signature(run.paths.root / name) for name in run.site.gear.carried]
    now = files.digest(repr((run.plan.setup, run.site.keep, copied)).encode("utf-8", "surrogatepass"))
    if now != run.results.surroundings:
        run.results = Results(run.git, now, before=run.results.before)
    return run.results


def check_now(run: Run, job: CheckJob) -> Checked:
    """Do a `CheckJob` before anything else goes on. If its worker dies it is done again: a second death is a
    red check, as a check may be what kills it."""
    found = Checked(commit=job.commit)
    for _ in range(2):
        try:
            return run.wait(checking(run, job))
        except WorkerDied as error:
            found.checks = [CheckResult("worker", "", False, None, 0.0, str(error))]
    return found


def check_twice(run: Run, job: CheckJob) -> tuple[list[CheckResult], list[str]]:
    """The results of a `CheckJob`, where what is red ran once more and is green if it was so in either run;
    and the names of those that were."""
    first = check_now(run, job)
    if not first.red:
        return first.checks, []
    checks = up_to(job.checks, first.red)
    second = check_now(run, replace(job, checks=checks, name=f"{job.name}-again"))
    if not {result.command for result in first.red} & {check.command for check in job.checks}:
        return second.checks, [result.name for result in first.red if not second.red]  # `setup`, a worker
    checks_now = better(first.checks, second.checks)
    flaky = [new.name for old, new in zip(first.checks, checks_now, strict=True) if new.ok and not old.ok]
    return checks_now, flaky


def baseline_job(commit: str, checks: list[Check], name: str, env: dict[str, str]) -> CheckJob:
    """The job that finds which checks are green on the branch before the work."""
    return CheckJob(commit=commit, checks=checks, name=name, label="before the work: ", env=env)


def require_setup(run: Run, found: Checked) -> Checked:
    """The results of a job on the branch's own files. NeedsPerson if `setup` was red."""
    if found.red and found.checks[0].name == "setup":
        raise NeedsPerson(setup_failed(run, found.checks[0]))
    return found


def cannot_start(result: CheckResult) -> str:
    """The sentence about a check whose program is missing."""
    why = text.last_line(result.tail)
    return (
        f"check {result.name} cannot run here: {why}; a program is missing: install it, or let `setup` do it"
    )


def setup_failed(run: Run, result: CheckResult) -> str:
    """The message for a `setup` that fails on the branch's own files."""
    command = run.plan.setup.run if run.plan.setup else ""
    return f"setup {result.outcome}: {command}; its output is in {result.log}"


def commit_message(run: Run, attempt: Attempt) -> str:
    """The message of a passed task's commit: the plan's template, and ralph's trailers."""
    values = {"task": attempt.task, "iteration": attempt.iteration, "attempt": attempt.number}
    where = f"{run.paths.prd.name}: commit"
    template = compile_line(run.commit_template(), where)
    subject = render_line(template, values, where)
    agent = text.one_line(attempt.command, 100)
    trailers = {"Iteration": attempt.iteration, "Agent": agent, "Attempt": attempt.id}
    return f"{subject}\n\n" + "".join(f"Ralph-{name}: {value}\n" for name, value in trailers.items())
