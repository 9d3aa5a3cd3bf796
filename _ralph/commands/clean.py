"""`ralph clean`: remove the places of plans that are done or gone, after parking what is nowhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from _ralph import files, text
from _ralph.commands.run import with_signals
from _ralph.errors import BadInput, Exit, RalphError, StopNow, TryLater
from _ralph.git.branch import PARKED, Branch
from _ralph.git.git import BULK, Git, freeze_settings, git_places
from _ralph.git.workspace import Place
from _ralph.loop.room import carried_names
from _ralph.process.process import Control
from _ralph.state import layout, lock, prd
from _ralph.state.layout import Noted, noted

_WORKSPACE = re.compile(r"(work-\d+)|\.(work-\d+)-\d+")
"""The second form is a workspace that was moved away while checks ran, when ralph was killed."""
_REMOVED = ".removed"
"""What a place is called while it is removed, so that after a kill the rest of it is not taken for work."""
_OTHERS = ("room", "role", "recheck", _REMOVED)


class Stays(RalphError):
    """A place that is not removed, and why."""


@dataclass(frozen=True)
class Cleaner:
    """Removes the places of the plans of the repository `git`; with `dry_run`, says what it would remove."""

    git: Git
    dry_run: bool
    echo: Callable[[str], object]
    control: Control

    def clean(self, folders: list[Path]) -> int:
        """Look at the places of every plan; the exit status."""
        freed, code = 0, Exit.COMPLETE
        for folder in folders:
            note = noted(folder)
            if note is None or note.paths.places != folder or folder.is_symlink():
                continue  # ralph did not make it, or some other ralph
            try:
                why = self._reason(note)
                size, left = self._remove(note, folder) if why else (0, [])
            except (Stays, TryLater) as error:
                self.echo(f"left {folder}: {error}")
                continue
            freed += size
            if size:
                done = "would remove" if self.dry_run else "removed"
                self.echo(f"{done} {folder}: {text.megabytes(size)}; {why}")
            for name, said in left:
                self.echo(f"! left {folder / name}: {said}")
                code = Exit.PERSON
        self.echo(f"{'it would free' if self.dry_run else 'freed'} {text.megabytes(freed)}")
        return code

    def _reason(self, note: Noted) -> str:
        """Why these places are no longer needed; empty for another repository's. Stays if they are."""
        if not note.common.is_dir():
            above = next(folder for folder in note.common.parents if folder.is_dir())
            if above.stat().st_dev != note.device:
                raise Stays(f"its repository {note.common} is not there; mount its disk, or delete this")
            return f"its repository {note.common} is gone"
        if not note.common.samefile(self.git.common):
            return ""
        if not note.prd.is_file():
            return f"its plan {note.prd} is gone"
        try:
            plan = prd.load(note.prd)
        except BadInput as error:
            raise Stays(str(error)) from None
        if todo := sum(not task.passed for task in plan.tasks):
            raise Stays(f"{todo} of {text.count(len(plan.tasks), 'task')} to go in {note.prd}")
        branch = Branch(self.git, note.branch, "")
        if (tip := branch.tip()) and not branch.contains(tip, "HEAD"):
            raise Stays(f"{note.branch} is not merged into HEAD; see `ralph land`")
        return f"{note.prd} is done"

    def _remove(self, note: Noted, folder: Path) -> tuple[int, list[tuple[str, str]]]:
        """Remove what ralph made there: the bytes freed, and what is left, with the reason. TryLater while a
        loop is at work."""
        copies = layout.worker_copies(note.paths)
        size = sum(map(layout.weight, copies))
        if self.dry_run:
            return size + sum(map(layout.weight, own_places(folder))), []
        if not note.common.is_dir():
            freed, left = self._clear(folder, lambda place: None)
        else:
            with lock.alone(note.paths, "clean"):
                freeze_settings(self.git, note.paths.private)
                freed, left = self._clear(folder, lambda place: self._park(note, place))
        for copy in copies:  # no loop is at work, so no worker is
            files.clear(copy)
        return size + freed, left

    def _clear(self, folder: Path, park: Callable[[Path], None]) -> tuple[int, list[tuple[str, str]]]:
        freed, left = 0, []
        for place in own_places(folder):
            if self.control.stop_now:
                raise StopNow
            try:
                park(place)
            except StopNow:
                raise
            except (RalphError, OSError) as error:
                left.append((place.name, str(error)))
                continue
            size = layout.weight(place)
            if place.name != _REMOVED:
                place = place.rename(folder / _REMOVED)
            if os.path.lexists(files.clear(place)):
                left.append((place.name, "it cannot be removed; see who owns what is in it"))
            else:
                freed += size
        others = sorted(set(os.listdir(folder)) - {layout.NOTE, *(name for name, _ in left)})
        left += [(name, "ralph did not make it") for name in others]
        if not left:
            files.clear(folder / layout.NOTE)
            folder.rmdir()
        return freed, left

    def _park(self, note: Noted, folder: Path) -> None:
        """Park what a workspace holds that is neither on the branch nor parked. Stays if git cannot take all
        of it."""
        name = _WORKSPACE.fullmatch(folder.name)
        if not name:
            return
        home, paths = self.git, note.paths  # the working tree of the plan may be gone
        branch = Branch(home, note.branch, paths.private.name)
        tip = branch.tip() or home("rev-parse", "HEAD").strip()
        own = (paths.prd, paths.progress, paths.rulebook)
        state = tuple(str(path.relative_to(note.root)) for path in own if path.is_relative_to(note.root))
        place = Place(home, folder, paths.private / f"{name[1] or name[2]}.index", state)
        place.carried = carried_names(home, home.root / ".worktreeinclude")
        place.made = list(place.noted_setup().made)
        place.remove_lock()
        if not place.index.is_file():
            place.git("read-tree", tip, timeout=BULK)
        tree, trouble = place.snapshot(tip)
        if trouble:
            raise Stays(f"{trouble[0]}; check whether you need it, then run this again or delete it")
        if tree not in kept_trees(branch, tip):
            ref = branch.park_tree(tree, tip, f"clean-{name[1] or name[2]}")
            self.echo(f"parked what was in {folder} and nowhere else: {ref}")


