"""The submodules of a tree, and home's copies of their repositories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from _ralph.git.git import Git, names_in


@dataclass(frozen=True)
class Submodule:
    """A submodule: where it stands, its commit, and the git folder that home has of
    it."""

    path: str
    commit: str
    copy: Path


def links_among(entries: Mapping[str, str]) -> dict[str, str]:
    """The commits of the submodules among the entries of a tree, by their paths."""
    links = {}
    for path, about in entries.items():
        if about.startswith("160000 "):
            links[path] = about.split(" ")[2]
    return links


def links_of(home: Git, git: Git, tree: str) -> dict[str, str]:
    """The same of a tree. git is not asked where home has no submodules."""
    if not any(mark.exists() for mark in (*_kept(home), home.root / ".gitmodules")):
        return {}
    return links_among(git.entries(tree))


def submodules_of(home: Git, git: Git, tree: str) -> list[Submodule]:
    """The submodules of a tree that home has copies of. Where it has no copy of one,
    its folder stays empty."""
    links = links_of(home, git, tree)
    if not links:
        return []
    listed = git.maybe("config", "-z", "--blob", f"{tree}:.gitmodules", "--list")
    found = []
    for entry in names_in(listed):
        key, _, path = entry.partition("\n")
        if not key.endswith(".path") or path not in links:
            continue
        name = key.removeprefix("submodule.").removesuffix(".path")
        copy = _copy_of(home, name)
        if copy:
            found.append(Submodule(path, links[path], copy))
    return found


def _copy_of(home: Git, name: str) -> Path | None:
    """The git folder of a submodule at home, below `modules` of the worktree or of the
    repository. Its name must lead nowhere else: its configuration holds commands."""
    if ".." in name or os.path.isabs(name):
        return None
    for folder in _kept(home):
        if (folder / name / "objects").is_dir():
            return folder / name
    return None


def _kept(home: Git) -> tuple[Path, Path]:
    """Where home keeps submodules: a linked worktree has its own."""
    return home.dir / "modules", home.common / "modules"
