"""What an agent left that no clone would have as it has it: copies of secrets, files
and links that name places of this machine, and what git ignores."""

from __future__ import annotations

import filecmp
import os
from collections import defaultdict
from pathlib import Path

from _ralph import files, text
from _ralph.git import patterns
from _ralph.git.checkout import Checkout
from _ralph.git.git import BULK, CACHES, LEFT_BY_AGENTS, Changed, names_in
from _ralph.model import LEFT_OUT

_LOOKED_AT = 8 << 20
"""Bytes of a file in which the path of a place is looked for."""


def litter(checkout: Checkout, tree: str, work: Changed) -> tuple[set[str], list[str]]:
    """What of the work on `tree` is left out, and a line for each: copies of what
    `.worktreeinclude` names, and new files that name a place of ralph's. A new folder
    goes with them where more than half of the files right in it do, as those of a
    virtual environment."""
    found, lines = set[str](), []
    for name, source in _copies(checkout, work).items():
        found.add(name)
        lines.append(
            f"{text.one_line(name)} (a copy of {text.one_line(source)}, which git "
            f"ignores; left out)"
        )
    in_folder: dict[str, list[str]] = {}
    for name, (base, new) in work.items():
        if new.is_file and not base.exists:
            in_folder.setdefault(name.rpartition("/")[0], []).append(name)
    gone: tuple[str, ...] = ()  # new folders that are left out whole
    for folder in sorted(in_folder):
        if f"{folder}/".startswith(gone):
            continue
        names = in_folder[folder]
        naming = [name for name in names if _names_places(checkout, name)]
        mostly = folder and len(naming) * 2 > len(names)
        if mostly and not checkout.git("ls-tree", tree, "--", folder):
            naming = [f"{folder}/"]
            gone += (f"{folder}/",)
        found.update(naming)
        for name in naming:
            lines.append(
                f"{text.one_line(name)} (new, and names a checkout of ralph, which no "
                f"clone has; left out)"
            )
    found.update(name for name in work if name.startswith(gone))
    return found, lines


def _copies(checkout: Checkout, work: Changed) -> dict[str, str]:
    """The files that hold what a file of `.worktreeinclude` holds, each with that."""
    home = checkout.home.root
    by_size: dict[int, list[str]] = defaultdict(list)
    for source in checkout.carried:
        if about := files.regular(home / source):
            by_size[about.st_size].append(source)
    found = {}
    for name in work:
        path = checkout.root / name
        about = files.regular(path, follow=False)
        if not about or not about.st_size:
            continue
        for source in by_size[about.st_size]:
            if filecmp.cmp(home / source, path, shallow=False):
                found[name] = source
    return found


def _names_places(checkout: Checkout, name: str) -> bool:
    """Whether a file here names the folder of all places."""
    places = os.fsencode(checkout.root.parent)
    return places in (files.read_regular(checkout.root / name, _LOOKED_AT) or b"")


def leads_nowhere(checkout: Checkout, changed: Changed) -> list[str]:
    """Why what was `changed` would be green on this machine alone, a line for each: a
    file that names a place now, and a link that is absolute or leads out of the
    checkout."""
    found = []
    for name, (base, new) in changed.items():
        shown = text.one_line(name)
        if new.is_link and _leads_out(checkout.root, name):
            found.append(
                f"{shown} is a link that is absolute or leads out of the checkout: in a "
                f"clone it leads nowhere"
            )
        elif new.is_file and _names_places(checkout, name):
            before = ""
            if base.is_file:
                before = checkout.git("cat-file", "blob", base.blob)
            if str(checkout.root.parent) not in before:
                found.append(
                    f"{shown} names a checkout of ralph, which a clone does not have"
                )
    return found


def _leads_out(root: Path, name: str) -> bool:
    """Whether a link is absolute or leads out of `root`, if only to come back: into the
    very checkout that it was made in."""
    try:
        target = os.readlink(root / name)
    except OSError:
        return False
    way = os.path.normpath(os.path.join(os.path.dirname(name), target))
    real = Path(os.path.realpath(root / name))
    return way.split("/")[0] in ("", "..") or not real.is_relative_to(root)


def ignored_since(checkout: Checkout, moment: float) -> list[str]:
    """What git ignores here, files and folders, and was changed after `moment` (unix
    seconds), but for caches of known tools and what agents always leave."""
    words = ("ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z")
    own = {*checkout.state, *checkout.carried, *LEFT_OUT, ".git"}
    known = patterns.matcher([*CACHES, "*.pyc", ".vite", *LEFT_BY_AGENTS])
    found = []
    for entry in names_in(checkout.git.maybe(*words, timeout=BULK)):
        name = entry.rstrip("/")
        if name in own:
            continue
        for path in files.walk(checkout.root / name):
            below = path.relative_to(checkout.root).as_posix()
            if changed_at(path) >= moment and not known(below):
                found.append(name)
                break
    return found


def changed_at(path: Path) -> float:
    """When (unix time) a file was changed; 0 if it is gone."""
    try:
        return path.lstat().st_ctime
    except OSError:
        return 0.0
