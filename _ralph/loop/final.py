"""The final check: the branch in a place made anew, before a run ends. After it, a mark
means that a clone of the branch is green for its checks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from _ralph.checks.results import Results
from _ralph.checks.room import Room
from _ralph.checks.running import Checked, Job, green_in_either, run_checks
from _ralph.checks.suite import compare, judged
from _ralph.errors import Stop
from _ralph.files import digest
from _ralph.loop.landing import failure_of
from _ralph.loop.loop import Loop
from _ralph.loop.opening import ensure_open
from _ralph.model import Check, CheckResult, Plan, Task
from _ralph.state import edit
from _ralph.state.records import Rechecked
from _ralph.text import quote

_NO_FINAL_CHECK = ("error", "terminated", "hung-up", "interrupted", "no-price")
"""Words of the stops after which nothing is checked."""


@dataclass(frozen=True)
class Wanted:
    """What a final check looks at: the tasks that passed, and the checks that must be
    green for them on the commit `tip`; `names` is a digest of these."""

    tip: str
    passed: Sequence[Task]
    checks: Sequence[Check]
    names: str


@dataclass(frozen=True)
class Found:
    """What it found: results, names of checks that were red and green, and red checks
    that are green in the clean room for the very same commit."""

    results: Sequence[CheckResult]
    flaky: Sequence[str]
    unlike: Sequence[str] = field(default_factory=list)

    @property
    def red(self) -> dict[str, CheckResult]:
        return {one.command: one for one in self.results if not one.ok}


def may_check(loop: Loop, stop: Stop) -> bool:
    """Whether a run that ends for this reason may make the final check before."""
    return stop.word not in _NO_FINAL_CHECK and time.time() < loop.ends


def final_check(loop: Loop, results: Results) -> bool:
    """Check the branch again if it changed since the last time: a new checkout, setup,
    all checks of the plan and of every passed task. False if a pass was set back. In
    the room, with nobody else at work."""
    loop.read()
    wanted = what_to_check(loop.plan, loop.branch.tip())
    if not is_due(loop, wanted):
        return True
    ensure_open(loop, results, None)
    loop.view.line("all checks once more, in a fresh checkout")
    found = run_in_new_room(loop, results, wanted)
    broken = [] if found.unlike else broken_tasks(wanted, found)
    record = record_of(loop, wanted, found, broken)
    lines = [f"flaky, red and green on the same files: {name}" for name in found.flaky]
    loop.view.lines(lines)
    lines += record.old
    shown = [f"- {line}" for line in lines]
    for task in broken:
        shown.append(f"- {task.id} {loop.history.of(task).passed_words}, broken since")
        shown += quote("\n".join(record.since[task.key]))
    # What takes a mark away goes into the plan first.
    with loop.plan_locked():
        again = set_back(loop, broken)
        headline = ", ".join(record.red) or "all green"
        loop.write(record, f"all checks once more | {headline}", shown)
    for task in again:
        loop.pending.append(("blocked", CONFLICTING, task.id))
    return not broken


def what_to_check(plan: Plan, tip: str) -> Wanted:
    """The checks that must be green if the tasks marked so have passed."""
    passed = tuple(task for task in plan.tasks if task.passed)
    checks = replace(plan, tasks=passed).every_check
    setup = plan.setup.run if plan.setup else ""
    commands = "\0".join([setup, *(check.command for check in checks)])
    names = digest(commands.encode("utf-8", "surrogatepass"))
    return Wanted(tip, passed, checks, names)


def is_due(loop: Loop, wanted: Wanted) -> bool:
    """Whether there is something to check that the last final check did not see."""
    if not (wanted.tip and wanted.passed and wanted.checks) or loop.trouble:
        return False
    last = loop.history.recheck
    if last is None or (last.commit, last.checks_digest) != (wanted.tip, wanted.names):
        return True
    # A red suite is not asked again in the same run.
    return not last.ok and last.run != loop.run_id


def run_in_new_room(loop: Loop, results: Results, wanted: Wanted) -> Found:
    """Run the checks in a room made anew under a new name, which then is the clean
    room. What is red runs once more, and is green if it was so in either run."""
    places, paths = loop.places, loop.paths
    results.built = ""
    results.save()
    folder = paths.next_room
    job = Job(wanted.tip, wanted.checks, "recheck")
    first = run_checks(places, folder, job)
    runs = [first]
    red = [one.command for one in as_in_room(loop, results, wanted, runs) if not one.ok]
    if red:
        commands = [check.command for check in wanted.checks]
        ends = [commands.index(one) + 1 for one in red if one in commands]
        checks = wanted.checks[: max(ends, default=len(commands))]
        runs.append(
            run_checks(
                places, folder, replace(job, checks=checks, name="recheck-again")
            )
        )
    for old in paths.rooms[:-1]:
        Room.at(places, old).place.remove()
    if len(runs) > 1 and first.red_setup:
        last = runs[1]
        flaky = [] if last.red_setup else ["setup"]
        return Found(last.checks, flaky, unlike(loop, results, wanted, last.checks))
    now = as_in_room(loop, results, wanted, runs)
    flaky = [one.name for one in now if one.ok and one.command in red]
    return Found(now, flaky, unlike(loop, results, wanted, now))


def as_in_room(
    loop: Loop, results: Results, wanted: Wanted, runs: Sequence[Checked]
) -> list[CheckResult]:
    """The results of these runs: green in either is green, and no test of a plan's
    check is red that was so in the clean room on the same files, nor gone where the
    runs do not name the same tests."""
    checks = runs[0].checks
    for again in runs[1:]:
        checks = green_in_either(checks, again.checks)
    own = {check.command for task in wanted.passed for check in task.checks}
    suites = {check.command for check in loop.plan.checks if check.results} - own
    found = []
    for result in checks:
        if result.command not in suites:
            found.append(result)
            continue
        now = []
        for checked in runs:
            now += [one for one in checked.checks if one.command == result.command]
        before = results.runs(wanted.tip, result.command) or now
        # Some names have times or ids in them: these tests are not gone.
        let_go = len({names_of(one) for one in now if names_of(one)}) > 1
        found.append(judged(result, compare(before, now, let_go=let_go)))
    return found


def names_of(result: CheckResult) -> frozenset[str]:
    """The single tests that a result reports."""
    tests = result.tests
    if tests is None:
        return frozenset()
    return frozenset([*tests.passed, *tests.failed, *tests.skipped])


def unlike(
    loop: Loop, results: Results, wanted: Wanted, now: Sequence[CheckResult]
) -> list[str]:
    """The commands of the plan that are red here, and green in the clean room for the
    very same commit."""
    red = {one.command for one in now if not one.ok}
    found = []
    for check in loop.plan.checks:
        newest = results.newest(wanted.tip, check.command)
        if check.command in red and newest and newest.is_sound:
            found.append(check.command)
    if loop.plan.setup and loop.plan.setup.run in red:
        found.append(loop.plan.setup.run)
    return found


def broken_tasks(wanted: Wanted, found: Found) -> list[Task]:
    """The passed tasks of which an own check is red."""
    broken = []
    for task in wanted.passed:
        if any(check.command in found.red for check in task.checks):
            broken.append(task)
    return broken


def record_of(
    loop: Loop, wanted: Wanted, found: Found, broken: Sequence[Task]
) -> Rechecked:
    """The record of a final check."""
    red = []
    for result in found.red.values():
        why = why_unlike(loop.plan) if result.command in found.unlike else ""
        red.append(f"{result.name} {result.outcome}{why}")
    old = []
    for result in found.results:
        if result.ok and result.exit:
            old.append(f"{result.name}: {result.said}")
    since, failures = {}, {}
    for task in broken:
        commit = loop.history.of(task).commit
        since[task.key] = loop.branch.log(f"{commit}..{wanted.tip}") if commit else []
        own = [found.red[c.command] for c in task.checks if c.command in found.red]
        failures[task.key] = failure_of(own)
    return Rechecked(
        ok=not found.red,
        commit=wanted.tip,
        checks_digest=wanted.names,
        broken=[task.key for task in broken],
        since=since,
        failures=failures,
        flaky=list(found.flaky),
        red=red,
        old=old,
    )


def why_unlike(plan: Plan) -> str:
    """Why a check can be red in a place made anew that is green in the room."""
    causes = ["something outside the checkout"]
    if plan.settings.get("keep"):
        causes.append("what `keep` carried over")
    if plan.setup and plan.setup.when:
        patterns = ", ".join(plan.setup.when)
        little = f"a `when` of setup that says too little ({patterns})"
        causes.append(f"{little}: name what else setup reads, or leave it out")
    where = "it passed in the clean room, and fails in a new checkout"
    return f": {where}: {', or '.join(causes)}"


CONFLICTING = "conflicting: it passed twice, and each time later work broke it"


def set_back(loop: Loop, broken: Sequence[Task]) -> list[Task]:
    """Take the marks of the tasks that a final check found broken, in one write; block
    those that it found broken before, which are returned. Under the plan's lock."""
    if not broken or loop.trouble:
        return []
    keys = {task.key for task in broken}
    now = [task for task in loop.plan.tasks if task.key in keys]
    passed = [task for task in now if task.passed]
    for task in passed:
        how = loop.history.of(task).passed_words
        loop.view.line(f"{task.id} {how}, broken since")
    if passed:
        loop.mark(lambda plan: edit.set_passed(plan, passed, False))
    again = [
        task
        for task in loop.plan.tasks
        if task.key in keys and loop.history.of(task).set_back and not task.blocked
    ]
    if again:
        loop.mark(lambda plan: edit.set_blocked(plan, again, CONFLICTING))
    return again


