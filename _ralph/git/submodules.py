"""The submodules of a tree, and home's copies of their repositories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from _ralph.git.git import Git, names_in


def links_of(home: Git, git: Git, tree: str) -> dict[str, str]:
    """The commits of the submodules of a tree, by their paths. git is not asked where
    home has no submodules."""
    links: dict[str, str] = {}
    if not any(mark.exists() for mark in (*_kept(home), home.root / ".gitmodules")):
        return links
    for path, about in git.entries(tree).items():
        if about.startswith("160000 "):
            links[path] = about.split(" ")[2]
    return links


def copies_of(home: Git, git: Git, tree: str) -> dict[str, Path]:
    """The git folders that home has of the submodules of a tree, by their paths. Where
    it has none of one, its folder stays empty."""
    listed = git.maybe("config", "-z", "--blob", f"{tree}:.gitmodules", "--list")
    copies: dict[str, Path] = {}
    for entry in names_in(listed):
        key, _, path = entry.partition("\n")
        name = key.removeprefix("submodule.").removesuffix(".path")
        # It must lead nowhere else: the configuration there holds commands
        if not key.endswith(".path") or ".." in name or os.path.isabs(name):
            continue
        for folder in _kept(home):
            if (folder / name / "objects").is_dir():
                copies.setdefault(path, folder / name)
    return copies


class Copied(NamedTuple):
    """A submodule that home has a copy of, and whether that has its commit."""

    path: str
    copy: Path
    commit: str
    is_there: bool


def copied(home: Git, git: Git, tree: str) -> Iterator[Copied]:
    """The submodules of a tree that home has copies of."""
    links = links_of(home, git, tree)
    copies = copies_of(home, git, tree) if links else {}
    for path, copy in copies.items():
        if commit := links.get(path):
            words = (f"--git-dir={copy}", "cat-file", "-e", commit)
            yield Copied(path, copy, commit, home.maybe(*words) is not None)


def lacking(home: Git, tree: str) -> list[str]:
    """The submodules of `tree` that home has, but without their commits."""
    return [one.path for one in copied(home, home, tree) if not one.is_there]


def _kept(home: Git) -> tuple[Path, Path]:
    """Where home keeps submodules: a linked worktree has its own."""
    return home.dir / "modules", home.common / "modules"
