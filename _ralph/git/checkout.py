"""A checkout of ralph's own, for agents or checks, that git sees through home's
repository."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from _ralph import files, text
from _ralph.git.git import BULK, WHOLE, Git, names_in, nul
from _ralph.git.submodules import copied, links_of
from _ralph.model import LEFT_OUT

_PLAIN = str.maketrans({letter: f"\\{letter}" for letter in "\\*?[ "})
"""Letters of a name that mean something else in an ignore file."""
_CHECKOUT = 1800.0
"""Seconds that a checkout may take: with LFS, it downloads files."""


@dataclass
class Checkout:
    """A checkout in which untrusted programs run. ralph looks at `root` through the
    repository of `home`, with an index of its own at `index`; the `.git` in `root` is a
    throwaway that ralph never reads. `state` are the names of ralph's own files, which
    are copied here for reading; `carried` those that `.worktreeinclude` names. It has
    all files, even if home is a sparse checkout."""

    home: Git
    root: Path
    index: Path
    state: tuple[str, ...] = ()
    carried: list[str] = field(default_factory=list)

    @cached_property
    def git(self) -> Git:
        return self.home.seen_at(self.root, self.index)

    @property
    def exists(self) -> bool:
        """Whether it is there, and not a link: an agent can replace the folder."""
        is_real = Path(os.path.realpath(self.root)) == self.root
        return is_real and self.root.is_dir() and self.index.is_file()

    def beside(self, kind: str) -> Path:
        """The file of notes of this kind: `setup`, `ignore` or `start`."""
        return self.index.with_suffix(f".{kind}")

    def inner(self, tree: str) -> dict[str, tuple[str, Checkout]]:
        """The submodules of `tree` that home has copies of, by their paths: the commit,
        and a checkout seen through that copy. Where a copy lacks the commit, the folder
        stays empty, as without one."""
        found = {}
        for path, copy, commit, is_there in copied(self.home, self.git, tree):
            if not is_there:
                continue
            root = self.root / path
            git = Git(root, copy, copy, {}, self.home.calls)
            short = files.digest(os.fsencode(path))[:8]
            index = self.index.with_name(f"{self.index.name}-{short}")
            found[path] = (commit, Checkout(git, root, index))
        return found

    # ---------------------------------------------------------------- checking out

    def open(self) -> bool:
        """Make the folder if it is not there or was replaced; whether it is new."""
        remove_lock(self)
        if self.exists:
            return False
        self.remove()
        self.root.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.root.parent.chmod(0o700)
        self.root.mkdir(mode=0o700)
        self.index.parent.mkdir(parents=True, exist_ok=True)
        return True

    def reset(self, tree: str) -> bool:
        """Check out `tree`, with its submodules, whatever is there; whether the folder
        is new. Files that are not in it stay."""
        new = self.open()
        files.clear(self.beside("start"))
        make_submodules_real(self, tree)
        words = (*WHOLE, "read-tree", "--reset", "-u", tree)
        if self.git.maybe(*words, timeout=_CHECKOUT) is None:
            files.clear(self.root)
            new = self.open()
            self.git(*words, timeout=_CHECKOUT)
        for commit, module in self.inner(tree).values():
            module.reset(commit)
        return new

    def clean(self, tree: str, flags: str = "-ffd") -> None:
        """Remove what is not in `tree`, which is checked out here, but for ralph's own
        files and what git ignores; with the flags `-ffdx`, that too."""
        words = [*self.hiding, "clean", "-q", flags]
        words += [f"--exclude={only(name)}" for name in (*self.state, *LEFT_OUT)]
        if self.git.maybe(*words, timeout=BULK) is None:
            files.open_up(self.root)
            self.git.maybe(*words, timeout=BULK)
        for commit, module in self.inner(tree).values():
            module.clean(commit, flags)

    def remove(self) -> None:
        """Remove it, and what is noted of it."""
        for kind in ("setup", "ignore", "start"):
            files.clear(self.beside(kind))
        files.clear(self.root)
        files.clear(self.index)

    # ---------------------------------------------------------------- what is there

    def changed(self, tree: str = "", untracked: str = "all") -> list[str]:
        """The files that were changed, new ones that git does not ignore too, unless
        `untracked` is `no`; with those in the submodules of `tree`."""
        words = [*self.hiding, "status", "--porcelain", "-z", f"-u{untracked}"]
        words += ["--no-renames", "--ignore-submodules=all"]
        own = {*self.state, *self.carried}
        changed = []
        for entry in self.git.names(*words, timeout=BULK):
            kind, name = entry[:2], entry[3:]
            if kind[1] != " " and not (kind == "??" and name in own):
                changed.append(name)
        for path, (commit, module) in (self.inner(tree) if tree else {}).items():
            inside = module.changed(commit, untracked) if module.exists else [""]
            changed += [f"{path}/{name}" for name in inside]
        return changed

    def tracked(self, tree: str) -> set[str]:
        """The files of `tree` and of its submodules, with their `.git`. A submodule
        that home has no copy of is a folder, though nothing is in it."""
        links = links_of(self.home, self.git, tree)
        names = {*self.git.entries(tree)} - links.keys()
        names |= {f"{path}/\0" for path in links}
        for path, (commit, module) in self.inner(tree).items():
            inside = module.tracked(commit) | {".git"}
            names |= {f"{path}/{name}" for name in inside}
        return names

    def untracked(self) -> list[str]:
        """The files here that git neither tracks nor ignores, right after `setup` ran:
        it made them. A repository of its own is one name, with a slash at its end."""
        words = ("ls-files", "-o", "--exclude-standard", "-z")
        found = names_in(self.git.maybe(*words, timeout=BULK))
        return [name for name in found if name not in (*self.state, *self.carried)]

    @property
    def hiding(self) -> tuple[str, ...]:
        """Words for a call of git that heeds the ignore file of this checkout, if it
        has one."""
        ignore = self.beside("ignore")
        return ("-c", f"core.excludesFile={ignore}") if ignore.is_file() else ()


def hide(checkout: Checkout, made: Iterable[str]) -> None:
    """Write the ignore file of a checkout: the person's own, what `setup` made, and the
    copies of files that git ignores at home. None of it is work, and none of it goes
    when another tree is checked out."""
    person_s = files.read_regular(checkout.index.with_name("ignore")) or b""
    lines = [""]
    for name in (*made, *checkout.carried):
        if "\n" not in name:
            lines.append(only(name))
    rules = person_s + os.fsencode("\n".join([*lines, ""]))
    ignore = checkout.beside("ignore")
    if files.read_regular(ignore) != rules:
        files.clear(ignore).write_bytes(rules)


def remove_lock(checkout: Checkout) -> None:
    """Remove the index lock of a git call that was killed."""
    files.clear(checkout.index.with_name(f"{checkout.index.name}.lock"))


def only(name: str) -> str:
    """The pattern of an ignore file that only this name matches."""
    return "/" + name.translate(_PLAIN)


# ---------------------------------------------------------------- links, odd files


def leads_out(root: Path, name: str) -> bool:
    """Whether a folder on the way to `name` is a link."""
    parent = (root / name).parent
    return parent.resolve() != parent


def make_folders_real(root: Path, name: str) -> None:
    """Remove links and files where the folders of `name` should be, so that a write
    stays below `root`."""
    for parent in reversed((root / name).parents):
        is_real = parent.is_dir() and not parent.is_symlink()
        if parent.is_relative_to(root) and not is_real:
            files.clear(parent)


def make_submodules_real(checkout: Checkout, tree: str) -> None:
    """Remove links where the submodules of `tree` or folders above them should be."""
    for path in links_of(checkout.home, checkout.git, tree):
        make_folders_real(checkout.root, f"{path}/.git")


def remove_unusable(checkout: Checkout, tree: str) -> list[str]:
    """Remove what git cannot add, where `tree` was checked out: FIFOs and their like,
    and the `.git` of nested repositories that it does not ignore, so that it adds their
    files. A line for each."""
    if not checkout.exists:
        return []
    said = []
    odd, nested = _look(checkout.root)
    for name in odd:
        files.clear(checkout.root / name)
        said.append(f"git cannot add {text.one_line(name)}; it was removed")
    links = links_of(checkout.home, checkout.git, tree)
    folders = [name.rpartition("/")[0] for name in nested]
    words = (*checkout.hiding, "check-ignore", "-z", "--stdin")
    ignored: list[str] = []
    if nested:
        ignored = names_in(checkout.git.maybe(*words, stdin=nul(folders)))
    kept = (*(f"{path}/" for path in links), *(f"{folder}/" for folder in ignored))
    for name, folder in zip(nested, folders, strict=True):
        if not name.startswith(kept):
            files.clear(checkout.root / name)
            said.append(
                f"{text.one_line(folder)} was a git repository of its own; its files "
                f"are part of the work"
            )
    return said


def remove_repositories(checkout: Checkout, tree: str) -> None:
    """Remove what git cannot add, and the `.git` of the submodules of `tree`: git would
    enter them, and run their filters."""
    remove_unusable(checkout, tree)
    for path in links_of(checkout.home, checkout.git, tree):
        if not leads_out(checkout.root, f"{path}/.git"):
            files.clear(checkout.root / path / ".git")


def _look(root: Path) -> tuple[list[str], list[str]]:
    """The names below `root` of what is no file, link or folder; and of every nested
    `.git`, or .GIT, which is the same to git."""
    odd: list[str] = []
    nested: list[str] = []
    folders = [""]
    while folders:
        folder = folders.pop()
        for entry in _entries(root / folder):
            name = f"{folder}{entry.name}"
            if entry.name.lower() == ".git":
                if not folder:
                    continue
                nested.append(name)
            if entry.is_dir(follow_symlinks=False):
                folders.append(f"{name}/")
            elif not (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                odd.append(name)
    return odd, nested


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder, if that can be read."""
    if not os.access(folder, os.R_OK | os.X_OK):
        files.open_up(folder)
    try:
        return list(os.scandir(folder))
    except OSError:
        return []
