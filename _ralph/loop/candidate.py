"""The candidate: the work as a commit on the tip of the branch, and what the clean room says of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput, NeedsPerson, StopNow
from _ralph.git.merge import merge, still_marked
from _ralph.git.workspace import changes
from _ralph.loop.commit import commit_in_room, in_room, message, subject, subject_of, try_messages
from _ralph.loop.jobs import Attempt, Checked, CheckJob
from _ralph.loop.places import HOOKS, MESSAGE_HOOKS
from _ralph.loop.results import Results, up_to
from _ralph.loop.room import Room
from _ralph.loop.run import Run
from _ralph.loop.setup import once_set_up, red_setup, require_setup
from _ralph.loop.verdict import Before, kept_away
from _ralph.loop.worker import Job, WorkerDied
from _ralph.model import Check, CheckResult, Outcome, Task, Verdict

_MADE_OF = (*HOOKS, ".pre-commit-config.yaml")
"""Names of files that commit hooks are made of."""


def make_candidate(run: Run, attempt: Attempt) -> bool:
    """Merge the work with the tip of the branch; False, with the verdict, if they conflict, if it still has
    the markers of an earlier conflict, or if no work could pass."""
    if attempt.cannot_pass:
        attempt.verdict, attempt.reason = Verdict.FAILED, attempt.cannot_pass
        return False
    attempt.tip = attempt.commit = run.tip
    attempt.checks, attempt.naming = [], []  # what was said of a candidate on another tip
    if not attempt.tree:
        return True
    words, signs = message(run, attempt), run.branch.signs and not run.places.hooked()
    made = run.branch.commit(attempt.tree, attempt.base, words, sign=signs)
    if made == attempt.base:
        return True
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
        made = run.branch.commit(found.tree, attempt.tip, words, sign=signs)
    run.branch.pin_candidate(made)
    attempt.commit = made
    attempt.changed, attempt.changes = changes(run.git, attempt.tip, made)
    return True


def tip_of(run: Run) -> str:
    """The commit that the branch is at now, as `require_verified` accepts it."""
    return require_verified(run, run.branch.tip())


def require_verified(run: Run, tip: str) -> str:
    """The commit `tip`, at which the branch is. NeedsPerson if it was deleted or rewritten during the run."""
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
    """Put into the attempt what commit hooks make of its candidate, and what checks say of that."""
    try:
        found = await once_set_up(run, attempt, lambda: _examined(run, attempt))
    except (WorkerDied, StopNow) as error:
        reason = str(error) or "ralph was stopped"
        attempt.result = replace(attempt.result, outcome=Outcome.INTERRUPTED, reason=reason)
        return
    attempt.checks, attempt.commit, attempt.naming = found.checks, found.commit, found.naming
    attempt.ignored = found.ignored or attempt.ignored
    hooks = [name for name in attempt.changed if Path(name).name in _MADE_OF]
    attempt.notices += [
        f"the attempt changed {text.one_line(name)}, which commit hooks are made of" for name in hooks
    ]
    attempt.notices += found.notices


async def _examined(run: Run, attempt: Attempt) -> Checked:
    """What commit hooks and checks say of the candidate. SetupFailed if `setup` is red on it and on the tip:
    it is not the work's fault."""
    hooked = Checked(commit=attempt.commit)
    if attempt.changes_tree:
        if run.plan.checks:
            await baseline(run, attempt.tip, run.plan.checks, f"{attempt.name}-tip", {}, attempt.worker)
        hooked = await _committed(run, attempt)
    found = await _look(run, attempt, hooked)
    if red_setup(found):
        await baseline(run, attempt.tip, [], f"{attempt.name}-tip", {}, attempt.worker)
        run.results.built = ""  # no check has run there
    return found


async def _committed(run: Run, attempt: Attempt) -> Checked:
    """The commit that the commit hooks make of the candidate, and what they say. A message that they refuse
    on the branch's own files, too, is ralph's fault, and no other attempt can mend it."""
    if not run.places.hooked():
        return Checked(commit=attempt.commit)
    run.results.built = ""  # hooks do what they like in the room
    found = await run.in_worker(lambda inside: commit_in_room(inside, attempt), Checked, attempt.worker)
    if any(one.name in MESSAGE_HOOKS for one in found.red):
        message = subject_of(run, attempt)
        run.results.passable.discard(message)  # it let it pass before, and may have changed its mind
        attempt.cannot_pass = await refusal(run, attempt.task, message, attempt.tip, attempt.worker)
    return found


