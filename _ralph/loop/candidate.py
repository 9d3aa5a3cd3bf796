"""The candidate: the work as a commit on the tip of the branch, and what the clean room
says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from _ralph import text
from _ralph.errors import NeedsPerson, StopNow
from _ralph.git import patterns
from _ralph.git.git import BULK
from _ralph.git.merge import merge, still_marked
from _ralph.loop.before import checks_of, refusal
from _ralph.loop.checking import baseline, green_in_either, results_of
from _ralph.loop.commit import commit_in_room, message_of, whole_message
from _ralph.loop.jobs import Attempt, Checked, CheckJob
from _ralph.loop.places import HOOKS, MESSAGE_HOOKS
from _ralph.loop.results import up_to
from _ralph.loop.run import Run
from _ralph.loop.setup import red_setup, retry_setup
from _ralph.loop.suite import Change, compare, judged, ran, undone
from _ralph.loop.train import Turn
from _ralph.loop.verdict import kept_away
from _ralph.loop.worker import WorkerDied
from _ralph.model import CheckResult, Outcome, Verdict
from _ralph.state.limits import attempts_at

_MADE_OF = (*HOOKS, ".pre-commit-config.yaml")
"""Names of files that commit hooks are made of."""
FURTHEST = 10
"""Ancestors of the tip on which a suite is looked for that did not run whole there."""


async def make_candidate(run: Run, turn: Turn) -> bool:
    """Merge the work with the commit of the one ahead, or the tip of the branch; False,
    with the verdict, if they conflict, if it still has the markers of an earlier
    conflict, or if no work could pass."""
    attempt = turn.attempt
    if turn.is_overtaken:
        run.view.line(
            f"{attempt.task.id}: what it was checked on top of did not pass; it is checked again"
        )
    attempt.begin_candidate(await turn.renewed())
    if _merged(run, attempt):
        return True
    turn.end()
    return False


def _merged(run: Run, attempt: Attempt) -> bool:
    """Make the candidate of an attempt, as `make_candidate` says."""
    if attempt.cannot_pass:
        attempt.verdict, attempt.reason = Verdict.FAILED, attempt.cannot_pass
        return False
    if not attempt.tree:
        return True
    words, signs = (
        whole_message(run, attempt),
        run.branch.signs and not run.places.hooked(),
    )
    made = run.branch.commit(attempt.tree, attempt.base, words, sign=signs)
    if made == attempt.base:
        return True
    if left := still_marked(run.git, attempt.tree, attempt.conflict.marked):
        attempt.verdict = Verdict.FAILED
        attempt.reason = f"conflict markers are left in {text.few(left)}"
        attempt.parked = run.branch.park(
            made, attempt.name
        )  # the next attempt starts clean
        return False
    if attempt.tip != attempt.base:
        merged = merge(run.git, attempt.tip, made)
        if merged.conflicts:
            attempt.verdict = Verdict.CONFLICT
            attempt.reason = (
                f"it conflicts with what landed meanwhile: {text.few(merged.conflicts)}"
            )
            return False
        made = run.branch.commit(merged.tree, attempt.tip, words, sign=signs)
    run.branch.pin_candidate(made, attempt.room)
    attempt.commit = made
    return True


def tip_of(run: Run) -> str:
    """The commit that the branch is at now, as `require_verified` accepts it."""
    return require_verified(run, run.branch.tip())


def require_verified(run: Run, tip: str) -> str:
    """The commit `tip`, at which the branch is. NeedsPerson if it was deleted or
    rewritten during the run."""
    if (
        tip == run.tip
        or (tip and not run.tip)
        or (tip and run.branch.contains(run.tip, tip))
    ):
        run.tip = tip
        return tip
    kept = run.branch.park(run.tip, "verified")
    what = "rewritten" if tip else "deleted"
    raise NeedsPerson(
        f"the branch {run.branch.name} was {what} during the run; its verified work is at {kept}; "
        f"set the branch to where ralph should continue, then run it again"
    )


async def check_candidate(run: Run, turn: Turn) -> None:
    """Put into the attempt what commit hooks make of its candidate, and what checks say
    of that."""
    attempt = turn.attempt
    try:
        checked = await retry_setup(run, attempt, lambda: _hooks_then_checks(run, turn))
    except (WorkerDied, StopNow) as error:
        reason = str(error) or "ralph was stopped"
        attempt.result = replace(
            attempt.result, outcome=Outcome.INTERRUPTED, reason=reason
        )
        return
    attempt.checks, attempt.commit, attempt.naming = (
        checked.checks,
        checked.commit,
        checked.naming,
    )
    attempt.ignored = checked.ignored or attempt.ignored
    hooks = [name for name in attempt.changed if Path(name).name in _MADE_OF]
    attempt.notices += [
        f"the attempt changed {text.one_line(name)}, which commit hooks are made of"
        for name in hooks
    ]
    attempt.notices += checked.notices


async def _hooks_then_checks(run: Run, turn: Turn) -> Checked:
    """What commit hooks and checks say of the candidate. SetupFailed if `setup` is red
    on it and on the tip: it is not the work's fault."""
    attempt = turn.attempt
    checked = hooked = await _committed(run, attempt)
    turn.offers = hooked.commit
    job = CheckJob(
        commit=hooked.commit,
        checks=checks_of(run, attempt.task),
        name=attempt.name,
        room=attempt.room,
        env=attempt.variables(run.paths),
        before=attempt.commit,
        changed=attempt.changed,
    )
    ran = all(
        result.name in HOOKS for result in hooked.red
    )  # else it was `setup`, or git itself
    if ran:
        checked = await results_of(run, job, attempt.worker)
    await turn.known_ahead()
    if red_setup(checked):
        await baseline(run, attempt.tip, [], f"{attempt.name}-tip", {}, attempt)
        run.results.built.pop(attempt.room, None)  # no check has run there
    elif attempt.changes_tree and run.plan.checks:
        await baseline(
            run, attempt.tip, run.plan.checks, f"{attempt.name}-tip", {}, attempt
        )
    return await _compared(run, attempt, job, hooked, checked) if ran else checked