def kept_trees(branch: Branch, tip: str) -> set[str]:
    """The trees of the commits of a branch, and of this plan's unfinished and parked work."""
    refs = (f"refs/ralph/work/{branch.plan}", f"{PARKED}/{branch.plan}")
    held = branch.git("for-each-ref", "--format=%(objectname) %(tree)", *refs).split()
    return {*held, *branch.git("log", "-1000", "--format=%T", tip).split()}


def own_places(folder: Path) -> Iterator[Path]:
    """The folders there that ralph made, by their names; a link is none."""
    for entry in sorted(folder.iterdir()):
        named = entry.name in _OTHERS or _WORKSPACE.fullmatch(entry.name)
        if named and entry.is_dir() and not entry.is_symlink():
            yield entry


def copies_for_others(above: Path, folders: list[Path]) -> list[Path]:
    """The copies that workers keep here of repositories whose plans have no places on this machine."""
    known = tuple(f"{folder.name}-" for folder in folders)
    return [copy for copy in sorted(above.glob("worker/*")) if not copy.name.startswith(known)]


def clean_places(path: Path, this_plan: bool, dry_run: bool, echo: Callable[[str], object]) -> int:
    """`ralph clean`: the exit status. All plans of the repository here, or `this_plan` alone. BadInput
    outside of a repository."""
    found = git_places(Path.cwd())
    if not found:
        raise BadInput("there is no git repository here; go to the one whose plans are done")
    above = Path(os.path.realpath(layout.places_folder()))
    folders = sorted(entry for entry in above.iterdir() if entry.is_dir()) if above.is_dir() else []
    if this_plan:
        folders = [folder for folder in folders if folder == layout.locate(path).places]
    else:
        for copy in copies_for_others(above, folders):
            echo(f"left {copy}: a worker's copy for a loop on another machine; delete it once that has ended")
    git = Git.at(found[0])
    return with_signals(lambda control: Cleaner(git, dry_run, echo, control).clean(folders))