async def _look(run: Run, attempt: Attempt, hooked: Checked) -> Checked:
    """What the checks of the task say of the commit that was made, behind what the hooks said. Before the
    task is given up, what is red runs again. With the ignored files that may be the reason where nothing
    passes."""
    if any(one.name not in HOOKS for one in hooked.red):  # `setup`, or git itself
        return hooked
    job = CheckJob(
        commit=hooked.commit,
        checks=checks_of(run, attempt.task),
        name=attempt.name,
        env=attempt.variables(run.paths),
        before=attempt.commit,
        changed=attempt.changed,
    )
    found = await examined(run, job, attempt.worker)
    found = replace(found, checks=found.checks + hooked.checks, notices=hooked.notices + found.notices)
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
    job = replace(job, checks=up_to(job.checks, red), again=True)
    second = await examined(run, replace(job, name=f"{job.name}-again"), attempt.worker)
    found = replace(found, checks=better(found.checks, second.checks))
    own = {check.command for check in attempt.task.checks}
    left = [result for result in found.red if result in second.checks and result.command not in own]
    if left and found.commit != attempt.tip:
        tip = replace(job, commit=attempt.tip, before="", checks=up_to(job.checks, left))
        tip = replace(tip, name=f"{job.name}-tip", label="before the work: ")
        await examined(run, tip, attempt.worker)
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
    """Learn, on the tip as it is when the room is free, what must be known before an agent is paid: whether
    the commit hooks let ralph's message pass, and, before the first attempt in this run, what the task's own
    checks say behind the plan's. SetupFailed if `setup` is red."""
    commands = {check.command for check in attempt.task.checks}
    own_known = run.results.before.get(attempt.task.key, {}).keys() >= commands
    message = subject_of(run, attempt)
    if own_known and has_passed(run, message):
        return
    async with run.turn(attempt):
        attempt.cannot_pass = await refusal(run, attempt.task, message, run.tip, attempt.worker)
        if not (own_known or attempt.cannot_pass):
            await _know_own(run, attempt, run.tip)


def has_passed(run: Run, message: str) -> bool:
    """Whether the commit hooks have let this message pass in this run, or there are none that see it."""
    return message in run.results.passable or not run.places.hooked(MESSAGE_HOOKS)


async def refusal(run: Run, task: Task, message: str, commit: str, worker: int = 0) -> str:
    """Why the commit hooks refuse the message of an attempt at `task` on the files of `commit`; nothing if
    they let it pass. SetupFailed if `setup` is red there."""
    if has_passed(run, message):
        return ""
    checked = require_setup(await trying(run, commit, [(task, message)], worker))
    if not checked.refused:
        run.results.passable.add(message)
    return checked.refused


def require_message(run: Run, task: Task, commit: str) -> None:
    """BadInput if the commit hooks refuse the message that the next attempt at `task` would have."""
    message = subject(run, task, run.history.iteration + 1, run.history.of(task).attempts + 1)
    if refused := run.wait(refusal(run, task, message, commit)):
        raise BadInput(refused)


def trying(run: Run, commit: str, messages: list[tuple[Task, str]], number: int = 0) -> Job[Checked]:
    """Begin to try messages in a worker, in the room as the plan's checks left it if it holds `commit`."""
    if not (held := run.results.built == run.git.tree(commit)):
        run.results.built = ""
    return run.in_worker(lambda inside: try_messages(inside, commit, messages, held), Checked, number)


async def _know_own(run: Run, attempt: Attempt, tip: str) -> None:
    """Run the task's own checks behind the plan's. The attempt cannot pass if one of them can only be red."""
    before, own = run.results.before.get(attempt.task.key, {}), attempt.task.checks
    checks, name = run.plan.checks_for(attempt.task), f"{attempt.name}-before"
    found = await baseline(run, tip, checks, name, attempt.variables(run.paths), attempt.worker)
    said = {result.command: result for result in found.checks}
    results = [said[check.command] for check in own if check.command in said]
    attempt.notices += found.notices
    attempt.cannot_pass = next((cannot_start(result) for result in results if result.missing), "")
    if not attempt.cannot_pass:
        run.results.before[attempt.task.key] = {result.command: result.ok for result in results} | before


