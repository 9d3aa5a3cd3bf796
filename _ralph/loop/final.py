"""The final check: the branch in a place made anew, before a run ends. After it, a mark
means that a clone of the branch is green for its checks."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from _ralph.checks.results import Results
from _ralph.checks.room import Room
from _ralph.checks.running import Job, run_checks
from _ralph.checks.suite import compare, judged
from _ralph.checks.verdict import FLAKY
from _ralph.errors import Stop
from _ralph.loop.landing import failure_of
from _ralph.loop.loop import Loop
from _ralph.loop.opening import digest_of, ensure_open
from _ralph.model import CheckResult, Task
from _ralph.state import edit
from _ralph.state.records import Rechecked

_NO_FINAL_CHECK = ("error", "terminated", "hung-up", "interrupted", "no-price")
"""Words of the stops after which nothing is checked."""
CONFLICTING = "conflicting: it passed twice, and each time later work broke it"
_UNLIKE = (
    "it passed in the clean room, and fails in a new checkout: something outside the "
    "checkout, what `keep` carried over, or a `when` that says too little"
)


def may_check(loop: Loop, stop: Stop) -> bool:
    """Whether a run that ends for this reason may make the final check before."""
    return stop.word not in _NO_FINAL_CHECK and time.time() < loop.ends


def final_check(loop: Loop, results: Results) -> None:
    """Check the branch again if it changed since the last time: a new checkout, setup,
    all checks of the plan and of every passed task. What no longer holds is set back.
    In the room, with nobody else at work."""
    loop.read()
    tip = loop.tip()
    names = digest_of(loop.plan)
    some = loop.plan.passed_ids and loop.plan.checks_of_passed
    if loop.trouble or not (tip and some):
        return
    last = loop.history.recheck
    if last and (last.commit, last.checks_digest) == (tip, names):
        # a red suite is not asked again in the same run
        if last.ok or last.run == loop.run_id:
            return
    ensure_open(loop, results, None)
    loop.view.line("all checks once more, in a fresh checkout")
    found, flaky = run_in_new_room(loop, results, tip)
    record = record_of(loop, found, tip, red_here_alone(loop, results, tip, found))
    record.checks_digest = names
    record.flaky = flaky
    said = [f"{FLAKY}: {name}" for name in flaky]
    for task in loop.plan.tasks:
        if task.key in record.broken:
            how = loop.history.of(task).passed_words
            since = "; ".join(record.since[task.key])
            said.append(f"{task.id} {how}, broken since: {since}")
    loop.view.lines(said)
    headline = ", ".join(record.red) or "all green"
    # What takes a mark away goes into the plan first.
    with loop.plan_locked():
        set_back(loop, record.broken)
        lines = [f"- {line}" for line in [*said, *record.old]]
        loop.write(record, f"all checks once more | {headline}", lines)
    loop.read()
    is_stale = (loop.tip(), digest_of(loop.plan)) != (tip, names)
    if is_stale and not record.broken:
        final_check(loop, results)  # a person moved the branch, or changed the plan


def run_in_new_room(
    loop: Loop, results: Results, tip: str
) -> tuple[list[CheckResult], list[str]]:
    """Run the checks in a room made anew under a new name, which then is the clean
    room: what they say, and the names of those that were red and green. Where one is
    red that is not so in the clean room, all run once more; green in either run is
    green."""
    places = loop.places
    paths = loop.paths
    results.room_changes()
    folder = paths.next_room
    runs = []
    seen: list[CheckResult] = []
    for name in ("recheck", "recheck-again"):
        job = Job(tip, loop.plan.checks_of_passed, name)
        runs.append(run_checks(places, folder, job).checks)
        found = as_in_room(loop, results, tip, runs)
        red = []
        for one in found:
            known = results.newest(tip, one.command)
            if not one.ok and (known is None or known.is_sound):
                red.append(one)  # else it is red in the clean room, too
        if not red:
            break
        seen = seen or red
    green = {one.command for one in found if one.ok}
    for old in paths.rooms[:-1]:
        Room.at(places, old).place.remove()
    return found, [one.name for one in seen if one.command in green]


def as_in_room(
    loop: Loop, results: Results, tip: str, runs: Sequence[Sequence[CheckResult]]
) -> list[CheckResult]:
    """The results of these runs: green in either is green, and no test of a plan's
    check is red that was so in the clean room on the same files, nor gone where the
    runs do not name the same tests."""
    own = {check.command for task in loop.plan.tasks for check in task.checks}
    suites = {check.command for check in loop.plan.checks if check.results} - own
    found = []
    for newest in runs[-1]:
        result = newest
        now = []
        names = set()
        for one in [one for run in runs for one in run]:
            if one.command == newest.command:
                now.append(one)
                result = one if one.ok else result
                if one.tests:
                    names.add(frozenset(one.tests.names))
        if newest.command in suites:
            before = results.runs(tip, newest.command) or now
            # Some names have times or ids in them: these tests are not gone.
            change = compare(before, now, let_go=len(names) > 1)
            result = judged(result, change)
        found.append(result)
    return found


def red_here_alone(
    loop: Loop, results: Results, tip: str, found: Sequence[CheckResult]
) -> set[str]:
    """The commands of `setup` and of the plan's checks that are red, and are green in
    the clean room for the very same commit."""
    red = {one.command for one in found if not one.ok}
    unlike = {loop.plan.setup.run} & red if loop.plan.setup else set()
    for check in loop.plan.checks:
        known = results.newest(tip, check.command)
        if check.command in red and known and known.is_sound:
            unlike.add(check.command)
    return unlike


def record_of(
    loop: Loop, found: Sequence[CheckResult], tip: str, unlike: Collection[str]
) -> Rechecked:
    """The record of a final check: also of each passed task of which an own check is
    red."""
    red = [result for result in found if not result.ok]
    record = Rechecked(ok=not red, commit=tip)
    for result in found:
        said = f"{result.name} {result.outcome}"
        if result.command in unlike:
            said += f": {_UNLIKE}"
        if not result.ok:
            record.red.append(said)
        elif result.exit:
            record.old.append(f"{result.name}: {result.said}")
    if red:
        record.failures[""] = failure_of(red)
    for task in loop.plan.tasks:
        commands = {check.command for check in task.checks}
        own = [one for one in red if one.command in commands]
        if own and task.passed and not unlike:
            commit = loop.history.of(task).passed.commit
            log = loop.branch.log(f"{commit}..{tip}") if commit else []
            record.broken.append(task.key)
            record.since[task.key] = log
            record.failures[task.key] = failure_of(own)
    return record


def set_back(loop: Loop, broken: Collection[str]) -> None:
    """Take the marks of the tasks (by their keys) that a final check found broken, in
    one write; block those that it found broken before. Under the plan's lock."""
    if loop.trouble or not broken:
        return
    lost = [task for task in loop.plan.tasks if task.key in broken]
    loop.mark(lambda plan: edit.set_passed(plan, lost, False))
    again = [task for task in lost if loop.history.of(task).set_back]
    if again:
        loop.mark(lambda plan: edit.set_blocked(plan, again, CONFLICTING))
    for task in again:
        loop.pending.append(("blocked", CONFLICTING, task.id))


