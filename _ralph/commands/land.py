"""`ralph land`: merge the work of plans with the branch that is checked out, if all
checks stay green."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from _ralph import text
from _ralph.checks.opening import open_prefix, require_git
from _ralph.checks.room import Room
from _ralph.checks.running import Job, require_setup, run_checks
from _ralph.checks.suite import Comparison, Kind, compare, judged
from _ralph.commands.run import with_signals
from _ralph.errors import BadInput, Exit, NeedsPerson, RalphError, StopNow
from _ralph.git.branch import Branch, current_branch
from _ralph.git.git import BULK, Git, freeze_settings, git_places, no_space
from _ralph.git.merge import merge
from _ralph.loop.loop import Loop
from _ralph.loop.start import look
from _ralph.model import Check, CheckResult
from _ralph.process.process import Control
from _ralph.show.live import Terminal
from _ralph.show.status import last_lines
from _ralph.state import layout, lock
from _ralph.state.options import Options
from _ralph.state.records import Landed


def land_branches(
    names: Sequence[str], plans: Sequence[Path], options: Options, told: bool
) -> int:
    """Merge the branch of each plan with the current one, check it in the plan's clean
    room, and move the current one if all is green; the exit status. `names` are
    branches of the one plan; `told` says that a person named it. BadInput, with nothing
    done, where one of them cannot even be tried."""
    if names and len(plans) > 1:
        raise BadInput("name branches of one plan, or several plans with --prd")
    onto = standing()
    wanted = []
    for prd in plans:
        loop = look(replace(options, prd=prd))
        if not loop.git.common.samefile(onto.git.common):
            there = f"{loop.paths.prd} is a plan of another repository"
            raise BadInput(f"{there}; go there to land its work")
        own = loop.history.branch or loop.branch.name
        for name in names or [own]:
            require_branch(onto, name)
            if name != own and not told:
                again = f"ralph land {name} --prd FILE"
                plan = f"the branch of {loop.paths.prd.name} is {own}"
                raise BadInput(f"{plan}; for {name}, name its plan: {again}")
            wanted.append((name, prd))
    view = Terminal()

    def work(control: Control) -> int:
        return _land_each(onto, wanted, options, control, view)

    return with_signals(work, view)


def standing() -> Branch:
    """The branch that is checked out here. BadInput if there is none to land on."""
    here = git_places(Path.cwd())
    if here is None:
        cd = "cd to the working tree that should get the work"
        raise BadInput(f"there is no git repository here; {cd}")
    git = Git.at(here[0])
    onto = Branch(git, current_branch(git), "")
    switch = "switch to the branch that should get the work: git switch BRANCH"
    if not onto.name:
        raise BadInput(f"no branch is checked out here, HEAD is detached; {switch}")
    if not onto.tip():
        raise BadInput(f"the branch {onto.name} has no commit yet; {switch}")
    if onto.name.startswith("ralph/"):
        raise BadInput(f"the current branch {onto.name} is ralph's own; {switch}")
    return onto


def require_branch(onto: Branch, name: str) -> None:
    """BadInput where there is no such branch, or it is the current one."""
    if name == onto.name:
        switch = "switch to the branch that should get it: git switch BRANCH"
        raise BadInput(f"{name} is the current branch; {switch}")
    if not Branch(onto.git, name, "").tip():
        raise BadInput(
            f"there is no branch {name}; `ralph status` names a plan's branch"
        )


def _land_each(
    onto: Branch,
    wanted: Sequence[tuple[str, Path]],
    options: Options,
    control: Control,
    view: Terminal,
) -> int:
    """Land each branch in turn, alone on its plan, also after one that did not land;
    the exit status. Where one does not, all is as it was."""
    code: int = Exit.COMPLETE
    proved: list[Check] = []  # what landed must stay green beside what lands after it
    for name, prd in wanted:
        try:
            with lock.alone(layout.locate(prd), "land") as run_id:
                loop = look(replace(options, prd=prd), control, view)
                loop.run_id = run_id
                _make_ready(loop, onto)
                proved = _land(loop, name, proved)
        except StopNow:
            raise
        except RalphError as error:
            view.warn(f"{name} did not land on {onto.name}: {error}")
            if code != Exit.PERSON:
                code = error.exit
    return code


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


def _land(loop: Loop, name: str, proved: list[Check]) -> list[Check]:
    """Merge, check, move; again on the new tip if the current branch moved meanwhile.
    The checks that were green, with those `proved` before. NeedsPerson if it conflicts,
    is red, or edits are in the way."""
    onto, theirs = loop.branch, Branch(loop.branch.git, name, "")
    while True:
        tip, work = onto.tip(), theirs.tip()
        if not (tip and work):
            gone = onto.name if work else name
            raise NeedsPerson(f"the branch {gone} was deleted meanwhile")
        if onto.contains(work, tip):
            loop.view.line(f"{name} is in {onto.name} already")
            return proved
        commit = _merge(loop, name, tip, work)
        onto.pin("candidate", commit)
        checks = _require_green(loop, name, commit, tip, proved)
        loop.git.sync()
        if _fast_forward(onto, commit, tip):
            said = f"{name} landed on {onto.name}"
            with loop.plan_locked():
                loop.write(Landed(onto=onto.name, commit=commit), said)
            loop.view.line(said, color="green")
            return checks
        loop.view.line(f"{onto.name} moved meanwhile; trying again on its new tip")


def _merge(loop: Loop, name: str, tip: str, work: str) -> str:
    """The commit that would land: that of the branch itself where nothing is to be
    merged."""
    onto = loop.branch
    if onto.contains(tip, work):
        return work
    merged = merge(loop.git, tip, work)
    if merged.conflicts:
        files = text.few(merged.conflicts)
        by_hand = f"git merge {name}"
        raise NeedsPerson(f"it does not merge: {files}; do it by hand: {by_hand}")
    source = f"{work}\t\tbranch '{name}' of .\n".encode()
    message = onto.git("fmt-merge-msg", stdin=source)
    return onto.commit(merged.tree, tip, message, sign=onto.signs, merge=work)


def _fast_forward(onto: Branch, commit: str, tip: str) -> bool:
    """Let git move the branch and the files of the person's own tree to `commit`; False
    if somebody moved the branch from `tip` meanwhile. NeedsPerson, with everything as
    it was, if edits are in the way."""
    quiet = ("--no-stat", "-q", "--no-autostash")
    words = ("merge", "--ff-only", "--no-overwrite-ignore", *quiet, commit)
    done = onto.git.run(*words, timeout=BULK)
    if done.code == 0 and onto.tip() == commit:
        return True
    if onto.tip() != tip or current_branch(onto.git) != onto.name:
        return False
    if full := no_space(onto.git.common, "merge", done.error):
        raise full
    said = text.one_line(done.error, 400)
    raise NeedsPerson(f"your uncommitted edits are in the way: {said}")


def _require_green(
    loop: Loop, name: str, commit: str, tip: str, proved: list[Check]
) -> list[Check]:
    """Run all checks of the plan and of every passed task, and those `proved` before,
    in a new checkout; what they are. NeedsPerson if one is red that is not so on the
    current branch, or `setup` is."""
    passed = [task for task in loop.plan.tasks if task.passed]
    every = {check.command: check for check in loop.plan.checks_of_passed}
    for check in proved:
        every[check.command] = check
    checks = [*every.values()]
    total = text.count(len(loop.plan.tasks), "task")
    done = f"{len(passed)} of {total} passed"
    loop.view.line(f"{name} on {loop.branch.name}: {done}", color="cyan")
    if not checks:
        nothing = f"{loop.paths.prd} has no checks, so nothing proves this merge"
        loop.view.lines([nothing])
    red = [one for one in _results(loop, name, commit, checks) if not one.ok]
    if not red:
        return checks
    label = f"{loop.branch.name} without it: "
    before = {}
    for one in _results(loop, name, tip, checks, label):
        before[one.command] = one
    new = []
    for result in red:
        if result.command in before:
            result = _against(before[result.command], result)
        if not result.ok:
            new.append(result)
    if new:
        for line in last_lines(new[0].tail):
            loop.view.line(line, "  ")
        names = text.few([f"{result.name} {result.outcome}" for result in new])
        raise NeedsPerson(f"{names}; all that it printed is in {new[0].log}")
    names = text.few([result.name for result in red])
    loop.view.lines([f"red before, too: {names}"])
    return checks


def _against(before: CheckResult, now: CheckResult) -> CheckResult:
    """A red result, green if it was no better on the current branch: red there, too,
    and no single test that was green there fails. Single tests that are gone may be: a
    task was allowed that."""
    if not (before.is_sound and before.tests):
        return replace(now, ok=not before.ok)
    failed = compare([before], [now]).names(Kind.FAILED)
    return judged(now, Comparison({Kind.FAILED: failed} if failed else {}))


def _results(
    loop: Loop, name: str, commit: str, checks: list[Check], label: str = ""
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
