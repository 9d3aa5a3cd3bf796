"""What home has and a place lacks: what a red check asks for, and what lies above the
places."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from _ralph.git.git import Git

_LACKS = re.compile(
    r"no such file|ENOENT|no module named|(can't|cannot|could not) (find|resolve|open|load)"
    r"|failed to (resolve|load)|not found|does not exist",
    re.IGNORECASE,
)
"""What a line says that names something missing."""
_WORD = re.compile(r"[^\s'\"`,;:()<>\[\]{}=]{2,}")
_MODULE = re.compile(r"(?:no module named|cannot find \w+) ['\"]?([\w@./-]+)", re.I)
UNCOMMITTED = "is at home and not committed"
_SUFFIXES = ("", ".py", ".js", ".ts")
ABOVE = ("node_modules", "package.json", "conftest.py", "pyproject.toml")
"""What tools look for in every folder above the one that they run in."""


def at_home_only(output: str, home: Git, place: Path) -> str:
    """The sentence about the first path or module that the `output` of a red check in
    `place` misses and that home has, where git does not track it or in a folder above;
    nothing where there is none."""
    for line in output.splitlines():
        if not _LACKS.search(line):
            continue
        for word in _WORD.findall(line.replace(f"{place}/", "")):
            said = _untracked(word, home, place)
            if said:
                return said
        module = _MODULE.search(line)
        if not module or module[1].startswith((".", "/")):
            continue
        if found := _above_home(module[1], home.root):
            return (
                f"{module[1]} is {found}, above the project, and no place has it: let "
                f"`setup` install it"
            )
    return ""


def _untracked(word: str, home: Git, place: Path) -> str:
    """The sentence about what an output calls `word`, if home has it, git does not
    track it, and the place does not have it."""
    for name in _meant(word, home.root):
        if not os.path.lexists(home.root / name) or os.path.lexists(place / name):
            continue
        if home.maybe("ls-files", "--", f":(literal){name}"):
            continue  # it is on another commit
        if home.maybe("check-ignore", "-q", "--", name) is not None:
            return (
                f"{name} is at home, git ignores it, and no place has it: let `setup` "
                f"make it, or name it in .worktreeinclude"
            )
        return f"{name} {UNCOMMITTED}, so no place has it: commit it"
    return ""


def _meant(word: str, root: Path) -> Iterator[str]:
    """The paths that a word can mean: a file, or a module of Python or Node."""
    path = re.sub(r"^(\.{1,2}/)+", "", word).rstrip("/.")
    if not path or path.startswith("/"):
        return
    sites = root.glob(".venv/lib/python*/site-packages")
    folders = [
        "",
        "src",
        "node_modules",
        *[f"{site.relative_to(root)}" for site in sites],
    ]
    names = [path]
    if "/" not in path and "." in path:
        names.append(path.replace(".", "/"))
    for folder in folders:
        for name in names:
            for suffix in _SUFFIXES:
                yield os.path.normpath(f"{folder}/{name}{suffix}".lstrip("/"))


def _above_home(module: str, root: Path) -> Path | None:
    """Where a folder above home has a module that only who stands there finds."""
    top = module.split(".")[0] if "/" not in module else module
    for folder in root.parents:
        package = folder / top / "__init__.py"
        for path in (folder / "node_modules" / module, folder / f"{top}.py"):
            if path.exists():
                return path
        if package.exists():
            return package.parent
    return None


def above(places: Path) -> list[str]:
    """Warnings of what lies in folders above the places, where tools find it that a
    clone elsewhere does not have."""
    said = []
    for folder in places.parents:
        for name in ABOVE:
            path = folder / name
            if os.path.lexists(path):
                said.append(
                    f"{path} lies above ralph's checkouts, so checks may use it, and be "
                    f"red in a clone; move it, or set RALPH_PLACES to another folder"
                )
    return said
