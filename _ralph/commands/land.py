"""`ralph land`: merge the work of a plan with the branch that is checked out, if all
checks stay green."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from _ralph import text
from _ralph.checks.opening import open_prefix, require_git
from _ralph.checks.room import Room
from _ralph.checks.running import Job, require_setup, run_checks
from _ralph.checks.suite import compare, judged
from _ralph.commands.run import with_loop
from _ralph.errors import BadInput, Exit, NeedsPerson
from _ralph.git.branch import Branch, current_branch
from _ralph.git.git import BULK, Git, freeze_settings, git_places, no_space
from _ralph.git.merge import merge
from _ralph.loop.loop import Loop
from _ralph.loop.start import look
from _ralph.model import Check, CheckResult
from _ralph.show.status import last_lines
from _ralph.state.options import Options
from _ralph.state.records import Landed


def land_branch(options: Options) -> int:
    """Merge the branch of a plan with the current one, check it in the plan's clean
    room, and move the current one if all is green; the exit status. BadInput, with
    nothing done, where it cannot even be tried."""
    onto = standing()
    own = look(options)
    if not own.git.common.samefile(onto.git.common):
        there = f"{own.paths.prd} is a plan of another repository"
        raise BadInput(f"{there}; go there to land its work")
    branch = own.history.branch or own.branch.name
    if not Branch(onto.git, branch, "").tip():
        raise BadInput(f"there is no branch {branch} yet; `ralph run` makes it")

    def work(loop: Loop) -> int:
        _make_ready(loop, onto)
        _land(loop, branch)
        return Exit.COMPLETE

    return with_loop(options, "land", work)


def standing() -> Branch:
    """The branch that is checked out here. BadInput if there is none to land on."""
    here = git_places(Path.cwd())
    if here is None:
        cd = "cd to the working tree that should get the work"
        raise BadInput(f"there is no git repository here; {cd}")
    git = Git.at(here[0])
    onto = Branch(git, current_branch(git), "")
    if not (onto.name and onto.tip()) or onto.name.startswith("ralph/"):
        switch = "switch to the one that should get the work: git switch BRANCH"
        raise BadInput(f"no branch of yours with a commit is checked out; {switch}")
    return onto


def _make_ready(loop: Loop, onto: Branch) -> None:
    """Everything that a run needs before its first check, whose branch is the person's
    own."""
    git = replace(onto.git, calls=loop.git.calls)
    loop.branch = replace(onto, git=git, plan=loop.paths.private.name)
    loop.places.branch = onto.name
    require_git(loop.git)
    freeze_settings(loop.git, loop.paths.private)
    loop.view.lines(open_prefix(loop.places))
    loop.log.close_torn_record()


def _land(loop: Loop, name: str) -> None:
    """Merge, check, move. NeedsPerson, with everything as it was, if it conflicts, is
    red, edits are in the way, or somebody moved the current branch meanwhile."""
    onto = loop.branch
    tip, work = onto.tip(), Branch(onto.git, name, "").tip()
    if onto.contains(work, tip):
        loop.view.line(f"{name} is in {onto.name} already")
        return
    commit = work
    if not onto.contains(tip, work):
        merged = merge(loop.git, tip, work)
        if merged.conflicts:
            files = text.few(merged.conflicts)
            by_hand = f"{files}; do it by hand: git merge {name}"
            raise NeedsPerson(f"{name} does not merge with {onto.name}: {by_hand}")
        message = f"Merge branch '{name}'\n"
        commit = onto.commit(merged.tree, tip, message, sign=onto.signs, merge=work)
    onto.pin("candidate", commit)
    _require_way(onto, commit, tip)
    _require_green(loop, name, commit, tip)
    loop.git.sync()
    _fast_forward(onto, commit, tip)
    said = f"{name} landed on {onto.name}"
    with loop.plan_locked():
        loop.write(Landed(), said)
    loop.view.line(said, color="green")


def _require_way(onto: Branch, commit: str, tip: str) -> None:
    """NeedsPerson, before any check runs, where git would not move the person's own
    tree from `tip` to `commit`, or would end halfway."""
    for name in onto.git.difference(tip, commit):
        folder = (onto.git.root / name).parent
        if folder.exists() and not os.access(folder, os.W_OK):
            raise _in_the_way(onto, f"you may not write to {folder}")
    onto.git.maybe("update-index", "-q", "--refresh", timeout=BULK)
    words = ("read-tree", "--dry-run", "-m", "-u", tip, commit)
    done = onto.git.run(*words, timeout=BULK)
    if done.code:
        raise _in_the_way(onto, done.error)


def _in_the_way(onto: Branch, said: str) -> NeedsPerson:
    why = f"git cannot move {onto.name} and its files there: {text.one_line(said, 400)}"
    return NeedsPerson(f"{why}; commit or stash your edits, or mend the rights")


def _fast_forward(onto: Branch, commit: str, tip: str) -> None:
    """Let git move the branch and the files of the person's own tree to `commit`.
    NeedsPerson, with everything as it was, if somebody moved the branch from `tip`
    meanwhile, or edits are in the way."""
    quiet = ("--no-stat", "-q", "--no-autostash")
    no_options = ("-c", f"branch.{onto.name}.mergeOptions=")  # such as --squash
    words = ("merge", "--ff-only", "--no-overwrite-ignore", *quiet, commit)
    done = onto.git.run(*no_options, *words, timeout=BULK)
    if done.code == 0 and onto.tip() == commit:
        return
    if onto.tip() != tip or current_branch(onto.git) != onto.name:
        again = "call `ralph land` again"
        raise NeedsPerson(f"{onto.name} moved meanwhile; {again}")
    if full := no_space(onto.git.common, "merge", done.error):
        raise full
    raise _in_the_way(onto, done.error)


def _require_green(loop: Loop, name: str, commit: str, tip: str) -> None:
    """Run all checks of the plan and of every passed task in a new checkout of
    `commit`. NeedsPerson if one is red that is not so at `tip`, or `setup` is."""
    checks = loop.plan.checks_of_passed
    total = text.count(len(loop.plan.tasks), "task")
    done = f"{len(loop.plan.passed_ids)} of {total} passed"
    loop.view.line(f"{name} on {loop.branch.name}: {done}", color="cyan")
    if not checks:
        nothing = f"{loop.paths.prd} has no checks, so nothing proves this merge"
        loop.view.lines([nothing])
    red = [one for one in _results(loop, name, commit, checks) if not one.ok]
    if not red:
        return
    label = f"{loop.branch.name} without it: "
    before = {}
    for one in _results(loop, name, tip, checks, label):
        before[one.command] = one
    for result in red:
        result = _against(before[result.command], result)
        if result.ok:
            loop.view.lines([f"red before, too: {result.name}"])
            continue
        for line in last_lines(result.tail):
            loop.view.line(line, "  ")
        why = f"{result.name} {result.outcome}; all that it printed is in {result.log}"
        raise NeedsPerson(f"{name} did not land on {loop.branch.name}: {why}")


def _against(before: CheckResult, now: CheckResult) -> CheckResult:
    """A red result, green if it was no better on the current branch: red there, too,
    and no single test that was green there fails. Single tests that are gone may be: a
    task was allowed that."""
    if not (before.is_sound and before.tests):
        return replace(now, ok=not before.ok)
    return judged(now, compare([before], [now], let_go=True))


def _results(
    loop: Loop, name: str, commit: str, checks: Sequence[Check], label: str = ""
) -> list[CheckResult]:
    """What the checks say of a commit, in a new checkout of it; their lines begin with
    `label`. NeedsPerson if `setup` is red."""
    log = f"land-{text.slug(name)}"
    folder = loop.paths.landing
    try:
        checked = run_checks(loop.places, folder, Job(commit, checks, log, label))
    finally:
        Room.at(loop.places, folder).place.remove()
    loop.view.lines(require_setup(checked).notices)
    return checked.checks
