"""Running checks on a commit, in the clean room and in a worker; what is known already
is not run again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from _ralph import files
from _ralph.loop.commit import in_room
from _ralph.loop.jobs import Attempt, Checked, CheckJob
from _ralph.loop.results import Results, up_to
from _ralph.loop.room import Room
from _ralph.loop.run import Run
from _ralph.loop.setup import require_setup
from _ralph.loop.suite import compare, judged, ran
from _ralph.loop.worker import Job, WorkerDied
from _ralph.model import Check, CheckResult


async def baseline(
    run: Run,
    commit: str,
    checks: Iterable[Check],
    name: str,
    env: dict[str, str],
    attempt: Attempt | None = None,
) -> Checked:
    """What checks say on a commit of the branch, before the work of an `attempt`.
    SetupFailed if `setup` is red there."""
    job = CheckJob(
        commit=commit, checks=[*checks], name=name, label="before the work: ", env=env
    )
    if attempt:
        job.room = attempt.room
    return require_setup(await results_of(run, job, attempt.worker if attempt else 0))


async def results_of(run: Run, job: CheckJob, number: int = 0) -> Checked:
    """The results of a `CheckJob`: those known for these files, else from the clean
    room. `number` is the worker whose attempt it is for; without one, a killed job is
    done again (`retry_if_killed`)."""
    results = current_results(run)
    if known := results.recall(job):
        return known
    begun = results.begin(job)
    return results.end(
        begun,
        await (checking(run, begun, number) if number else retry_if_killed(run, begun)),
    )


def current_results(run: Run) -> Results:
    """The results of this run, as long as all that checks see beside a tree is the
    same."""
    copied = [
        files.signature(run.paths.root / name) for name in run.places.gear.carried
    ]
    now = files.digest(
        repr((run.plan.setup, run.places.keep, copied)).encode("utf-8", "surrogatepass")
    )
    if now != run.results.surroundings:
        run.results = Results(
            run.git, now, before=run.results.before, accepted=run.results.accepted
        )
    return run.results


def check_twice(run: Run, job: CheckJob) -> tuple[list[CheckResult], list[str]]:
    """The results of a `CheckJob`, where what is red ran once more and is green if it
    was so in either run; and the names of those that were. What single tests of the
    plan's checks did in the clean room on these files says which of them are old
    failures."""
    first = run.wait(retry_if_killed(run, job))
    if not (red := [one for one in _as_in_room(run, job, [first]) if not one.ok]):
        return _as_in_room(run, job, [first]), []
    checks = up_to(job.checks, red)
    second = run.wait(
        retry_if_killed(run, replace(job, checks=checks, name=f"{job.name}-again"))
    )
    if not {result.command for result in red} & {check.command for check in job.checks}:
        return second.checks, [
            result.name for result in red if not second.red
        ]  # `setup`, a worker
    checks_now = _as_in_room(run, job, [first, second])
    flaky = [
        new.name
        for old, new in zip(first.checks, checks_now, strict=True)
        if new.ok and old in red
    ]
    return checks_now, flaky


def _as_in_room(run: Run, job: CheckJob, runs: list[Checked]) -> list[CheckResult]:
    """The results of these runs of a job: green in either is green, and no test of a
    plan's check is red that was so in the clean room on the same files, nor gone where
    the runs do not name the same tests."""
    checks = runs[0].checks
    for again in runs[1:]:
        checks = green_in_either(checks, again.checks)
    own = {
        check.command for task in run.plan.tasks for check in task.checks if task.passed
    }
    suites = {check.command for check in run.plan.checks if check.results} - own
    results = []
    for result in checks:
        now = [
            one
            for checked in runs
            for one in checked.checks
            if one.command == result.command
        ]
        before = run.results.runs(job.commit, result.command) or now
        named = {frozenset(names) for one in now if (names := ran([one]))}
        change = compare(before, now, let_go=len(named) > 1)  # names with times or ids
        results.append(judged(result, change) if result.command in suites else result)
    return results


async def retry_if_killed(run: Run, job: CheckJob) -> Checked:
    """The results of a `CheckJob` from the clean room. If its worker dies it is done
    again: a second death is a red check, as a check may be what kills it."""
    checked = Checked(commit=job.commit)
    for _ in range(2):
        try:
            return await checking(run, job)
        except WorkerDied as error:
            checked.checks = [CheckResult("worker", "", False, None, 0.0, str(error))]
    return checked


def checking(run: Run, job: CheckJob, number: int = 0) -> Job[Checked]:
    """Begin a `CheckJob` in a worker."""
    return run.in_worker(lambda inside: check_commit(inside, job), Checked, number)


def check_commit(run: Run, job: CheckJob) -> Checked:
    """From a commit to a verdict: run its checks in the clean room. If `setup` is red,
    it is the only result. StopNow if ralph was stopped."""
    run.view.doing("running checks")
    paths = run.paths
    folder = (
        paths.landing
        if job.landing
        else paths.next_room
        if job.anew
        else paths.room_of(job.room)
    )
    room = Room.at(run.places, folder, job.env)
    try:
        return in_room(run, room, job.commit, lambda: _check(job, room))
    finally:
        for old in [paths.landing] if job.landing else paths.rooms[:-1]:
            Room.at(run.places, old).place.remove()


def _check(job: CheckJob, room: Room) -> Checked:
    """Run the checks of a job; where the room still holds its files, only those whose
    result is not known."""
    checks = job.checks
    if job.known is not None and room.go_on(job.commit):
        checks = [check for check in checks if check.command not in job.known]
    elif setup := room.prepare(job.commit, job.name, job.before):
        return Checked(commit=job.commit, checks=[setup])
    elif naming := room.naming(job.changed):
        return Checked(commit=job.commit, naming=naming)
    return Checked(commit=job.commit, checks=room.run(checks, job.name, job.label))


def green_in_either(
    first: list[CheckResult], second: list[CheckResult]
) -> list[CheckResult]:
    """The results of two runs: what is green in either is green."""
    again = {result.command: result for result in second}
    return [
        result if result.ok else again.get(result.command, result) for result in first
    ]
