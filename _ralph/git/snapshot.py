"""Two snapshots of a checkout: what differs between them is the work, applied to the
tree that it began with. What git converts by itself, and what stood there before, never
is."""

from __future__ import annotations

import filecmp
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from _ralph import files, text
from _ralph.git import patterns
from _ralph.git.checkout import (
    Checkout,
    leads_out,
    make_submodules_real,
    remove_lock,
)
from _ralph.git.git import BULK, WHOLE, Changed, Entry, Git, Late, no_space, nul
from _ralph.git.notes import Start
from _ralph.git.submodules import links_of
from _ralph.model import LEFT_OUT

_FATAL_NAME = re.compile(
    r"^fatal: (?:(.+): clean filter '.*' failed|.*'([^'\n]+)')", re.MULTILINE
)
_IGNORED = "The following paths are ignored by one of your .gitignore files"
"""git ends with 1 where a file is named to be left out that it ignores anyway; it has
added the rest."""
_REFUSALS = 22
"""How many files that git cannot convert are left out, one after the other."""


# ---------------------------------------------------------------- one snapshot


def snapshot(checkout: Checkout, tree: str) -> tuple[str, list[str]]:
    """The tree of all files here that git does not ignore, where `tree` was checked
    out; and lines about what is not in it. Files of ralph's own, and submodules, stand
    in it as `tree` has them."""
    make_submodules_real(checkout, tree)
    links = links_of(checkout.home, checkout.git, tree)
    git = checkout.git
    try:
        said = _add_all(checkout, [*checkout.state, *LEFT_OUT, *links])
        made = git("write-tree", timeout=BULK)
    except Late as error:  # a sparse file of terabytes
        remove_lock(checkout)
        return git.tree(tree), [f"git could not add the work: {error}"]
    for path, (_, module) in checkout.inner(tree).items():
        if not module.exists or module.changed():
            said.append(
                f"{text.one_line(path)} is a submodule; what was changed in it is not "
                f"part of the work"
            )
    return made.strip(), said


def settle(checkout: Checkout, tree: str) -> str:
    """Remove what is not in `tree`, which is checked out here, and not ignored; the
    snapshot of what is left before an agent comes: mostly `tree` itself, as one look
    tells."""
    if not checkout.changed(tree):
        return tree
    checkout.clean(tree)
    return snapshot(checkout, tree)[0]


def _add_all(checkout: Checkout, apart: list[str]) -> list[str]:
    """`git add` all but `apart`; a line for each thing that git could not add. One that
    a filter refuses ends the whole call, so it is left out of the next."""
    git = checkout.git
    words = [*checkout.hiding, "add", "-A", "--sparse", "--ignore-errors", "--", ":/"]
    for name in apart:
        if not leads_out(git.root, name):  # git would add nothing at all
            words.append(f":(top,exclude,literal){name}")
    said: list[str] = []
    for number in range(_REFUSALS):
        done = git.run(*words, timeout=BULK)
        failed = re.findall("^(?:error|fatal): .*", done.error, re.MULTILINE)
        if done.code == 0 or (done.error.startswith(_IGNORED) and not failed):
            return said
        refused = _FATAL_NAME.search(done.error)
        if refused:
            name = refused[1] or refused[2]
            words.append(f":(top,exclude,literal){name}")
            said.append(
                f"git cannot add {text.one_line(name)}; it is not part of the work"
            )
        elif number:
            break
        else:
            files.open_up(git.root)
    full = no_space(git.root, "add", done.error)
    if full:
        raise full
    line = text.one_line(done.error, 300)
    return [*said, f"git cannot add a part of the work: {line}"]


# ---------------------------------------------------------------- what differs


