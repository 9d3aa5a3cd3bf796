"""The final check: the branch in a place made anew, before a run ends. After it, a mark
means that a clone of the branch is green for its checks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from _ralph.checks.results import Results
from _ralph.checks.room import Room
from _ralph.checks.running import Job, run_checks
from _ralph.checks.suite import compare, judged
from _ralph.checks.verdict import FLAKY
from _ralph.errors import Stop
from _ralph.loop.landing import failure_of
from _ralph.loop.loop import Loop
from _ralph.loop.opening import digest_of, ensure_open
from _ralph.model import Check, CheckResult, Task
from _ralph.state import edit
from _ralph.state.records import Rechecked
from _ralph.text import quote

_NO_FINAL_CHECK = ("error", "terminated", "hung-up", "interrupted", "no-price")
"""Words of the stops after which nothing is checked."""
CONFLICTING = "conflicting: it passed twice, and each time later work broke it"


@dataclass(frozen=True)
class Found:
    """What a final check found: results, names of checks that were red and green, and
    commands that are red and are green in the clean room for the very same commit."""

    results: Sequence[CheckResult]
    flaky: Sequence[str]
    unlike: Sequence[str]


def may_check(loop: Loop, stop: Stop) -> bool:
    """Whether a run that ends for this reason may make the final check before."""
    return stop.word not in _NO_FINAL_CHECK and time.time() < loop.ends


def final_check(loop: Loop, results: Results) -> bool:
    """Check the branch again if it changed since the last time: a new checkout, setup,
    all checks of the plan and of every passed task. False if a pass was set back. In
    the room, with nobody else at work."""
    loop.read()
    tip = loop.branch.tip()
    checks = loop.plan.checks_of_passed
    names = digest_of(loop.plan)
    if loop.trouble or not (tip and loop.plan.passed_ids and checks):
        return True
    last = loop.history.recheck
    if last and (last.commit, last.checks_digest) == (tip, names):
        # a red suite is not asked again in the same run
        if last.ok or last.run == loop.run_id:
            return True
    ensure_open(loop, results, None)
    loop.view.line("all checks once more, in a fresh checkout")
    found = run_in_new_room(loop, results, tip, checks)
    record = record_of(loop, found, tip, names)
    broken = [task for task in loop.plan.tasks if task.key in record.since]
    lines = [f"{FLAKY}: {name}" for name in found.flaky]
    loop.view.lines(lines)
    shown = [f"- {line}" for line in [*lines, *record.old]]
    for task in broken:
        shown.append(f"- {task.id} {loop.history.of(task).passed_words}, broken since")
        shown += quote("\n".join(record.since[task.key]))
    # What takes a mark away goes into the plan first.
    with loop.plan_locked():
        again = set_back(loop, record.broken)
        headline = ", ".join(record.red) or "all green"
        loop.write(record, f"all checks once more | {headline}", shown)
    for task in again:
        loop.pending.append(("blocked", CONFLICTING, task.id))
    return not broken


def run_in_new_room(
    loop: Loop, results: Results, tip: str, checks: Sequence[Check]
) -> Found:
    """Run the checks in a room made anew under a new name, which then is the clean
    room. What is red, and not so in the clean room, runs once more, and is green if it
    was so in either run."""
    places = loop.places
    paths = loop.paths
    results.room_changes()
    folder = paths.next_room
    job = Job(tip, checks, "recheck")
    runs = [run_checks(places, folder, job).checks]
    now = as_in_room(loop, results, tip, runs)
    red = {}
    for one in now:
        known = results.newest(tip, one.command)
        if not one.ok and (known is None or known.is_sound):
            red[one.command] = one.name  # else it is red in the clean room, too
    if red:
        commands = [check.command for check in checks]
        ends = [commands.index(one) + 1 for one in red if one in commands]
        some = checks[: max(ends, default=len(commands))]
        again = replace(job, checks=some, name="recheck-again")
        runs.append(run_checks(places, folder, again).checks)
        if not ends:  # `setup` was red, and nothing else ran
            del runs[0]
        now = as_in_room(loop, results, tip, runs)
    for old in paths.rooms[:-1]:
        Room.at(places, old).place.remove()

    still_red = {one.command for one in now if not one.ok}
    flaky = [name for command, name in red.items() if command not in still_red]
    unlike = []
    for check in loop.plan.checks:
        newest = results.newest(tip, check.command)
        if check.command in still_red and newest and newest.is_sound:
            unlike.append(check.command)
    if loop.plan.setup and loop.plan.setup.run in still_red:
        unlike.append(loop.plan.setup.run)
    return Found(now, flaky, unlike)


def as_in_room(
    loop: Loop, results: Results, tip: str, runs: Sequence[Sequence[CheckResult]]
) -> list[CheckResult]:
    """The results of these runs: green in either is green, and no test of a plan's
    check is red that was so in the clean room on the same files, nor gone where the
    runs do not name the same tests."""
    own = {check.command for task in loop.plan.tasks for check in task.checks}
    suites = {check.command for check in loop.plan.checks if check.results} - own
    found = []
    for first in runs[0]:
        result = first
        now = []
        names = set()
        for run in runs:
            for one in run:
                if one.command != first.command:
                    continue
                now.append(one)
                if not result.ok:
                    result = one
                if one.tests:
                    names.add(frozenset(one.tests.names))
        if first.command in suites:
            before = results.runs(tip, first.command) or now
            # Some names have times or ids in them: these tests are not gone.
            change = compare(before, now, let_go=len(names) > 1)
            result = judged(result, change)
        found.append(result)
    return found


def record_of(loop: Loop, found: Found, tip: str, names: str) -> Rechecked:
    """The record of a final check: also of each passed task of which an own check is
    red."""
    plan = loop.plan
    red: dict[str, CheckResult] = {}
    said = []
    old = []
    for result in found.results:
        if not result.ok:
            red[result.command] = result
            why = ""
            if result.command in found.unlike:
                why = ": it passed in the clean room, and fails in a new checkout: "
                why += "something outside the checkout"
                if plan.settings.get("keep"):
                    why += ", or what `keep` carried over"
                if plan.setup and plan.setup.when:
                    why += ", or a `when` of setup that says too little "
                    why += f"({', '.join(plan.setup.when)}): name what else setup "
                    why += "reads, or leave it out"
            said.append(f"{result.name} {result.outcome}{why}")
        elif result.exit:
            old.append(f"{result.name}: {result.said}")
    record = Rechecked(
        ok=not red,
        commit=tip,
        checks_digest=names,
        flaky=list(found.flaky),
        red=said,
        old=old,
    )
    if red:
        record.failures[""] = failure_of([*red.values()])
    for task in plan.tasks:
        own = [red[one.command] for one in task.checks if one.command in red]
        if own and task.passed and not found.unlike:
            commit = loop.history.of(task).passed.commit
            log = loop.branch.log(f"{commit}..{tip}") if commit else []
            record.broken.append(task.key)
            record.since[task.key] = log
            record.failures[task.key] = failure_of(own)
    return record


def set_back(loop: Loop, broken: Sequence[str]) -> list[Task]:
    """Take the marks of the tasks (by their keys) that a final check found broken, in
    one write; block those that it found broken before, which are returned. Under the
    plan's lock."""
    if loop.trouble:
        return []
    passed = []
    again = []
    for task in loop.plan.tasks:
        if task.key in broken and task.passed:
            how = loop.history.of(task).passed_words
            loop.view.line(f"{task.id} {how}, broken since")
            passed.append(task)
        if task.key in broken and loop.history.of(task).set_back and not task.blocked:
            again.append(task)
    if passed:
        loop.mark(lambda plan: edit.set_passed(plan, passed, False))
    if again:
        loop.mark(lambda plan: edit.set_blocked(plan, again, CONFLICTING))
    return again


