"""Two lines of work as one tree: merged by git, with its conflict markers where it
could not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from _ralph import text
from _ralph.errors import RalphError
from _ralph.files import table
from _ralph.git.git import BULK, Git

_LOCK_FILES = frozenset(table("files.json")["lock files"])
_MARKER = "^(<<<<<<<+|>>>>>>>+) [0-9a-f]{40}"


@dataclass(frozen=True)
class Merge:
    """The tree of a merge."""

    tree: str
    marked: list[str] = field(default_factory=list)  # files with conflict markers in it
    # Those that conflicted, too, and stand as on the first side: lock files, and what
    # has no lines to mark.
    kept: list[str] = field(default_factory=list)

    @property
    def conflicts(self) -> list[str]:
        """The files that conflicted, each on one line."""
        return [text.one_line(name) for name in (*self.marked, *self.kept)]


def merge(git: Git, tip: str, commit: str) -> Merge:
    """Merge `commit` with `tip`. RalphError if git cannot."""
    words = (
        "merge-tree",
        "--write-tree",
        "--allow-unrelated-histories",
        "--no-messages",
        "-z",
        tip,
        commit,
    )
    code, out, err = git.tried(*words, timeout=BULK)
    if code not in (0, 1):
        raise RalphError(
            f"git merge-tree failed: {text.one_line(err or f'exit {code}', 300)}"
        )
    tree, *entries = out.strip("\n").split("\0")
    if code == 0:
        return Merge(tree.strip())
    listed = (entry.partition("\t")[2] for entry in entries if entry)
    names = [
        *dict.fromkeys(
            name.removesuffix(f"~{tip}").removesuffix(f"~{commit}") for name in listed
        )
    ]
    marked = still_marked(
        git, tree, [one for one in names if PurePosixPath(one).name not in _LOCK_FILES]
    )
    kept = [name for name in names if name not in marked]
    return Merge(
        _with_kept(git, tree, tip, commit, kept) if kept else tree, marked, kept
    )


def still_marked(git: Git, tree: str, names: list[str]) -> list[str]:
    """Those of `names` in which a conflict marker of git still stands."""
    if not names:
        return []
    words = ("grep", "-z", "-l", "-a", "-E", "-e", _MARKER, tree, "--")
    found = git.names(
        *words, *(f":(top,literal){name}" for name in names), check=False, timeout=BULK
    )
    return [name for entry in found if (name := entry.partition(":")[2]) in names]


def _with_kept(git: Git, tree: str, tip: str, commit: str, names: list[str]) -> str:
    """The tree with these files, and what lies below them, as `tip` has them. Where one
    side has a folder, git calls the other's file NAME~COMMIT."""
    named = {*names, *(f"{name}~{side}" for name in names for side in (tip, commit))}
    inside = tuple(f"{name}/" for name in names)

    def entries(of: str) -> dict[str, str]:
        found = git.entries(of).items()
        return {
            name: meta
            for name, meta in found
            if name in named or name.startswith(inside)
        }

    removed = [f"0 {'0' * len(tip)}\t{name}" for name in entries(tree)]
    put = [f"{meta}\t{name}" for name, meta in entries(tip).items()]
    return git.edited(tree, [*removed, *put])
