"""`ralph clean`: remove the places of this repository in which nothing is under way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from _ralph import text
from _ralph.checks.elsewhere import PLACE
from _ralph.errors import BadInput, Exit
from _ralph.git.checkout import Checkout
from _ralph.git.git import Git, git_places
from _ralph.model import Paths
from _ralph.state import layout, lock


def clean_places(prd: Path | None, force: bool, echo: Callable[[str], object]) -> int:
    """Remove the places of all plans of the repository here, or of the plan `prd`
    alone, and say so; with `force` also where an attempt was cut off. The exit status.
    BadInput outside of a repository."""
    here = git_places(Path.cwd())
    if here is None:
        raise BadInput("there is no git repository here; cd to one that has plans")
    git = Git.at(here[0])
    plans = [layout.locate(prd)] if prd else _plans_of(git)
    said = []
    status = Exit.COMPLETE
    for paths in plans:
        if not paths.places.is_dir() or paths.places.is_symlink():
            continue
        why = _why_kept(paths, force)
        if not why:
            why = _remove(git, paths)
            if why:
                status = Exit.PERSON
        said.append(f"left {paths.places}: {why}" if why else f"removed {paths.places}")
    echo("\n".join(said) or "there is nothing to remove")
    return status


def _plans_of(git: Git) -> list[Paths]:
    """The plans of this repository that ralph has worked."""
    plans = []
    for private in sorted(git.common.glob("ralph/*")):
        note = layout.noted(private)
        if note:
            plans.append(layout.paths_of(note.root, git.common, note.prd))
    return plans


def _why_kept(paths: Paths, force: bool) -> str:
    """Why the places of a plan must stay, or nothing."""
    holder = layout.running(paths)
    if holder:
        return f"`ralph {holder.what}` is at work there (pid {holder.pid})"
    if force or not paths.prd.is_file():
        return ""
    try:
        _, _, history = layout.read_state(paths.prd)
    except BadInput as error:
        return str(error)
    if history.open_starts:
        return (
            "an attempt was cut off; `ralph run` goes on with it, --force gives it up"
        )
    return ""


def _remove(git: Git, paths: Paths) -> str:
    """Remove the places of a plan; why something stays, or nothing."""
    with lock.alone(paths, "clean"):
        for entry in paths.places.iterdir():
            is_folder = entry.is_dir() and not entry.is_symlink()
            if is_folder and PLACE.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    Checkout(git, entry, paths.index_of(entry)).remove()
        stays = [entry.name for entry in paths.places.iterdir()]
        if stays:
            return f"ralph did not make {text.few(stays)}, or cannot remove it"
        paths.places.rmdir()
    return ""
