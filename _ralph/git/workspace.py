"""A place: a checkout of ralph's own, for agents or checks, that git sees through
home's repository."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.git import patterns, snapshot
from _ralph.git.git import (
    BULK,
    CACHES,
    LEFT_BY_AGENTS,
    WHOLE,
    Git,
    Late,
    escaped,
    nul,
    setting,
)
from _ralph.git.snapshot import Changed, leads_out
from _ralph.model import LEFT_OUT

_DEEP, _NESTED = os.pathconf("/", "PC_PATH_MAX") - 300, 300
"""Limits of a path: the length of a folder's (the system's, less that of a file's name)
and its folders (Python's recursion: 1,000)."""
_PLAIN = str.maketrans({letter: f"\\{letter}" for letter in "\\*?[ "})
"""Letters of a name that mean something else in an ignore file."""
_CHECKOUT = 1800.0
"""Seconds that a checkout may take: with LFS, it downloads files."""
_LARGE = 1 << 20
"""Bytes of a new file that a notice names."""


@dataclass(frozen=True)
class Start:
    """What an attempt, by its id, began with in a place: the tree that was checked out
    there, and the snapshot of what stood there when its agent came."""

    attempt: str
    tree: str
    snapshot: str


@dataclass
class Place:
    """A checkout in which untrusted programs run. ralph looks at `root` through the
    repository of `home`, with an index of its own at `index`; the `.git` in `root` is a
    throwaway that ralph never reads. `state` are the names of ralph's own files, which
    are copied here for reading; `carried` those that `.worktreeinclude` names. A `full`
    place has all files, even if home is a sparse checkout."""

    home: Git
    root: Path
    index: Path
    state: tuple[str, ...] = ()
    carried: list[str] = field(default_factory=list)
    full: bool = False

    @cached_property
    def git(self) -> Git:
        return self.home.seen_at(self.root, self.index)

    @cached_property
    def modules(self) -> Submodules:
        return Submodules(self)

    @property
    def exists(self) -> bool:
        """Whether it is there, and not a link: an agent can replace the folder."""
        return (
            self.root.is_dir()
            and Path(os.path.realpath(self.root)) == self.root
            and self.index.is_file()
        )

    # ---------------------------------------------------------------- set up

    def open(self) -> bool:
        """Make the folder if it is not there or was replaced; whether it is new."""
        self.remove_lock()
        if self.exists:
            return False
        for folder in (*reversed(self.root.parents), self.root):
            if folder.is_symlink() and folder.is_relative_to(self.root.parents[1]):
                folder.unlink()  # an agent can have put it there
        self.remove()
        self.root.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.root.parent.chmod(0o700)
        self.root.mkdir(mode=0o700)
        self.index.parent.mkdir(parents=True, exist_ok=True)
        return True

    def remove_lock(self) -> None:
        """Remove the index lock of a git call that was killed."""
        files.clear(self.index.with_name(f"{self.index.name}.lock"))

    def reset(self, tree: str) -> bool:
        """Check out `tree`, whatever is there; whether the place is new. Files that are
        not in it stay."""
        new = self.open()
        files.clear(self._start)
        self.modules.make_real(tree)
        read = (*(WHOLE if self.full else ()), "read-tree", "--reset", "-u", tree)
        if not self._succeeds(*read, timeout=_CHECKOUT):
            files.clear(self.root)
            new = self.open()
            self.git(*read, timeout=_CHECKOUT)
        self.modules.reset(tree)
        return new

    def clean(self, tree: str, flags: str = "-ffd") -> None:
        """Remove what is not in `tree`, which is checked out here, but for ralph's own
        files and what git ignores; with the flags `-ffdx`, that too."""
        own = (f"--exclude={_only(name)}" for name in (*self.state, *LEFT_OUT))
        self._succeeds(*self._hiding, "clean", "-q", flags, *own)
        for commit, module in self.modules.of(tree).values():
            module.clean(commit, flags)

    def _succeeds(self, *words: str, timeout: float = BULK) -> bool:
        """Whether a git call succeeds, if not at once, then after `files.open_up`."""
        if self.git.tried(*words, timeout=timeout)[0] == 0:
            return True
        files.open_up(self.root)
        return self.git.tried(*words, timeout=timeout)[0] == 0

    def tracked(self, tree: str, entries: Mapping[str, str]) -> set[str]:
        """The files of `tree`, which has these `entries`, and of its submodules, with
        their `.git`."""
        links = links_among(entries)
        return ({*entries} - links.keys()) | (
            self.modules.tracked(tree, links) if links else set()
        )

    def carry(self, names: Iterable[str]) -> None:
        """Copy files that git ignores from home (`.worktreeinclude`), also those that
        links lead to, unless what is checked out here has files of these names; they
        are never committed."""
        wanted = list(names)
        tracked = set(self.git.names("ls-files", "-z", timeout=BULK) if wanted else ())
        own = [name for name in wanted if name not in tracked]
        for name in {
            os.path.dirname(name): name for name in own
        }.values():  # one of each folder
            self.make_folders_real(name)
        self.carried = [
            name
            for name in own
            if files.copy(f"{self.home.root}/{name}", f"{self.root}/{name}")
        ]

    def copy_state(self) -> dict[str, bytes]:
        """Copy the plan, the notes and the rulebook, for reading; the bytes of those
        that are there, or that links lead to, by name."""
        copies = {}
        for name in self.state:
            source = Path(os.path.realpath(self.home.root / name))
            if (data := files.read_regular(source)) is not None:
                self.make_folders_real(name)
                target = files.clear(self.root / name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                shutil.copymode(source, target)
                copies[name] = data
        return copies

    def renew_git(self, head: str, branch: str, common: Mapping[str, str]) -> None:
        """Write a new `.git`, as after a clone: HEAD on `branch` at the commit `head`,
        the files of `throwaway_git`, home's objects as alternates; no other branches,
        no remotes, no hooks."""
        own = self.root / ".git"
        heads = {
            "HEAD": f"ref: refs/heads/{branch}\n",
            f"refs/heads/{branch}": f"{head}\n",
        }
        written = {
            name: os.fsencode(content) for name, content in (heads | {**common}).items()
        }
        sources = [
            self.home.common / name
            for name in ("shallow", "info/attributes", "info/exclude")
        ]
        sources += [] if self.full else [self.home.dir / "info/sparse-checkout"]
        for source in sources:
            if (data := files.read_regular(source)) is not None:
                written[
                    source.name if source.name == "shallow" else f"info/{source.name}"
                ] = data
        ignored = "\n".join(["", *map(_only, (*LEFT_OUT, *self.state)), ""])
        written["info/exclude"] = written.get("info/exclude", b"") + os.fsencode(
            ignored
        )
        self._write_git(own, written)
        for path, (commit, module) in self.modules.of(head).items():
            self.make_folders_real(f"{path}/.git")
            module.root.mkdir(parents=True, exist_ok=True)
            inside = own / "modules" / files.digest(os.fsencode(path))[:8]
            config = common["config"] + setting(
                f"core.worktree\n{os.path.relpath(module.root, inside)}"
            )
            module._write_git(
                inside, {"HEAD": f"{commit}\n".encode(), "config": os.fsencode(config)}
            )
            files.clear(module.root / ".git").write_text(
                f"gitdir: {os.path.relpath(inside, module.root)}\n"
            )

    def _write_git(self, own: Path, written: dict[str, bytes]) -> None:
        """Make a git folder new: the files `written`, this place's index, home's
        objects as alternates."""
        objects = str(self.home.common / "objects")
        line = f'"{escaped(objects)}"' if "\n" in objects else objects
        written["objects/info/alternates"] = os.fsencode(f"{line}\n")
        files.fill(
            own, written, ("hooks", "refs")
        )  # without `refs`, git sees no repository
        shutil.copyfile(self.index, own / "index")

    # ---------------------------------------------------------------- what stands there

    def snapshot(self, tree: str) -> tuple[str, list[str]]:
        """The tree of all files here that git does not ignore, where `tree` was checked
        out; and lines about what is not in it. Files of ralph's own, and submodules,
        stand in it as `tree` has them."""
        replaced, apart = (
            self.modules.make_real(tree),
            [*self.state, *LEFT_OUT, *self.modules.names(tree)],
        )
        try:
            made, refused = snapshot.take(self.git, self._hiding, apart, tree)
        except Late as error:  # a sparse file of terabytes
            self.remove_lock()
            return self.git.tree(tree), [f"git could not add the work: {error}"]
        return made, [*self.modules.changed(tree, replaced), *refused]

    def settle(self, tree: str) -> str:
        """Remove what is not in `tree`, which is checked out here, and not ignored; the
        snapshot of what is left before an agent comes: mostly `tree` itself, as one
        look tells."""
        changed, new = self.dirt(tree)
        if new:
            self.clean(tree)
        return self.snapshot(tree)[0] if changed or new else tree

    def dirt(
        self, tree: str = "", untracked: str = "all"
    ) -> tuple[list[str], list[str]]:
        """The tracked files that were changed, and the new files that are not ignored,
        unless `untracked` is `no`; with those in the submodules of `tree`."""
        words = (
            "status",
            "--porcelain",
            "-z",
            f"-u{untracked}",
            "--no-renames",
            "--ignore-submodules=all",
        )
        entries = self.git.names(*self._hiding, *words, timeout=BULK)
        own = (*self.state, *self.carried)
        changed = [entry[3:] for entry in entries if entry[1] not in " ?"]
        new = [
            entry[3:] for entry in entries if entry[:2] == "??" and entry[3:] not in own
        ]
        for path, (commit, module) in (self.modules.of(tree) if tree else {}).items():
            if not module.exists:
                changed.append(path)
                continue
            for names, inside in zip(
                (changed, new), module.dirt(commit, untracked), strict=True
            ):
                names += [f"{path}/{name}" for name in inside]
        return changed, new

    def make_folders_real(self, name: str) -> None:
        """Remove links and files where the folders of `name` should be, so that a write
        stays here."""
        for parent in reversed((self.root / name).parents):
            if parent.is_relative_to(self.root) and (
                parent.is_symlink() or not parent.is_dir()
            ):
                files.clear(parent)

    def clear(self, name: str) -> None:
        """Remove a file or folder here. Where a folder on the way is a link, `name` is
        not here."""
        if not leads_out(self.root, name):
            files.clear(self.root / name)

    def remove(self) -> None:
        """Remove it, and what is noted of it."""
        for part in (
            self.stamp,
            self.root,
            self.index,
            self._ignore,
            self._start,
        ):
            files.clear(part)

    @property
    def stamp(self) -> Path:
        """The file of what is noted of it."""
        return self.index.with_suffix(".setup")

    def noted(self) -> tuple[str, dict[str, Any]]:
        """What `note` last wrote; nothing where that cannot be read."""
        try:
            found = json.loads(files.read_regular(self.stamp) or b"{}")
            return str(found["stamp"]), dict(found["made"])
        except (ValueError, TypeError, LookupError, RecursionError):
            return "", {}

    def note(self, stamp: str, made: Mapping[str, Any]) -> None:
        """Note the stamp that this place belongs to and, by name, what `setup` made
        here: without a note it is made anew."""
        files.atomic_write(
            self.stamp, json.dumps({"stamp": stamp, "made": made}).encode()
        )

    def made_by_setup(self) -> list[str]:
        """The files here that git neither tracks nor ignores, right after `setup` ran;
        a repository of its own is one name, with a slash at its end."""
        found = self.git.names(
            "ls-files", "-o", "--exclude-standard", "-z", check=False, timeout=BULK
        )
        return [name for name in found if name not in (*self.state, *self.carried)]

    @property
    def _ignore(self) -> Path:
        return self.index.with_suffix(".ignore")

    @property
    def _hiding(self) -> tuple[str, ...]:
        """Words for a call of git that heeds the ignore file of this place, if it has
        one."""
        return (
            ("-c", f"core.excludesFile={self._ignore}")
            if self._ignore.is_file()
            else ()
        )

    def hide(self, made: Iterable[str]) -> None:
        """Write the ignore file of this place: the person's own, what `setup` made, and
        the copies of files that git ignores at home. None of it is work, and none of it
        goes when another tree is checked out."""
        own = files.read_regular(self.index.with_name("ignore")) or b""
        names = [_only(name) for name in (*made, *self.carried) if "\n" not in name]
        rules = own + os.fsencode("\n".join(["", *names, ""]))
        if files.read_regular(self._ignore) != rules:
            files.clear(self._ignore).write_bytes(rules)

    def note_start(self, start: Start) -> None:
        """Note what an attempt begins with here."""
        files.clear(self._start).write_text(
            f"{start.attempt} {start.tree} {start.snapshot}"
        )

    def noted_start(self) -> Start | None:
        """What `note_start` wrote last; None if nothing can be read."""
        said = (files.read_regular(self._start, 1000) or b"").decode("utf-8", "replace")
        found = re.fullmatch(r"(\w+) ([0-9a-f]{40,64}) ([0-9a-f]{40,64})", said)
        return Start(*found.groups()) if found else None

    @property
    def _start(self) -> Path:
        return self.index.with_suffix(".start")

    def work(
        self, start: Start, after: str
    ) -> tuple[str, Changed, list[str], list[str]]:
        """The tree that an attempt began with, with the work that the snapshot `after`
        shows; how it differs; what is left out of it, and notices."""
        changed = snapshot.differences(self.git, start.snapshot, after)
        fresh = self.index.with_suffix(".fresh")
        found = snapshot.work(self.git, start.tree, start.snapshot, changed, fresh)
        copies = self._copies_among(
            {name: new.blob for name, (_, new) in found.items()}
        )
        said = [
            f"{text.one_line(name)} ({what}; left out)" for name, what in copies.items()
        ]
        work = {name: entry for name, (_, entry) in found.items() if name not in copies}
        large = {
            name: _size(self.root / name) for name in work if not found[name][0].exists
        }
        notices = [
            f"{text.one_line(name)} is new and has {text.megabytes(size)}"
            for name, size in large.items()
            if size > _LARGE
        ]
        found = {name: found[name] for name in work}
        whole = start.tree == start.snapshot and found == changed
        return (
            after if whole else snapshot.lay(self.git, start.tree, work),
            found,
            said,
            notices,
        )

    def _copies_among(self, blobs: Mapping[str, str]) -> dict[str, str]:
        """Those of the files with these blobs that hold what a file of
        `.worktreeinclude` holds, each with what it is."""
        sizes = {_size(self.root / name) for name in blobs} - {0}
        known = {}
        for name in self.carried if sizes else ():
            source = f"{self.home.root}/{name}"
            if (about := files.regular(source)) and about.st_size in sizes:
                known[snapshot.blob_of(Path(source), next(iter(blobs.values())))] = name
        copies = {name: known[blob] for name, blob in blobs.items() if blob in known}
        return {
            name: f"a copy of {text.one_line(own)}, which git ignores"
            for name, own in copies.items()
        }

    def remove_repositories(self, tree: str) -> None:
        """Remove what git cannot add, and the `.git` of the submodules of `tree`: git
        would enter them, and run their filters."""
        self.remove_unusable(tree)
        for path in self.modules.links(tree):
            self.clear(f"{path}/.git")

    def remove_unusable(self, tree: str) -> list[str]:
        """Remove what git cannot add, where `tree` was checked out: special files, and
        the `.git` of nested repositories that it does not ignore, so that it adds their
        files. A line for each."""
        if not self.exists:
            return []
        odd, nested = _look(self.root)
        for path in odd:
            files.clear(path)
        said = [
            f"git cannot add {text.one_line(self._name(path))}; it was removed"
            for path in odd
        ]
        inner = tuple(f"{path}/" for path in self.modules.links(tree))
        names = {
            path: self._name(path.parent)
            for path in nested
            if not self._name(path).startswith(inner)
        }
        words, stdin = (
            (*self._hiding, "check-ignore", "-z", "--stdin"),
            nul(names.values()),
        )
        ignored = self.git.names(*words, stdin=stdin, check=False) if names else []
        inside = {path: name for path, name in names.items() if name not in ignored}
        for path in inside:  # there may be a .GIT too, which is the same to git
            files.clear(path)
        what = "was a git repository of its own; its files are part of the work"
        return said + [
            f"{text.one_line(name)} {what}" for name in dict.fromkeys(inside.values())
        ]

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def ignored_since(self, moment: float) -> list[str]:
        """What git ignores here, files and folders, and was changed after `moment`
        (unix seconds), but for caches of known tools and what agents always leave."""
        words = ("ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z")
        own = (*self.state, *self.carried, *LEFT_OUT, ".git")
        known, found = (*CACHES, "*.pyc", ".vite", *LEFT_BY_AGENTS), []
        for name in self.git.names(*words, check=False, timeout=BULK):
            if name.rstrip("/") not in own:
                new = {
                    self._name(path)
                    for path in files.walk(self.root / name)
                    if _since(path, moment)
                }
                found += (
                    [name.rstrip("/")] if new - patterns.matching(known, new) else []
                )
        return found


@dataclass(frozen=True)
class Submodules:
    """The submodules that stand in a place, each a place of its own, seen through
    home's copy of its repository. Where home has no copy of one, its folder stays
    empty."""

    place: Place

    def links(self, tree: str) -> dict[str, str]:
        """The commits of the submodules of a tree, by their paths."""
        marks = (*self._kept(), self.place.home.root / ".gitmodules")
        return (
            links_among(self.place.git.entries(tree))
            if any(mark.exists() for mark in marks)
            else {}
        )

    def names(self, tree: str) -> list[str]:
        """What stands in every snapshot as `tree` has it: the submodules, and the file
        that lists them."""
        links = self.links(tree)
        return [*links, *([".gitmodules"] if links else [])]

    def of(self, tree: str) -> dict[str, tuple[str, Place]]:
        """The submodules of a tree that home has copies of, by their paths: the commit,
        and the place."""
        links, place = self.links(tree), self.place
        if not links:
            return {}
        listed = place.git.names(
            "config", "-z", "--blob", f"{tree}:.gitmodules", "--list", check=False
        )
        modules = {}
        for key, path in (entry.split("\n", 1) for entry in listed if "\n" in entry):
            name = key.removeprefix("submodule.").removesuffix(".path")
            if (
                key.endswith(".path")
                and path in links
                and (kept := self.copy_of(name, path))
            ):
                root = place.root / path
                git = Git(
                    root, kept, kept, {"GIT_WORK_TREE": str(root)}, place.home.calls
                )
                index = place.index.with_name(
                    f"{place.index.name}-{files.digest(os.fsencode(path))[:8]}"
                )
                modules[path] = links[path], Place(git, root, index)
        return modules

    def copy_of(self, name: str, path: str) -> Path | None:
        """The git folder of a submodule at home: below `modules` of the worktree or of
        the repository, or, from an old git, in the tree. Its name comes from the
        candidate, so it must lead nowhere else: its configuration holds commands."""
        kept = (
            *(folder / name for folder in self._kept()),
            self.place.home.root / path / ".git",
        )
        if ".." in name or os.path.isabs(name):
            return None
        there = (folder for folder in kept if (folder / "objects").is_dir())
        return next(
            (folder for folder in there if Path(os.path.realpath(folder)) == folder),
            None,
        )

    def _kept(self) -> tuple[Path, Path]:
        """Where home keeps submodules: a linked worktree has its own."""
        home = self.place.home
        return home.dir / "modules", home.common / "modules"

    def reset(self, tree: str) -> None:
        """Check out the submodules of a tree. BadInput where home's copy lacks the
        commit."""
        for path, (commit, module) in self.of(tree).items():
            if self.place.git.tried(
                f"--git-dir={module.home.dir}", "cat-file", "-e", commit
            )[0]:
                raise BadInput(
                    f"{path} has no commit {commit[:12]} here; see `git submodule update --init`"
                )
            module.reset(commit)

    def make_real(self, tree: str) -> list[str]:
        """Remove links where the submodules of `tree` or folders above them should be;
        these submodules."""
        replaced = [
            path
            for path in self.links(tree)
            if leads_out(self.place.root, f"{path}/.git")
        ]
        for path in replaced:
            self.place.make_folders_real(f"{path}/.git")
        return replaced

    def changed(self, tree: str, replaced: list[str]) -> list[str]:
        """Lines about what was changed in the submodules of `tree`, or `replaced`
        one."""
        ignored = "what was changed in it is not part of the work"
        lines = [
            f"{text.one_line(path)} is a submodule; {ignored}"
            for path, (_, module) in self.of(tree).items()
            if path in replaced or (module.exists and any(module.dirt()))
        ]
        if self.links(tree) and self.place.git(
            "diff", "--name-only", "--", ".gitmodules"
        ):
            lines.append(f".gitmodules says where the submodules are; {ignored}")
        return lines

    def tracked(self, tree: str, links: Mapping[str, str]) -> set[str]:
        """The files of the submodules `links` of a tree, and the `.git` of each. One
        that home has no copy of is a folder, though nothing is in it."""
        modules, names = self.of(tree), set()
        for path in links:
            inside = {"\0"}
            if path in modules:
                commit, module = modules[path]
                inside = {
                    *module.tracked(commit, module.git.entries(commit, check=False)),
                    ".git",
                }
            names |= {f"{path}/{name}" for name in inside}
        return names


def links_among(entries: Mapping[str, str]) -> dict[str, str]:
    """The commits of the submodules among the entries of a tree, by their paths."""
    return {
        path: meta.split(" ")[2]
        for path, meta in entries.items()
        if meta.startswith("160000 ")
    }


def changes(git: Git, before: str, after: str) -> tuple[list[str], str]:
    """The files that differ between two trees or commits, and `4 files, +120 -8`."""
    if before == after:
        return [], ""
    lines = [entry.split("\t", 2) for entry in git.differences(before, after)[1]]
    added, removed = (
        sum(int(line[i]) for line in lines if line[i].isdigit()) for i in (0, 1)
    )
    names = [line[2] for line in lines]
    return names, f"{text.count(len(names), 'file')}, +{added} -{removed}"


def _look(root: Path) -> tuple[list[Path], list[Path]]:
    """Everything below `root` that is no file, link or folder, or that is a folder too
    deep to be read; and every nested `.git`."""
    odd, nested, folders = [], [], [str(root)]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except PermissionError:
            files.open_up(Path(folder))
            entries = list(os.scandir(folder)) if os.access(folder, os.R_OK) else []
        except OSError:
            continue
        for entry in entries:
            if entry.name.lower() == ".git":
                if folder == str(root):
                    continue
                nested.append(Path(entry.path))
            if entry.is_file(follow_symlinks=False) or entry.is_symlink():
                continue
            near = (
                len(os.fsencode(entry.path)) < _DEEP and entry.path.count("/") < _NESTED
            )
            if near and entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                odd.append(Path(entry.path))
    return odd, nested


def _only(name: str) -> str:
    """The pattern of an ignore file that only this name matches."""
    return "/" + name.translate(_PLAIN)


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.lstat().st_size
    return 0


def _since(path: Path, moment: float) -> bool:
    with contextlib.suppress(OSError):
        return path.lstat().st_ctime >= moment
    return False