# ---------------------------------------------------------------- what it means


def finished(loop: Loop) -> Stop:
    """The stop where no task is left to try, after the final check."""
    only = loop.options.task
    last = loop.history.recheck
    if last is None or last.commit != loop.branch.tip():
        last = Rechecked()
    red = ", ".join(last.red)
    old = "; ".join(last.old)
    left = []
    for task in loop.plan.tasks:
        if not task.passed and only in (None, task.id):
            left.append(task)
    if left:
        reasons = why_left(loop, left)
        if red:
            reasons = f"in a fresh checkout {red}; {reasons}"
        return Stop("blocked", f"{len(left)} left, and a person is needed: {reasons}")
    done = f"{only or 'every task'} passes"
    if red:
        return Stop("red-checks", f"{done}, but not all checks are green: {red}")
    if not loop.plan.every_check:
        return Stop("complete", f"{done}; the plan has no checks to run")
    done = f"{done}, and all checks are green"
    if old:
        done += f", old failures apart ({old})"
    return Stop("complete", done)


def why_left(loop: Loop, left: Sequence[Task]) -> str:
    """Why nobody can work on these tasks."""
    reasons = []
    aside = loop.history.this_run.set_aside
    for task in left:
        why = task.blocked or aside.get(task.key)
        if why:
            reasons.append(f"{task.id}: {why}")
    if reasons:
        return "; ".join(reasons[:5])
    return f"{left[0].id} waits for {', '.join(left[0].depends_on)}"
