"""What is not the agent's: files left alone, files under protected patterns, a person's own."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from _ralph import files, text
from _ralph.git import Git, git, nul

# Written by tools beside the work; untracked ones are neither evidence nor committed.
CACHES = frozenset(
    {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".tox", ".nox", ".hypothesis", ".coverage"}
    | {"node_modules", ".venv", ".cache", ".DS_Store", ".ralph", ".aider.tags.cache.v4"}
    | {".aider.chat.history.md", ".aider.input.history", ".aider.llm.history"}
)


class LeftAlone:
    """Untracked files that are not of the work: a person's, what checks wrote, the state files. `names`
    are kept in `path`, for the next start after a crash; one that ends in / stands for a whole folder."""

    def __init__(self, path: Path, state: Iterable[str]) -> None:
        self.names: set[str] = set()
        self.state = frozenset(state)
        self._path = path

    def note(self, names: set[str]) -> None:
        self.names = names
        files.atomic_write(self._path, os.fsencode("\0".join(sorted(names))))

    def load(self) -> bool:
        """Read what was noted before a crash; whether anything was."""
        if self._path.exists():
            self.names = set(os.fsdecode(self._path.read_bytes()).split("\0")) - {""}
        return self._path.exists()

    def noted_at(self) -> float:
        """When that was, in unix seconds; now, if nothing was noted."""
        return self._path.stat().st_mtime if self._path.exists() else time.time()

    def work_in(self, untracked: list[str]) -> list[str]:
        """Those of `untracked` that belong to the work."""
        return [
            name for name in untracked if not name.endswith("/") and not cached(name) and not self.has(name)
        ]

    def has(self, name: str) -> bool:
        return name in self.state or not self.names.isdisjoint(_with_parents(name))


class Protected:
    """Files that an attempt may not change, and what happened to those that git cannot put back.
    `own` is the environment of calls on ralph's index."""

    def __init__(self, git: Git, own: dict[str, str], left: LeftAlone, aside: Path) -> None:
        self._git = git
        self._own = own
        self._left = left
        self._aside = aside
        self._named: set[str] = set()
        self._frozen: dict[str, files.Signature | None] = {}
        self._yours: dict[str, tuple[int, ...]] = {}
        self._specs: list[str] = []

    def remember(self, patterns: list[str]) -> None:
        """Note before an attempt what its changes must be told from."""
        self._named = self._loose(patterns)
        self._specs = [f":(top,glob){pattern}" for pattern in _deep(patterns)]
        names = self._git.names("ls-files", "-z", "--", *self._specs, env=self._own) if patterns else []
        self._frozen = {name: files.signature(self._git.root / name) for name in names}
        yours = self._left.names - self._left.state
        self._yours = {name: signature for name in yours if (signature := self._signature(name))}

    def doubt(self) -> None:
        """Let git read those tracked ones that changed: what its index believes of a file, such as its
        time or that it need not be looked at, an agent can arrange."""
        root, frozen = self._git.root, self._frozen
        changed = {name for name, was in frozen.items() if files.signature(root / name) != was}
        if changed:
            entries = self._git.names("ls-files", "-s", "-z", "--", *self._specs, env=self._own)
            known = [entry for entry in entries if entry.partition("\t")[2] in changed]
            self._git("update-index", "-z", "--index-info", stdin=nul(known), env=self._own)

    def restore(self, before: str, after: str, patterns: list[str], allow: list[str]) -> list[str]:
        """Put back what changed under protected patterns between these two snapshots.

        Existing files are frozen; new ones are allowed and named, unless the pattern is a plain
        file name: those are moved aside. `allow` lifts both. Returns lines for the record.
        """
        if not patterns:
            return []
        specs = [
            *(f":(top,glob){p}" for p in _deep(patterns)),
            *(f":(top,glob,exclude){p}" for p in _deep(allow)),
        ]
        fields = self._git.names(
            "diff-tree", "-r", "-z", "--raw", "--no-renames", before, after, "--", *specs
        )
        named = _file_names(patterns)
        said = []
        for meta, name in zip(fields[::2], fields[1::2], strict=False):
            mode, _, blob, _, status = meta.lstrip(":").split(" ")
            path = self._git.root / name
            if status == "A" and not os.path.lexists(path):
                continue  # it went with the folder that stood in a file's place
            if status == "A" and Path(name).name not in named:
                said.append(f"{text.one_line(name)} (new under a protected pattern; kept)")
                continue
            if mode == "160000":
                continue  # a submodule: its commit is not ours to restore
            files.move_aside(path, self._aside, text.slug(name))
            if status == "A":
                said.append(f"{text.one_line(name)} (new and protected; moved aside)")
                continue
            self._write_blob(path, blob, mode)
            said.append(text.one_line(name))
        for name in sorted(self._loose(patterns, allow) - self._named):  # hidden by an ignore rule
            files.move_aside(self._git.root / name, self._aside, text.slug(name))
            said.append(f"{text.one_line(name)} (new and protected; moved aside)")
        return said

    def untracked(self, patterns: list[str]) -> list[str]:
        """Files under protected patterns that git does not track and that cannot be guarded."""
        if not patterns:
            return []
        specs = [f":(top,glob){pattern}" for pattern in _deep(patterns)]
        names = self._git.names("ls-files", "-o", "--exclude-standard", "-z", "--", *specs)
        return [name for name in names if not cached(name)]

    def touched(self) -> list[str]:
        """What happened to files that are not in git and so cannot be put back."""
        now = {name: self._signature(name) for name in self._yours}
        groups = {
            "deleted": sorted(name for name in now if not now[name]),
            "changed": sorted(name for name, was in self._yours.items() if now[name] and now[name] != was),
        }
        self._yours = {}
        return [
            f"not in git, so it cannot be put back: {text.few(names)} had been {what}"
            for what, names in groups.items()
            if names
        ]

    def _signature(self, name: str) -> tuple[int, ...]:
        """Changes with the file; of a folder only whether it is there."""
        try:
            found = os.lstat(self._git.root / name)
        except OSError:
            return ()
        if name.endswith("/") or _is_our_log(found):
            return (0,)
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    def _loose(self, patterns: list[str], allow: Iterable[str] = ()) -> set[str]:
        """Untracked files with a protected name, whatever is ignored: an agent can ignore its own, and
        can put them into a repository of its own."""
        named = _file_names(patterns)
        if not named:
            return set()
        specs = [f":(top,glob)**/{name}" for name in ("", *sorted(named))]  # "" is for other repositories
        specs += [f":(top,glob,exclude){pattern}" for pattern in _deep(allow)]
        found = self._git.names("ls-files", "-o", "-z", "--", *specs, env=self._own)
        for nested in [name for name in found if name.endswith("/") and not self._left.has(name)]:
            for folder, _, names in os.walk(self._git.root / nested):
                inside = os.path.relpath(folder, self._git.root)
                found += [f"{inside}/{name}" for name in named.intersection(names).difference(allow)]
        files_found = [name for name in found if not name.endswith("/")]
        return {name for name in files_found if not cached(name) and not self._left.has(name)}

    def _write_blob(self, path: Path, blob: str, mode: str) -> None:
        """Write a blob where it belongs; folders or links that stand in the way are moved off."""
        for parent in reversed(path.relative_to(self._git.root).parents):
            folder = self._git.root / parent
            if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir()):
                files.move_aside(folder, self._aside, text.slug(str(parent)))
            folder.mkdir(exist_ok=True)
        if mode == "120000":
            path.symlink_to(os.fsdecode(git(self._git.root, "cat-file", "blob", blob)))
        else:  # as git would check it out: line ends, LFS
            name = path.relative_to(self._git.root).as_posix()
            data = git(self._git.root, "cat-file", "--filters", f"--path={name}", blob)
            files.atomic_write(path, data, 0o755 if mode == "100755" else 0o644)


def _is_our_log(found: os.stat_result) -> bool:
    """Whether ralph itself writes there: `ralph run > ralph.log`."""
    for fd in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(found, os.fstat(fd)):
                return True
    return False


def _file_names(patterns: Iterable[str]) -> set[str]:
    """Those patterns that are plain file names: no new file may have one."""
    return {p for p in patterns if "/" not in p and not set(p) & set("*?[")}


def _deep(patterns: Iterable[str]) -> list[str]:
    """A pattern without a slash holds in every folder, as in .gitignore; a folder means all in it."""
    deep = []
    for pattern in patterns:
        anchored = pattern.strip("/") if "/" in pattern.rstrip("/") else f"**/{pattern.strip('/')}"
        deep += [anchored, f"{anchored}/**"]
    return deep


def _with_parents(name: str) -> Iterator[str]:
    """`a/b/c`, `a/b/`, `a/`: the names under which a file can be left alone."""
    yield name
    while "/" in name:
        name = name.rpartition("/")[0]
        yield f"{name}/"


def cached(name: str) -> bool:
    return bool(CACHES.intersection(name.split("/"))) or name.endswith((".pyc", ".egg-info/PKG-INFO"))
