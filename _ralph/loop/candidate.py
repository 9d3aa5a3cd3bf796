"""The candidate: the work as a commit on the tip of the branch, and what the clean room says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from _ralph import files, text
from _ralph.agents.prompt import compile_line, render_line
from _ralph.errors import NeedsPerson, StopNow
from _ralph.git.git import Late
from _ralph.git.merge import merge, still_marked
from _ralph.git.workspace import changes, restore
from _ralph.loop.jobs import Attempt, Checked, CheckJob
from _ralph.loop.room import HOOKS, Room, run_hook
from _ralph.loop.run import Run
from _ralph.loop.worker import Job, WorkerDied
from _ralph.model import Check, CheckResult, Outcome, Verdict

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
    return True


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
    """Commit hooks and checks in the clean room, in a worker."""
    job = CheckJob(
        commit=attempt.commit,
        checks=run.plan.checks_for(attempt.task),
        name=attempt.name,
        env=run.names(attempt),
        tip=attempt.tip if attempt.commit != attempt.tip else "",
        message=attempt.message,
        allow=attempt.task.allow,
    )

    def work(inside: Run) -> Checked:
        found = check_commit(inside, job)
        if found.red or found.commit == attempt.tip:  # ignored files may be the reason
            found.ignored = ignored_by(inside, attempt)
        return found

    try:
        found = await run.in_worker(work, Checked, attempt.worker)
    except (WorkerDied, StopNow) as error:
        reason = str(error) if isinstance(error, WorkerDied) else "ralph was stopped"
        attempt.result = replace(attempt.result, outcome=Outcome.INTERRUPTED, reason=reason)
        return
    attempt.checks, attempt.commit, attempt.message = found.checks, found.commit, found.message
    attempt.ignored = found.ignored or attempt.ignored
    hooks = [name for name in attempt.changed if Path(name).name in _HOOKS]
    attempt.notices += [f"the attempt changed {name}, which commit hooks are made of" for name in hooks]
    attempt.notices += found.notices


def ignored_by(run: Run, attempt: Attempt) -> list[str]:
    """What the attempt made in the workspace that git ignores."""
    place = run.workspace(attempt.worker)
    found = place.ignored_since(attempt.began) if attempt.began and place.exists else []
    return [text.one_line(name) for name in found[:20]]


def check_commit(run: Run, job: CheckJob) -> Checked:
    """Check a commit in the clean room. If `setup` is red, it is the only result. StopNow if ralph was
    stopped."""
    run.view.doing("running checks")
    room = run.room(job.env, job.anew)
    try:
        with run.workspaces_away():
            found = _check(run, job, room)
    except Late as error:  # a file of terabytes, from a hook or a check
        found = Checked(commit=job.commit, message=job.message)
        found.checks = [CheckResult("git", "git", False, None, 0.0, str(error), timed_out=True)]
    finally:
        if job.anew:
            files.clear(room.path)
    if run.control.stop_now:
        raise StopNow
    found.notices = room.notices
    return found


def _check(run: Run, job: CheckJob, room: Room) -> Checked:
    """Run the commit hooks, then all checks on the commit as the hooks rewrote it."""
    found, hooked = Checked(commit=job.commit, message=job.message), list[CheckResult]()
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
    tree, _, _ = restore(room.place.git, job.tip, tree, run.plan.protected, job.allow, run.state(job.allow))
    if message != found.message or tree != run.git.tree(found.commit):
        found.commit, found.message = run.branch.commit(tree, job.tip, message), message
        run.branch.pin_candidate(found.commit)
    return results


def checking(run: Run, job: CheckJob, number: int = 0) -> Job[Checked]:
    """Begin a `CheckJob` in a worker."""
    return run.in_worker(lambda inside: check_commit(inside, job), Checked, number)


def check_now(run: Run, job: CheckJob) -> Checked:
    """Do a `CheckJob` before anything else goes on. If its worker dies it is done again: a second death is a
    red check, as a check may be what kills it."""
    found = Checked()
    for _ in range(2):
        try:
            return run.wait(checking(run, job))
        except WorkerDied as error:
            found.checks = [CheckResult("worker", "", False, None, 0.0, str(error))]
    return found


def baseline_job(commit: str, checks: list[Check], name: str, env: dict[str, str]) -> CheckJob:
    """The job that finds which checks are green on the branch before the work."""
    return CheckJob(commit=commit, checks=checks, name=name, label="before the work: ", env=env)


def baseline_of(run: Run, found: Checked) -> dict[str, bool]:
    """Which checks were green, by their commands. NeedsPerson if `setup` was red."""
    if found.red and found.checks[0].name == "setup":
        raise NeedsPerson(setup_failed(run, found.checks[0]))
    return {result.command: result.ok for result in found.checks}


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