# ---------------------------------------------------------------- what it means


def finished(loop: Loop) -> Stop:
    """The stop where no task is left to try, after the final check."""
    only = loop.options.task
    last = loop.history.recheck
    red = ""
    if last and last.commit == loop.branch.tip():
        red = ", ".join(last.red)
    left = []
    for task in loop.plan.tasks:
        if not task.passed and only in (None, task.id):
            left.append(task)
    if left:
        reasons = why_left(loop, left)
        if red:
            reasons = f"in a fresh checkout {red}; {reasons}"
        needed = f"{len(left)} left, and a person is needed"
        return Stop("blocked", f"{needed}: {reasons}")
    done = f"{only or 'every task'} passes"
    if red:
        return Stop("red-checks", f"{done}, but not all checks are green: {red}")
    if not loop.plan.every_check:
        return Stop("complete", f"{done}; the plan has no checks to run")
    done = f"{done}, and all checks are green"
    if last and last.old:
        done += f", old failures apart ({'; '.join(last.old)})"
    return Stop("complete", done)


def why_left(loop: Loop, left: Sequence[Task]) -> str:
    """Why nobody can work on these tasks."""
    reasons = [f"{task.id}: {task.blocked}" for task in left if task.blocked]
    aside = loop.history.this_run.set_aside
    for task in left:
        if task.key in aside:
            reasons.append(f"{task.id}: {aside[task.key]}")
    if reasons:
        return "; ".join(reasons[:5])
    return f"{left[0].id} waits for {', '.join(left[0].depends_on)}"
