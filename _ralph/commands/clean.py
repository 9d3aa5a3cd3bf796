"""`ralph clean`: remove the places of this repository in which nothing is under way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from _ralph.checks.elsewhere import PLACE
from _ralph.errors import BadInput, Exit
from _ralph.git.checkout import Checkout
from _ralph.git.git import Git, git_places
from _ralph.model import Paths
from _ralph.state import layout, lock
from _ralph.state.layout import NOTE, Noted


def clean_places(
    prd: Path | None, dry_run: bool, force: bool, echo: Callable[[str], object]
) -> int:
    """Remove the places of all plans of the repository here, or of the plan `prd`
    alone, and say so; with `force` also where an attempt was cut off. The exit status.
    BadInput outside of a repository."""
    here = git_places(Path.cwd())
    if here is None:
        raise BadInput("there is no git repository here; cd to one that has plans")
    git = Git.at(here[0])
    if prd:
        folders = [layout.locate(prd).places]
    else:
        folders = sorted(Path(os.path.realpath(layout.places_folder())).glob("*"))
    found, stays = False, False
    for folder in folders:
        note = _note_of(git, folder)
        if note is None:
            continue
        found = True
        why = _why_kept(note, force)
        if why:
            echo(f"left {folder}: {why}")
        elif dry_run:
            echo(f"would remove {folder}")
        else:
            strange = _remove(git, note.paths)
            for entry in strange:
                echo(f"left {entry}: ralph did not make it, or cannot remove it")
            if strange:
                stays = True
            else:
                echo(f"removed {folder}")
    if not found:
        echo("there is nothing to remove")
    return Exit.PERSON if stays else Exit.COMPLETE


def _note_of(git: Git, folder: Path) -> Noted | None:
    """The note in a folder of places that ralph made for this repository, or None."""
    if folder.is_symlink():
        return None
    note = layout.noted(folder)
    if note is None or note.paths.places != folder:
        return None
    if not note.common.is_dir() or not note.common.samefile(git.common):
        return None
    return note


def _why_kept(note: Noted, force: bool) -> str:
    """Why the places of a plan must stay, or nothing."""
    holder = layout.running(note.paths)
    if holder:
        return f"`ralph {holder.what}` is at work there (pid {holder.pid})"
    if force or not note.prd.is_file():
        return ""
    try:
        _, _, history = layout.read_state(note.prd)
    except BadInput as error:
        return str(error)
    if history.open_starts:
        return (
            "an attempt was cut off; `ralph run` goes on with it, --force gives it up"
        )
    return ""


def _remove(git: Git, paths: Paths) -> list[Path]:
    """Remove the places of a plan; what stays, as it is not ralph's."""
    with lock.alone(paths, "clean"):
        for entry in paths.places.iterdir():
            is_folder = entry.is_dir() and not entry.is_symlink()
            if is_folder and PLACE.fullmatch(entry.name):
                index = paths.private / f"{entry.name}.index"
                with contextlib.suppress(OSError):
                    Checkout(git, entry, index).remove()
        # The note goes last: without it, a clean that was killed would not go on.
        stays = [entry for entry in paths.places.iterdir() if entry.name != NOTE]
        if not stays:
            (paths.places / NOTE).unlink()
            paths.places.rmdir()
    return stays
