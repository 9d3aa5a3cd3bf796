"""What checks said in this run, by tree, in one file beside the room: what ran on some
files need not run on them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from _ralph import codec, files
from _ralph.model import Check, CheckResult

BEFORE = "before the work: "
"""What stands before checks that are shown, where they run on the tip."""
MOST_TREES = 16
"""Trees of which the results are remembered, those that were used last: the tip, the
candidate, and the ancestors that were asked. What a large suite reports takes 2 MB."""


@dataclass(frozen=True)
class Own:
    """What a task's own checks said before its first attempt in this run: on which
    commit, which were green, by their commands, and its tree."""

    commit: str = ""
    green: dict[str, bool] = field(default_factory=dict)
    tree: str = ""


@dataclass
class Known:
    """What the file holds: results, by trees and commands; what a task's own checks
    said before its first attempt, by the task's key; and the tree that the room holds
    as the plan's checks left it."""

    valid: str  # a digest of the run, and of all that checks see beside a tree
    said: dict[str, dict[str, list[CheckResult]]] = field(default_factory=dict)
    own: dict[str, Own] = field(default_factory=dict)
    built: str = ""


@dataclass
class Results:
    """What is known in this run, and the file that holds it."""

    path: Path
    tree_of: Callable[[str], str]  # the tree of a commit
    known: Known

    @classmethod
    def read(cls, path: Path, valid: str, tree_of: Callable[[str], str]) -> Results:
        """What the file at `path` holds; nothing where it is missing, damaged or valid
        for something else."""
        known = codec.load(Known, path)
        if known is None or known.valid != valid:
            known = Known(valid)
        return cls(path, tree_of, known)

    def save(self) -> None:
        """Replace the file, which no later run reads, so that it need not outlive a
        power cut. OSError leaves the old one as it was."""
        owned: dict[str, set[str]] = {}  # what is evidence for the whole run
        for own in self.known.own.values():
            owned.setdefault(own.tree, set()).update(own.green)
        for tree in list(self.known.said)[:-MOST_TREES]:
            said = self.known.said.pop(tree)
            kept = {name: said[name] for name in owned.get(tree, ()) if name in said}
            if kept:
                self.known.said = {tree: kept, **self.known.said}
        files.make_way(self.path)
        files.atomic_write(self.path, codec.dumped(self.known), durable=False)

    def room_changes(self) -> None:
        """Note that the room does not hold what it did, before anything runs there."""
        if self.known.built:
            self.known.built = ""
            self.save()

    def runs(self, commit: str, command: str) -> list[CheckResult]:
        """What a check said of the files of `commit`, each time that it ran on them,
        the newest last."""
        said = self.known.said
        tree = self.tree_of(commit)
        if tree not in said:
            return []
        said[tree] = said.pop(tree)  # the last used are the last that are forgotten
        return said[tree].get(command, [])

    def newest(self, commit: str, command: str) -> CheckResult | None:
        """What a check said of the files of `commit` the last time."""
        runs = self.runs(commit, command)
        return runs[-1] if runs else None

    def missing(self, commit: str, checks: Iterable[Check]) -> list[Check]:
        """Those of `checks` that did not run on `commit` yet."""
        return [check for check in checks if not self.runs(commit, check.command)]

    def recalled(self, commit: str, checks: Iterable[Check]) -> list[CheckResult]:
        """What those of `checks` said of `commit` that have run on it, in order."""
        found = []
        for check in checks:
            known = self.newest(commit, check.command)
            if known:
                found.append(replace(known, seconds=0.0, recalled=True))
        return found

    def add(self, commit: str, results: Iterable[CheckResult]) -> None:
        """Remember what checks said of `commit`."""
        said = self.known.said.setdefault(self.tree_of(commit), {})
        for result in results:
            said.setdefault(result.command, []).append(result)