async def _committed(run: Run, attempt: Attempt) -> Checked:
    """The commit that the commit hooks make of the candidate, and what they say. A
    message that they refuse on the branch's own files, too, is ralph's fault, and no
    other attempt can mend it."""
    if not (attempt.changes_tree and run.places.hooked()):
        return Checked(commit=attempt.commit)
    run.results.built.pop(attempt.room, None)  # hooks do what they like in the room
    hooked = await run.in_worker(
        lambda inside: commit_in_room(inside, attempt), Checked, attempt.worker
    )
    if any(result.name in MESSAGE_HOOKS for result in hooked.red):
        message = message_of(run, attempt)
        run.results.accepted.discard(
            message
        )  # it let it pass before, and may have changed its mind
        attempt.refused = await refusal(
            run, attempt.task, message, attempt.tip, attempt
        )
    return hooked


async def _compared(
    run: Run, attempt: Attempt, job: CheckJob, hooked: Checked, checked: Checked
) -> Checked:
    """What the checks of a job said, behind what the hooks said, as it compares with
    what was green before. Before the task is given up, what is red runs again. With the
    ignored files that may be the reason where nothing passes."""
    notices = hooked.notices + checked.notices
    checked = replace(checked, checks=checked.checks + hooked.checks, notices=notices)
    await _look_further_back(run, attempt, job, checked)
    checked = await _once_more(run, attempt, job, checked)
    attempt.suites = _changes(run, attempt, checked)
    checked.checks = _judged(attempt.suites, _without_undone(run, attempt, checked))
    if checked.red or checked.commit == attempt.tip:
        looked = run.in_worker(
            lambda inside: Checked(ignored=ignored_by(inside, attempt)), Checked
        )
        checked.ignored = (await looked).ignored
    return checked


def _changes(run: Run, attempt: Attempt, checked: Checked) -> dict[str, Change]:
    """How single tests changed in the candidate, by the commands of the plan's checks
    that report them."""
    own, changes = {check.command for check in attempt.task.checks}, {}
    let_go, files = _let_go(attempt)
    for check in checks_of(run, attempt.task):
        if check.results and check.command not in own:
            commits = (
                attempt.tip,
                checked.commit,
                attempt.ran_at.get(check.command, ""),
            )
            known = [
                run.results.runs(commit, check.command) if commit else []
                for commit in commits
            ]
            changes[check.command] = compare(*known, let_go=let_go, files=files)
    return changes


def _let_go(attempt: Attempt) -> tuple[bool, list[str]]:
    """Whether tests may be gone: the work changes what its task allows, and no settings
    of a runner by that; and the files that a task can allow for it, tests if it changes
    any."""
    tests = patterns.uncovered_tests([], attempt.tests)
    settings = {*attempt.tests} - {*tests}
    files = [name for name in attempt.changed if name not in settings]
    return bool(
        patterns.matching(attempt.task.allow, files)
    ), tests if tests or settings else files


def _without_undone(run: Run, attempt: Attempt, checked: Checked) -> list[CheckResult]:
    """The results of checks, where one of the task's own is red whose tests were red
    and do not run now."""
    began, own = (
        run.results.before_at.get(attempt.task.key),
        {one.command for one in attempt.task.checks},
    )
    if began is None or _let_go(attempt)[0]:
        return checked.checks
    results = []
    for result in checked.checks:
        runs = (
            run.results.runs(commit, result.command)
            for commit in (began, checked.commit)
        )
        if result.ok and result.command in own and (left := undone(*runs)):
            said = f"failed: red before the work, and not run now: {text.few(left)}"
            result = replace(result, ok=False, said=said, tail=said)
        results.append(result)
    return results