def work(checkout: Checkout, start: Start, after: str) -> Changed:
    """What an agent did until the snapshot `after`: the entries that the tree which it
    began with has to replace, as they are there and as they are now."""
    git = checkout.git
    changed = git.difference(start.snapshot, after)
    by_setup = git.difference(start.tree, start.snapshot)  # and by git itself
    found = {}
    edited = {}
    for name, (old, new) in changed.items():
        base = by_setup[name][0] if name in by_setup else old
        if old.exists and not base.exists:
            continue  # it was made before the agent came
        found[name] = (base, new)
        if base.is_file and new.is_file:
            edited[name] = (base, new)
    if edited:
        fresh = checkout.beside("fresh")
        try:
            found |= _unconverted(git, start.tree, edited, fresh)
        finally:
            files.clear(fresh)
    return {name: (base, new) for name, (base, new) in found.items() if base != new}


def with_work(git: Git, start: Start, after: str, found: Changed) -> str:
    """The tree that an attempt began with, and the work that was `found` of what changed
    until the snapshot `after`: mostly that itself."""
    if start.tree == start.snapshot and found == git.difference(start.tree, after):
        return after
    entries = {name: new for name, (_, new) in found.items()}
    return apply_changes(git, start.tree, entries)


def apply_changes(git: Git, tree: str, entries: Mapping[str, Entry]) -> str:
    """`tree` with these entries in the place of its own."""
    lines = [f"{entry.mode} {entry.blob}\t{name}" for name, entry in entries.items()]
    return git.edited(tree, lines) if lines else tree


def _unconverted(git: Git, start: str, edited: Changed, fresh: Path) -> Changed:
    """Those of the files `edited` that still have the bytes of a fresh checkout of
    `start`, as `start` has them: one that was merely touched is no work, whatever git
    would make of it."""
    look = git.seen_at(files.clear(fresh) / "files", fresh / "index")
    look.root.mkdir(parents=True)
    look(*WHOLE, "read-tree", start, timeout=BULK)
    asked = ("ls-files", "-z", "--", ":(top,glob)**/.gitattributes")
    attributes = look.names(*asked, timeout=BULK)
    for names in (attributes, edited):  # git heeds the attributes there
        words = (*WHOLE, "checkout-index", "-f", "-z", "--stdin")
        look.maybe(*words, stdin=nul(names), timeout=BULK)
    found = {}
    for name, (base, now) in edited.items():
        if _same(look.root / name, git.root / name):
            found[name] = (base, replace(now, blob=base.blob))
    return found


def _same(one: Path, other: Path) -> bool:
    """Whether two regular files have the same bytes."""
    for path in (one, other):
        if path.is_symlink() or not path.is_file():
            return False
    return filecmp.cmp(one, other, shallow=False)


# ---------------------------------------------------------------- protected files


def restore(
    git: Git,
    before: str,
    after: str,
    protect: Collection[str],
    allow: Collection[str],
    state: Collection[str],
) -> tuple[str, dict[str, Entry], list[str]]:
    """The tree `after` with the files under `protect` as in `before`, but for those
    under `allow`: changed and deleted files are restored, new ones stay unless a
    pattern is their name or path (`conftest.py`). ralph's own files, `state`, are
    always restored. The tree, what was restored, as it was before, and the names of
    what is new and stays."""
    changed = git.difference(before, after)
    # Some disks tell neither cases nor Unicode forms apart
    protect = [patterns.folded(pattern) for pattern in protect]
    state = [patterns.folded(name) for name in state]
    names = {name: patterns.folded(name) for name in changed}
    kept = patterns.matching(protect, names.values())
    kept -= patterns.matching(map(patterns.folded, allow), names.values())
    kept |= {*state}
    named = patterns.matching(patterns.plain_names(protect), names.values())
    paths = {pattern.strip("/") for pattern in (*protect, *state)}
    restored, new = {}, []
    for name in sorted(changed):
        known, was = names[name], changed[name][0]
        if known not in kept:
            continue
        is_named = known in paths or known in named
        if was.exists or is_named:
            restored[name] = was
        else:
            new.append(name)
    return apply_changes(git, after, restored), restored, new
