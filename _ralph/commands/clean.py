"""`ralph clean`: remove the places of plans that are done or gone, after parking what
is nowhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from _ralph import files, text
from _ralph.commands.run import with_signals
from _ralph.errors import BadInput, Exit, NeedsPerson, RalphError, StopNow, TryLater
from _ralph.git.branch import PARKED, Branch
from _ralph.git.git import BULK, Git, freeze_settings, git_places
from _ralph.git.workspace import Place, Start
from _ralph.loop.places import carried_names
from _ralph.process.process import Control
from _ralph.state import layout, lock, prd
from _ralph.state.layout import Noted, noted

_PLACE = re.compile(r"(work|room|land)-\d+|role|room\d*|recheck")
"""`room` and `recheck` are of version 0.2."""
_REMOVED = ".removed"
"""What the places of a plan are called while they are removed; whatever was in them has
been parked."""
Echo = Callable[[str], object]


def clean_places(path: Path, this_plan: bool, dry_run: bool, echo: Echo) -> int:
    """`ralph clean`: the exit status. All plans of the repository here, or `this_plan`
    alone. BadInput outside of a repository."""
    here = git_places(Path.cwd())
    if not here:
        raise BadInput(
            "there is no git repository here; cd to the one whose plans are done"
        )
    git = Git.at(here[0])
    above = Path(os.path.realpath(layout.places_folder()))
    folders = [layout.locate(path).places] if this_plan else sorted(above.glob("*"))

    def work(control: Control) -> int:
        git.calls.control = control
        if not dry_run:
            for rest in above.glob(f"*-{'[0-9a-f]' * 8}{_REMOVED}"):
                files.clear(rest)
        freed, codes = 0.0, {Exit.COMPLETE}
        for folder in folders:
            if control.stop_now:
                raise StopNow
            note = noted(folder)
            if note is None or note.paths.places != folder or folder.is_symlink():
                continue  # ralph did not make it, or some other ralph
            try:
                freed += _clean(git, note, dry_run, echo)
            except StopNow:
                raise
            except (RalphError, OSError) as error:
                echo(f"left {folder}: {error}")
                codes.add(Exit.COMPLETE if isinstance(error, TryLater) else Exit.PERSON)
        echo(f"{'it would free' if dry_run else 'freed'} {text.megabytes(freed)}")
        return max(codes)

    return with_signals(work)


def _clean(git: Git, note: Noted, dry_run: bool, echo: Echo) -> float:
    """Remove the places of one plan, if they are no longer needed: the bytes that this
    frees. NeedsPerson if something there must not go, TryLater while a loop is at
    work."""
    folder = note.paths.places
    needless, why = _judged(git, note)
    if not needless:
        if why:
            echo(f"left {folder}: {why}")
        return 0.0
    size = layout.weight(folder)
    if not dry_run:
        with lock.alone(note.paths, "clean"):
            freeze_settings(git, note.paths.private)
            _require_own(folder)
            for workspace in sorted(folder.glob("work-*")):
                _park(git, note, workspace, echo)
            gone = folder.rename(folder.with_name(folder.name + _REMOVED))
        if os.path.lexists(files.clear(gone)):
            raise NeedsPerson(f"{gone} cannot be removed; see who owns what is in it")
    echo(
        f"{'would remove' if dry_run else 'removed'} {folder}: {text.megabytes(size)}; {why}"
    )
    return size


def _judged(git: Git, note: Noted) -> tuple[bool, str]:
    """Whether the places of a plan are no longer needed, and why; there is nothing to
    say of those of another repository."""
    if not note.common.is_dir():
        return (
            False,
            f"its repository {note.common} is not there; delete this if it is gone for good",
        )
    if not note.common.samefile(git.common):
        return False, ""
    if not note.prd.is_file():
        return True, f"its plan {note.prd} is gone"
    try:
        plan = prd.load(note.prd)
    except BadInput as error:
        return False, str(error)
    if todo := sum(not task.passed for task in plan.tasks):
        return (
            False,
            f"{todo} of {text.count(len(plan.tasks), 'task')} to go in {note.prd}",
        )
    if Branch(git, note.branch, "").is_ahead:
        return False, f"{note.branch} is not merged into HEAD; see `ralph land`"
    return True, f"{note.prd} is done"


def _require_own(folder: Path) -> None:
    """NeedsPerson if something lies among the places that ralph did not make."""
    for entry in folder.iterdir():
        own = _PLACE.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink()
        if not own and entry.name != layout.NOTE:
            raise NeedsPerson(f"ralph did not make {entry}; move it away, or delete it")


def _park(git: Git, note: Noted, folder: Path, echo: Echo) -> None:
    """Park what a workspace holds that is neither on the branch nor parked. NeedsPerson
    if git cannot take all of it."""
    paths = note.paths
    branch = Branch(
        git, note.branch, paths.private.name
    )  # the working tree of the plan may be gone
    tip = branch.tip() or git("rev-parse", "HEAD").strip()
    own = (paths.prd, paths.progress, paths.rulebook)
    state = tuple(
        str(path.relative_to(note.root))
        for path in own
        if path.is_relative_to(note.root)
    )
    place = Place(git, folder, paths.private / f"{folder.name}.index", state)
    place.carried = carried_names(git, git.root / ".worktreeinclude")
    place.remove_lock()
    if not place.index.is_file():
        place.git("read-tree", tip, timeout=BULK)
    start = place.noted_start() or Start("", git.tree(tip), git.tree(tip))
    place.hide(place.noted()[1])
    trouble = place.remove_unusable(start.tree)
    after, refused = place.snapshot(start.tree)
    tree, trouble = place.work(start, after)[0], [*trouble, *refused]
    if trouble:
        raise NeedsPerson(
            f"{trouble[0]}; check whether you need it, then run ralph clean again, or delete it"
        )
    if tree not in kept_trees(branch, tip):
        ref = branch.park_tree(tree, tip, f"clean-{folder.name}")
        echo(f"parked what was in {folder} and nowhere else: {ref}")


def kept_trees(branch: Branch, tip: str) -> set[str]:
    """The trees of the commits of a branch, and of this plan's unfinished and parked
    work."""
    refs = (f"refs/ralph/work/{branch.plan}", f"{PARKED}/{branch.plan}")
    held = branch.git("for-each-ref", "--format=%(objectname) %(tree)", *refs).split()
    return {*held, *branch.git("log", "-1000", "--format=%T", tip).split()}