def _judged(
    changes: Mapping[str, Change], checks: Iterable[CheckResult]
) -> list[CheckResult]:
    """The results of checks; those in `changes` as their single tests decide."""
    return [
        judged(one, changes[one.command]) if one.command in changes else one
        for one in checks
    ]


def _red_otherwise(
    changes: Mapping[str, Change], checked: Checked
) -> list[CheckResult]:
    """What is red, and not by single tests that were green before."""
    red = [result for result in _judged(changes, checked.checks) if not result.ok]
    return [
        result
        for result in red
        if result.command not in changes or not changes[result.command].breaks
    ]


async def _look_further_back(
    run: Run, attempt: Attempt, job: CheckJob, checked: Checked
) -> None:
    """Where tests are red that did not run on the tip, as its suite did not run whole
    there (a test that is written first can stop a package), look for the newest
    ancestor where they ran: it says what was green."""
    changes = _changes(run, attempt, checked)
    if _red_otherwise(changes, checked):
        return
    for command, change in changes.items():
        checks = up_to(
            job.checks,
            [result for result in checked.checks if result.command == command],
        )
        if not change.new or _are_added(run, attempt, change.new):
            continue
        for commit in run.branch.ancestors(attempt.tip, FURTHEST):
            name, label = f"{job.name}-earlier", f"at {commit[:12]}: "
            earlier = CheckJob(
                commit=commit,
                checks=checks,
                name=name,
                label=label,
                env=job.env,
                room=job.room,
            )
            await results_of(run, earlier, attempt.worker)
            runs = run.results.runs(commit, command)
            if not ran(runs).isdisjoint(change.new):
                attempt.ran_at[command] = commit
            if command in attempt.ran_at or any(result.ok for result in runs):
                break


def _are_added(run: Run, attempt: Attempt, tests: Iterable[str]) -> bool:
    """Whether these tests are the work's own: their names stand in the candidate's
    files, and not in the tip's."""
    words = {re.split(r"[\[(/]", test.rpartition(" > ")[2])[0] for test in tests}
    return all(
        not _holds(run, attempt.tip, word) and _holds(run, attempt.commit, word)
        for word in words
    )


def _holds(run: Run, commit: str, word: str) -> bool:
    return run.git.tried("grep", "-qF", "-e", word, commit, timeout=BULK)[0] == 0


async def _once_more(
    run: Run, attempt: Attempt, job: CheckJob, checked: Checked
) -> Checked:
    """Run what is red once more, the program up to there, where nothing but single
    tests is red, or before the task is given up. Some of it runs on the tip, too: tests
    that are gone, which do not count if they are not the same in both runs there;
    before the task is given up, all that is left of the plan, as what is red there now
    does not bind (a database that died in the night); and tests that turned green,
    where they alone speak for an agent that did not end well."""
    changes, of_job = (
        _changes(run, attempt, checked),
        {check.command for check in job.checks},
    )
    red = [
        one
        for one in _judged(changes, checked.checks)
        if not one.ok and one.command in of_job
    ]
    gives_up = attempt.number >= attempts_at(run.limits, attempt.task)
    gives_up = gives_up and kept_away(attempt.result, attempt.changes_tree) is None
    turned = [
        one
        for one in checked.checks
        if one.command in changes and changes[one.command].turned
    ]
    if not red and turned and attempt.result.outcome is not Outcome.DONE:
        await _at_tip(run, attempt, replace(job, again=True), turned)
    if not red or (_red_otherwise(changes, checked) and not gives_up):
        return checked
    job = replace(job, checks=up_to(job.checks, red), again=True)
    second = await results_of(
        run, replace(job, name=f"{job.name}-again"), attempt.worker
    )
    checked = replace(checked, checks=green_in_either(checked.checks, second.checks))
    changes, own = (
        _changes(run, attempt, checked),
        {check.command for check in attempt.task.checks},
    )
    left = [
        one
        for one in _judged(changes, checked.checks)
        if not one.ok and one.command in of_job - own
    ]
    left = [one for one in left if gives_up or changes[one.command].gone]
    if left and checked.commit != attempt.tip:
        await _at_tip(run, attempt, job, left)
    return checked


async def _at_tip(
    run: Run, attempt: Attempt, job: CheckJob, last: list[CheckResult]
) -> None:
    """Run the program of a job up to these results on the tip."""
    tip = replace(job, commit=attempt.tip, before="", checks=up_to(job.checks, last))
    tip = replace(tip, name=f"{job.name}-tip", label="before the work: ")
    await results_of(run, tip, attempt.worker)


def ignored_by(run: Run, attempt: Attempt) -> list[str]:
    """What the attempt made in the workspace that git ignores."""
    place = run.places.workspace(attempt.worker)
    names = place.ignored_since(attempt.began) if attempt.began and place.exists else []
    return [text.one_line(name) for name in names[:20]]