def before_work(run: Run, attempt: Attempt) -> Before:
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
    place = run.places.workspace(attempt.worker)
    found = place.ignored_since(attempt.began) if attempt.began and place.exists else []
    return [text.one_line(name) for name in found[:20]]


def check_commit(run: Run, job: CheckJob) -> Checked:
    """From a commit to a verdict: run its checks in the clean room. If `setup` is red, it is the only result.
    StopNow if ralph was stopped."""
    run.view.doing("running checks")
    paths = run.paths
    room = Room.at(
        run.places, paths.landing if job.landing else paths.next_room if job.anew else paths.room, job.env
    )
    try:
        return in_room(run, room, job.commit, lambda: _check(job, room))
    finally:
        for old in [paths.landing] if job.landing else paths.rooms[:-1]:
            Room.at(run.places, old).place.remove()


def _check(job: CheckJob, room: Room) -> Checked:
    """Run the checks of a job, where the room holds its files as earlier checks left them those that are not
    known."""
    checks = job.checks
    if job.known is not None and room.go_on(job.commit):
        checks = [check for check in checks if check.command not in job.known]
    elif setup := room.prepare(job.commit, job.name, job.before):
        return Checked(commit=job.commit, checks=[setup])
    elif naming := room.naming(job.changed):
        return Checked(commit=job.commit, naming=naming)
    return Checked(commit=job.commit, checks=room.run(checks, job.name, job.label))


def checking(run: Run, job: CheckJob, number: int = 0) -> Job[Checked]:
    """Begin a `CheckJob` in a worker."""
    return run.in_worker(lambda inside: check_commit(inside, job), Checked, number)


async def examined(run: Run, job: CheckJob, number: int = 0) -> Checked:
    """The results of a `CheckJob`: as remembered for these files, else from the clean room, for the attempt
    of a worker; without one, `patiently`."""
    results = remembered(run)
    if found := results.recall(job):
        return found
    begun = results.begin(job)
    return results.end(begun, await (checking(run, begun, number) if number else patiently(run, begun)))


def remembered(run: Run) -> Results:
    """The results of this run, as long as all that checks see beside a tree is the same."""
    copied = [files.signature(run.paths.root / name) for name in run.places.gear.carried]
    now = files.digest(repr((run.plan.setup, run.places.keep, copied)).encode("utf-8", "surrogatepass"))
    if now != run.results.surroundings:
        run.results = Results(run.git, now, before=run.results.before, passable=run.results.passable)
    return run.results


async def patiently(run: Run, job: CheckJob) -> Checked:
    """The results of a `CheckJob` from the clean room. If its worker dies it is done again: a second death is
    a red check, as a check may be what kills it."""
    found = Checked(commit=job.commit)
    for _ in range(2):
        try:
            return await checking(run, job)
        except WorkerDied as error:
            found.checks = [CheckResult("worker", "", False, None, 0.0, str(error))]
    return found


def check_twice(run: Run, job: CheckJob) -> tuple[list[CheckResult], list[str]]:
    """The results of a `CheckJob`, where what is red ran once more and is green if it was so in either run;
    and the names of those that were."""
    first = run.wait(patiently(run, job))
    if not first.red:
        return first.checks, []
    checks = up_to(job.checks, first.red)
    second = run.wait(patiently(run, replace(job, checks=checks, name=f"{job.name}-again")))
    if not {result.command for result in first.red} & {check.command for check in job.checks}:
        return second.checks, [result.name for result in first.red if not second.red]  # `setup`, a worker
    checks_now = better(first.checks, second.checks)
    flaky = [new.name for old, new in zip(first.checks, checks_now, strict=True) if new.ok and not old.ok]
    return checks_now, flaky


async def baseline(
    run: Run, commit: str, checks: Iterable[Check], name: str, env: dict[str, str], number: int = 0
) -> Checked:
    """What checks say on a commit of the branch, before the work. SetupFailed if `setup` is red there."""
    job = CheckJob(commit=commit, checks=[*checks], name=name, label="before the work: ", env=env)
    return require_setup(await examined(run, job, number))


def cannot_start(result: CheckResult) -> str:
    """The sentence about a check whose program is missing."""
    why = text.last_line(result.tail)
    return (
        f"check {result.name} cannot run here: {why}; a program is missing: install it, or let `setup` do it"
    )
