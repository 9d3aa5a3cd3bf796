"""Two lines of work as one tree: merged by git, with its conflict markers where it
could not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from _ralph import text
from _ralph.errors import RalphError
from _ralph.files import table
from _ralph.git.git import BULK, Git, names_in

_LOCK_FILES = frozenset(table("files.json")["lock files"])
_MARKER = "^(<<<<<<<+|>>>>>>>+) [0-9a-f]{40}"


@dataclass(frozen=True)
class Merge:
    """The tree of a merge. `marked` are the files with conflict markers in it; `kept`
    those that conflicted, too, and stand as on the first side: lock files, and what has
    no lines to mark. Where a file is a folder on the other side, all stands so."""

    tree: str
    marked: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    @property
    def conflicts(self) -> list[str]:
        """The files that conflicted, each on one line."""
        return [text.one_line(name) for name in (*self.marked, *self.kept)]


def merge(git: Git, tip: str, commit: str) -> Merge:
    """Merge `commit` with `tip`. RalphError if git cannot."""
    words = ["merge-tree", "--write-tree", "--allow-unrelated-histories"]
    words += ["--no-messages", "-z", tip, commit]
    done = git.run(*words, timeout=BULK)
    if done.code not in (0, 1):
        why = text.one_line(done.error or f"exit {done.code}", 300)
        raise RalphError(f"git merge-tree failed: {why}")
    tree, *conflicts = done.output.strip("\n").split("\0")
    tree = tree.strip()
    if done.code == 0:
        return Merge(tree)
    said = "\0".join(conflicts)
    is_apart = f"~{tip}\0" in said or f"~{commit}\0" in said
    said = said.replace(f"~{tip}\0", "\0").replace(f"~{commit}\0", "\0")
    names = [*dict.fromkeys(entry.partition("\t")[2] for entry in names_in(said))]
    if is_apart:  # one side has a folder in the place of the other's file
        return Merge(git.tree(tip), kept=names)
    lined = [name for name in names if PurePosixPath(name).name not in _LOCK_FILES]
    marked = still_marked(git, tree, lined)
    kept = [name for name in names if name not in marked]
    if kept:
        nothing = f"0 {'0' * len(tip)}"
        there = git.entries(tip)
        tree = git.edited(
            tree, [f"{there.get(name, nothing)}\t{name}" for name in kept]
        )
    return Merge(tree, marked, kept)


def still_marked(git: Git, tree: str, names: list[str]) -> list[str]:
    """Those of `names` in which a conflict marker of git still stands."""
    if not names:
        return []
    words = ["grep", "--no-color", "-z", "-l", "-a", "-E", "-e", _MARKER, tree, "--"]
    words += [f":(top,literal){name}" for name in names]
    listed = names_in(git.maybe(*words, timeout=BULK))
    found = [entry.partition(":")[2] for entry in listed]
    return [name for name in found if name in names]  # and not one in a folder