# ---------------------------------------------------------------- what it means


def red_now(loop: Loop) -> Sequence[str]:
    """What the last final check found red on the commit that the branch is at."""
    last = loop.history.recheck
    return last.red if last and last.commit == loop.branch.tip() else []


def finished(loop: Loop) -> Stop:
    """The stop where no task is left to try, after the final check."""
    only, last = loop.options.task, loop.history.recheck
    red = red_now(loop)
    left = []
    for task in loop.plan.tasks:
        if not task.passed and only in (None, task.id):
            left.append(task)
    if left:
        reasons = why_left(loop, left)
        if red:
            reasons = f"in a fresh checkout {', '.join(red)}; {reasons}"
        needed = f"{len(left)} left, and a person is needed"
        return Stop("blocked", f"{needed}: {reasons}")
    done = f"{only or 'every task'} passes"
    if red:
        reason = f"{done}, but not all checks are green: {', '.join(red)}"
        return Stop("red-checks", reason)
    green = "; the plan has no checks to run"
    if loop.plan.every_check:
        green = ", and all checks are green"
    if last and last.old:
        green += f", old failures apart ({'; '.join(last.old)})"
    return Stop("complete", f"{done}{green}")


def why_left(loop: Loop, left: Sequence[Task]) -> str:
    """Why nobody can work on these tasks."""
    reasons = [f"{task.id}: {task.blocked}" for task in left if task.blocked]
    aside: Mapping[str, str] = loop.history.this_run.set_aside
    for task in left:
        if task.key in aside:
            reasons.append(f"{task.id}: {aside[task.key]}")
    if reasons:
        return "; ".join(reasons[:5])
    return f"{left[0].id} waits for {', '.join(left[0].depends_on)}"
