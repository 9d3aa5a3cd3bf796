"""What a room holds beside the files of its commit: what setup made, and nothing
else."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from _ralph import files

Listing = dict[str, list[int | str]]
"""By path: the kind and mode of an entry, its ctime in ns, and the hash of its bytes or
a link's target."""


def listing(root: Path, tracked: set[str], kept: Callable[[str], bool]) -> Listing:
    """All that lies in `root` and git does not track, but for what is `kept`. Caches of
    Python beside tracked files are on no list: setup may have imported the project, and
    every edit changes them."""
    found: Listing = {}
    beside = _folders_of(tracked)
    for name, entry in _untracked(root, tracked, kept):
        if not _is_cache(name, beside):
            about = entry.stat(follow_symlinks=False)
            content = _content(entry.path, about)
            found[name] = [about.st_mode, about.st_ctime_ns, content]
    return found


def restore(
    root: Path, tracked: set[str], kept: Callable[[str], bool], wanted: Listing
) -> list[str]:
    """Remove what is not on the list `wanted`; what of it is gone or has other bytes,
    which only setup could make again."""
    spoiled = []
    folders = []
    missing = dict(wanted)
    for name, entry in _untracked(root, tracked, kept):
        noted = missing.pop(name, None)
        if noted is None:
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and os.access(entry.path, os.R_OK | os.W_OK):
                folders.append(entry.path)  # something in it may be kept
            else:
                files.clear(Path(entry.path))
            continue
        about = entry.stat(follow_symlinks=False)
        mode, ctime, content = noted
        is_touched = about.st_ctime_ns != ctime
        if about.st_mode != mode or (
            is_touched and _content(entry.path, about) != content
        ):
            spoiled.append(name)
    for folder in reversed(folders):
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(folder)
    return [*spoiled, *missing]


def _untracked(
    root: Path, tracked: set[str], kept: Callable[[str], bool]
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The entries below `root` that git does not track, by their names, folders before
    what is in them; what stands in the place of a tracked file is one of them."""
    folders = _folders_of(tracked)
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            entries = list(os.scandir(root / inside))
        except OSError:
            continue  # removed by who looks, or nobody may look
        for entry in entries:
            name = f"{inside}{entry.name}"
            is_file = entry.is_file(follow_symlinks=False) or entry.is_symlink()
            if name == ".git" or (is_file and name in tracked):
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if not (is_folder and name in folders):
                if kept(name):
                    continue
                yield name, entry
            if is_folder:
                waiting.append(f"{name}/")


def _folders_of(tracked: set[str]) -> set[str]:
    """The folders that hold tracked files, at any depth."""
    folders = {""}
    for name in tracked:
        while (name := name.rpartition("/")[0]) not in folders:
            folders.add(name)
    return folders


def _is_cache(name: str, beside: set[str]) -> bool:
    """Whether it is a `__pycache__` in one of the folders `beside`, or lies in such."""
    before, cache, _ = f"/{name}/".partition("/__pycache__/")
    return bool(cache) and before.lstrip("/") in beside


def _content(path: str, about: os.stat_result) -> str:
    """The hash of a file's bytes, the target of a link; nothing for a folder."""
    if stat.S_ISLNK(about.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(about.st_mode):
        return ""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "?"


def unshare(root: Path) -> None:
    """Replace every file below `root` that has several names by a copy of its own: some
    tools hard-link what they install from one cache, and an edit in one place would
    change all others."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = f"{folder}/{name}"
            about = os.lstat(path)
            if about.st_nlink > 1 and stat.S_ISREG(about.st_mode):
                shutil.copy2(path, f"{path}{files.TEMPORARY}")
                os.replace(f"{path}{files.TEMPORARY}", path)
